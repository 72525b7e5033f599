# SPDX-License-Identifier: Apache-2.0
"""transformers' prompt and decode steps on a config's shape, in the field names of `trireme bench latency --json`.

Eager with the default (growing) cache first; with --compile also with a static cache and the decode step compiled (on a
device: recorded as a CUDA graph). decode_ms is the forward pass and an arg-max, with the token brought to the host, as
trireme's steps do; generate_ms is what a token costs within generate()."""
import argparse

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, StaticCache

import common


class Decoder:
    def __init__(self, model, compiled, length):
        self.model, self.compiled, self.length, self.caches = model, compiled, length, {}
        self.step = torch.compile(model.forward, mode="reduce-overhead", fullgraph=True) if compiled else model.forward

    def cache(self, batch):
        """An empty one; a static one stays where it is, as a recorded graph has its address."""
        if not self.compiled:
            return DynamicCache(config=self.model.config)
        if batch not in self.caches:
            self.caches[batch] = StaticCache(config=self.model.config, max_cache_len=self.length)
        self.caches[batch].reset()
        return self.caches[batch]

    def feed(self, ids):
        cache = self.cache(ids.shape[0])
        return self.next(ids, cache), cache

    def next(self, ids, cache):
        out = self.model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1].argmax(-1, keepdim=True)

    def decode(self, ids, cache, at):
        if self.compiled and ids.is_cuda:
            torch.compiler.cudagraph_mark_step_begin()
        where = torch.full((ids.shape[0], 1), at, device=ids.device)
        out = self.step(input_ids=ids, past_key_values=cache, use_cache=True, position_ids=where, logits_to_keep=1)
        ids = out.logits[:, -1].argmax(-1, keepdim=True)
        ids.cpu()  # the caller of a server waits for the token
        return ids.clone()


def decode_times(decoder, ids, steps):
    times = []
    first, cache = decoder.feed(ids)
    token = [first]

    def step(at):
        token[0] = decoder.decode(token[0], cache, at)

    for i in range(steps):
        times.append(common.timed(lambda: step(ids.shape[1] + i)))
    return sorted(times)[len(times) // 2]


def generate_ms(model, ids, tokens, compiled):
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    if compiled:
        options["cache_implementation"] = "static"

    def run(n):
        model.generate(ids, attention_mask=torch.ones_like(ids), min_new_tokens=n, max_new_tokens=n, **options)

    run(tokens)  # compiles
    return (common.timed(lambda: run(tokens)) - common.timed(lambda: run(1))) / max(tokens - 1, 1)


def measure(model, a, compiled):
    decoder = Decoder(model, compiled, a.input_len + a.output_len + 1)
    ids = common.prompt(a.batch, a.input_len, model.config.vocab_size)
    common.timed(lambda: decoder.feed(ids[:1]))
    prefill = common.median_ms(lambda: decoder.feed(ids[:1]), a.num_iters)
    decode_times(decoder, ids, min(8, a.output_len))  # compiles and records
    decode = decode_times(decoder, ids, a.output_len)
    names = dict(model=model.config.model_type, backend="transformers" + (", compiled" if compiled else ""), isa=common.device(), dtype=a.dtype,
                 weight_bytes=common.matrix_bytes(model), input_len=a.input_len, output_len=a.output_len, batch_size=a.batch)
    common.show(**names, prefill_ms=prefill, decode_ms=decode)
    if a.generate:  # on a line of its own: it compiles once more, and may be cut off
        common.show(**names, generate_ms=generate_ms(model, ids, a.output_len, compiled))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--config", required=True, metavar="DIR", help="a folder with a config.json; the weights are random")
    p.add_argument("--dtype", default="bfloat16", choices=common.DTYPES)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--input-len", type=int, default=128)
    p.add_argument("--output-len", type=int, default=128)
    p.add_argument("--num-iters", type=int, default=7, help="prompts that are timed, one sequence each")
    p.add_argument("--compile", action="store_true", help="then also compiled, with a static cache")
    p.add_argument("--no-generate", dest="generate", action="store_false", help="leave generate() out")
    a = p.parse_args()
    model = common.random_model(AutoModelForCausalLM, AutoConfig.from_pretrained(a.config), common.DTYPES[a.dtype])
    with torch.inference_mode():
        measure(model, a, False)
    if a.compile:
        with torch.no_grad():  # a compiled forward may not update inference tensors in place
            measure(model, a, True)


if __name__ == "__main__":
    main()
