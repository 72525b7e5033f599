#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers of transformers, in float32 on a CPU, that the tests of real models compare with.

  make_references.py MODEL FILE.gguf OUT.json [--threads N]     MODEL: smollm2, gemma3

Needs torch, transformers, gguf and accelerate (tests/real/smollm2.json names the versions that it was made with). Answers of
SmolLM2 (Apache License 2.0) lie in the project; those of Gemma are made where they are wanted and are not to be published.
Weights are those that transformers unpacks, in float32. Probabilities are taken in float64 from float32 logits.
"""
import argparse
import hashlib
import json
import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import gguf  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

import references as refs  # noqa: E402


def load(name, path):
    folder, file = os.path.split(os.path.abspath(path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    if name == "smollm2":
        # The file says tokenizer.ggml.pre = smollm, which transformers does not read: each digit is a word of its own.
        from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

        digits = Digits(individual_digits=True)
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence([digits, ByteLevel(add_prefix_space=False, use_regex=True)])
    attention = "eager" if name == "gemma3" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32, attn_implementation=attention)
    return tokenizer, model.eval(), attention


class Reader:
    """A model that reads tokens in pieces, with a cache."""

    def __init__(self, model):
        self.model = model
        self.cache = None

    def read(self, ids):
        """The log probabilities of ids[1:] (float64), and the logits behind the last one."""
        logprobs, last = [], None
        for begin in range(0, len(ids), 512):
            piece = ids[begin:begin + 512]
            out = self.model(input_ids=torch.tensor([piece]), cache=self.cache, use_cache=True)
            self.cache = out.cache
            rows = torch.log_softmax(out.logits[0].double(), -1)
            wanted = ids[begin + 1:begin + 513]
            logprobs += rows[torch.arange(len(wanted)), torch.tensor(wanted, dtype=torch.long)].tolist()
            last = rows[-1]
        return logprobs, last

    def greedy(self, last, number):
        tokens, logprobs, gaps = [], [], []
        while True:
            best = last.topk(2)
            tokens.append(int(best.indices[0]))
            logprobs.append(float(best.values[0]))
            gaps.append(float(best.values[0] - best.values[1]))
            if len(tokens) == number:
                break
            _, last = self.read(tokens[-1:])
        n = refs.before_tie(tokens, gaps)
        return tokens[:n], logprobs[:n]


def rounded(values):
    return [round(v, 5) for v in values]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(refs.EOS))
    parser.add_argument("file")
    parser.add_argument("out")
    parser.add_argument("--threads", type=int, default=1)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    torch.set_grad_enabled(False)
    with open(o.file, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    tokenizer, model, attention = load(o.model, o.file)
    settings = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__, dtype="float32", attention=attention,
                    piece=512, greedy=refs.GREEDY, tie=refs.TIE)
    try:
        import importlib.metadata

        settings["gguf"] = importlib.metadata.version("gguf")
    except importlib.metadata.PackageNotFoundError:
        settings["gguf"] = gguf.__name__
    out = dict(model=o.model, file=os.path.basename(o.file), sha256=digest, settings=settings, prompts=[])
    if os.path.exists(o.out):  # of an interrupted call
        with open(o.out, encoding="utf8") as file:
            before = json.load(file)
        if before["sha256"] == digest and before["settings"] == settings:
            out["prompts"] = before["prompts"]
    done = {p["name"] for p in out["prompts"]}
    for name, text, messages in refs.prompts():
        if name in done:
            continue
        chat = messages is not None and tokenizer.chat_template is not None
        if chat:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        elif messages is not None:
            text = refs.plain(messages)
        ids = tokenizer(text, add_special_tokens=not chat).input_ids
        reader = Reader(model)
        logprobs, last = reader.read(ids)
        greedy, greedy_logprobs = reader.greedy(last, refs.GREEDY)
        ends = next((i for i, t in enumerate(greedy) if t in refs.EOS[o.model]), None)
        said = greedy[:ends] if ends is not None else greedy
        out["prompts"].append(dict(name=name, ids=ids, logprobs=rounded(logprobs), greedy=greedy, greedy_logprobs=rounded(greedy_logprobs),
                                   ends=ends, text=tokenizer.decode(said, clean_up_tokenization_spaces=False)))
        print(o.model, name, len(ids), "tokens,", len(greedy), "greedy:", repr(out["prompts"][-1]["text"][:70]), flush=True)
        refs.write(o.out, out)
    # The whole context: a text that leaves room for the greedy tokens.
    ids = tokenizer(refs.text()).input_ids
    number = refs.CONTEXT[o.model] - refs.GREEDY
    assert len(ids) >= number, f"text.txt has only {len(ids)} tokens"
    ids = ids[:number]
    reader = Reader(model)
    logprobs, last = reader.read(ids)
    greedy, greedy_logprobs = reader.greedy(last, refs.GREEDY)
    sums = [sum(logprobs[i:i + refs.CHUNK]) for i in range(0, len(logprobs), refs.CHUNK)]
    first = logprobs[:refs.TEXT_TOKENS - 1]
    out["text"] = dict(tokens=refs.TEXT_TOKENS, perplexity=math.exp(-sum(first) / len(first)))
    out["context"] = dict(tokens=number, sha256=hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest(), sums=rounded(sums),
                          greedy=greedy, greedy_logprobs=rounded(greedy_logprobs))
    print(o.model, "perplexity", out["text"]["perplexity"], "context", number, len(greedy), flush=True)
    refs.write(o.out, out)


if __name__ == "__main__":
    main()
