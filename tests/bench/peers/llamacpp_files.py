# SPDX-License-Identifier: Apache-2.0
"""GGUF files for llamacpp.sh: a file's weights in bfloat16 and in Q8_0, and shapes with random weights. Needs numpy and gguf.

    llamacpp_files.py FILE FOLDER       FOLDER/real-bf16.gguf, FOLDER/real-q8_0.gguf, and the shapes 100m and 1b in both

The shapes have FILE's tokenizer, with tokens that mean nothing up to the shape's vocabulary.
"""
import sys

import gguf
import numpy as np

SHAPES = {
    "100m": {"width": 768, "layers": 12, "heads": 12, "kv_heads": 4, "ff": 2048, "vocab": 49152},
    "1b": {"width": 2048, "layers": 16, "heads": 32, "kv_heads": 8, "ff": 8192, "vocab": 128256},
}
TYPES = {"bf16": gguf.GGMLQuantizationType.BF16, "q8_0": gguf.GGMLQuantizationType.Q8_0}


def copy_fields(reader, writer, skip):
    """The fields of a file but for those whose names begin with one of `skip`."""
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name.startswith(tuple(skip)):
            continue
        kind = field.types[0]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind, sub_type=field.types[1])
        else:
            writer.add_key_value(name, field.contents(), kind)


def add(writer, name, numbers, kind):
    """Vectors stay float32."""
    numbers = np.ascontiguousarray(numbers, dtype=np.float32)
    if numbers.ndim < 2:
        writer.add_tensor(name, numbers)
        return
    writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(reader, path, kind):
    writer = gguf.GGUFWriter(path, "llama")
    copy_fields(reader, writer, ["general.file_type", "general.quantization_version"])
    for tensor in reader.tensors:
        add(writer, tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type), kind)
    write(writer)


def copy_tokenizer(reader, writer, vocab):
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind, value = field.types[0], field.contents()
        if name == "tokenizer.ggml.tokens":
            value += [f"<unused{i}>" for i in range(len(value), vocab)]
        if name == "tokenizer.ggml.token_type":
            value += [int(gguf.TokenType.UNUSED)] * (vocab - len(value))
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, value, kind, sub_type=field.types[1])
        else:
            writer.add_key_value(name, value, kind)


def make_shape(reader, path, shape, kind):
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    copy_tokenizer(reader, writer, shape["vocab"])
    writer.add_context_length(4096)
    writer.add_embedding_length(shape["width"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["ff"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(shape["width"] // shape["heads"])
    writer.add_vocab_size(shape["vocab"])
    width, keys = shape["width"], shape["width"] // shape["heads"] * shape["kv_heads"]

    def matrix(name, rows, cols):
        add(writer, name, random.standard_normal((rows, cols), dtype=np.float32) * 0.02, kind)

    matrix("token_embd.weight", shape["vocab"], width)
    add(writer, "output_norm.weight", np.ones(width), kind)
    for i in range(shape["layers"]):
        block = f"blk.{i}."
        add(writer, block + "attn_norm.weight", np.ones(width), kind)
        add(writer, block + "ffn_norm.weight", np.ones(width), kind)
        matrix(block + "attn_q.weight", width, width)
        matrix(block + "attn_k.weight", keys, width)
        matrix(block + "attn_v.weight", keys, width)
        matrix(block + "attn_output.weight", width, width)
        matrix(block + "ffn_gate.weight", shape["ff"], width)
        matrix(block + "ffn_up.weight", shape["ff"], width)
        matrix(block + "ffn_down.weight", width, shape["ff"])
    write(writer)


def main():
    source, folder = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    for name, kind in TYPES.items():
        convert(reader, f"{folder}/real-{name}.gguf", kind)
        for shape, sizes in SHAPES.items():
            make_shape(reader, f"{folder}/{shape}-{name}.gguf", sizes, kind)


if __name__ == "__main__":
    main()
