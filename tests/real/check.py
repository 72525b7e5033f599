#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what a served model answers over HTTP with reference answers (make_references.py), or with its own.

  check.py answers REF --url URL [--tokens N] [--parallel N] [--only NAME,...] [--tolerance X] [--no-tokenizer]
      ids of each prompt, log probabilities of its tokens, and the greedy tokens with theirs
  check.py context REF --url URL [--tolerance X]   perplexity of a text, and the model's whole context with tokens after it
  check.py ends REF --url URL        answers end at the model's end-of-sequence tokens and before stop strings
  check.py record OUT --url URL --model NAME       the same answers of a cluster, as references for another layout
  check.py same --url URL --parallel N             answers that are asked for together are those that come one at a time, to the bit
  check.py turns OUT --url URL [--turns N]         a conversation of many turns, written to OUT
  check.py stream OUT --url URL [--tokens N]       the streamed answer of one chat, written to OUT as it comes
Exit code 1 where something differs, with a line for each place.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import sys
import urllib.error
import urllib.request

import references as refs

LIMIT_S = 900  # a request that takes longer hangs


class Refused(Exception):
    pass


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as e:
        raise Refused(f"{path}: {e.code} {e.read().decode()[:400]}") from None


def complete(url, ids, tokens, **more):
    """One greedy completion: its tokens, their log probabilities and those of the prompt's tokens, and the gaps where asked."""
    body = dict(prompt=ids, max_tokens=tokens, temperature=0, ignore_eos=True, logprobs=2, return_token_ids=True, **more)
    c = post(url, "/v1/completions", body)["choices"][0]
    out = dict(tokens=c["token_ids"], logprobs=c["logprobs"]["token_logprobs"], prompt=None)
    tops = [sorted(t.values(), reverse=True) for t in c["logprobs"]["top_logprobs"]]
    # Two tokens of one text are one member: such a place counts as a tie.
    out["gaps"] = [t[0] - t[1] if len(t) > 1 else 0 for t in tops]
    if c.get("prompt_logprobs"):
        out["prompt"] = [p[str(t)]["logprob"] for p, t in zip(c["prompt_logprobs"][1:], ids[1:])]
    return out


def in_parallel(number, work, items):
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        return list(pool.map(work, items))


def tokenized(url, text, messages, chats):
    if messages is not None and chats:
        return post(url, "/tokenize", dict(messages=messages))["tokens"]
    return post(url, "/tokenize", dict(prompt=text if messages is None else refs.plain(messages)))["tokens"]


def has_template(url):
    try:
        post(url, "/tokenize", dict(messages=[dict(role="user", content="x")]))
    except Refused:
        return False
    return True


def furthest(a, b):
    return max((abs(x - y) for x, y in zip(a, b)), default=0)


class Report:
    def __init__(self):
        self.wrong = 0

    def fail(self, text):
        self.wrong += 1
        print(f"DIFFERS: {text}")

    def close(self, text):
        print(text)
        sys.exit(self.wrong > 0)


def load(path):
    with open(path, encoding="utf8") as file:
        return json.load(file)


def compare(report, p, got, tolerance, tokens):
    """Of one prompt: returns the furthest log probability."""
    wanted = p["greedy"][:tokens]
    greedy = got["tokens"][:len(wanted)]
    if greedy != wanted:
        at = next((i for i, (x, y) in enumerate(zip(greedy, wanted)) if x != y), len(greedy))
        report.fail(f"{p['name']}: greedy token {at} of {len(wanted)} is {greedy[at:at + 1]}, not {wanted[at:at + 1]}")
        return 0
    far = furthest(got["logprobs"], p["greedy_logprobs"][:len(wanted)])
    if got["prompt"] is not None and "logprobs" in p:
        if len(got["prompt"]) != len(p["logprobs"]):
            report.fail(f"{p['name']}: {len(got['prompt'])} log probabilities of the prompt, not {len(p['logprobs'])}")
        far = max(far, furthest(got["prompt"], p["logprobs"]))
    if far > tolerance:
        report.fail(f"{p['name']}: a log probability is off by {far:.2e}, more than {tolerance:g}")
    return far


def answers(o):
    ref, report = load(o.ref), Report()
    ps = [p for p in ref["prompts"] if not o.only or p["name"] in o.only.split(",")]
    if not ps:
        sys.exit("no prompt has such a name")
    if not o.no_tokenizer:
        chats = has_template(o.url)
        asked = {name: (text, messages) for name, text, messages in refs.prompts()}
        for p in ps:
            got = tokenized(o.url, *asked[p["name"]], chats)
            if got != p["ids"]:
                at = next((i for i, (x, y) in enumerate(zip(got, p["ids"])) if x != y), min(len(got), len(p["ids"])))
                report.fail(f"{p['name']}: {len(got)} ids, not {len(p['ids'])}; id {at} is {got[at:at + 3]}, not {p['ids'][at:at + 3]}")

    def one(p):
        more = {} if o.no_prompts else dict(prompt_logprobs=0)
        return complete(o.url, p["ids"], max(1, min(o.tokens, len(p["greedy"]))), **more)

    far = [compare(report, p, got, o.tolerance, o.tokens) for p, got in zip(ps, in_parallel(o.parallel, one, ps))]
    number = sum(min(o.tokens, len(p["greedy"])) for p in ps)
    report.close(f"{len(ps)} prompts of {sum(len(p['ids']) for p in ps)} tokens, {o.parallel} at a time: {number} greedy tokens compared, "
                 f"log probabilities within {max(far):.1e}; {report.wrong} differ")


def context(o):
    ref, report = load(o.ref), Report()
    c, wanted = ref["context"], ref["text"]
    ids = post(o.url, "/tokenize", dict(prompt=refs.text()))["tokens"][:c["tokens"]]
    if hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest() != c["sha256"]:
        report.fail("text.txt has other ids")
    first = complete(o.url, ids[:wanted["tokens"]], 1, prompt_logprobs=0)["prompt"]
    perplexity = math.exp(-sum(first) / len(first))
    off = abs(perplexity / wanted["perplexity"] - 1)
    print(f"perplexity of {len(first) + 1} tokens {perplexity:.6f}, reference {wanted['perplexity']:.6f}: off by {off:.1e}")
    if not off <= 1e-4:
        report.fail(f"the perplexity is off by {off:.1e}")
    got = complete(o.url, ids, refs.GREEDY, prompt_logprobs=0)
    sums = [sum(got["prompt"][i:i + refs.CHUNK]) for i in range(0, len(got["prompt"]), refs.CHUNK)]
    if len(sums) != len(c["sums"]):
        report.fail(f"log probabilities of {len(got['prompt'])} tokens")
    far = furthest(sums, c["sums"]) / refs.CHUNK
    compare(report, dict(name="context", greedy=c["greedy"], greedy_logprobs=c["greedy_logprobs"]), got, o.tolerance, refs.GREEDY)
    if far > o.tolerance:
        report.fail(f"the mean of {refs.CHUNK} log probabilities is off by {far:.1e}")
    # A token more does not fit.
    try:
        complete(o.url, ids + ids[:1], refs.GREEDY)
        report.fail("a request that is longer than the context was taken")
    except Refused as e:
        if "400" not in str(e) or "max_tokens" not in str(e) and "max_model_len" not in str(e):
            report.fail(f"a request that is too long: {e}")
    report.close(f"context of {len(ids)} tokens and {refs.GREEDY} more: means of {refs.CHUNK} within {far:.1e}, {len(c['greedy'])} greedy tokens compared")


def ends(o):
    ref, report = load(o.ref), Report()
    stops = cuts = 0
    for p in ref["prompts"]:
        more = dict(prompt=p["ids"], temperature=0)
        if p["ends"] is not None:
            stops += 1
            c = post(o.url, "/v1/completions", dict(more, max_tokens=refs.GREEDY))
            text, reason = c["choices"][0]["text"], c["choices"][0]["finish_reason"]
            if text != p["text"] or reason != "stop" or c["usage"]["completion_tokens"] != p["ends"] + 1:
                report.fail(f"{p['name']}: ends with {reason} after {c['usage']['completion_tokens']} tokens, not {p['ends'] + 1}: {text!r}, not {p['text']!r}")
        if len(p["greedy"]) < 12 or len(p["text"].split()) < 5:
            continue
        # A word of the answer, and one that begins inside of one token and ends in another.
        word = p["text"].split()[3]
        for stop in (word, p["text"][9:16]):
            cuts += 1
            c = post(o.url, "/v1/completions", dict(more, max_tokens=len(p["greedy"]), stop=[stop]))["choices"][0]
            right = p["text"][:p["text"].index(stop)]
            if c["text"] != right or c["finish_reason"] != "stop" or c["stop_reason"] != stop:
                report.fail(f"{p['name']}: stop {stop!r}: {c['text']!r}, not {right!r} ({c['finish_reason']}, {c['stop_reason']!r})")
    if not stops and o.must_stop:
        report.fail("no reference ends with an end-of-sequence token")
    report.close(f"{stops} answers end by themselves, {cuts} at stop strings; {report.wrong} differ")


def record(o):
    chats = has_template(o.url)
    out = dict(model=o.model, settings=dict(recorded=True, greedy=refs.GREEDY, tie=refs.TIE), prompts=[])

    def one(p):
        ids = tokenized(o.url, p[1], p[2], chats)
        got = complete(o.url, ids, o.tokens, prompt_logprobs=0)
        n = refs.before_tie(got["tokens"], got["gaps"])
        return dict(name=p[0], ids=ids, logprobs=got["prompt"], greedy=got["tokens"][:n], greedy_logprobs=got["logprobs"][:n])

    out["prompts"] = in_parallel(o.parallel, one, list(refs.prompts()))
    refs.write(o.out, out)
    print(f"{len(out['prompts'])} prompts recorded, {sum(len(p['greedy']) for p in out['prompts'])} greedy tokens before ties")


def same(o):
    report, chats = Report(), has_template(o.url)
    ids = [tokenized(o.url, text, messages, chats) for _, text, messages in refs.prompts()]
    ids += [ids[0] + ids[7], ids[1][:5]]  # as many as are asked for together
    draws = [dict(temperature=0.8, seed=11, top_p=0.9) if i % 3 == 2 else {} for i in range(len(ids))]

    def one(i):
        body = dict(prompt=ids[i], max_tokens=o.tokens, ignore_eos=True, logprobs=2, return_token_ids=True, temperature=0)
        c = post(o.url, "/v1/completions", {**body, **draws[i]})["choices"][0]
        return c["token_ids"], c["text"], c["logprobs"]

    alone = in_parallel(1, one, range(len(ids)))
    together = in_parallel(o.parallel, one, range(len(ids)))
    for i, (a, b) in enumerate(zip(alone, together)):
        if a != b:
            report.fail(f"request {i}: {b[1]!r} among others, {a[1]!r} alone")
    report.close(f"{len(ids)} requests, {o.parallel} at a time and alone: {report.wrong} differ")


QUESTIONS = ["My name is Ada, and I live by the sea.", "What can I cook with fish?", "And with rice?", "Which herbs fit?", "How long does it take?",
             "Can a child help?", "What do I drink with it?", "And for dessert?", "Say that in one sentence.", "What was my name?"]


def turns(o):
    chats, cached, out, messages = has_template(o.url), 0, [], []
    for turn in range(o.turns):
        messages.append(dict(role="user", content=f"{turn + 1}. {QUESTIONS[turn % len(QUESTIONS)]}"))
        if chats:
            c = post(o.url, "/v1/chat/completions", dict(messages=messages, temperature=0, max_tokens=o.tokens, logprobs=True))
            text, logprobs = c["choices"][0]["message"]["content"], [t["logprob"] for t in c["choices"][0]["logprobs"]["content"]]
        else:
            c = post(o.url, "/v1/completions", dict(prompt=refs.plain(messages), temperature=0, max_tokens=o.tokens, logprobs=1))
            text, logprobs = c["choices"][0]["text"], c["choices"][0]["logprobs"]["token_logprobs"]
        cached += c["usage"]["prompt_tokens_details"]["cached_tokens"]
        messages.append(dict(role="assistant", content=text))
        out.append(dict(text=text, logprobs=logprobs))
    with open(o.out, "w", encoding="utf8") as file:
        json.dump(out, file, indent=1)
    print(f"{o.turns} turns, {c['usage']['prompt_tokens']} tokens in the last prompt; tokens from the prefix cache: {cached}")


def stream(o):
    messages = [dict(role="user", content="Tell me a long story about a lighthouse.")]
    body = dict(messages=messages, temperature=0, max_tokens=o.tokens, ignore_eos=True, stream=True)
    request = urllib.request.Request(o.url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    whole = False
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer, open(o.out, "w", encoding="utf8") as file:
        for line in answer:
            line = line.decode().strip()
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                whole = True
                break
            event = json.loads(line[6:])
            if "error" in event:
                sys.exit(f"the stream has an error: {line}")
            file.write(event["choices"][0]["delta"].get("content") or "")
            file.flush()
    if not whole:
        sys.exit("the stream ended without [DONE]")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["answers", "context", "ends", "record", "same", "turns", "stream"])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--tokens", type=int, default=refs.GREEDY)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--no-tokenizer", action="store_true")
    parser.add_argument("--no-prompts", action="store_true", help="no log probabilities of prompts are asked for")
    parser.add_argument("--must-stop", action="store_true")
    o = parser.parse_args()
    if o.file is None and o.what != "same":
        parser.error(f"{o.what} needs a file")
    o.ref = o.out = o.file
    try:
        globals()[o.what](o)
    except Refused as e:
        sys.exit(f"refused: {e}")


if __name__ == "__main__":
    main()
