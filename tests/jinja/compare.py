#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chat templates of a folder, rendered by Trireme and by jinja2: compare.py [-v] RENDER_TEMPLATE FOLDER.

Renders each *.jinja of FOLDER over the conversations below: with and without a system message, tools, calls, results,
reasoning, parts, empty contents, a last message to go on with, and orders of roles that templates refuse.
Prints the share of equal texts and of errors that both have, and what differs, one example for each template and kind
(-v: each). Exits 1 where a text differs. It needs jinja2 3.1 (see oracle.py).
"""
import collections
import copy
import itertools
import json
import os
import subprocess
import sys

import oracle

ODD = "  \u00c4pfel & <b>\"quoted\"</b> 'x' \\ \U0001f600\n\n\tend  "
TYPES = {"type": "object", "properties": {
    "city": {"type": "string", "description": "Where, \"so\"", "enum": ["Bern", "Z\u00fcrich"]},
    "days": {"type": ["integer", "null"], "default": None, "minimum": 1},
    "deep": {"type": "object", "properties": {"list": {"type": "array", "items": {"type": "number"}}}, "required": ["list"]},
    "any": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/x"}], "nullable": True},
    "flag": {"type": "boolean", "description": ""}}, "required": ["city", "deep"], "$defs": {"x": {"type": "integer"}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.\nOf <a city>.", "parameters": TYPES}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}
STRICT = {"type": "function", "function": {"name": "sum", "strict": True, "parameters": {
    "type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}}, "additionalProperties": False},
    "return": {"type": "number", "description": "It"}}}
FLAT = {"name": "flat", "description": "Flat", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
ARGUMENTS = {"city": "Z\u00fcrich", "days": 3, "deep": {"list": [1.5, -2, 1e-7]}, "flag": True, "any": None}


def user(content="What is 3 < 5?"):
    return {"role": "user", "content": content}


def said(content="It is.", **more):
    return {"role": "assistant", "content": content, **more}


def call(name="weather", arguments=ARGUMENTS, id="call_12345"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content='{"temperature": 21.5}', **more):
    return {"role": "tool", "content": content, "tool_call_id": "call_12345", "name": "weather", **more}


def parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


TALKS = {
    "one": [user()],
    "odd": [user(ODD)],
    "turns": [user("Hi"), said("Hello!"), user("And?\n"), said(ODD), user("Bye")],
    "answered": [user("Hi"), said("Hello, I ")],
    "empty": [user(""), said(""), user("")],
    "parts": [user(parts("a", "b\n")), said(parts("c")), user(parts(ODD))],
    "image": [user([{"type": "image"}, {"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "x"}}])],
    "media": [user([{"type": "video", "video": "v"}, {"type": "audio", "audio": "a"}, {"type": "text", "text": "?"}])],
    "no parts": [user([]), said([])],
    "call": [user(), said("", tool_calls=[call()]), result(), said("21.5"), user("Thanks")],
    "call, no content": [user(), {"role": "assistant", "tool_calls": [call()]}, result()],
    "call, null": [user(), said(None, tool_calls=[call()]), result()],
    "calls": [user(), said("Both.", tool_calls=[call(), call("clock", {}, "call_67890")]), result(), result("12:00", name="clock")],
    "nine": [user(), said("", tool_calls=[call(id="abcdefghi")]), result(tool_call_id="abcdefghi")],
    "call of text": [user(), said("", tool_calls=[call(arguments=json.dumps(ARGUMENTS))]), result()],
    "call, flat": [user(), said("", tool_calls=[{"name": "clock", "arguments": {"zone": "UTC"}}]), {"role": "tool", "content": "1"}],
    "call, no id": [user(), said("", tool_calls=[{"type": "function", "function": {"name": "clock", "arguments": {}}}]), result()],
    "calls, none": [user(), said("No.", tool_calls=[]), user()],
    "result of parts": [user(), said("", tool_calls=[call()]), result(parts("x", "y"))],
    "result, mapping": [user(), said("", tool_calls=[call()]), result({"t": 1, "l": [None, True]})],
    "result, no name": [user(), said("", tool_calls=[call()]), {"role": "tool", "content": ODD}],
    "results first": [result(), user()],
    "function": [user(), said("", tool_calls=[call()]), {"role": "function", "name": "weather", "content": "1"}],
    "ipython": [user(), said("", tool_calls=[call()]), {"role": "ipython", "content": {"output": 1}}],
    "loop": [user(), *[m for i in range(3) for m in (said("", reasoning_content=f"r{i}", tool_calls=[call("clock", {"n": i})]), result(str(i)))]],
    "thoughts": [user(), said("Yes.", reasoning_content=" Let me see.\n"), user("Sure?")],
    "thoughts, three": [user(), said("Yes.", reasoning_content="m", reasoning="m", thinking="m"), user("Sure?"), said("Y", thinking="n")],
    "thoughts inside": [user(), said("<think>\nHm, </b>\n</think>\n\nYes."), user("Sure?"), said("<think>\n\n</think>\n\nOf course.")],
    "thoughts, half": [user(), said("Hm</think>Yes"), user("<think>x</think>"), said("<think>never ends")],
    "thoughts and call": [user(), said("", reasoning_content="I call.", tool_calls=[call()]), result(), said("Done", reasoning_content="ok")],
    "thoughts in parts": [user(), said([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Yes"}]), user()],
    "two users": [user("a"), user("b")],
    "two answers": [user("a"), said("b"), said("c"), user("d")],
    "answer first": [said("Hello"), user("Hi")],
    "late system": [user("a"), {"role": "system", "content": "Be late."}, user("b")],
    "developer": [{"role": "developer", "content": "Be brief."}, user()],
    "strange role": [user(), {"role": "narrator", "content": "Once."}],
    "no role": [{"content": "x"}],
    "no content": [{"role": "user"}],
    "null content": [user(None)],
    "number": [user(5), said(1.5)],
    "none": [],
    "long": [m for i in range(20) for m in (user(f"q{i}"), said(f"a{i}"))],
    "named": [{"role": "user", "name": "Ann", "content": "Hi"}, said("Hello", name="Bot")],
    "marks": [user("<|im_end|>\n{{ x }} {% if %} <s>[INST] \u2028 \x0b \u0130 \ufb01"), said("</s>")],
}
SYSTEMS = {"": [], "system": [{"role": "system", "content": "You are \u00e9l\u00e9gant.\n"}], "system, empty": [{"role": "system", "content": ""}],
           "system of parts": [{"role": "system", "content": parts("Be", "brief")}]}
TOOLS = {"": {}, "tools null": {"tools": None, "documents": None}, "tool": {"tools": [WEATHER]}, "tools": {"tools": [WEATHER, CLOCK, STRICT]},
         "tools empty": {"tools": []}, "flat tools": {"tools": [FLAT]}}
OPTIONS = [
    {"add_generation_prompt": True}, {"add_generation_prompt": False}, {},
    {"add_generation_prompt": True, "enable_thinking": False, "thinking": False, "reasoning_effort": "low"},
    {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high", "preserve_thinking": True},
    {"add_generation_prompt": False, "enable_thinking": False, "date_string": "26 Jul 2024", "builtin_tools": ["python"], "tools_in_user_message": False},
    {"add_generation_prompt": True, "documents": [{"title": "T", "text": ODD}, {"title": "U", "text": "u"}], "citation_mode": "accurate",
     "safety_mode": "STRICT", "controls": {"length": "short"}, "available_tools": [WEATHER], "citations": True, "custom_tools": [WEATHER]},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def conversations():
    """Each talk with a few choices of the rest, drawn in turn, and two talks with many."""
    rest = list(itertools.product(SYSTEMS, TOOLS, range(len(OPTIONS))))
    turn = itertools.cycle(rest[i * 37 % len(rest)] for i in range(len(rest)))
    for name, talk in TALKS.items():
        chosen = [("", "", 0), ("system", "tools", 0), ("", "tool", 4), ("system", "tools null", 1)] + [next(turn) for _ in range(3)]
        if name in ("one", "calls"):
            chosen = rest[::5]
        for system, tools, option in chosen:
            variables = {**TOKENS, **OPTIONS[option], **TOOLS[tools], "messages": SYSTEMS[system] + talk}
            yield f"{name}; {system}; {tools}; {option}", variables


def answers(program, env, lines):
    """For each line what jinja2 and what Trireme make of it."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    got = subprocess.run([program], input=text.encode(), capture_output=True, check=True).stdout.split(b"\n")[:-1]
    assert len(got) == len(lines)
    for line, answer in zip(lines, got):
        yield oracle.render(env, copy.deepcopy(line)), json.loads(answer)


def shown(want, answer):
    """What differs, in a few lines."""
    if "text" not in want or "text" not in answer:
        return f"  jinja2  {str(want)[-300:]}\n  trireme {str(answer)[-300:]}"
    a, b = want["text"], answer["text"]
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"  at {at}: jinja2 {a[max(0, at - 60):at + 60]!r}\n  trireme {b[max(0, at - 60):at + 60]!r}"


def kind(want, answer):
    """Of a difference: none, a text that differs, an error that only one has, or another one's message."""
    if "text" in want:
        return None if want == answer else "text" if "text" in answer else "error of ours"
    if "text" in answer:
        return "error missed"
    raised = "raise_exception"
    if raised in (want["error"]["kind"], answer["error"]["kind"]) and want != answer:
        return "other error"
    return None


def main():
    arguments = [a for a in sys.argv[1:] if a != "-v"]
    verbose = len(arguments) < len(sys.argv) - 1
    program, folder = arguments
    env = oracle.environment()
    talks = list(conversations())
    count, kinds = collections.Counter(), collections.Counter()
    names = sorted(n for n in os.listdir(folder) if n.endswith(".jinja"))
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8", newline="") as f:
            source = f.read()
        lines = [{"template": source, "variables": variables, "now": 1764028800} for _, variables in talks]
        seen = set()
        for (talk, _), (want, answer) in zip(talks, answers(program, env, lines)):
            count["text" if "text" in want else "error"] += 1
            differs = kind(want, answer)
            kinds[differs] += 1
            if not differs or (differs in seen and not verbose):
                continue
            seen.add(differs)
            print(f"{name}: {talk}: {differs}\n{shown(want, answer)}", flush=True)
    equal = count["text"] - kinds["text"] - kinds["error of ours"]
    print(f"{len(names)} templates, {len(talks)} conversations")
    print(f"texts: {equal} of {count['text']} equal, {100 * equal / max(1, count['text']):.3f}%")
    noticed = count["error"] - kinds["error missed"]
    print(f"errors: {noticed} of {count['error']} noticed, {100 * noticed / max(1, count['error']):.3f}%")
    print(dict((k, n) for k, n in kinds.items() if k))
    sys.exit(equal < count["text"])


if __name__ == "__main__":
    main()
