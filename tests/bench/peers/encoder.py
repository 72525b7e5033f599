# SPDX-License-Identifier: Apache-2.0
"""transformers' encoders on batches of one length, eager and compiled, in the field names of `trireme bench latency --json`."""
import argparse

import torch
from transformers import AutoConfig, AutoModel

import common


def measure(model, forward, a, shape, compiled):
    batch, length = shape
    ids = common.prompt(batch, length, model.config.vocab_size)

    def run():
        out = forward(input_ids=ids)
        (out.pooler_output if getattr(out, "pooler_output", None) is not None else out.last_hidden_state[:, 0]).cpu()

    for _ in range(3):
        run()  # compiles and records
    common.show(model=model.config.model_type, backend="transformers" + (", compiled" if compiled else ""), isa=common.device(), dtype=a.dtype,
                weight_bytes=common.matrix_bytes(model), input_len=length, batch_size=batch, embed_ms=common.median_ms(run, a.num_iters))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--config", required=True, metavar="DIR", help="a folder with a config.json; the weights are random")
    p.add_argument("--dtype", default="float16", choices=common.DTYPES)
    p.add_argument("--shapes", default="1x128,20x128", help="batch x length, several with commas")
    p.add_argument("--num-iters", type=int, default=50)
    p.add_argument("--compile", action="store_true", help="then also compiled")
    a = p.parse_args()
    model = common.random_model(AutoModel, AutoConfig.from_pretrained(a.config), common.DTYPES[a.dtype])
    with torch.inference_mode():
        for shape in a.shapes.split(","):
            shape = tuple(int(n) for n in shape.split("x"))
            measure(model, model, a, shape, False)
            if a.compile:
                torch._dynamo.reset()
                measure(model, torch.compile(model, mode="reduce-overhead", dynamic=False), a, shape, True)


if __name__ == "__main__":
    main()
