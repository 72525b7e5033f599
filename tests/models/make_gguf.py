#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file of a checkpoint of tests/data/checkpoints, as converters do it.

  make_gguf.py DIR OUT [--blocks Q8_0|Q4_0|Q4_1] [--split N]

OUT/model.gguf has the tensors as float32, or matrices as blocks where their rows are made of them. With --blocks,
OUT/twin is a folder of safetensors with the numbers that the blocks stand for. --split: the tensors of N files.
Only what the families' tables read is written; no tokenizer.
"""
import argparse
import json
import math
import os
import struct
import sys

U32, F32, BOOL, TEXT = 4, 6, 7, 8
BLOCKS = {"F32": (0, 1, 4), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q8_0": (8, 32, 34)}

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
ARCHS = {  # model_type: name, own names, paired heads, gains of one
    "llama": ("llama", {}, True, False), "mistral": ("llama", {}, True, False), "mixtral": ("llama", {}, True, False),
    "qwen2": ("qwen2", {}, False, False), "qwen3": ("qwen3", {}, False, False),
    "qwen2_moe": ("qwen2moe", {}, False, False), "qwen3_moe": ("qwen3moe", {}, False, False),
    "gemma": ("gemma", {}, False, True), "gemma2": ("gemma2", BOTH_NORMS, False, True),
    "gemma3_text": ("gemma3", BOTH_NORMS, False, True), "phi3": ("phi3", {}, False, False),
    "granite": ("granite", {}, True, False), "olmo2": ("olmo2", BOTH_NORMS, False, False),
    "olmoe": ("olmoe", {}, False, False), "cohere": ("command-r", {}, False, False),
    "starcoder2": ("starcoder2", {}, False, False),
}
# ---- keys: config.json's, then the file's ----
INTS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length", "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv", "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count", "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
FLOATS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "layer_norm_eps": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "logit_scale": "logit_scale",
    "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale", "attention_multiplier": "attention.scale",
}


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


def encode(x, kind):
    if kind == "F32":
        return struct.pack(f"<{len(x)}f", *x), x
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


def rope_keys(config, arch, tensors):
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    out = [key(f"{arch}.rope.freq_base", F32, float(rope.get("rope_theta") or config.get("rope_theta") or 10000))]
    kind = rope.get("rope_type") or rope.get("type") or "default"
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    dim = int(dim * (rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1))
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
    if config.get("rope_local_base_freq"):
        out.append(key(f"{arch}.rope.freq_base_swa", F32, config["rope_local_base_freq"]))
    return out


def make_keys(config, arch, tensors):
    out = [key("general.architecture", TEXT, arch), key("general.type", TEXT, "model")]
    for table, kind in ((INTS, U32), (FLOATS, F32)):
        for name, to in table.items():
            if config.get(name) and (name != "sliding_window" or config["model_type"] in WINDOWED):
                out.append(key(f"{arch}.{to}", kind, config[name]))
    if config.get("head_dim"):
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
    return out + rope_keys(config, arch, tensors)


WINDOWED = ("mistral", "mixtral", "gemma2", "gemma3_text", "phi3", "starcoder2")


def file_name(name, own):
    """The file's name, and the number of an expert or None."""
    parts = name.removeprefix("model.").split(".")
    layer = ""
    if parts[0] == "layers":
        layer, parts = f"blk.{parts[1]}.", parts[2:]
    expert = next((int(p) for p in parts if p.isdigit()), None)
    stem = ".".join(p for p in parts[:-1] if not p.isdigit())
    return layer + (own.get(stem) or COMMON[stem]) + "." + parts[-1], expert


def make_tensors(config, folder, own, paired, gains, blocks):
    out, stacks = [], {}
    for name, shape, x in read_folder(folder):
        to, expert = file_name(name, own)
        if to.endswith("output.weight") and not to.endswith("attn_output.weight") and config.get("tie_word_embeddings"):
            continue
        stem = to.split(".")[-2]
        if gains and stem.endswith("norm"):
            x = [single(v + 1) for v in x]
        if paired and stem in ("attn_q", "attn_k"):
            x = pair(x, shape, config["num_attention_heads" if stem == "attn_q" else "num_key_value_heads"])
        kind = blocks if len(shape) == 2 and shape[1] % BLOCKS[blocks][1] == 0 and "inp" not in stem else "F32"
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
    a = p.parse_args()
    with open(os.path.join(a.folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    arch, own, paired, gains = ARCHS[config["model_type"]]
    os.makedirs(a.out, exist_ok=True)
    tensors = make_tensors(config, a.folder, own, paired, gains, a.blocks)
    keys = make_keys(config, arch, tensors)
    if a.split == 1:
        write(os.path.join(a.out, "model.gguf"), keys, tensors)
    for i in range(a.split if a.split > 1 else 0):
        part = [key("split.no", U32, i), key("split.count", U32, a.split)]
        path = os.path.join(a.out, f"model-{i + 1:05d}-of-{a.split:05d}.gguf")
        write(path, part if i else keys + part, tensors[i::a.split])
    if a.blocks != "F32":
        os.makedirs(os.path.join(a.out, "twin"), exist_ok=True)
        write_folder(os.path.join(a.out, "twin"), make_twin(a.folder, own, a.blocks))
        with open(os.path.join(a.out, "twin", "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
    return 0


if __name__ == "__main__":
    sys.exit(main())
