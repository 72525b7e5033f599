#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the small quantized checkpoints in tests/data/checkpoints, with the answers a reference gives for their weights.

    make_quantized.py OUT DRAW_WEIGHTS [--only NAME,...]

Each OUT/NAME has a config.json, a weights.txt that DRAW_WEIGHTS (the program of the build) makes the weights from, and
expected.safetensors as make_checkpoints.py describes it.  Codes, scales and zero points are drawn as they are stored;
nothing here packs or rounds a weight.  What they mean comes from readers that owe nothing to the program under test:

    FP8            torch's float8_e4m3fn times DeepSeek's formula for blocks; compressed-tensors' own package
    MXFP4          transformers' convert_moe_packed_tensors
    GPTQ, AWQ      numpy, bit by bit from the formats' definitions
    pack-quantized, int-quantized   the compressed-tensors package

Scales have few bits, so that the widened weights are exact in 16 bits, and the answers are those of every type.  A draw is
thrown away for the reasons that make_checkpoints.py gives.

Needs numpy, torch, transformers (5.x), safetensors and compressed-tensors (made with 2.15, 5.24 and 0.20).
"""
import argparse
import json
import os
import re
import subprocess
import tempfile

import numpy
import torch
import transformers
from compressed_tensors.compressors import NaiveQuantizationCompressor, PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from make_checkpoints import answers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=97, rms_norm_eps=1e-5,
             max_position_embeddings=128, hidden_act="silu", tie_word_embeddings=False, rope_theta=10000.0, **IDS)


class Recipe:
    """The lines of a weights.txt."""

    def __init__(self, seed):
        self.lines, self.at, self.seed = [], 0, seed

    def add(self, dtype, shape, name, how, takes):
        self.lines.append(f"tensor {dtype} {','.join(map(str, shape))} {name} {how}")
        self.at += takes

    def normal(self, dtype, shape, name, mean, std):
        n = int(numpy.prod(shape))
        self.add(dtype, shape, name, f"normal {self.at} {mean} {std}", n + (16 if n % 16 else 0))

    def integers(self, dtype, shape, name, least, most, unit):
        """Numbers of least .. most, times two to the unit."""
        self.add(dtype, shape, name, f"integers {self.at} {least} {most} {unit}", int(numpy.prod(shape)))

    def bytes(self, dtype, shape, name, least=0, most=255):
        size = {"I32": 4, "U8": 1, "I8": 1}[dtype]
        self.add(dtype, shape, name, f"bytes {self.at} {least} {most}", size * int(numpy.prod(shape)))

    def order(self, n, group, name):
        self.add("I32", (n,), name, f"order {self.at} {group}", n)

    def bits(self, dtype, shape, name, data):
        self.add(dtype, shape, name, "bits " + data.hex(), 0)

    def write(self, path, draw):
        """Writes it with the hash of what it makes, which the program tells."""
        text = lambda h: f"seed {self.seed}\nfile model.safetensors {h}\n" + "".join(line + "\n" for line in self.lines)
        file = os.path.join(path, "weights.txt")
        open(file, "w").write(text("0"))
        told = subprocess.run([draw, path], capture_output=True, text=True).stderr
        open(file, "w").write(text(re.search(r"has the hash (\w+)", told)[1]))
        subprocess.run([draw, path], check=True)


# ---- ways of storing a layer: each draws one, and reads it as float32 [out, in]

class Plain:
    def draw(self, r, stem, out, inner):
        r.normal(r.plain, (out, inner), stem + ".weight", 0, round(1.7 / inner ** 0.5, 4))

    def read(self, t, stem):
        return t[stem + ".weight"].float()


class Fp8Block:
    """DeepSeek's: codes [out, in], a float32 scale for each block."""

    def __init__(self, rows, cols):
        self.rows, self.cols = rows, cols

    def draw(self, r, stem, out, inner):
        r.normal("F8_E4M3", (out, inner), stem + ".weight", 0, 100)
        r.integers("F32", (-(-out // self.rows), -(-inner // self.cols)), stem + ".weight_scale_inv", 5, 12, -12)

    def read(self, t, stem):
        codes, scales = t[stem + ".weight"].float(), t[stem + ".weight_scale_inv"]
        return codes * scales.repeat_interleave(self.rows, 0)[:codes.shape[0]].repeat_interleave(self.cols, 1)[:, :codes.shape[1]]


class Compressed:
    """What compressed-tensors itself makes of a layer."""

    def __init__(self, ordered=False, **args):
        self.args, self.ordered = QuantizationArgs(**args), ordered

    def read(self, t, stem):
        state = {k[len(stem) + 1:]: v for k, v in t.items() if k.startswith(stem + ".")}
        order = state.pop("weight_g_idx", None)
        if order is not None:                        # its older releases: columns sorted by group, and back
            state["weight_packed"] = self.sorted(state["weight_packed"], order)
        weight = self.reader.decompress(state, QuantizationScheme(targets=["Linear"], weights=self.args))["weight"].float()
        return weight if order is None else weight[:, torch.argsort(torch.argsort(order, stable=True))]

    def sorted(self, packed, order):
        each = 32 // self.args.num_bits
        words = packed.numpy().astype(numpy.uint32)
        codes = (words[:, :, None] >> (numpy.arange(each, dtype=numpy.uint32) * self.args.num_bits)) & (2 ** self.args.num_bits - 1)
        codes = codes.reshape(len(words), -1)[:, torch.argsort(order, stable=True).numpy()].reshape(len(words), -1, each)
        words = (codes.astype(numpy.uint64) << (numpy.arange(each, dtype=numpy.uint64) * numpy.uint64(self.args.num_bits))).sum(-1)
        return torch.from_numpy(words.astype(numpy.uint32).view(numpy.int32))

    def groups(self, inner):
        return -(-inner // self.args.group_size) if self.args.strategy == "group" else 1


class Naive(Compressed):
    """float-quantized and int-quantized: a code for each element, scales of the whole, of rows, blocks or groups."""
    reader = NaiveQuantizationCompressor

    def draw(self, r, stem, out, inner):
        a = self.args
        shape = {"tensor": (1,), "channel": (out, 1), "group": (out, self.groups(inner))}.get(a.strategy)
        if a.strategy == "block":
            shape = (-(-out // a.block_structure[0]), -(-inner // a.block_structure[1]))
        if a.type == "float":
            r.normal("F8_E4M3", (out, inner), stem + ".weight", 0, 100)
            r.integers("BF16", shape, stem + ".weight_scale", 5, 12, -12)
        else:                                        # a byte's bits and a sum's more: a power of two keeps them exact
            r.bytes("I8", (out, inner), stem + ".weight", 0, 255)
            r.integers("BF16", shape, stem + ".weight_scale", 1, 1, -9)
        if not a.symmetric:
            r.bytes("I8", shape, stem + ".weight_zero_point", 0, 0)
        if a.strategy == "tensor":
            r.integers("BF16", (1,), stem + ".input_scale", 1, 9, -3)


class Packed(Compressed):
    """pack-quantized: integers in words, zero points in words along the outputs."""
    reader = PackedQuantizationCompressor

    def draw(self, r, stem, out, inner):
        each, groups = 32 // self.args.num_bits, self.groups(inner)
        r.bytes("I32", (out, -(-inner // each)), stem + ".weight_packed")
        least, most, unit = (5, 12, -8) if self.args.num_bits == 4 else (1, 1, -9)
        r.integers("BF16", (out, groups), stem + ".weight_scale", least, most, unit)
        if not self.args.symmetric:
            r.bytes("I32", (-(-out // each), groups), stem + ".weight_zero_point", 0x66, 0x99)
        r.bits("I64", (2,), stem + ".weight_shape", numpy.array([out, inner], dtype="<i8").tobytes())
        if self.ordered:
            r.order(inner, self.args.group_size, stem + ".weight_g_idx")


class Gptq:
    """Words of inputs that follow each other; zero points in words of outputs, in the first format less one."""

    def __init__(self, bits, group, order, less_one):
        self.bits, self.group, self.order, self.less_one = bits, group, order, less_one

    def draw(self, r, stem, out, inner):
        each, group = 32 // self.bits, self.group if self.group > 0 else inner
        r.bytes("I32", (inner // each, out), stem + ".qweight")
        r.bytes("I32", (-(-inner // group), out // each), stem + ".qzeros", *((0x55, 0x88) if self.bits == 4 else (0x7f, 0x7f)))
        r.integers("F16", (-(-inner // group), out), stem + ".scales", *((5, 12, -8) if self.bits == 4 else (1, 1, -9)))
        r.order(inner, group, stem + ".g_idx") if self.order else None
        r.bits("F16", (out,), stem + ".bias", bytes(2 * out)) if self.order and out < 80 else None

    def read(self, t, stem):
        words, zeros = (t[f"{stem}.{k}"].numpy().astype(numpy.uint32) for k in ("qweight", "qzeros"))
        scales, mask = t[stem + ".scales"].numpy().astype(numpy.float64), 2 ** self.bits - 1
        inner, out, each = len(words) * 32 // self.bits, words.shape[1], 32 // self.bits
        weight = numpy.empty((out, inner))
        for i in range(inner):
            group = int(t[stem + ".g_idx"][i]) if self.order else i // (self.group if self.group > 0 else inner)
            for o in range(out):
                code = int(words[i // each, o]) >> self.bits * (i % each) & mask
                zero = int(zeros[group, o // each]) >> self.bits * (o % each) & mask
                weight[o, i] = (code - zero - self.less_one) * scales[group, o]
        return torch.from_numpy(weight).float()


class Awq:
    """Words of eight outputs; their kernels want the even ones in the lower half."""
    PLACE = [0, 2, 4, 6, 1, 3, 5, 7]                 # the output that lies in the I-th four bits

    def __init__(self, group):
        self.group = group

    def draw(self, r, stem, out, inner):
        r.bytes("I32", (inner, out // 8), stem + ".qweight")
        r.bytes("I32", (inner // self.group, out // 8), stem + ".qzeros", 0x66, 0x99)
        r.integers("F16", (inner // self.group, out), stem + ".scales", 5, 12, -8)

    def unpack(self, words):
        words = words.numpy().astype(numpy.uint32)
        out = numpy.empty((words.shape[0], words.shape[1] * 8))
        for part, place in enumerate(self.PLACE):
            out[:, place::8] = words >> numpy.uint32(4 * part) & 15
        return out

    def read(self, t, stem):
        codes, zeros = self.unpack(t[stem + ".qweight"]), self.unpack(t[stem + ".qzeros"])
        scales = t[stem + ".scales"].numpy().astype(numpy.float64)
        group = numpy.arange(len(codes)) // self.group
        return torch.from_numpy(((codes - zeros[group]) * scales[group]).T).float()


# ---- models: the names of their tensors, and which layers are quantized

def plain(r, name, *shape):
    norm, bias = "norm" in name, name.endswith("bias") or name.endswith("sinks")
    if int(numpy.prod(shape)) < 16:
        r.integers(r.plain, shape, name, -9, 9, -6)
    else:
        r.normal(r.plain, shape, name, 1 if norm else 0, 0.2 if norm or bias else 0.6 if "embed" in name else 0.2)


def ends(r, c):
    plain(r, "model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])
    plain(r, "model.norm.weight", c["hidden_size"])
    Plain().draw(r, "lm_head", c["vocab_size"], c["hidden_size"])


def attention(layer, c, d):
    h, q, kv = c["hidden_size"], c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    p = f"model.layers.{layer}.self_attn."
    return [(p + "q_proj", q, h), (p + "k_proj", kv, h), (p + "v_proj", kv, h), (p + "o_proj", h, q)]


def mlp(p, h, f, names=("gate_proj", "up_proj", "down_proj")):
    return [(p + names[0], f, h), (p + names[1], f, h), (p + names[2], h, f)]


def norms(r, layer, c):
    for name in ("input_layernorm", "post_attention_layernorm"):
        plain(r, f"model.layers.{layer}.{name}.weight", c["hidden_size"])


def llama(r, c, linear, biases=False):
    ends(r, c)
    for layer in range(c["num_hidden_layers"]):
        norms(r, layer, c)
        for stem, out, inner in attention(layer, c, 16) + mlp(f"model.layers.{layer}.mlp.", c["hidden_size"], c["intermediate_size"]):
            linear(stem, out, inner)
            if biases and stem[-6:] in ("q_proj", "k_proj", "v_proj"):
                plain(r, stem + ".bias", out)


def qwen2(r, c, linear):
    llama(r, c, linear, True)


def mixtral(r, c, linear):
    ends(r, c)
    for layer in range(c["num_hidden_layers"]):
        norms(r, layer, c)
        for stem, out, inner in attention(layer, c, 16):
            linear(stem, out, inner)
        p = f"model.layers.{layer}.block_sparse_moe."
        Plain().draw(r, p + "gate", c["num_local_experts"], c["hidden_size"])
        for e in range(c["num_local_experts"]):
            for stem, out, inner in mlp(p + f"experts.{e}.", c["hidden_size"], c["intermediate_size"], ("w1", "w3", "w2")):
                linear(stem, out, inner)


def deepseek(r, c, linear):
    h, heads = c["hidden_size"], c["num_attention_heads"]
    ends(r, c)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        norms(r, layer, c)
        linear(p + "self_attn.q_a_proj", c["q_lora_rank"], h)
        linear(p + "self_attn.q_b_proj", heads * (c["qk_nope_head_dim"] + c["qk_rope_head_dim"]), c["q_lora_rank"])
        linear(p + "self_attn.kv_a_proj_with_mqa", c["kv_lora_rank"] + c["qk_rope_head_dim"], h)
        linear(p + "self_attn.kv_b_proj", heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
        linear(p + "self_attn.o_proj", h, heads * c["v_head_dim"])
        plain(r, p + "self_attn.q_a_layernorm.weight", c["q_lora_rank"])
        plain(r, p + "self_attn.kv_a_layernorm.weight", c["kv_lora_rank"])
        stems = mlp(p + "mlp.", h, c["intermediate_size"])
        if layer >= c["first_k_dense_replace"]:
            Plain().draw(r, p + "mlp.gate", c["n_routed_experts"], h)
            r.integers("F32", (c["n_routed_experts"],), p + "mlp.gate.e_score_correction_bias", -9, 9, -7)
            stems = mlp(p + "mlp.shared_experts.", h, c["moe_intermediate_size"])
            for e in range(c["n_routed_experts"]):
                stems += mlp(p + f"mlp.experts.{e}.", h, c["moe_intermediate_size"])
        for stem, out, inner in stems:
            linear(stem, out, inner)
    plain(r, f"model.layers.{c['num_hidden_layers']}.enorm.weight", h)       # of the layer that predicts one token more


def gpt_oss(r, c, linear):
    h, f, n = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    ends(r, c)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        norms(r, layer, c)
        for stem, out, inner in attention(layer, c, c["head_dim"]):
            Plain().draw(r, stem, out, inner)
            plain(r, stem + ".bias", out)
        plain(r, p + "self_attn.sinks", c["num_attention_heads"])
        Plain().draw(r, p + "mlp.router", n, h)
        plain(r, p + "mlp.router.bias", n)
        for name, out, inner in (("gate_up_proj", 2 * f, h), ("down_proj", h, f)):
            r.bytes("U8", (n, out, inner // 32, 16), f"{p}mlp.experts.{name}_blocks")
            r.bytes("U8", (n, out, inner // 32), f"{p}mlp.experts.{name}_scales", 122, 124)
            plain(r, f"{p}mlp.experts.{name}_bias", n, out)


def first_that_matches(ways):
    """ways: pairs of a pattern and a way of storing."""
    return lambda stem: next(way for pattern, way in ways if re.search(pattern, stem))


CHANNEL, TENSOR = (Naive(num_bits=8, type="float", strategy=s) for s in ("channel", "tensor"))
BLOCK = Naive(num_bits=8, type="float", strategy="block", block_structure=[32, 48])
INT4 = Packed(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False)
INT4_ORDER = Packed(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True, ordered=True)
INT8 = Packed(num_bits=8, type="int", strategy="channel", symmetric=True)
INT8_PLAIN = Naive(num_bits=8, type="int", strategy="channel", symmetric=True)


def config_groups(*ways):
    weights = lambda way: json.loads(way.args.model_dump_json()) | (dict(actorder="group") if way.ordered else {})
    return {f"group_{i}": dict(targets=targets, weights={k: v for k, v in weights(way).items() if v is not None})
            for i, (targets, way) in enumerate(ways)}


def compressed(fmt, *ways):
    return dict(quant_method="compressed-tensors", format=fmt, quantization_status="compressed", ignore=["lm_head"],
                config_groups=config_groups(*ways))


LLAMA = dict(SMALL, model_type="llama", architectures=["LlamaForCausalLM"], intermediate_size=120, attention_bias=False, mlp_bias=False)
# name: (config, type of plain tensors, quantization_config, names of tensors, layer -> way of storing)
CHECKPOINTS = {
    "fp8_deepseek_v3": (dict(
        SMALL, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], hidden_size=96, intermediate_size=136,
        num_key_value_heads=4, first_k_dense_replace=1, kv_lora_rank=40, q_lora_rank=36, moe_intermediate_size=28, n_group=3,
        topk_group=2, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=3, norm_topk_prob=True, qk_nope_head_dim=12,
        qk_rope_head_dim=8, v_head_dim=20, routed_scaling_factor=1.5, num_nextn_predict_layers=1, rope_interleave=True),
        "BF16", dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[32, 48]), deepseek,
        lambda stem: Fp8Block(32, 48)),
    "fp8_deepseek_v3_blocks": (dict(
        SMALL, model_type="deepseek_v3", architectures=["DeepseekV3ForCausalLM"], hidden_size=128, intermediate_size=256,
        num_key_value_heads=4, first_k_dense_replace=1, kv_lora_rank=128, q_lora_rank=128, moe_intermediate_size=128, n_group=1,
        topk_group=1, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, norm_topk_prob=True, qk_nope_head_dim=32,
        qk_rope_head_dim=32, v_head_dim=32, routed_scaling_factor=1.5, num_nextn_predict_layers=1, rope_interleave=True),
        "BF16", dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic", weight_block_size=[128, 128]), deepseek,
        lambda stem: Fp8Block(128, 128)),
    "fp8_llama": (LLAMA, "BF16", compressed("float-quantized", (["re:.*self_attn.*"], CHANNEL), (["re:.*down_proj"], BLOCK),
                                            (["Linear"], TENSOR)), llama,
                  first_that_matches([("self_attn", CHANNEL), ("down_proj", BLOCK), ("", TENSOR)])),
    "mxfp4_gpt_oss": (dict(
        SMALL, model_type="gpt_oss", architectures=["GptOssForCausalLM"], intermediate_size=96, head_dim=16, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=9, attention_bias=True, layer_types=["sliding_attention", "full_attention"],
        rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                          original_max_position_embeddings=32)),
        "BF16", dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                   "model.embed_tokens", "lm_head"]), gpt_oss, None),
    "int_llama": (LLAMA | dict(intermediate_size=96), "BF16",
                  compressed("mixed-precision", (["re:.*self_attn.*"], INT4), (["re:.*gate_proj"], INT8), (["re:.*up_proj"], INT8_PLAIN),
                             (["Linear"], INT4_ORDER)), llama,
                  first_that_matches([("self_attn", INT4), ("gate_proj", INT8), ("up_proj", INT8_PLAIN), ("", INT4_ORDER)])),
    "gptq_mixtral": (dict(
        SMALL, model_type="mixtral", architectures=["MixtralForCausalLM"], intermediate_size=72, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=None), "F16",
        dict(quant_method="gptq", bits=4, group_size=32, desc_act=True, sym=False, checkpoint_format="gptq"), mixtral,
        lambda stem: Gptq(4, 32, True, 1)),
    "gptq_llama": (LLAMA, "F16", dict(quant_method="gptq", bits=8, group_size=-1, desc_act=False, sym=True,
                                      checkpoint_format="gptq_v2"), llama, lambda stem: Gptq(8, -1, False, 0)),
    "awq_qwen2": (dict(SMALL, model_type="qwen2", architectures=["Qwen2ForCausalLM"], intermediate_size=96, use_sliding_window=False),
                  "F16", dict(quant_method="awq", bits=4, group_size=32, version="gemm", zero_point=True,
                              modules_to_not_convert=["model.layers.1.mlp.down_proj"]), qwen2,
                  first_that_matches([(r"layers\.1\.mlp\.down_proj", Plain()), ("", Awq(32))])),
}


def widen(path, stems, way):
    """The checkpoint's tensors with plain ones in place of the quantized, every one exact in the type that it is stored in."""
    tensors = load_file(os.path.join(path, "model.safetensors"))
    half = tensors["model.norm.weight"].dtype
    out = {k: v for k, v in tensors.items() if not any(k.startswith(s + ".") and not k.endswith(".bias") for s in stems)}
    for stem in stems:
        out[stem + ".weight"] = way(stem).read(tensors, stem)
    for k in [k for k in out if k.endswith("_blocks")]:
        out[k[:-7]] = convert_moe_packed_tensors(out.pop(k), out.pop(k[:-7] + "_scales")).float()
    for k, v in out.items():
        assert torch.equal(v.to(half).float(), v.float()) or "correction" in k, k
    return {k: v if "correction" in k else v.to(half).contiguous() for k, v in out.items()}


def build(name, out, draw):
    config, plain_type, quantization, names, way = CHECKPOINTS[name]
    path, dtype = os.path.join(out, name), {"BF16": "bfloat16", "F16": "float16"}[plain_type]
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(dict(config, dtype=dtype, quantization_config=quantization), f, indent=2, sort_keys=True)
        f.write("\n")
    for seed in range(1, 160):
        recipe, stems = Recipe(seed), []
        recipe.plain = plain_type

        def linear(stem, rows, cols):
            stems.append(stem)
            way(stem).draw(recipe, stem, rows, cols)
        names(recipe, config, linear)
        recipe.write(path, draw)
        with tempfile.TemporaryDirectory() as wide:
            tensors = widen(path, stems, way)
            if name != "awq_qwen2":                                          # GPTQ's tools store biases that there are none of
                tensors = {k: v for k, v in tensors.items() if not (k.endswith(".bias") and k[:-5] in stems)}
            save_file(tensors, os.path.join(wide, "model.safetensors"), metadata={"format": "pt"})
            with open(os.path.join(wide, "config.json"), "w") as f:
                json.dump(dict(config, dtype=dtype), f)
            expected, note = answers(wide, torch.Generator().manual_seed(seed), config["vocab_size"], False, seed > 80)
        if expected:
            save_file(expected, os.path.join(path, "expected.safetensors"))
            os.remove(os.path.join(path, "model.safetensors"))
            print(f"{name:20s} seed {seed}: {note}", flush=True)
            return
    raise SystemExit(f"{name}: no draw will do; the last: {note}")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out")
    ap.add_argument("draw")
    ap.add_argument("--only")
    args = ap.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    for name in args.only.split(",") if args.only else CHECKPOINTS:
        build(name, args.out, args.draw)


if __name__ == "__main__":
    main()
