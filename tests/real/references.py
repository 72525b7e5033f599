# SPDX-License-Identifier: Apache-2.0
"""What the tests of real models ask (prompts.json, text.txt), as make_references.py and check.py read it."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
GREEDY = 64  # tokens after each prompt
# A continuation is compared up to the place where its two best tokens are this close (in log probability): arithmetic in
# another order may take the other one there, and all that follows.
TIE = 0.002
TEXT_TOKENS = 5000  # of which the perplexity is compared
CHUNK = 128  # tokens of the whole context whose log probabilities are added up
EOS = {"smollm2": [2], "gemma3": [1, 106]}
CONTEXT = {"smollm2": 8192, "gemma3": 8192}


def text():
    with open(os.path.join(HERE, "text.txt"), encoding="utf8") as file:
        return file.read()


def prompts():
    """(name, text or None, messages or None) of each."""
    with open(os.path.join(HERE, "prompts.json"), encoding="utf8") as file:
        listed = json.load(file)
    for p in listed:
        if "ask" in p:
            yield p["name"], None, [dict(role="user", content=p["ask"] + text()[p["from"]:p["to"]])]
        elif "from" in p:
            yield p["name"], text()[p["from"]:p["to"]], None
        else:
            yield p["name"], p.get("text"), p.get("messages")


def plain(messages):
    """A conversation for a model that has no chat template."""
    return "".join(f'{m["role"]}: {m["content"]}\n' for m in messages) + "assistant:"


def before_tie(tokens, gaps):
    """How many tokens stand before the first tie."""
    return next((i for i in range(len(tokens)) if gaps[i] < TIE), len(tokens))


def write(path, out):
    """One prompt a line, under another name until it is whole."""
    new = f"{path}.{os.getpid()}"
    with open(new, "w", encoding="utf8") as file:
        head = {k: v for k, v in out.items() if k != "prompts"}
        file.write(json.dumps(head, separators=(",", ":"))[:-1] + ',"prompts":[\n')
        file.write(",\n".join(json.dumps(p, separators=(",", ":")) for p in out["prompts"]) + "\n]}\n")
    os.replace(new, path)
