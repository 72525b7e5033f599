#!/usr/bin/env python3
"""Make the small random-weight checkpoints in tests/data/checkpoints, with the answers a reference gives for them.

    make_checkpoints.py OUT [--only NAME,...] [--seed N]

Each OUT/NAME is a checkpoint in the Hugging Face layout plus expected.safetensors:

    prompt.I        int64 [T]          token ids; T = 19, 7, 33, 1 for I = 0..3
    logits.I        float32 [T, V]     logits at every position
    hidden.0.L      float32 [T, H]     prompt 0: the state before layer L; the last one follows the final norm
    greedy.I        int64 [24]         greedy continuation, the whole sequence computed anew for every token
    greedy_cached.I int64 [24]         only where the rotary frequencies depend on the sequence's length: the continuation
                                       with a key cache, whose entries keep the frequencies they were written with

The weights are drawn wide, so that a wrong mask, position, scale or norm changes the answers visibly, and are stored in 16
bits.  The answers come from the stored values, in float32 on the CPU, with attention written out.  A draw is thrown away
when its greedy answers come near a tie or hardly vary, or when a tiny change of the input moves the logits.

Needs torch, transformers (5.x) and safetensors.
"""
import argparse
import json
import math
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPTNeoXConfig, LlamaConfig

PROMPT_LENGTHS = (19, 7, 33, 1)
GREEDY = 24
LEAST_LEAD = 5e-3

IDS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
# Three layers, three key heads, head_dim 12: nothing splits evenly in two.
ODD = dict(hidden_size=72, num_hidden_layers=3, num_attention_heads=6, vocab_size=331, max_position_embeddings=192, **IDS)
SMALL = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=120,
             vocab_size=211, max_position_embeddings=128, tie_word_embeddings=False, **IDS)


def rope(kind, **more):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=10000.0, **more))


# name: (configuration, storage, options of save_pretrained)
CHECKPOINTS = {
    "llama_odd": (lambda: LlamaConfig(**{**ODD, "num_key_value_heads": 3, "intermediate_size": 136, "tie_word_embeddings": False}),
                  "float16", dict(max_shard_size="150KB")),
    "gpt2_odd": (lambda: GPT2Config(n_embd=72, n_layer=3, n_head=6, n_inner=200, n_positions=192, vocab_size=331, **IDS),
                 "float16", {}),
    "gpt_neox_odd": (lambda: GPTNeoXConfig(**ODD, intermediate_size=200, **dict(rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))), "bfloat16", {}),
    # GPT-2 as its first files spell it: no "transformer." before the names, and the causal masks stored beside the weights.
    "gpt2_bare": (lambda: GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=64, vocab_size=211, **IDS), "float16", {}),
    "llama_rope_linear": (lambda: LlamaConfig(**SMALL, **rope("linear", factor=4.0)), "bfloat16", {}),
    # The frequencies change once a sequence is longer than 16 tokens, as prompts 0 and 2 are from the start.
    "llama_rope_dynamic": (lambda: LlamaConfig(**{**SMALL, "max_position_embeddings": 16}, **rope("dynamic", factor=2.0)),
                           "bfloat16", {}),
    "llama_rope_yarn": (lambda: LlamaConfig(**SMALL, **rope("yarn", factor=4.0, original_max_position_embeddings=32)),
                        "bfloat16", {}),
    "llama_rope_longrope": (lambda: LlamaConfig(**SMALL, **rope(
        "longrope", factor=8.0, original_max_position_embeddings=16,
        short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0], long_factor=[1.0, 1.3, 1.9, 2.8, 4.0, 5.5, 7.0, 8.0])),
        "bfloat16", {}),
    "llama_bias": (lambda: LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True), "float16", {}),
    "llama_head_dim": (lambda: LlamaConfig(**SMALL, head_dim=24), "bfloat16", {}),
}
LENGTH_DEPENDENT = ("dynamic", "longrope")


def draw_weights(model, rng, gain):
    """Fill every parameter: wide matrices and embeddings, norms around one, biases well away from zero."""
    tied = model.config.tie_word_embeddings
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.normal_(0.0 if name.endswith("bias") else 1.0, 0.2, generator=rng)
            elif any(part in name for part in ("embed_tokens", "embed_in", "wte", "wpe")):
                p.normal_(0.0, 0.15 if tied else 0.6, generator=rng)
            else:
                fan_in = p.shape[0] if "c_" in name else p.shape[1]          # GPT-2 stores its matrices transposed
                p.normal_(0.0, gain / math.sqrt(fan_in), generator=rng)


class Reference:
    """The stored checkpoint in float32."""

    def __init__(self, path):
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()

    def fresh(self):
        # transformers remembers the longest sequence it has rotated; a new rotary module forgets earlier sequences.
        inner = self.model.base_model
        if hasattr(inner, "rotary_emb"):
            inner.rotary_emb = type(inner.rotary_emb)(config=self.model.config)

    @torch.no_grad()
    def forward(self, ids, **more):
        self.fresh()
        return self.model(torch.tensor([ids]), use_cache=False, **more)

    def greedy(self, ids):
        ids, tokens, lead = list(ids), [], math.inf
        for _ in range(GREEDY):
            top = self.forward(ids + tokens).logits[0, -1].topk(2)
            lead = min(lead, float(top.values[0] - top.values[1]))
            tokens.append(int(top.indices[0]))
        return tokens, lead

    @torch.no_grad()
    def greedy_cached(self, ids):
        self.fresh()
        out, tokens, lead = self.model(torch.tensor([ids]), use_cache=True), [], math.inf
        while True:
            top = out.logits[0, -1].topk(2)
            lead = min(lead, float(top.values[0] - top.values[1]))
            tokens.append(int(top.indices[0]))
            if len(tokens) == GREEDY:
                return tokens, lead
            out = self.model(torch.tensor([tokens[-1:]]), past_key_values=out.past_key_values, use_cache=True)

    def sensitivity(self, ids, rng):
        """How far the logits move, squared and normalised, when the embeddings are changed in their sixth digit."""
        base = self.forward(ids).logits
        hook = self.model.get_input_embeddings().register_forward_hook(
            lambda module, args, out: out * (1 + 3e-6 * torch.randn(out.shape, generator=rng)))
        worst = max(float(((self.forward(ids).logits - base) ** 2).sum() / (base ** 2).sum()) for _ in range(4))
        hook.remove()
        return worst


def answers(path, rng, vocab, length_dependent):
    """The expected tensors, or the reason why this draw will not do."""
    ref, out, notes = Reference(path), {}, []
    for i, length in enumerate(PROMPT_LENGTHS):
        ids = torch.randint(3, vocab, (length,), generator=rng).tolist()
        moved = ref.sensitivity(ids, rng)
        if moved > 3e-9:
            return None, f"a small change moves the logits by {moved:.0e}"
        tokens, lead = ref.greedy(ids)
        if lead < LEAST_LEAD or len(set(tokens)) < 8:
            return None, f"prompt {i}: lead {lead:.0e}, {len(set(tokens))} distinct tokens"
        result = ref.forward(ids, output_hidden_states=True)
        out[f"prompt.{i}"], out[f"logits.{i}"], out[f"greedy.{i}"] = torch.tensor(ids), result.logits[0], torch.tensor(tokens)
        notes.append(f"{lead:.3f}")
        if length_dependent:
            cached, lead = ref.greedy_cached(ids)
            if lead < LEAST_LEAD:
                return None, f"prompt {i}, cached: lead {lead:.0e}"
            out[f"greedy_cached.{i}"] = torch.tensor(cached)
            same = next((k for k in range(GREEDY) if cached[k] != tokens[k]), GREEDY)
            notes[-1] += f" (cached: same for {same})"
        if i == 0:
            for layer, state in enumerate(result.hidden_states):
                out[f"hidden.0.{layer}"] = state[0]
    return {k: v.clone().contiguous() for k, v in out.items()}, "leads " + ", ".join(notes)


def strip_prefix(path):
    """Rename transformer.h.0... to h.0... and store each layer's causal mask, as GPT-2's first checkpoints did."""
    file = os.path.join(path, "model.safetensors")
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(file).items()}
    config = json.load(open(os.path.join(path, "config.json")))
    for layer in range(config["n_layer"]):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(config["n_positions"], config["n_positions"]))[None, None]
    save_file(tensors, file, metadata={"format": "pt"})


def build(name, out, seed):
    config, dtype, options = CHECKPOINTS[name]
    path = os.path.join(out, name)
    for attempt in range(80):
        rng = torch.Generator().manual_seed(seed * 1000 + attempt)
        model = AutoModelForCausalLM.from_config(config(), attn_implementation="eager")
        draw_weights(model, rng, (1.2, 1.7, 2.3)[attempt % 3])
        model.tie_weights()
        shutil.rmtree(path, ignore_errors=True)
        model.to(getattr(torch, dtype)).eval().save_pretrained(path, **options)
        if name == "gpt2_bare":
            strip_prefix(path)
        kind = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type")
        expected, note = answers(path, rng, model.config.vocab_size, kind in LENGTH_DEPENDENT)
        if expected:
            save_file(expected, os.path.join(path, "expected.safetensors"))
            size = sum(os.path.getsize(os.path.join(path, f)) for f in os.listdir(path))
            print(f"{name:20s} draw {attempt}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes, {note}", flush=True)
            if kind not in (None, "default"):
                rotary = Reference(path).model.base_model.rotary_emb
                print(" " * 20, kind, "attention_scaling", rotary.attention_scaling, "inv_freq", rotary.inv_freq.tolist(), flush=True)
            return
        last = note
    raise SystemExit(f"{name}: no draw will do; the last: {last}")


def old_spelling(out):
    """llama_rope_yarn's weights and answers again, under a config.json as transformers 4 wrote it."""
    source, path = os.path.join(out, "llama_rope_yarn"), os.path.join(out, "llama_old_spelling")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    config = json.load(open(os.path.join(source, "config.json")))
    for key in ("attention_bias", "mlp_bias", "head_dim", "pretraining_tp"):  # absent from early files
        config.pop(key, None)
    config["torch_dtype"] = config.pop("dtype")
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    config["rope_scaling"] = parameters
    config["transformers_version"] = "4.31.0"
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    expected = load_file(os.path.join(path, "expected.safetensors"))
    logits = Reference(path).forward(expected["prompt.0"].tolist()).logits[0]
    print(f"llama_old_spelling: loads; logits differ from llama_rope_yarn's by {float((logits - expected['logits.0']).abs().max()):.1e}", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out")
    ap.add_argument("--only")
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(2)
    names = args.only.split(",") if args.only else list(CHECKPOINTS) + ["llama_old_spelling"]
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for name in names:
        if name == "llama_old_spelling":
            old_spelling(args.out)
        else:
            build(name, args.out, args.seed)


if __name__ == "__main__":
    main()
