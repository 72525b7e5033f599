#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that must call a tool, over HTTP: forced_calls.py URL 0

Each answer to tool_choice "required" or by name has calls of the request's tools alone, whose arguments fit their
parameters unless max_tokens has cut the answer; what cannot be asked for is refused by name.
"""
import json
import random
import sys
import urllib.request

from constrained import PROMPTS, URL, all_at_once, fail, fits, number, obj, post, text

NO_PARAMETERS = {"type": "object", "additionalProperties": False}


def tool(name, parameters=None, **more):
    function = {"name": name, **({} if parameters is None else {"parameters": parameters}), **more}
    return {"type": "function", "function": function}


TREE = {"$ref": "#/$defs/tree", "$defs": {"tree": obj(["v"], v=number, next={"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]})}}
PAIR = {"type": "object", "properties": {"a": {"$ref": "#/definitions/n"}, "b": {"$ref": "#/definitions/n"}},
        "required": ["a", "b"], "definitions": {"n": number}}
SELF = {"properties": {"v": number, "again": {"$ref": "#"}}, "required": ["v"]}
TOOLS = [
    tool("add", obj(a=number, b=number), strict=True), tool("reverse", obj(text=text)), tool("now"),
    tool("set", obj(key={"enum": ["red", "green"]}, on={"type": "boolean"})), tool("pair", PAIR, strict=True), tool("tree", TREE),
    tool("any", {"type": "object", "properties": {"a": {"not": {}}}}), tool("nested", obj(point=obj(x=number, y=number))),
    tool("self", SELF), tool("list", obj(items={"type": "array", "items": number, "maxItems": 3})),
]


def parameters_of(name, tools):
    function = next(t["function"] for t in tools if t["function"]["name"] == name)
    return {"type": "object"} if name == "any" else function.get("parameters", NO_PARAMETERS)


def stream(body):
    """Returns the choices of a stream, as those of an answer at once."""
    request = urllib.request.Request(URL + "/v1/chat/completions", json.dumps({**body, "stream": True}).encode(), {"Content-Type": "application/json"})
    choices = {}
    with urllib.request.urlopen(request, timeout=600) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            for piece in json.loads(line[6:])["choices"]:
                c = choices.setdefault(piece["index"], {"message": {"content": "", "tool_calls": []}, "finish_reason": None})
                c["message"]["content"] += piece["delta"].get("content") or ""
                c["finish_reason"] = piece["finish_reason"] or c["finish_reason"]
                for call in piece["delta"].get("tool_calls", []):
                    calls = c["message"]["tool_calls"]
                    if call["index"] == len(calls):
                        calls.append({"function": {"name": call["function"]["name"], "arguments": ""}})
                    calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    return list(choices.values())


def wrong(choice, tools, name, one):
    """Returns what is wrong with a choice, or None."""
    message, whole = choice["message"], choice["finish_reason"] == "tool_calls"
    calls = message.get("tool_calls") or []
    if not whole and choice["finish_reason"] != "length":
        return "finish_reason"
    if whole and (not calls or message["content"]):
        return "no calls, or text beside them"
    if len(calls) > (1 if one else 16):
        return "too many calls"
    for i, call in enumerate(calls):
        function = call["function"]
        if function["name"] not in ([name] if name else [t["function"]["name"] for t in tools]):
            return "a call of " + function["name"]
        value = json.loads(function["arguments"])
        is_cut = not whole and i == len(calls) - 1
        schema = parameters_of(function["name"], tools)
        if not isinstance(value, dict) or not (is_cut or fits(schema, value, schema)):
            return "arguments of " + function["name"]
    return None


def ask(i, told):
    draw = random.Random(i)
    tools = draw.sample(TOOLS, draw.randint(1, len(TOOLS)))
    name = draw.choice(tools)["function"]["name"] if i % 2 else None
    body = {"messages": [{"role": "user", "content": PROMPTS[i % len(PROMPTS)]}], "tools": tools, "n": 2, "temperature": 1, "seed": i,
            "max_tokens": 400, "tool_choice": {"type": "function", "function": {"name": name}} if name else "required"}
    if i % 4 == 2:
        body["parallel_tool_calls"] = False
    if i % 4 == 0:
        body["min_tokens"] = 250 # the end is put off for as long as another call may come
    try:
        status, answer = (200, {"choices": stream(body)}) if i // 2 % 2 else post("/v1/chat/completions", **body)
        choices = answer["choices"] if status == 200 else fail("%s: %s" % (body, answer))
        for c in choices:
            why = wrong(c, tools, name, name or i % 4 == 2)
            told.append("%s in %s" % (why, json.dumps(c)) if why else (c["finish_reason"], len(c["message"].get("tool_calls") or [])))
    except Exception as e:  # pylint: disable=broad-except
        told.append("%s: %r" % (body, e))


def check_answers():
    told = [[] for _ in range(40)]
    all_at_once([(ask, i, told[i]) for i in range(len(told))])
    for i, answers in enumerate(told):
        if len(answers) != 2 or any(isinstance(a, str) for a in answers):
            fail("request %d: %s" % (i, answers))
    flat = [a for answers in told for a in answers]
    whole, several = sum(a[0] == "tool_calls" for a in flat), sum(a[1] > 1 for a in flat)
    if whole < len(flat) // 2 or not several:
        fail("of %d answers %d are whole, %d have several calls" % (len(flat), whole, several))
    print("%d answers call their tools, %d of them several times; %d were cut at max_tokens" % (len(flat), several, len(flat) - whole))


def check_refused():
    add, required = tool("add", obj(a=number)), {"tool_choice": "required"}
    named = lambda name: {"tool_choice": {"type": "function", "function": {"name": name}}}
    bad = lambda more: tool("bad", {"type": "object", "properties": {"a": {"not": {}}}}, **more)
    for body, param, word in [
            ({"tools": [add, bad({}), bad({"strict": True})], **required}, "tools[2].function.parameters/properties/a/not", "not"),
            ({"tools": [add, bad({"strict": True})], **named("bad")}, "tools[1].function.parameters/properties/a/not", "not"),
            ({"tools": [], **required}, "tool_choice", "tools"), (named("add"), "tool_choice", "tools"),
            ({"tools": [add, tool("sub")], **named("mul")}, "tool_choice", "add, sub"),
            ({"tools": [add], **required, "response_format": {"type": "json_object"}}, "tool_choice", "response_format"),
            ({"tools": [add], **required, "num_beams": 2}, "tool_choice", "beam"),
            ({"tools": [tool("f", {"type": "string"})], **required}, "tools[0].function.parameters/type", "object"),
            ({"tools": [{"type": "function", "function": {}}], **required}, "tools[0].function.name", "name"),
            ({"tools": [add], "parallel_tool_calls": False}, "parallel_tool_calls", "required")]:
        status, answer = post("/v1/chat/completions", messages=[{"role": "user", "content": "37+48="}], **body)
        error = answer.get("error", {})
        if status != 400 or error["param"] != param or word not in error["message"]:
            fail("%s is answered with %d %s" % (body, status, answer))
    # A strict tool that is not the named one asks for nothing.
    status, answer = post("/v1/chat/completions", messages=[{"role": "user", "content": "37+48="}], max_tokens=200,
                          tools=[bad({"strict": True}), add], **named("add"))
    if status != 200 or answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] != "add":
        fail("a tool beside the named one: %s" % answer)


if __name__ == "__main__":
    check_refused()
    check_answers()
