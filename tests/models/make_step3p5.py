#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the checkpoints step3p5 and step3p7 of tests/data/checkpoints, with the answers that transformers gives.

    make_step3p5.py OUT [--only NAME] [--seed N] [--odd]

step3p5 is the text model alone, with a config.json in the release's words and a draft layer behind the last one; step3p7
the folder that transformers writes, with a small vision tower.  Both are read back by transformers from what is stored,
and answer in float32 on the CPU, with attention written out.  The tensors of expected.safetensors are those of
make_checkpoints.py, and of a fifth prompt of 150 ids: logits.4 has the rows positions.4, top.4 the best token everywhere.
--odd draws other sizes.  Needs torch, transformers 5.24 and safetensors.
"""
import argparse
import json
import math
import os
import shutil

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import Step3p7Config, Step3p7ForConditionalGeneration

LENGTHS, NEW = (19, 7, 33, 1, 150), 24
FULL, LOCAL = "full_attention", "sliding_attention"
SCALING = dict(rope_type="llama3", factor=2.0, original_max_position_embeddings=64, low_freq_factor=1.0, high_freq_factor=32.0)
VISION = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=56, patch_size=14, mlp_ratio=2.0,
              max_position_embeddings=16)


def release(odd):
    """A config.json as released: lists by layer go on for the draft layer."""
    kinds = [FULL, LOCAL, LOCAL, FULL, LOCAL, LOCAL] if odd else [FULL, LOCAL, LOCAL, FULL, LOCAL]
    full = lambda a, b: [a if k == FULL else b for k in kinds]
    return dict(
        architectures=["Step3p5ForCausalLM"], model_type="step3p5", bos_token_id=0, eos_token_id=[1, 2], dtype="bfloat16",
        hidden_size=72 if odd else 48, intermediate_size=100 if odd else 64, num_hidden_layers=len(kinds) - 1,
        vocab_size=277 if odd else 256, max_position_embeddings=256, max_seq_len=256, rms_norm_eps=1e-5, hidden_act="silu",
        num_attention_heads=6 if odd else 4, num_attention_groups=3 if odd else 2, head_dim=20 if odd else 16,
        attention_other_setting=dict(attention_type=LOCAL, num_attention_heads=9 if odd else 6,
                                     num_attention_groups=3 if odd else 2, head_dim=20 if odd else 16,
                                     true_head_dim=20 if odd else 16),
        att_impl_type="GQA", use_qk_norm=True, use_head_wise_attn_gate=True, use_mfa=False, sink=False, zero_centered=True,
        sliding_window=11 if odd else 16, layer_types=kinds, rope_theta=full(5e6, 1e4), rope_scaling=SCALING,
        yarn_only_types=[FULL], use_rope_layers=[], partial_rotary_factors=full(0.5, 1.0),
        use_moe=True, moe_layers_enum="2,3,4" if odd else "1,2,3", moe_layer_offset=0, moe_every_n_layer=1,
        moe_num_experts=10 if odd else 8, moe_top_k=3, moe_intermediate_size=28 if odd else 24,
        share_expert_dim=36 if odd else 20, norm_expert_weight=True, moe_router_activation="sigmoid",
        moe_router_scaling_factor=2.5 if odd else 1.5, use_moe_router_bias=True, need_fp32_gate=True,
        swiglu_limits=[0.0, 0.0, 0.5, 0.9, 0.0, 0.0] if odd else [0.0, 0.0, 0.4, 0.7, 0.0],
        swiglu_limits_shared=[0.8, 0.0, None, 0.5, 0.6, 0.0] if odd else [0.6, 0.0, 0.0, 0.5, 0.0],
        num_nextn_predict_layers=1, tie_word_embeddings=False)


def whole(text):
    """The config of transformers for a text part as released."""
    return Step3p7Config(text_config=dict(text), vision_config=dict(VISION), image_token_id=text["vocab_size"] - 1,
                         bos_token_id=0, eos_token_id=[1, 2], pad_token_id=0, tie_word_embeddings=False)


def draw(model, rng, gain):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:                        # gains are 1 + what is stored, but for those of the vision tower
                p.normal_(0.0, 0.25, generator=rng)
            elif "embed_tokens" in name:
                p.normal_(0.0, 0.6, generator=rng)
            elif "gate_up_proj" in name:            # stored as two tensors
                for half in p.chunk(2, dim=1):
                    half.copy_(torch.empty(half.shape).normal_(0.0, gain / math.sqrt(p.shape[-1]), generator=rng))
            else:
                p.normal_(0.0, gain / math.sqrt(p.shape[-1]), generator=rng)
        for name, b in model.named_buffers():
            if "e_score_correction_bias" in name:
                b.normal_(0.0, 0.1, generator=rng)
        rows = model.lm_head.weight
        rows[:3] *= 0.1                             # ids of marks and images: never asked, seldom answered
        rows[-8:] *= 0.1


def draft_layer(config, rng):
    h, at = config["hidden_size"], f"model.layers.{config['num_hidden_layers']}."
    shapes = {"enorm.weight": (h,), "hnorm.weight": (h,), "eh_proj.weight": (h, 2 * h), "input_layernorm.weight": (h,),
              "self_attn.g_proj.weight": (config["attention_other_setting"]["num_attention_heads"], h)}
    return {at + name: torch.empty(shape).normal_(0.0, 0.2, generator=rng).bfloat16() for name, shape in shapes.items()}


def read(path, dtype):
    model = Step3p7ForConditionalGeneration.from_pretrained(path, dtype=dtype, attn_implementation="eager").eval()
    for name, b in load_file(os.path.join(path, "model.safetensors")).items():
        if "router_bias" in name:                   # in float32, as stored
            gate = model.model.language_model.layers[int(name.split(".")[2])].mlp.gate
            gate.e_score_correction_bias.copy_(b.to(dtype))
    return model


@torch.no_grad()
def forward(model, ids, **more):
    return model(input_ids=torch.tensor([ids]), use_cache=False, **more)


def nmse(x, y):
    return float(((x.double() - y.double()) ** 2).sum() / (y.double() ** 2).sum())


def unsteady(model, ids, rng):
    """How far the logits move when embeddings change in their sixth digit."""
    base = forward(model, ids).logits
    hook = model.get_input_embeddings().register_forward_hook(
        lambda module, args, out: out * (1 + 3e-6 * torch.randn(out.shape, generator=rng)))
    worst = max(nmse(forward(model, ids).logits, base) for _ in range(4))
    hook.remove()
    return worst


def continued(model, ids):
    tokens, lead = [], math.inf
    for _ in range(NEW):
        last = forward(model, ids + tokens).logits[0, -1]
        top = last.topk(2)
        lead = min(lead, float((top.values[0] - top.values[1]) / last.std()))
        tokens.append(int(top.indices[0]))
    return tokens, lead


def matters(model, ids):
    """Returns what could be left out without anybody noticing: of gates, norms, limits, biases."""
    base, lost = forward(model, ids).logits, []
    for l, layer in enumerate(model.model.language_model.layers):
        for what in ("self_attn.g_proj", "self_attn.q_norm", "mlp.limit", "mlp.experts.limit", "mlp.shared_experts.limit", "mlp.gate"):
            *path, last = what.split(".")
            at = layer
            for part in path:
                at = getattr(at, part, None)
            old = getattr(at, last, None)
            if old is None or old == math.inf:
                continue
            with torch.no_grad():
                if last == "limit":
                    at.limit = math.inf
                else:
                    p = old.e_score_correction_bias if last == "gate" else old.weight
                    keep = p.clone()
                    p.zero_()
                if nmse(forward(model, ids).logits, base) < 1e-6:
                    lost.append(f"{l}.{what}")
                if last == "limit":
                    at.limit = old
                else:
                    p.copy_(keep)
    return lost


def answers(path, rng, vocab):
    model, exact, out = read(path, torch.float32), read(path, torch.float64), {}
    noise, least = 0.0, math.inf
    for i, length in enumerate(LENGTHS):
        ids = torch.randint(3, vocab - 8, (length,), generator=rng).tolist()
        result = forward(model, ids, output_hidden_states=True)
        noise = max(noise, nmse(result.logits, forward(exact, ids).logits))
        if noise > 3e-11:
            return None, f"float32 lies {noise:.0e} from float64"
        if i in (0, 2, 4) and unsteady(model, ids, rng) > 3e-9:
            return None, "a small change moves the logits"
        tokens, lead = continued(model, ids)
        least = min(least, lead)
        if lead < 1e-3 or len(set(tokens)) < 8 or min(tokens) < 3 or max(tokens) >= vocab - 8:
            return None, f"prompt {i}: lead {lead:.0e}, {len(set(tokens))} distinct tokens"
        at = torch.arange(length)
        if length > 64:
            at = torch.tensor(sorted({r for r in range(length) if r % 16 == 0} | {15, 17, 31, 33, 65, length - 2, length - 1}))
            out[f"positions.{i}"], out[f"top.{i}"] = at, result.logits[0].argmax(-1)
        out[f"prompt.{i}"], out[f"logits.{i}"], out[f"greedy.{i}"] = torch.tensor(ids), result.logits[0][at], torch.tensor(tokens)
        if i == 0:
            for l, state in enumerate(result.hidden_states):
                out[f"hidden.0.{l}"] = state[0]
        if length > 64 and matters(model, ids):
            return None, f"without effect: {matters(model, ids)}"
    return {k: v.clone().contiguous() for k, v in out.items()}, f"lead {least:.1e}, float32 {noise:.0e} from float64"


def text_alone(path, config, rng):
    """Turns a folder of transformers into the text model as released."""
    file = os.path.join(path, "model.safetensors")
    tensors = {k: v for k, v in load_file(file).items() if not k.startswith(("vision_model.", "vit_large_projector."))}
    tensors.update(draft_layer(config, rng))
    save_file(tensors, file, metadata={"format": "pt"})
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def build(name, out, seed, odd):
    path, config = os.path.join(out, name), release(odd)
    if name == "step3p7":
        config["num_nextn_predict_layers"] = 0
        for key in ("layer_types", "rope_theta", "partial_rotary_factors", "swiglu_limits", "swiglu_limits_shared"):
            config[key] = config[key][:-1]
    for attempt in range(200):
        rng = torch.Generator().manual_seed(seed * 1000 + attempt)
        model = Step3p7ForConditionalGeneration._from_config(whole(config), attn_implementation="eager")
        draw(model, rng, (1.2, 1.6, 2.0, 2.5)[attempt % 4])
        model = model.bfloat16().eval()
        for n, b in model.named_buffers():
            if "e_score_correction_bias" in n:
                b.data = b.data.float()
        shutil.rmtree(path, ignore_errors=True)
        model.save_pretrained(path)
        expected, note = answers(path, rng, config["vocab_size"])
        if not expected:
            print(f"{name}: draw {attempt}: {note}", flush=True)
            continue
        if name == "step3p5":
            text_alone(path, config, rng)
        save_file(expected, os.path.join(path, "expected.safetensors"))
        print(f"{name}: seed {seed * 1000 + attempt}: {note}", flush=True)
        return
    raise SystemExit(f"{name}: no draw will do")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("out")
    ap.add_argument("--only", default="step3p5,step3p7")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--odd", action="store_true")
    args = ap.parse_args()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print("torch", torch.__version__, "transformers", transformers.__version__)
    for name in args.only.split(","):
        build(name, args.out, args.seed, args.odd)


if __name__ == "__main__":
    main()
