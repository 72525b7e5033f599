#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file of a checkpoint of tests/data/checkpoints, as converters do it.

  make_gguf.py DIR OUT [--blocks Q8_0|Q4_0|Q4_1] [--split N] [--old]

OUT/model.gguf has the tensors as float32, or matrices as blocks where their rows are made of them. With --blocks,
OUT/twin is a folder of safetensors with the numbers that the blocks stand for, or a GGUF file with them where the two
have other tensors. --split: the tensors of N files. --old: tensors as early converters left them, the up-projections of
keys and values together (deepseek2), or queries, keys and values (phi2).
Only what the families' tables read is written; no tokenizer.
"""
import argparse
import json
import math
import os
import struct
import sys

U32, F32, BOOL, TEXT = 4, 6, 7, 8
BLOCKS = {"F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2),
          "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34), "MXFP4": (39, 32, 17)}

# ---- names: a family's architecture, then a folder's names without "model." and "layers.N." ----
COMMON = {
    "embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.experts.gate_proj": "ffn_gate_exps",
    "mlp.experts.up_proj": "ffn_up_exps", "mlp.experts.down_proj": "ffn_down_exps",
    "block_sparse_moe.gate": "ffn_gate_inp", "block_sparse_moe.experts.w1": "ffn_gate_exps",
    "block_sparse_moe.experts.w3": "ffn_up_exps", "block_sparse_moe.experts.w2": "ffn_down_exps",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}
BOTH_NORMS = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
              "post_feedforward_layernorm": "post_ffw_norm"}
GLM4_NORMS = {"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm",
              "mlp.gate_up_proj": "ffn_up"}
GPT_OSS = {"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
           "self_attn.sinks": "attn_sinks"}
DEEPSEEK = {"self_attn.q_proj": "attn_q", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
            "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
            "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b",
            "self_attn.k_b_proj": "attn_k_b", "self_attn.v_b_proj": "attn_v_b",
            "mlp.gate.e_score_correction": "exp_probs_b",
            "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
            "mlp.shared_experts.down_proj": "ffn_down_shexp"}
PHI2 = {"self_attn.dense": "attn_output", "self_attn.qkv": "attn_qkv", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
        "final_layernorm": "output_norm"}
NEOX = {"embed_in": "token_embd", "embed_out": "output", "final_layer_norm": "output_norm",
        "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
GPT2 = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
BLOOM = {"word_embeddings": "token_embd", "word_embeddings_layernorm": "token_embd_norm", "ln_f": "output_norm",
         "self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output",
         "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"}
FALCON = {**BLOOM, "ln_attn": "attn_norm_2", "ln_mlp": "attn_norm"}
ARCHS = {  # model_type: name, own names, paired heads, gains of one
    "llama": ("llama", {}, True, False), "mistral": ("llama", {}, True, False), "mixtral": ("llama", {}, True, False),
    "qwen2": ("qwen2", {}, False, False), "qwen3": ("qwen3", {}, False, False),
    "qwen2_moe": ("qwen2moe", {}, False, False), "qwen3_moe": ("qwen3moe", {}, False, False),
    "gemma": ("gemma", {}, False, True), "gemma2": ("gemma2", BOTH_NORMS, False, True),
    "gemma3_text": ("gemma3", BOTH_NORMS, False, True), "phi3": ("phi3", {}, False, False),
    "granite": ("granite", {}, True, False), "olmo2": ("olmo2", BOTH_NORMS, False, False),
    "olmoe": ("olmoe", {}, False, False), "cohere": ("command-r", {}, False, False),
    "starcoder2": ("starcoder2", {}, False, False), "glm4": ("glm4", GLM4_NORMS, False, False),
    "gpt_oss": ("gpt-oss", GPT_OSS, False, False), "deepseek_v2": ("deepseek2", DEEPSEEK, False, False),
    "deepseek_v3": ("deepseek2", DEEPSEEK, False, False), "phi": ("phi2", PHI2, False, False),
    "gpt_neox": ("gptneox", NEOX, False, False), "gpt2": ("gpt2", GPT2, False, False),
    "bloom": ("bloom", BLOOM, False, False), "falcon": ("falcon", FALCON, False, False),
    "stablelm": ("stablelm", {}, False, False),
}
LATENT = ("deepseek_v2", "deepseek_v3")
OTHERS = ("gpt_oss", "phi", "gpt_neox", "gpt2", "bloom", "falcon") + LATENT  # whose tensors are others than a folder's
NOT_ROTARY = ("gpt2", "bloom", "falcon")  # or files do not say
# ---- keys: config.json's, then the file's ----
INTS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count", "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "q_lora_rank": "attention.q_lora_rank", "kv_lora_rank": "attention.kv_lora_rank",
    "first_k_dense_replace": "leading_dense_block_count", "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count", "n_group": "expert_group_count", "topk_group": "expert_group_used_count",
}
FLOATS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "layer_norm_eps": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "logit_scale": "logit_scale",
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale", "attention_multiplier": "attention.scale",
    "layer_norm_epsilon": "attention.layer_norm_epsilon", "routed_scaling_factor": "expert_weights_scale",
}
# ---- what early configs call another way ----
SAME = {"n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads",
        "n_inner": "intermediate_size", "ffn_hidden_size": "intermediate_size",
        "n_positions": "max_position_embeddings"}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def key(name, kind, value):
    body = text(value) if kind == TEXT else struct.pack({U32: "<I", F32: "<f", BOOL: "<?"}[kind], value)
    return text(name) + struct.pack("<I", kind) + body


# ---- safetensors ----

def read_folder(folder):
    """Yields a tensor's name, shape and float32s."""
    index = os.path.join(folder, "model.safetensors.index.json")
    files = ["model.safetensors"]
    if os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    for name in files:
        with open(os.path.join(folder, name), "rb") as f:
            data = f.read()
        head = struct.unpack_from("<Q", data)[0]
        for tensor, t in json.loads(data[8:8 + head]).items():
            if tensor != "__metadata__":
                begin, end = t["data_offsets"]
                yield tensor, t["shape"], widen(data[8 + head + begin:8 + head + end], t["dtype"])


def widen(raw, dtype):
    if dtype == "U8":
        return raw
    if dtype == "BF16":
        raw = b"".join(b"\0\0" + raw[i:i + 2] for i in range(0, len(raw), 2))
    count = len(raw) // (2 if dtype == "F16" else 4)
    return list(struct.unpack(f"<{count}{'e' if dtype == 'F16' else 'f'}", raw))


def write_folder(folder, tensors):
    head, at, body = {}, 0, []
    for name, shape, x in tensors:
        raw = struct.pack(f"<{len(x)}f", *x)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        body.append(raw)
    text_of = json.dumps(head).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text_of)) + text_of + b"".join(body))


# ---- blocks: bytes, and the numbers that they stand for ----

def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def nearest(x, scale, least, most):
    return max(least, min(most, round(x / scale) if scale else 0))


def make_block(x, kind):
    low, high = min(x), max(x)
    if kind == "Q8_0":
        d = half(max(abs(low), abs(high)) / 127)
        q = [nearest(v, d, -127, 127) for v in x]
        return struct.pack("<e32b", d, *q), [single(d * v) for v in q]
    if kind == "Q4_0":
        d = half(max(abs(low), abs(high)) / 7)
        q = [nearest(v, d, -8, 7) + 8 for v in x]
        head, back = struct.pack("<e", d), [single(d * (v - 8)) for v in q]
    else:
        d, m = half((high - low) / 15), half(low)
        q = [nearest(v - m, d, 0, 15) for v in x]
        head, back = struct.pack("<ee", d, m), [single(d * v + m) for v in q]
    return head + bytes(q[i] | q[i + 16] << 4 for i in range(16)), back


def make_mxfp4(codes, scales):
    """A folder's byte i has weights 2 i and 2 i + 1, a file's has i and i + 16."""
    out = []
    for i, e in enumerate(scales):
        q = [v for b in codes[16 * i:16 * i + 16] for v in (b & 15, b >> 4)]
        out.append(bytes([e]) + bytes(q[j] | q[j + 16] << 4 for j in range(16)))
    return b"".join(out)


def read_mxfp4(raw):
    values = [0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6]
    out = []
    for i in range(0, len(raw), 17):
        codes = raw[i + 1:i + 17]
        out += [values[q] * 2.0 ** (raw[i] - 127) for q in [b & 15 for b in codes] + [b >> 4 for b in codes]]
    return out


def encode(x, kind):
    if kind == "MXFP4":
        return x, read_mxfp4(x)
    if kind == "F32":
        return struct.pack(f"<{len(x)}f", *x), x
    if kind == "F16":
        return struct.pack(f"<{len(x)}e", *x), [half(v) for v in x]
    if kind == "BF16":  # cut off, which is exact of the checkpoints that have this type
        raw = struct.pack(f"<{len(x)}f", *x)
        raw = b"".join(raw[i + 2:i + 4] for i in range(0, len(raw), 4))
        return raw, widen(raw, kind)
    out, back = [], []
    for i in range(0, len(x), 32):
        raw, numbers = make_block(x[i:i + 32], kind)
        out.append(raw)
        back += numbers
    return b"".join(out), back


# ---- a model ----

def pair(x, shape, heads):
    """Row i of half s of each head goes to 2 i + s."""
    row, d = len(x) // shape[0], shape[0] // heads
    order = [h * d + s * (d // 2) + i for h in range(heads) for i in range(d // 2) for s in range(2)]
    return [v for r in order for v in x[r * row:(r + 1) * row]]


# ---- tensors that a file has in another way: (name, shape, numbers) of a folder, renamed where they are parts ----

def rows_of(x, shape, order):
    row = len(x) // shape[0]
    return [v for r in order for v in x[r * row:(r + 1) * row]], [len(order)] + shape[1:]


def turn(x, rows, cols):
    return [x[r * cols + c] for c in range(cols) for r in range(rows)]


def by_kind(config, shape):
    """Rows of queries, then of keys, then of values, of rows that are those of each head of keys together."""
    kv = config["num_key_value_heads"]
    group = config["num_attention_heads"] // kv
    d = shape[0] // kv // (group + 2)
    heads = [h * (group + 2) + i for h in range(kv) for i in range(group)]
    heads += [h * (group + 2) + group + i for i in range(2) for h in range(kv)]
    return [h * d + i for h in heads for i in range(d)]


def split_experts(config, name, shape, x, scales):
    """gpt-oss: gates and ups in turn, in columns of each expert (rows of codes and biases)."""
    stem, part = name.rsplit("experts.", 1)
    kind = "bias" if part.endswith("_bias") else "weight"
    experts, inner = config["num_local_experts"], config["intermediate_size"]
    if part.endswith("_blocks"):
        raw = make_mxfp4(x, scales)
        rows, row = shape[1], len(raw) // experts // shape[1]
        shape, parts = [experts, rows, 32 * shape[2]], [raw[i:i + row] for i in range(0, len(raw), row)]
    elif kind == "weight":
        size = shape[1] * shape[2]
        x = [v for e in range(experts) for v in turn(x[e * size:(e + 1) * size], shape[1], shape[2])]
        shape = [experts, shape[2], shape[1]]
        parts = [x[i:i + shape[2]] for i in range(0, len(x), shape[2])]
    else:
        parts = [[v] for v in x]
    names = ["down_proj"] if part.startswith("down") else ["gate_proj", "up_proj"]
    for i, which in enumerate(names):
        mine = parts[i::len(names)]
        body = b"".join(mine) if isinstance(mine[0], bytes) else [v for p in mine for v in p]
        yield f"{stem}experts.{which}.{kind}", [experts, shape[1] // len(names)] + shape[2:], body
    assert shape[1] in (inner, 2 * inner, config["hidden_size"])


def split_latent(config, name, shape, x):
    """deepseek2: of each head the keys' rows, turned, and the values'."""
    heads, nope, v = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
    rank, head = shape[1], (nope + v) * shape[1]
    keys = [u for h in range(heads) for u in turn(x[h * head:h * head + nope * rank], nope, rank)]
    values = [u for h in range(heads) for u in x[h * head + nope * rank:(h + 1) * head]]
    yield name.replace("kv_b_proj", "k_b_proj"), [heads, rank, nope], keys
    yield name.replace("kv_b_proj", "v_b_proj"), [heads, v, rank], values


def join_queries(tensors):
    """phi2: queries, keys and values of a layer as one."""
    found = {}
    for name, shape, x in tensors:
        which = name.split(".")[-2]
        if which not in ("q_proj", "k_proj", "v_proj"):
            yield name, shape, x
            continue
        whole = name.replace(which, "qkv")
        parts = found.setdefault(whole, {})
        parts[which] = (shape, x)
        if len(parts) == 3:
            three = [parts[p] for p in ("q_proj", "k_proj", "v_proj")]
            yield whole, [sum(p[0][0] for p in three)] + shape[1:], [v for p in three for v in p[1]]


def convert(config, tensors, old):
    kind = config["model_type"]
    if kind == "phi" and old:
        tensors = join_queries(tensors)
    elif kind == "gpt_oss":
        tensors = list(tensors)
    scales = {n: x for n, _, x in tensors if n.endswith("_scales")} if kind == "gpt_oss" else {}
    for name, shape, x in tensors:
        parts = name.split(".")
        layer = next((int(p) for p in parts if p.isdigit()), 0)
        if name in scales or layer >= config["num_hidden_layers"]:
            continue
        if name.endswith((".attn.bias", ".masked_bias", "inv_freq")):
            continue
        if kind == "gpt_oss" and ".experts." in name:
            yield from split_experts(config, name, shape, x, scales.get(name.replace("_blocks", "_scales")))
        elif kind in LATENT and "kv_b_proj" in name and not old:
            yield from split_latent(config, name, shape, x)
        elif "query_key_value" in name:
            x, shape = rows_of(x, shape, by_kind(config, shape))
            yield name, shape, x
        elif kind == "gpt2" and ".c_" in name and len(shape) == 2:
            yield name, shape[::-1], turn(x, *shape)
        else:
            yield name.replace("e_score_correction_bias", "e_score_correction.bias"), shape, x


def normalize(config):
    """Names of early configs, and sizes that files have and configs leave out."""
    for old, new in SAME.items():
        if config.get(old) and not config.get(new):
            config[new] = config[old]
    kind = config["model_type"]
    if kind in ("gpt2", "bloom"):
        config["intermediate_size"] = config.get("intermediate_size") or 4 * config["hidden_size"]
    if kind in ("gpt2", "bloom", "gpt_neox"):
        config["num_key_value_heads"] = config["num_attention_heads"]
    if kind == "falcon":
        many = config["new_decoder_architecture"] or not config["multi_query"]
        config["num_key_value_heads"] = config["num_kv_heads"] if many else 1
    if kind == "gpt_oss":
        config["moe_intermediate_size"] = config["intermediate_size"]
    return config


def latent_keys(config, arch, old):
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    key_length, value = config["qk_nope_head_dim"] + rope, config["v_head_dim"]
    out = [key(f"{arch}.expert_gating_func", U32, 2 if config["model_type"] == "deepseek_v3" else 1)]
    sizes = {"key_length": key_length, "value_length": value}
    if not old:
        sizes = {"key_length": rank + rope, "value_length": rank}
        sizes.update({"key_length_mla": key_length, "value_length_mla": value})
    return out + [key(f"{arch}.attention.{name}", U32, size) for name, size in sizes.items()]


def rope_keys(config, arch, tensors):
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    out = [key(f"{arch}.rope.freq_base", F32, float(rope.get("rope_theta") or config.get("rope_theta") or 10000))]
    kind = rope.get("rope_type") or rope.get("type") or "default"
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    part = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
    dim = config.get("qk_rope_head_dim") or int(dim * part)
    out.append(key(f"{arch}.rope.dimension_count", U32, dim))
    original = rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    if original:
        out.append(key(f"{arch}.rope.scaling.original_context_length", U32, int(original)))
    if kind == "longrope":
        for which in ("short", "long"):
            x = rope[which + "_factor"]
            tensors.append((f"rope_factors_{which}.weight", [len(x)], x, "F32"))
    elif kind == "llama3":
        x = []
        for i in range(dim // 2):
            wave = 2 * math.pi * rope["rope_theta"] ** (2 * i / dim)
            low, high = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
            smooth = (original / wave - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
            middle = 1 / ((1 - smooth) / rope["factor"] + smooth)
            x.append(1 if wave < high else rope["factor"] if wave > low else middle)
        tensors.append(("rope_freqs.weight", [len(x)], x, "F32"))
        del out[-1]
    elif kind != "default":
        out += [key(f"{arch}.rope.scaling.type", TEXT, kind), key(f"{arch}.rope.scaling.factor", F32, rope["factor"])]
        out += [key(f"{arch}.rope.scaling.yarn_{b}", F32, rope[b]) for b in ("beta_fast", "beta_slow") if b in rope]
        if "mscale_all_dim" in rope:
            out.append(key(f"{arch}.rope.scaling.yarn_log_multiplier", F32, 0.1 * rope["mscale_all_dim"]))
    if config.get("rope_local_base_freq"):
        out.append(key(f"{arch}.rope.freq_base_swa", F32, config["rope_local_base_freq"]))
    return out


def make_keys(config, arch, tensors, old):
    out = [key("general.architecture", TEXT, arch), key("general.type", TEXT, "model")]
    for table, kind in ((INTS, U32), (FLOATS, F32)):
        for name, to in table.items():
            if config.get(name) and (name != "sliding_window" or config["model_type"] in WINDOWED):
                out.append(key(f"{arch}.{to}", kind, config[name]))
    if config["model_type"] in LATENT:
        out += latent_keys(config, arch, old)
    elif config.get("head_dim"):
        out += [key(f"{arch}.attention.{which}_length", U32, config["head_dim"]) for which in ("key", "value")]
    if "norm_topk_prob" in config:
        out.append(key(f"{arch}.expert_weights_norm", BOOL, config["norm_topk_prob"]))
    if config.get("query_pre_attn_scalar"):
        out.append(key(f"{arch}.attention.scale", F32, config["query_pre_attn_scalar"] ** -0.5))
    if config["model_type"] == "gemma3_text":
        out.append(key(f"{arch}.attention.sliding_window_pattern", U32, config["sliding_window_pattern"]))
    eos = config.get("eos_token_id")
    if isinstance(eos, int):
        out.append(key("tokenizer.ggml.eos_token_id", U32, eos))
    if "use_parallel_residual" in config:
        out.append(key(f"{arch}.use_parallel_residual", BOOL, config["use_parallel_residual"]))
    if arch == "falcon":
        out.append(key("falcon.tensor_data_layout", TEXT, "jploski"))
    return out if config["model_type"] in NOT_ROTARY else out + rope_keys(config, arch, tensors)


WINDOWED = ("gpt_oss", "mistral", "mixtral", "gemma2", "gemma3_text", "phi3", "starcoder2")


def file_name(name, own):
    """The file's name, and the number of an expert or None."""
    for prefix in ("model.", "transformer.", "gpt_neox."):
        name = name.removeprefix(prefix)
    parts = name.split(".")
    if parts[-1] == "sinks":
        parts.append("weight")
    layer = ""
    if parts[0] in ("layers", "h"):
        layer, parts = f"blk.{parts[1]}.", parts[2:]
    expert = next((int(p) for p in parts if p.isdigit()), None)
    stem = ".".join(p for p in parts[:-1] if not p.isdigit())
    return layer + (own.get(stem) or COMMON[stem]) + "." + parts[-1], expert


def make_tensors(config, folder, own, paired, gains, blocks, old):
    out, stacks = [], {}
    for name, shape, x in convert(config, read_folder(folder), old):
        to, expert = file_name(name, own)
        if to.endswith("output.weight") and not to.endswith("attn_output.weight") and config.get("tie_word_embeddings"):
            continue
        stem = to.split(".")[-2]
        if gains and stem.endswith("norm"):
            x = [single(v + 1) for v in x]
        if paired and stem in ("attn_q", "attn_k"):
            x = pair(x, shape, config["num_attention_heads" if stem == "attn_q" else "num_key_value_heads"])
        kind = blocks if len(shape) >= 2 and shape[-1] % BLOCKS[blocks][1] == 0 and "inp" not in stem else "F32"
        if to.endswith("bias") or stem == "position_embd":
            kind = "F32"
        if isinstance(x, bytes):
            kind = "MXFP4"
        if stem == "ffn_gate_inp_shexp":
            shape = shape[1:]
        if expert is not None:
            stack = stacks.setdefault(to, [shape, {}, kind])
            stack[1][expert] = x
        else:
            out.append((to, shape, x, kind))
    for to, (shape, parts, kind) in stacks.items():
        out.append((to, [len(parts)] + shape, [v for i in range(len(parts)) for v in parts[i]], kind))
    return out


def make_twin(folder, own, blocks):
    """The folder with what blocks make of its matrices. Blocks run along rows, and rows keep theirs where they move."""
    for name, shape, x in read_folder(folder):
        stem = file_name(name, own)[0].split(".")[-2]
        if len(shape) == 2 and shape[1] % BLOCKS[blocks][1] == 0 and "inp" not in stem:
            x = encode(x, blocks)[1]
        yield name, shape, x


def write(path, keys, tensors):
    infos, data = [], b""
    for name, shape, x, kind in tensors:
        number, _, _ = BLOCKS[kind]
        data += bytes(-len(data) % 32)
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), number, len(data)))
        data += encode(x, kind)[0]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(infos)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32) + data)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("out")
    p.add_argument("--blocks", default="F32", choices=BLOCKS)
    p.add_argument("--split", type=int, default=1)
    p.add_argument("--old", action="store_true")
    a = p.parse_args()
    with open(os.path.join(a.folder, "config.json"), encoding="utf-8") as f:
        config = normalize(json.load(f))
    arch, own, paired, gains = ARCHS[config["model_type"]]
    os.makedirs(a.out, exist_ok=True)
    tensors = make_tensors(config, a.folder, own, paired, gains, a.blocks, a.old)
    keys = make_keys(config, arch, tensors, a.old)
    if a.split == 1:
        write(os.path.join(a.out, "model.gguf"), keys, tensors)
    for i in range(a.split if a.split > 1 else 0):
        part = [key("split.no", U32, i), key("split.count", U32, a.split)]
        path = os.path.join(a.out, f"model-{i + 1:05d}-of-{a.split:05d}.gguf")
        write(path, part if i else keys + part, tensors[i::a.split])
    if a.blocks != "F32" and config["model_type"] in OTHERS:
        os.makedirs(os.path.join(a.out, "twin"), exist_ok=True)
        same = [(name, shape, encode(x, kind)[1], "F32") for name, shape, x, kind in tensors]
        write(os.path.join(a.out, "twin", "model.gguf"), keys, same)
    elif a.blocks != "F32":
        os.makedirs(os.path.join(a.out, "twin"), exist_ok=True)
        write_folder(os.path.join(a.out, "twin"), make_twin(a.folder, own, a.blocks))
        with open(os.path.join(a.out, "twin", "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
