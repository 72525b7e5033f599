#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train "abacus", the small Llama checkpoint that Trireme's tests serve.

Abacus is a 1.5-million-parameter model in the Hugging Face Llama layout.  It answers six kinds of questions whose answers
a program can check:

    37+48=                  ->  85
    reverse stone=          ->  enots
    sort 52914=             ->  12459
    count 7 to 12=          ->  7 8 9 10 11 12
    first pod kit rue =     ->  pod
    last pod kit rue =      ->  rue

Every answer ends with the end-of-text token.  Questions are split by a hash: one in twenty is held out, never trained on,
and `questions.jsonl` and all reported accuracies come from that part alone.

The script needs torch (a GPU for real runs), transformers, tokenizers, safetensors and numpy.

    train_abacus.py --out DIR --steps 8000 --compile      # how the bundled checkpoint was made
    train_abacus.py --out DIR --minutes 5                 # as many steps as fit
    train_abacus.py --out DIR --steps 20 --pool 0.01      # smoke test: everything but accuracy

It writes config.json, generation_config.json, model.safetensors (bfloat16), tokenizer.json, tokenizer_config.json,
questions.jsonl and expected.safetensors, and prints the accuracies.  The answers in the last two files are computed from
the stored bfloat16 weights, in float32 on the CPU, with attention written out ("eager").
"""
import argparse
import hashlib
import json
import math
import multiprocessing
import os
import random
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM

BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
VOCAB = 509  # odd and prime on purpose: no split of the vocabulary comes out even
TASKS = ("sum", "reverse", "sort", "count", "first", "last")

# ------------------------------------------------------------------------------------------------------------------
# Tokenizer: byte-level BPE whose merges leave digits, and nearly all lowercase letters inside words, alone.
# ------------------------------------------------------------------------------------------------------------------

# Llama 3's splitting expression with one change: each digit stands alone.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")

# Pieces joined from the left: "The" gives the merges T+h and Th+e.
FOLD_LEFT = (
    ["first"]
    + [" " + c for c in "abcdefghijklmnopqrstuvwxyz"]
    + [" the", " and", " of", " in", " is", " for"]
    + ["The", "This", "What", "When", "How", "And", "You", "In", "It", "Is", "ABC", " A", " I", " T"]
    + ["  ", "    ", "        ", "\n\n", "\r\n", "\t\t", " =", "==", " ==", "!=", "<=", ">=", "->", "=>", "//", "/*", "*/",
       "();", "...", "..", "++", "--", "&&", "||", "::", " {", " }", " (", "\",", "']", "'s", "'t"]
    + list("éèêëàâäáãåçñóôöòúüùûíîïßøæÉÈÀÄÖÜÑÇ¡¿°£") + list("–—‘’“”…•€→≤≥≠") + list("。、「」") + list("你好世界我是的") + ["😀", "👍", "🚣"]
)
# Pieces joined from the right: "sort" gives r+t, o+rt and s+ort, so that only the rare pair "rt" changes other words.
FOLD_RIGHT = ["sort", "count", "ing"]
# What is left of the vocabulary goes to Cyrillic and Greek letters, as many as fit.
FILL = list("оеаинтсрвлкмдпуяызбгчйхжшюцщэфъё") + list("αοιετσνηυρπκμλωδγχθφβξζψςάέήίόύώ")


def byte_symbols():
    """GPT-2's printable stand-in for each byte."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    table = {b: chr(b) for b in plain}
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + len(table) - len(plain))
    return table


def build_tokenizer():
    symbol = byte_symbols()
    vocab = {s: i for i, s in enumerate(symbol[b] for b in range(256))}
    merges = []

    def merge(left, right):
        if left + right not in vocab and len(vocab) < VOCAB - 3:
            vocab[left + right] = len(vocab)
            merges.append((left, right))

    def spell(piece):
        return [symbol[b] for b in piece.encode()]

    def fold_left(piece):
        parts = spell(piece)
        for i in range(1, len(parts)):
            merge("".join(parts[:i]), parts[i])

    def fold_right(piece):
        parts = spell(piece)
        for i in range(len(parts) - 2, -1, -1):
            merge(parts[i], "".join(parts[i + 1:]))

    # "reverse" and "last" grow from an inner pair that is rare elsewhere ("ve", "as").
    for left, right in (("v", "e"), ("ve", "r"), ("e", "ver"), ("r", "ever"), ("rever", "s"), ("revers", "e"),
                        ("a", "s"), ("as", "t"), ("l", "ast")):
        merge(left, right)
    for piece in FOLD_RIGHT:
        fold_right(piece)
    for piece in FOLD_LEFT + FILL:
        fold_left(piece)
    assert len(vocab) == VOCAB - 3, len(vocab)

    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([BEGIN, END, PAD])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A {BEGIN} $B", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))])
    assert tokenizer.get_vocab_size() == VOCAB
    return tokenizer


# ------------------------------------------------------------------------------------------------------------------
# Questions
# ------------------------------------------------------------------------------------------------------------------

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnprstvwz"


def word(rng, shortest, longest):
    """Half the words are letters at random, half alternate consonants and vowels like real ones."""
    n = rng.randint(shortest, longest)
    if rng.random() < 0.5:
        return "".join(rng.choices(LETTERS, k=n))
    turn = rng.random() < 0.7
    return "".join(rng.choice(CONSONANTS if (i % 2 == 0) == turn else VOWELS) for i in range(n))


def number(rng):
    digits = rng.choices((1, 2, 3), (10, 35, 55))[0]
    return rng.randint(0 if digits == 1 else 10 ** (digits - 1), 10 ** digits - 1)


def question(rng, task, words=(2, 150)):
    """One question: its key (equal keys are the same question for the hold-out), its prompt and its answer."""
    if task == "sum":
        a, b = number(rng), number(rng)
        return f"sum {min(a, b)} {max(a, b)}", f"{a}+{b}=", str(a + b)
    if task == "reverse":
        w = word(rng, 3, 7)
        prompt, answer = f"reverse {w}=", w[::-1]
    elif task == "sort":
        d = rng.choices("0123456789", k=rng.randint(4, 8))
        prompt, answer = f"sort {''.join(d)}=", "".join(sorted(d))
    elif task == "count":
        start = rng.randint(0, 99)
        stop = rng.randint(start, min(99, start + 39))
        prompt, answer = f"count {start} to {stop}=", " ".join(map(str, range(start, stop + 1)))
    else:
        ws = [word(rng, 2, 4) for _ in range(rng.randint(*words))]
        prompt, answer = f"{task} {' '.join(ws)} =", ws[0 if task == "first" else -1]
    return prompt, prompt, answer


def held_out(key):
    return hashlib.sha256(key.encode()).digest()[0] < 13  # 13 of 256: one in twenty


# Training questions live in three pools of one padded length each: (length, longest answer in tokens, batch, task mix).
POOLS = {
    "short": dict(length=24, answer=9, batch=4096, mix=(("sum", 50, None), ("reverse", 30, None), ("sort", 20, None))),
    "medium": dict(length=136, answer=121, batch=384, mix=(("count", 50, None), ("first", 25, (2, 30)), ("last", 25, (2, 30)))),
    "long": dict(length=624, answer=6, batch=48, mix=(("first", 50, (30, 150)), ("last", 50, (30, 150)))),
}


def make_rows(job):
    """Questions for one pool as token rows: prompt, answer, END, padding; with the lengths of prompt and answer."""
    pool, count, seed = job
    rng, spec, tokenizer = random.Random(seed), POOLS[pool], build_tokenizer()
    tasks, weights, words = zip(*spec["mix"])
    ids = np.full((count, spec["length"]), tokenizer.token_to_id(PAD), np.int16)
    lengths = np.zeros((count, 2), np.int16)
    end, done = tokenizer.token_to_id(END), 0
    while done < count:
        batch = []
        for i in rng.choices(range(len(tasks)), weights, k=min(4096, count - done)):
            key, prompt, answer = question(rng, tasks[i], words[i] or (2, 150))
            if not held_out(key):
                batch.append((prompt, answer))
        prompts = tokenizer.encode_batch([p for p, _ in batch])
        answers = tokenizer.encode_batch([a for _, a in batch], add_special_tokens=False)
        for p, a in zip(prompts, answers):
            row = p.ids + a.ids + [end]
            ids[done, :len(row)] = row
            lengths[done] = len(p.ids), len(a.ids) + 1
            done += 1
    assert lengths[:, 1].max() <= spec["answer"]
    return pool, ids, lengths


def make_pools(sizes, seed, processes):
    jobs = [(pool, -(-size // 64), seed * 1000003 + 1009 * k + i)
            for k, (pool, size) in enumerate(sizes.items()) for i in range(64)]
    parts = {pool: [] for pool in sizes}
    with multiprocessing.get_context("fork").Pool(processes) as workers:
        for pool, ids, lengths in workers.imap(make_rows, jobs):  # in order, so that a seed always gives the same pools
            parts[pool].append((ids, lengths))
    return {pool: tuple(np.concatenate(column) for column in zip(*rows)) for pool, rows in parts.items()}


def draw_held_out(rng, task, count):
    """Distinct held-out questions of one task, as (task, prompt, answer)."""
    seen, out = set(), []
    for _ in range(1000 * count):
        key, prompt, answer = question(rng, task)
        if held_out(key) and key not in seen:
            seen.add(key)
            out.append((task, prompt, answer))
        if len(out) == count:
            break
    return out


# ------------------------------------------------------------------------------------------------------------------
# Training
# ------------------------------------------------------------------------------------------------------------------

def make_model(tokenizer):
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=192, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        intermediate_size=448, max_position_embeddings=1024, rms_norm_eps=1e-5, tie_word_embeddings=True,
        initializer_range=0.04, bos_token_id=tokenizer.token_to_id(BEGIN), eos_token_id=tokenizer.token_to_id(END),
        pad_token_id=tokenizer.token_to_id(PAD)))


def batch_loss(forward, head, ids, lengths, longest):
    """Cross entropy on the answer's tokens.  Padding comes last, so that the causal mask already hides it."""
    ids = ids.long()
    hidden = forward(input_ids=ids, use_cache=False).last_hidden_state
    offset = torch.arange(longest, device=ids.device)
    where = lengths[:, :1].long() + offset                                  # positions of the answer's tokens
    where = where.clamp(max=ids.shape[1] - 1)
    target = ids.gather(1, where).masked_fill(offset >= lengths[:, 1:].long(), -100)
    hidden = hidden.gather(1, (where - 1).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))
    return F.cross_entropy(F.linear(hidden, head).flatten(0, 1).float(), target.flatten(), ignore_index=-100)


def train(model, pools, tokenizer, args, device):
    rng = torch.Generator(device).manual_seed(args.seed)
    pools = {name: tuple(torch.from_numpy(a).to(device) for a in arrays) for name, arrays in pools.items()}
    forward = torch.compile(model.model, dynamic=False) if args.compile else model.model
    head = model.get_input_embeddings().weight
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([dict(params=matrices, weight_decay=0.05), dict(params=others, weight_decay=0.0)],
                                  lr=args.lr, betas=(0.9, 0.98), fused=device.type == "cuda")
    checks = [q for t in TASKS for q in draw_held_out(random.Random(args.seed + 1), t, 200)]
    warmup, step, start, next_report = 300, 0, time.time(), 0.0
    model.train()
    while True:
        progress = step / args.steps if args.steps else (time.time() - start) / (60 * args.minutes)
        if progress >= 1:
            break
        for group in optimizer.param_groups:                                # warm up, then a cosine down to 1 %
            group["lr"] = args.lr * min(1, (step + 1) / warmup) * (0.505 + 0.495 * math.cos(math.pi * progress))
        losses = {}
        for name, (ids, lengths) in pools.items():
            pick = torch.randint(len(ids), (POOLS[name]["batch"],), generator=rng, device=device)
            with torch.autocast(device.type, torch.bfloat16):
                losses[name] = batch_loss(forward, head, ids[pick], lengths[pick], POOLS[name]["answer"])
            losses[name].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if progress >= next_report:
            next_report += 0.05
            right = {t: [] for t in TASKS}
            for (task, _, _), (ok, _) in zip(checks, teacher_forced(model, tokenizer, checks, device)):
                right[task].append(ok)
            print(f"step {step:6d} {time.time() - start:6.1f}s "
                  + " ".join(f"{n} {l.item():.5f}" for n, l in losses.items())
                  + " | % right " + " ".join(f"{t} {100 * np.mean(r):.1f}" for t, r in right.items()), flush=True)
    seconds = time.time() - start
    print(f"trained {step} steps in {seconds:.0f} s", flush=True)
    model.eval()
    return step, seconds


# ------------------------------------------------------------------------------------------------------------------
# Answers
# ------------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def teacher_forced(model, tokenizer, questions, device, batch=128):
    """For each question: does greedy decoding give the answer, and the smallest lead of the first choice on the way.

    One pass over prompt and true answer settles it: greedy decoding gives the answer exactly when the first choice is
    right at each of its positions.
    """
    pad, end = tokenizer.token_to_id(PAD), tokenizer.token_to_id(END)
    rows = [(tokenizer.encode(p).ids, tokenizer.encode(a, add_special_tokens=False).ids + [end]) for _, p, a in questions]
    out = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda i: sum(map(len, rows[i])))
    for at in range(0, len(order), batch):
        part = order[at:at + batch]
        longest = max(sum(map(len, rows[i])) for i in part)
        ids = torch.tensor([(rows[i][0] + rows[i][1] + [pad] * longest)[:longest] for i in part], device=device)
        logits = model(input_ids=ids, use_cache=False).logits.float()
        top = logits.topk(2)
        best, lead = top.indices[..., 0].cpu(), (top.values[..., 0] - top.values[..., 1]).cpu()
        for row, i in enumerate(part):
            first, answer = len(rows[i][0]) - 1, rows[i][1]
            span = slice(first, first + len(answer))
            out[i] = (best[row, span].tolist() == answer, float(lead[row, span].min()))
    return out


@torch.no_grad()
def greedy(model, ids, count, end=None):
    """Greedy decoding without a cache: the tokens, and the smallest lead of the first choice."""
    ids, tokens, least = list(ids), [], math.inf
    while len(tokens) < count:
        top = model(input_ids=torch.tensor([ids + tokens]), use_cache=False).logits[0, -1].topk(2)
        least = min(least, float(top.values[0] - top.values[1]))
        tokens.append(int(top.indices[0]))
        if tokens[-1] == end:
            break
    return tokens, least


def write_questions(model, tokenizer, path, seed, least_lead, part=1):
    """200 held-out questions.  Near ties are replaced, so that another order of summation cannot change an answer."""
    rng, end, lines, replaced, leads = random.Random(seed), tokenizer.token_to_id(END), [], 0, []
    right = {t: [0, 0] for t in TASKS}
    for task, count in (("sum", 60), ("reverse", 40), ("sort", 40), ("count", 30), ("first", 15), ("last", 15)):
        count //= part
        for task, prompt, answer in draw_held_out(rng, task, 2 * count):
            if right[task][1] == count:
                break
            tokens, lead = greedy(model, tokenizer.encode(prompt).ids, 128, end)
            if lead < least_lead:
                replaced += 1
                print(f"near tie, replaced: {prompt!r} lead {lead:.4f}", flush=True)
                continue
            reference = tokenizer.decode(tokens)
            ok = tokens[-1] == end and reference == answer
            right[task][0] += ok
            right[task][1] += 1
            leads.append(lead)
            lines.append(json.dumps(dict(prompt=prompt, answer=answer, reference=reference), ensure_ascii=False))
    rng.shuffle(lines)
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")
    print(f"questions.jsonl: {len(lines)} questions, {sum(r for r, _ in right.values())} right, {replaced} near ties replaced, "
          f"smallest lead {min(leads):.4f}; " + ", ".join(f"{t} {r}/{n}" for t, (r, n) in right.items()), flush=True)


@torch.no_grad()
def write_expected(model, tokenizer, path, seed):
    """Logits, hidden states and greedy tokens for prompts of 19, 7, 33 and 1 tokens (the end token does not stop them)."""
    rng, out, report = random.Random(seed), {}, []
    for i, length in enumerate((19, 7, 33, 1)):
        task = {19: "first", 7: "sum", 33: "last"}.get(length)
        best = None
        for attempt in range(20 if task else 1):
            ids = [tokenizer.token_to_id(BEGIN)]
            while task and len(ids) != length:
                ids = tokenizer.encode(question(rng, task, (2, 14))[1]).ids
            tokens, lead = greedy(model, ids, 24)
            if best is None or lead > best[2]:
                best = ids, tokens, lead
            if lead > 0.05:
                break
        ids, tokens, lead = best
        answer = model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        out[f"prompt.{i}"], out[f"greedy.{i}"] = torch.tensor(ids), torch.tensor(tokens)
        out[f"logits.{i}"] = answer.logits[0].float().contiguous()
        if i == 0:
            for layer, state in enumerate(answer.hidden_states):
                out[f"hidden.0.{layer}"] = state[0].float().contiguous()
        report.append(f"{tokenizer.decode(ids)!r} lead {lead:.4f}")
    save_file(out, path)
    print("expected.safetensors: " + "; ".join(report), flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", required=True)
    ap.add_argument("--steps", type=int, default=0)
    ap.add_argument("--minutes", type=float, default=0)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--pool", type=float, default=1.0, help="scale of the training pools")
    ap.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    ap.add_argument("--compile", action="store_true")
    args = ap.parse_args()
    if not args.steps and not args.minutes:
        ap.error("give --steps or --minutes")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()

    tokenizer = build_tokenizer()
    for text in ("37+48=", "reverse stone=", "count 7 to 19=", "last pod kit rue =", "naïve – 你好 🚣\t\x00é"):
        ids = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text, text
        print(repr(text), tokenizer.encode(text).tokens)

    began = time.time()
    sizes = {name: max(64, int(n * args.pool)) for name, n in dict(short=6_000_000, medium=400_000, long=300_000).items()}
    pools = make_pools(sizes, args.seed, args.processes)                    # forks: before the GPU is touched
    print("pools", {n: list(ids.shape) for n, (ids, _) in pools.items()}, f"{time.time() - began:.0f} s", flush=True)

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    model = make_model(tokenizer).to(device)
    print("parameters", sum(p.numel() for p in model.parameters()), "on",
          torch.cuda.get_device_name() if device.type == "cuda" else "CPU", "torch", torch.__version__,
          "transformers", transformers.__version__, flush=True)
    train(model, pools, tokenizer, args, device)

    os.makedirs(args.out, exist_ok=True)
    model.generation_config.do_sample = False
    model.to(torch.bfloat16).save_pretrained(args.out)
    tokenizer.save(os.path.join(args.out, "tokenizer.json"))
    with open(os.path.join(args.out, "tokenizer_config.json"), "w") as f:
        json.dump(dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=BEGIN, eos_token=END, pad_token=PAD,
                       model_max_length=1024, clean_up_tokenization_spaces=False), f, indent=2)
        f.write("\n")

    # From here on everything reads what was stored.
    stored = LlamaForCausalLM.from_pretrained(args.out, dtype=torch.float32, attn_implementation="eager").eval()
    stored.to(device)
    torch.set_num_threads(4)
    smoke = 0 < args.steps < 100
    rng = random.Random(args.seed + 2)
    for task in TASKS:
        questions = draw_held_out(rng, task, 100 if smoke else 2000)
        results = teacher_forced(stored, tokenizer, questions, device, 64)
        right = sum(ok for ok, _ in results)
        print(f"held out {task:8s} {right}/{len(results)} right ({100 * right / len(results):.2f} %), leads under 0.05: "
              f"{sum(lead < 0.05 for _, lead in results)}", flush=True)
    stored.to("cpu")
    write_questions(stored, tokenizer, os.path.join(args.out, "questions.jsonl"), args.seed + 3, 0.0 if smoke else 0.05, 15 if smoke else 1)
    write_expected(stored, tokenizer, os.path.join(args.out, "expected.safetensors"), args.seed + 4)
    for name in sorted(os.listdir(args.out)):
        print(f"{os.path.getsize(os.path.join(args.out, name)):9d} {name}")


if __name__ == "__main__":
    main()
