#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/gguf/blocks.gguf with the `gguf` package (0.19): of each type of blocks a random matrix of two rows,
NAME.blocks, and as float32 the numbers that the package makes of them, NAME.numbers.

  make_blocks.py OUT
"""
import sys

import gguf
import numpy as np

TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4")
ROW = 256
# Where a block has float16s, which must be finite.
HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
          "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,)}


def main():
    random = np.random.default_rng(39)
    w = gguf.GGUFWriter(sys.argv[1], "llama")
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        weights, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (2, ROW // weights, size), dtype=np.uint8)
        if name == "MXFP4":
            blocks[..., 0] = random.integers(100, 140, blocks.shape[:2])
            blocks[0, :2, 0] = 0, 1  # whose powers of two are denormal
        for at in HALVES.get(name, ()):
            half = (random.standard_normal(blocks.shape[:2]) * 0.01).astype(np.float16)
            blocks[..., at:at + 2] = half.view(np.uint8).reshape(*half.shape, 2)
        raw = blocks.reshape(2, -1)
        w.add_tensor(f"{name}.blocks", raw, raw_dtype=kind)
        w.add_tensor(f"{name}.numbers", gguf.quants.dequantize(raw, kind).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


main()
