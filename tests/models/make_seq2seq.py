#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the encoder-decoders in tests/data/checkpoints, with the answers a reference gives for them.

    make_seq2seq.py OUT [--only NAME,...] [--seed N]
    make_seq2seq.py --rounding CHECKPOINT...

Each OUT/NAME is a checkpoint in the Hugging Face layout plus expected.safetensors:

    source.I         int64 [T]       what the encoder reads; T = 19, 7, 33, 1 for I = 0..3
    prompt.I         int64 [9]       an answer that the decoder is given, start token first
    logits.I         float32 [9, V]  logits at every position of it
    encoder.I        float32 [T, H]  the encoder's final states
    greedy.I         int64 [17]      start token and 16 greedy ones, end token suppressed
    beam.I, beam_long.I, beam_never.I
                     int64 [<= 17]   4 beams, 16 new tokens at most; length_penalty 1.0 / 2.0 / 0.6 with early_stopping
                                     False / True / "never"
    rounding.I       float64 [1]     normalised squared error of logits.I against the same model in float64

The rules are those of make_checkpoints.py: wide weights in 16 bits, answers from the stored values in float32 on the CPU;
draws whose answers are easily moved, hardly vary or come near a tie (a lead of less than a thousandth of the logits'
spread) are thrown away. --rounding adds the last tensor to
existing checkpoints: where it is large, no two float32 programs agree more closely than that.

Needs torch, transformers (5.x) and safetensors.
"""
import argparse
import math
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, BartConfig, MarianConfig, T5Config

LENGTHS = (19, 7, 33, 1)
NEW = 16
MOST_MOVED, LEAST_LEAD, MOST_ROUNDED = 1e-9, 1e-3, 4e-12
SEARCHES = (("beam", 1.0, False), ("beam_long", 2.0, True), ("beam_never", 0.6, "never"))
# Six heads, stacks of different depth, sizes that nothing divides evenly. (With more layers in the decoder than in the
# encoder, T5's cache in transformers 5.17 is too short.)
T5 = dict(d_model=96, d_kv=12, num_heads=6, num_layers=3, num_decoder_layers=2, d_ff=136, vocab_size=331,
          decoder_start_token_id=0, pad_token_id=0, eos_token_id=2)
BART = dict(d_model=96, encoder_layers=2, decoder_layers=3, encoder_attention_heads=6, decoder_attention_heads=6,
            encoder_ffn_dim=136, decoder_ffn_dim=148, max_position_embeddings=96, vocab_size=331, pad_token_id=0,
            eos_token_id=2, bos_token_id=1, forced_eos_token_id=None)
CHECKPOINTS = {
    # The first T5: plain MLPs, a tied head behind a scale; few buckets, which reach less far than the sequences.
    "t5_plain": (lambda: T5Config(**T5, feed_forward_proj="relu", relative_attention_num_buckets=12,
                                  relative_attention_max_distance=20), "bfloat16"),
    "t5_odd": (lambda: T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False), "float16"),
    "marian_odd": (lambda: MarianConfig(**BART, decoder_vocab_size=331, decoder_start_token_id=0, scale_embedding=True,
                                        activation_function="swish"), "bfloat16"),
    "bart_odd": (lambda: BartConfig(**BART, decoder_start_token_id=2, scale_embedding=True), "bfloat16"),
}


def draw_weights(model, rng, gain):
    kind = model.config.model_type
    with torch.no_grad():
        for name, p in model.named_parameters():
            if kind == "marian" and "embed_positions" in name:
                continue                                                     # sinusoids
            if p.dim() == 1:
                p.normal_(0.0 if name.endswith("bias") else 1.0, 0.1 if name.endswith("bias") else 0.2, generator=rng)
            elif "relative_attention_bias" in name:
                p.normal_(0.0, 1.0, generator=rng)
            elif "embed_positions" in name:
                p.normal_(0.0, 0.6, generator=rng)
            elif "shared" in name or "embed" in name:
                # Scaled embeddings are 10 times as large; a tied head must not simply answer with its input.
                plain = getattr(model.config, "feed_forward_proj", "") == "relu"
                p.normal_(0.0, {"bart": 0.06, "marian": 0.03}.get(kind, 0.08 if plain else 0.3), generator=rng)
            elif kind == "t5" and name.endswith((".q.weight", ".k.weight")):  # scores are not scaled
                p.normal_(0.0, 0.5 / math.sqrt(p.shape[1]), generator=rng)
            else:
                p.normal_(0.0, gain / math.sqrt(p.shape[1]), generator=rng)
        if "final_logits_bias" in dict(model.named_buffers()):
            model.final_logits_bias.normal_(0.0, 0.3, generator=rng)
        model.get_output_embeddings().weight[2] *= 2.0                       # or no beam would ever end


def error(got, want):
    return float(((got.double() - want.double()) ** 2).sum() / (want.double() ** 2).sum())


@torch.no_grad()
def logits(model, source, answer):
    out = model(input_ids=source[None], decoder_input_ids=answer[None], use_cache=False)
    return out.logits[0], out.encoder_last_hidden_state[0]


def load(path, dtype):
    return AutoModelForSeq2SeqLM.from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()


def is_movable(model, source, answer, rng):
    base, _ = logits(model, source, answer)
    table, worst = model.get_input_embeddings(), 0.0
    hook = table.register_forward_hook(lambda m, i, o: o * (1 + 3e-6 * torch.randn(o.shape, generator=rng)))
    for _ in range(6):
        worst = max(worst, error(logits(model, source, answer)[0], base))
    hook.remove()
    return worst


def answers(path, config, rng):
    """The tensors of expected.safetensors, or why this draw is no good."""
    model, exact = load(path, torch.float32), load(path, torch.float64)
    out, ended, worst = {}, set(), 0.0
    for i, n in enumerate(LENGTHS):
        source = torch.randint(3, config.vocab_size, (n,), generator=rng)
        answer = torch.randint(3, config.vocab_size, (9,), generator=rng)
        answer[0] = config.decoder_start_token_id
        moved = is_movable(model, source, answer, rng)
        if moved > MOST_MOVED:
            return f"moved {moved:.1e}"
        got, states = logits(model, source, answer)
        rounded = error(got, logits(exact, source, answer)[0])
        if rounded > MOST_ROUNDED:
            return f"rounding {rounded:.1e}"
        out.update({f"source.{i}": source, f"prompt.{i}": answer, f"logits.{i}": got, f"encoder.{i}": states,
                    f"rounding.{i}": torch.tensor([rounded], dtype=torch.float64)})
        greedy = model.generate(source[None], max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, num_beams=1)[0]
        lead = lead_of(model, source, greedy)
        if lead < LEAST_LEAD:
            return f"lead {lead:.1e}"
        if i in (0, 2) and len(set(greedy.tolist())) < (5 if config.model_type == "t5" else 3):
            return f"greedy {greedy.tolist()}"
        out[f"greedy.{i}"] = greedy
        for name, penalty, early in SEARCHES:
            best = model.generate(source[None], max_new_tokens=NEW, do_sample=False, num_beams=4, length_penalty=penalty,
                                  early_stopping=early)[0]
            same = exact.generate(source[None], max_new_tokens=NEW, do_sample=False, num_beams=4, length_penalty=penalty,
                                  early_stopping=early)[0]
            if best.tolist() != same.tolist():
                return f"{name} near a tie"
            out[f"{name}.{i}"] = best
            if len(best) < NEW + 1:
                ended.add((name, i))
    if not 2 <= len(ended) <= 10:
        return f"{len(ended)} of 12 searches ended early"
    print("  rounding", [f"{float(out[f'rounding.{i}']):.1e}" for i in range(4)], "ended early", sorted(ended))
    return out


def lead_of(model, source, tokens):
    values = logits(model, source, tokens[:-1])[0].clone()
    values[:, 2] = -math.inf
    top = values.topk(2).values
    return float((top[:, 0] - top[:, 1]).min() / values[:, 3:].std())


def make(out, name, seed):
    config, storage = CHECKPOINTS[name]
    for attempt in range(160):
        rng = torch.Generator().manual_seed(seed * 1000 + attempt)
        torch.manual_seed(seed * 1000 + attempt)
        model = AutoModelForSeq2SeqLM.from_config(config())
        draw_weights(model, rng, (0.9, 1.2, 1.5, 2.0)[attempt % 4])
        model.tie_weights()
        path = os.path.join(out, name)
        shutil.rmtree(path, ignore_errors=True)
        model.to(getattr(torch, storage)).save_pretrained(path)
        found = answers(path, config(), rng)
        if isinstance(found, str):
            print(f"{name} {attempt}: {found}", flush=True)
            continue
        save_file({k: v.clone().contiguous() for k, v in found.items()}, os.path.join(path, "expected.safetensors"))
        print(f"{name}: draw {attempt}", flush=True)
        return True
    shutil.rmtree(path, ignore_errors=True)
    return False


def add_rounding(path):
    file = os.path.join(path, "expected.safetensors")
    expected, exact = load_file(file), load(path, torch.float64)
    for i in range(len(LENGTHS)):
        want = logits(exact, expected[f"source.{i}"], expected[f"prompt.{i}"])[0]
        expected[f"rounding.{i}"] = torch.tensor([error(expected[f"logits.{i}"], want)], dtype=torch.float64)
    save_file(expected, file)
    print(path, [f"{float(expected[f'rounding.{i}']):.1e}" for i in range(len(LENGTHS))])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", nargs="+")
    parser.add_argument("--only", default=",".join(CHECKPOINTS))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--rounding", action="store_true")
    args = parser.parse_args()
    if args.rounding:
        for path in args.out:
            add_rounding(path)
        return
    if not all([make(args.out[0], name, args.seed) for name in args.only.split(",")]):
        sys.exit("no draw was good enough")


main()
