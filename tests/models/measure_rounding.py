#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure what 16-bit arithmetic costs transformers on checkpoints of tests/data/checkpoints: DIR/rounding.json.

    measure_rounding.py DIR... [--out FOLDER] [--device cuda]

Each DIR runs in float16 and in bfloat16 on the device, and is compared with the float32 answers in its
expected.safetensors as modelcheck compares (tests/data/checkpoints/README.md describes the file). What the answers do not
hold, the logits along the greedy tokens, comes from float32 on the CPU, as they did; that run must reproduce the stored
answers, or the folder is refused. --out FOLDER also writes FOLDER/NAME/rounding.json.

Needs torch, transformers (5.x) and safetensors.
"""
import argparse
import json
import math
import os
import sys
import time
import traceback

import torch
import transformers
from safetensors.torch import load_file

DTYPES = ("float16", "bfloat16")
REPRODUCED = 1e-10  # normalised squared error of float32 here against the stored float32
SEARCHES = (("beam", 1.0, False), ("beam_long", 2.0, True), ("beam_never", 0.6, "never"))  # as in make_seq2seq.py
OTHER_NAMES = ("kimi_k2",)  # of families whose class has another model_type
TOWER = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14, mlp_ratio=2.0,
             max_position_embeddings=16)  # of Step-3.7, the only class that has Step-3.5's layers: nothing reads it
NEW = 16
NEAREST = 8  # runners-up of a step: where experts change, reach is long


def error(got, want):
    """Normalised squared error, as mc_nmse has it."""
    got, want = got.double().cpu(), want.double().cpu()
    if got.shape != want.shape:
        raise ValueError(f"shape {tuple(got.shape)} where {tuple(want.shape)} is stored")
    norm, err = float((want ** 2).sum()), float(((got - want) ** 2).sum())
    return err / norm if norm > 0 else err


def largest(got, want):
    return float((got.double().cpu() - want.double().cpu()).abs().max())


def worst(values):
    """NaN if one of them is, which max() would lose."""
    return math.nan if any(math.isnan(v) for v in values) else max(values)


class Model:
    """One checkpoint in one type on one device. Attention and experts are written out, as for the stored answers."""

    def __init__(self, path, expected, dtype, device):
        self.config = json.load(open(os.path.join(path, "config.json")))
        self.expected, self.device = expected, device
        self.prompts = sum(name.startswith("prompt.") for name in expected)
        # With attention written out, Falcon's ALiBi is added twice in transformers 5.17: in the mask and to the scores.
        alibi = self.config["model_type"] == "falcon" and self.config.get("alibi")
        kind, config = self.kind_and_config()
        self.model = kind.from_pretrained(path, config=config, dtype=dtype,
                                          attn_implementation="sdpa" if alibi else "eager",
                                          experts_implementation="eager").to(device).eval()

    def kind_and_config(self):
        """The class, and a config where transformers would not read the file's."""
        if self.config["model_type"] == "step3p5":
            kind = transformers.Step3p7ForConditionalGeneration
            return kind, kind.config_class(text_config=dict(self.config), vision_config=dict(TOWER),
                                           tie_word_embeddings=False, pad_token_id=0)
        kind = getattr(transformers, self.config["architectures"][0])
        if self.config["model_type"] in OTHER_NAMES:  # else transformers would not translate the config's keys
            return kind, kind.config_class(**{k: v for k, v in self.config.items() if k != "model_type"})
        return kind, None

    def ids(self, what, i):
        return self.expected[f"{what}.{i}"].to(self.device)

    def compare(self, what, i, got):
        return error(got, self.expected[f"{what}.{i}"])

    def compare_hidden(self, states):
        """Of prompt 0, every state that is stored."""
        found = [layer for layer in range(len(states)) if f"hidden.0.{layer}" in self.expected]
        return worst([error(states[layer][0], self.expected[f"hidden.0.{layer}"]) for layer in found]) if found else None

    def results(self):
        """Of each prompt: nmse, what modelcheck compares; hidden, prompt 0's error between layers (or None); of decoders also
        the logits at the prompt's positions and along the greedy tokens."""
        with torch.no_grad():
            return [self.prompt(i) for i in range(self.prompts)]


class Encoder(Model):
    def prompt(self, i):
        out = self.model(self.ids("prompt", i)[None], output_hidden_states=True)
        got = {"encoder": out.hidden_states[-1][0]}
        if "logits" in out:
            got["logits"] = out.logits[0]
        elif out.get("pooler_output") is not None:
            got["pooled"] = out.pooler_output[0]
        if f"positions.{i}" in self.expected:
            got["encoder"] = got["encoder"][self.ids("positions", i)]
        stored = [what for what in ("encoder", "logits", "pooled") if f"{what}.{i}" in self.expected and what in got]
        return dict(nmse=worst([self.compare(what, i, got[what]) for what in stored]),
                    hidden=self.compare_hidden(out.hidden_states) if i == 0 else None)


class Decoder(Model):
    def fresh(self):
        # transformers remembers the longest sequence it has rotated; a new rotary module forgets earlier sequences.
        inner = self.model.base_model
        if hasattr(inner, "rotary_emb"):
            inner.rotary_emb = type(inner.rotary_emb)(config=self.model.config).to(self.device)

    def tokens(self, i):
        """With a cache where that makes a difference: modelcheck has one."""
        return self.ids("greedy_cached" if f"greedy_cached.{i}" in self.expected else "greedy", i)

    def along(self, i):
        """The logits that each greedy token was chosen from."""
        prompt, tokens = self.ids("prompt", i), self.tokens(i)
        self.fresh()
        if f"greedy_cached.{i}" not in self.expected:
            ids = torch.cat([prompt, tokens[:-1]])
            return self.model(ids[None], use_cache=False).logits[0, len(prompt) - 1:]
        out = self.model(prompt[None], use_cache=True)
        rows = [out.logits[0, -1]]
        for token in tokens[:-1]:
            out = self.model(token.view(1, 1), past_key_values=out.past_key_values, use_cache=True)
            rows.append(out.logits[0, -1])
        return torch.stack(rows)

    def prompt(self, i):
        self.fresh()
        out = self.model(self.ids("prompt", i)[None], use_cache=False, output_hidden_states=True)
        logits = out.logits[0]
        if f"positions.{i}" in self.expected:  # of long prompts some rows are stored
            logits = logits[self.ids("positions", i)]
        return dict(nmse=self.compare("logits", i, logits), logits=logits, along=self.along(i),
                    hidden=self.compare_hidden(out.hidden_states) if i == 0 else None)


class EncoderDecoder(Model):
    def tokens(self, i):
        return self.ids("greedy", i)[1:]  # the first one starts the answer and is not chosen

    def run(self, i, answer):
        out = self.model(input_ids=self.ids("source", i)[None], decoder_input_ids=answer[None], use_cache=False)
        return out.logits[0], out.encoder_last_hidden_state[0]

    def prompt(self, i):
        logits, states = self.run(i, self.ids("prompt", i))
        along, _ = self.run(i, self.ids("greedy", i)[:-1])
        return dict(nmse=worst([self.compare("logits", i, logits), self.compare("encoder", i, states)]), logits=logits,
                    along=along, hidden=None)

    def searches(self, i):
        """How many of the searches find what is stored."""
        found = 0
        for name, penalty, early in SEARCHES:
            best = self.model.generate(self.ids("source", i)[None], max_new_tokens=NEW, do_sample=False, num_beams=4,
                                       length_penalty=penalty, early_stopping=early)[0]
            found += best.tolist() == self.expected[f"{name}.{i}"].tolist()
        return found


def kind_of(expected):
    return EncoderDecoder if "source.0" in expected else Decoder if "greedy.0" in expected else Encoder


def banned(model):
    """The end token, of an encoder-decoder's greedy answer."""
    end = model.model.generation_config.eos_token_id if isinstance(model, EncoderDecoder) else []
    return end if isinstance(end, list) else [end]


def reproduce(model):
    """The float32 results, which must be the stored ones, and as choices the logits along the greedy tokens less what is banned."""
    results = model.results()
    for i, r in enumerate(results):
        if not r["nmse"] <= REPRODUCED or not (r["hidden"] or 0) <= REPRODUCED:
            raise ValueError(f"prompt {i}: float32 does not give the stored answers: error {r['nmse']:.1e}, hidden {r['hidden']}")
        if "along" in r:
            r["choices"] = r["along"].clone()
            r["choices"][:, banned(model)] = -math.inf
            if not torch.equal(r["choices"].argmax(1), model.tokens(i)):
                raise ValueError(f"prompt {i}: float32 does not choose the stored greedy tokens")
    return results


def measure(path, device):
    expected = load_file(os.path.join(path, "expected.safetensors"))
    kind, out = kind_of(expected), {}
    exact = kind(path, expected, torch.float32, "cpu")
    want = reproduce(exact)
    greedy, reach = "along" in want[0], 0.0
    for name in DTYPES:
        model = kind(path, expected, getattr(torch, name), device)
        got = model.results()
        out[name] = dict(nmse=[r["nmse"] for r in got])
        if got[0]["hidden"] is not None:
            out[name]["hidden"] = got[0]["hidden"]
        if greedy:
            most = [worst([largest(r["logits"], expected[f"logits.{i}"]), largest(r["along"], want[i]["along"])])
                    for i, r in enumerate(got)]
            out[name]["max_abs"] = most
            reach = max([reach] + [2 * m for m in most if math.isfinite(m)])
        if kind is EncoderDecoder:
            out[name]["beams"] = [model.searches(i) for i in range(model.prompts)]
    if greedy:
        first = len(expected["greedy.0"]) - len(want[0]["along"])  # of the tokens that are chosen
        out["close"] = [runners_up(r["choices"], reach, first) for r in want]
    return out


def runners_up(choices, reach, first):
    """[step, token, gap] of the tokens that are within reach of the one that is chosen, the nearest ones alone."""
    best = choices.max(1)
    gaps = best.values[:, None] - choices
    gaps[torch.arange(len(gaps)), best.indices] = math.inf
    return [[step + first, token, float(gaps[step, token])] for step in range(len(gaps))
            for token in gaps[step].argsort()[:NEAREST].tolist() if gaps[step, token] <= reach]


def short(value):
    """Three digits are enough, and do not change with every library; JSON has no NaN and no infinity."""
    if isinstance(value, list):
        return [short(v) for v in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.3g}") if math.isfinite(value) else None


def to_text(record):
    def entry(key, value, indent):
        if isinstance(value, dict):
            body = ",\n".join(entry(k, v, indent + "  ") for k, v in value.items())
            return f'{indent}"{key}": {{\n{body}\n{indent}}}'
        if key == "close":  # a line for each prompt
            body = ",\n".join(f"{indent}  {json.dumps(v)}" for v in short(value))
            return f'{indent}"{key}": [\n{body}\n{indent}]'
        return f'{indent}"{key}": {json.dumps(short(value))}'
    return "{\n" + ",\n".join(entry(k, v, "  ") for k, v in record.items()) + "\n}\n"


def summary(record):
    parts = []
    for name in DTYPES:
        r = record[name]
        parts.append(f"{name} nmse {max((v for v in r['nmse'] if math.isfinite(v)), default=math.nan):.1e}")
        if "max_abs" in r:
            parts[-1] += f" max {max((v for v in r['max_abs'] if math.isfinite(v)), default=math.nan):.1e}"
        if "beams" in r:
            parts[-1] += f" beams {sum(r['beams'])} of {len(r['beams']) * len(SEARCHES)}"
        bad = sum(not math.isfinite(v) for v in r["nmse"])
        parts[-1] += f" ({bad} prompts not finite)" if bad else ""
    return ", ".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dirs", nargs="+", metavar="DIR")
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    on_gpu = args.device.startswith("cuda")
    head = dict(transformers=transformers.__version__, torch=torch.__version__,
                device=torch.cuda.get_device_name(args.device) if on_gpu else args.device)
    failed, begun = [], time.monotonic()
    for path in args.dirs:
        path = path.rstrip("/")
        name, since = os.path.basename(path), time.monotonic()
        try:
            record = {**head, **measure(path, args.device)}
            for folder in [path] + ([os.path.join(args.out, name)] if args.out else []):
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, "rounding.json"), "w") as f:
                    f.write(to_text(record))
            print(f"{name}: {summary(record)}, {time.monotonic() - since:.1f} s", flush=True)
        except Exception as e:  # the other folders are worth having
            failed.append(f"{name}: {type(e).__name__}: {e}")
            print(f"{name}: FAILED\n{traceback.format_exc()}", flush=True)
    print(f"{len(args.dirs) - len(failed)} of {len(args.dirs)} folders in {time.monotonic() - begun:.0f} s", flush=True)
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
