#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
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
from transformers import (AutoModelForCausalLM, BloomConfig, CohereConfig, DeepseekV3Config, FalconConfig, Gemma2Config,
                          GemmaConfig, GPT2Config, GPTJConfig, GPTNeoConfig, GptOssConfig, GPTNeoXConfig, GraniteConfig,
                          LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, OlmoeConfig, OPTConfig, Phi3Config,
                          PhiConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config, Qwen3MoeConfig, StableLmConfig,
                          Starcoder2Config)

PROMPT_LENGTHS = (19, 7, 33, 1)
GREEDY = 24
LEAST_LEAD = 5e-3
STEADY = dict(opt_narrow=8e-10, gpt_oss_odd=6e-10)   # families whose random draws are easily moved

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

# The other families, with the same awkward sizes: six heads, three key heads where the family has fewer, three layers.
H, L, NH, KV, F, V, C = 96, 3, 6, 3, 136, 331, 192
DECODER = dict(hidden_size=H, num_hidden_layers=L, num_attention_heads=NH, vocab_size=V, max_position_embeddings=C, **IDS)
GROUPED = dict(**DECODER, num_key_value_heads=KV, intermediate_size=F, tie_word_embeddings=False)
TIED = {**GROUPED, "tie_word_embeddings": True}
LOCAL = ["sliding_attention", "full_attention", "sliding_attention"]
MLA = dict(**{**GROUPED, "num_key_value_heads": NH}, moe_intermediate_size=28, n_routed_experts=12, num_experts_per_tok=3,
           n_shared_experts=2, n_group=3, topk_group=2, first_k_dense_replace=1, kv_lora_rank=40, qk_rope_head_dim=8,
           qk_nope_head_dim=12, v_head_dim=20, routed_scaling_factor=1.5)
FALCON = dict(**DECODER, alibi=False, bias=False)
CHECKPOINTS.update({
    "gpt_neo_odd": (lambda: GPTNeoConfig(hidden_size=H, num_layers=3, num_heads=NH, attention_types=[[["local", "global", "local"], 1]],
                                         window_size=5, vocab_size=V, max_position_embeddings=C, **IDS), "bfloat16", {}),
    "gptj_odd": (lambda: GPTJConfig(n_embd=H, n_layer=L, n_head=NH, rotary_dim=6, n_positions=C, vocab_size=V,
                                    tie_word_embeddings=False, **IDS), "float16", {}),
    "opt_odd": (lambda: OPTConfig(**DECODER, ffn_dim=200, word_embed_proj_dim=H), "float16", {}),
    # As OPT-350M: norms behind the additions, no final norm, a narrow embedding.
    "opt_narrow": (lambda: OPTConfig(**{**DECODER, "num_hidden_layers": 2}, ffn_dim=200, word_embed_proj_dim=40, do_layer_norm_before=False), "float16", {}),
    "bloom_odd": (lambda: BloomConfig(hidden_size=H, n_layer=L, n_head=NH, vocab_size=V, **IDS), "bfloat16", {}),
    "falcon_odd": (lambda: FalconConfig(**FALCON, multi_query=True, parallel_attn=True), "bfloat16", {}),
    # As Falcon-40B, Falcon2-11B and Falcon-RW.
    "falcon_new": (lambda: FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=KV), "bfloat16", {}),
    "falcon_new_one_norm": (lambda: FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=KV,
                                                 num_ln_in_parallel_attn=1), "bfloat16", {}),
    "falcon_alibi": (lambda: FalconConfig(**{**FALCON, "alibi": True, "bias": True}, multi_query=False, parallel_attn=False),
                     "bfloat16", {}),
    "mistral_odd": (lambda: MistralConfig(**GROUPED, sliding_window=9, head_dim=20), "bfloat16", {}),
    "qwen2_odd": (lambda: Qwen2Config(**GROUPED), "bfloat16", {}),
    "qwen2_window": (lambda: Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=7, max_window_layers=1),
                     "bfloat16", {}),
    "qwen3_odd": (lambda: Qwen3Config(**GROUPED, head_dim=20), "bfloat16", {}),
    "gemma_odd": (lambda: GemmaConfig(**TIED, head_dim=20), "bfloat16", {}),
    "gemma2_odd": (lambda: Gemma2Config(**TIED, head_dim=20, sliding_window=9, query_pre_attn_scalar=30, layer_types=LOCAL),
                   "bfloat16", {}),
    "phi_odd": (lambda: PhiConfig(**GROUPED, partial_rotary_factor=0.5), "bfloat16", {}),
    "phi3_odd": (lambda: Phi3Config(**GROUPED, sliding_window=11), "bfloat16", {}),
    "phi3_longrope": (lambda: Phi3Config(**{**GROUPED, "max_position_embeddings": 128}, original_max_position_embeddings=16,
                                         rope_parameters=dict(rope_type="longrope", rope_theta=10000.0,
                                                              partial_rotary_factor=0.5, original_max_position_embeddings=16,
                                                              short_factor=[1.0, 1.1, 1.3, 1.6],
                                                              long_factor=[1.0, 1.7, 3.0, 6.0])), "bfloat16", {}),
    "starcoder2": (lambda: Starcoder2Config(**TIED, sliding_window=9), "bfloat16", {}),
    "stablelm": (lambda: StableLmConfig(**GROUPED, use_qkv_bias=True, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25)), "bfloat16", {}),
    "stablelm_parallel": (lambda: StableLmConfig(**GROUPED, use_parallel_residual=True, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)), "bfloat16", {}),
    "olmo2": (lambda: Olmo2Config(**GROUPED), "bfloat16", {}),
    "granite": (lambda: GraniteConfig(**TIED, embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4,
                                      logits_scaling=2.0), "bfloat16", {}),
    "cohere": (lambda: CohereConfig(**TIED, logit_scale=2.0), "bfloat16", {}),
    "cohere_qk_norm": (lambda: CohereConfig(**TIED, logit_scale=0.5, use_qk_norm=True), "bfloat16", {}),
    "mixtral_odd": (lambda: MixtralConfig(**{**GROUPED, "intermediate_size": 52}, num_local_experts=5, num_experts_per_tok=2,
                                          sliding_window=9), "bfloat16", {}),
    "olmoe_odd": (lambda: OlmoeConfig(**{**GROUPED, "intermediate_size": 36}, num_experts=7, num_experts_per_tok=3,
                                      norm_topk_prob=True), "bfloat16", {}),
    "qwen2_moe_odd": (lambda: Qwen2MoeConfig(**GROUPED, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=28,
                                             shared_expert_intermediate_size=60, decoder_sparse_step=1, mlp_only_layers=[1],
                                             norm_topk_prob=True), "bfloat16", {}),
    "qwen3_moe_odd": (lambda: Qwen3MoeConfig(**GROUPED, num_experts=9, num_experts_per_tok=3, moe_intermediate_size=28,
                                             head_dim=20, norm_topk_prob=False), "bfloat16", {}),
    "gpt_oss_odd": (lambda: GptOssConfig(**{**GROUPED, "intermediate_size": 44}, head_dim=20, num_local_experts=6,
                                         num_experts_per_tok=3, sliding_window=9, layer_types=LOCAL, rope_parameters=dict(
                                             rope_type="yarn", rope_theta=10000.0, factor=4.0, truncate=False,
                                             original_max_position_embeddings=32)), "bfloat16", {}),
    "deepseek_v3_odd": (lambda: DeepseekV3Config(**MLA, q_lora_rank=36, norm_topk_prob=True), "bfloat16", {}),
    # Queries without a low rank, and the extra score scale that yarn brings.
    "deepseek_v3_direct": (lambda: DeepseekV3Config(**MLA, q_lora_rank=None, norm_topk_prob=False, rope_parameters=dict(
        rope_type="yarn", rope_theta=10000.0, factor=4.0, mscale=1.0, mscale_all_dim=1.0, beta_fast=32, beta_slow=1,
        original_max_position_embeddings=32)), "bfloat16", {}),
})
LENGTH_DEPENDENT = ("dynamic", "longrope")


def draw_weights(model, rng, gain):
    """Fill every parameter: wide matrices and embeddings, norms around one, biases well away from zero."""
    tied, kind = model.config.tie_word_embeddings, model.config.model_type
    table = 0.04 if kind.startswith("gemma") else 0.15 if tied else 0.6      # Gemma scales its embeddings
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1 or "norm" in name:
                gain_mean = 0.0 if name.endswith("bias") or "sinks" in name or kind.startswith("gemma") else 1.0
                if "word_embeddings_layernorm.weight" in name:
                    gain_mean = 0.25                                         # or the tied head answers with the input
                p.normal_(gain_mean, 0.2, generator=rng)
            elif any(part in name for part in ("embed_tokens", "embed_in", "embed_positions", "word_embeddings", "wte", "wpe")):
                p.normal_(0.0, table, generator=rng)
            elif name.endswith("_bias"):                                     # of experts, one row each
                p.normal_(0.0, 0.2, generator=rng)
            elif p.dim() == 3:                                               # experts, in either orientation
                p.normal_(0.0, gain / (p.shape[-1] * p.shape[-2]) ** 0.25, generator=rng)
            else:
                fan_in = p.shape[0] if "c_" in name and kind == "gpt2" else p.shape[1]  # GPT-2 stores its matrices transposed
                p.normal_(0.0, gain / math.sqrt(fan_in), generator=rng)
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name:
                b.normal_(0.0, 0.05, generator=rng)


class Reference:
    """The stored checkpoint in float32."""

    def __init__(self, path):
        # With attention written out, Falcon's ALiBi is added twice in transformers 5.17: in the mask and to the scores.
        how = "sdpa" if "falcon_alibi" in path else "eager"
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation=how).eval()

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


def answers(path, rng, vocab, length_dependent, patient):
    """The expected tensors, or the reason why this draw will not do.  patient: so many draws failed that a smaller lead and
    fewer distinct tokens will do."""
    least_lead, distinct = (1e-3, 4) if patient else (LEAST_LEAD, 8)
    ref, out, notes = Reference(path), {}, []
    for i, length in enumerate(PROMPT_LENGTHS):
        ids = torch.randint(3, vocab, (length,), generator=rng).tolist()
        moved = ref.sensitivity(ids, rng)
        if moved > STEADY.get(os.path.basename(path), 3e-9):
            return None, f"a small change moves the logits by {moved:.0e}"
        tokens, lead = ref.greedy(ids)
        if lead < least_lead or len(set(tokens)) < distinct:
            return None, f"prompt {i}: lead {lead:.0e}, {len(set(tokens))} distinct tokens"
        result = ref.forward(ids, output_hidden_states=True)
        out[f"prompt.{i}"], out[f"logits.{i}"], out[f"greedy.{i}"] = torch.tensor(ids), result.logits[0], torch.tensor(tokens)
        notes.append(f"{lead:.3f}")
        if length_dependent:
            cached, lead = ref.greedy_cached(ids)
            if lead < least_lead:
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
    for attempt in range(160):
        rng = torch.Generator().manual_seed(seed * 1000 + attempt)
        model = AutoModelForCausalLM.from_config(config(), attn_implementation="eager")
        draw_weights(model, rng, (1.2, 1.7, 2.3)[attempt % 3] if attempt < 60 else (2.3, 3.2)[attempt % 2])
        model.tie_weights()
        shutil.rmtree(path, ignore_errors=True)
        model.to(getattr(torch, dtype)).eval().save_pretrained(path, **options)
        if name == "gpt2_bare":
            strip_prefix(path)
        kind = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type")
        expected, note = answers(path, rng, model.config.vocab_size, kind in LENGTH_DEPENDENT, attempt >= 100)
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
