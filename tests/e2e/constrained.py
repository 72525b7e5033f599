#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that fit a JSON Schema, over HTTP: constrained.py URL LEAST_AT_ONCE

Every answer to a schema of the list parses, and fits it by a validator of its own; answers without a constraint are the
same bits next to constrained ones; what cannot be kept is refused with the pointer to it.
"""
import json
import sys
import threading
import urllib.error
import urllib.request

URL, AT_ONCE = sys.argv[1], int(sys.argv[2])
PROMPTS = ["37+48=", "reverse stone=", "sort 52914=", "count 3 to 9="]


def post(path, **body):
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def fail(words):
    sys.exit("FAILED: " + words)


# ---- a validator of the keywords below ----

def is_type(name, x):
    number = isinstance(x, (int, float)) and not isinstance(x, bool)
    return {"null": x is None, "boolean": isinstance(x, bool), "string": isinstance(x, str), "array": isinstance(x, list),
            "object": isinstance(x, dict), "number": number, "integer": number and x == int(x)}[name]


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def resolve(root, ref):
    at = root
    for part in ref.lstrip("#/").split("/") if ref != "#" else []:
        at = at[part]
    return at


def fits_object(s, x, root):
    known = s.get("properties", {})
    return (all(k in x for k in s.get("required", [])) and all(fits(known[k], x[k], root) for k in x if k in known)
            and all(fits(s.get("additionalProperties", True), x[k], root) for k in x if k not in known))


def fits_array(s, x, root):
    first = s.get("prefixItems", [])
    return (s.get("minItems", 0) <= len(x) <= s.get("maxItems", len(x)) and all(fits(f, v, root) for f, v in zip(first, x))
            and all(fits(s.get("items", True), v, root) for v in x[len(first):]))


def fits_number(s, x):
    return (s.get("minimum", x) <= x <= s.get("maximum", x) and ("exclusiveMinimum" not in s or x > s["exclusiveMinimum"])
            and ("exclusiveMaximum" not in s or x < s["exclusiveMaximum"]))


def fits(s, x, root):
    if isinstance(s, bool):
        return s
    types = s.get("type", [])
    ok = not types or any(is_type(t, x) for t in ([types] if isinstance(types, str) else types))
    ok &= "enum" not in s or any(same(v, x) for v in s["enum"])
    ok &= "const" not in s or same(s["const"], x)
    ok &= "$ref" not in s or fits(resolve(root, s["$ref"]), x, root)
    ok &= all(fits(b, x, root) for b in s.get("allOf", []))
    ok &= "anyOf" not in s or any(fits(b, x, root) for b in s["anyOf"])
    ok &= "oneOf" not in s or sum(fits(b, x, root) for b in s["oneOf"]) == 1
    if isinstance(x, str):
        ok &= s.get("minLength", 0) <= len(x) <= s.get("maxLength", len(x))
    if is_type("number", x):
        ok &= fits_number(s, x)
    if isinstance(x, list):
        ok &= fits_array(s, x, root)
    if isinstance(x, dict):
        ok &= fits_object(s, x, root)
    return bool(ok)


# ---- schemas ----

def obj(required=None, **properties):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


text, number = {"type": "string", "maxLength": 8}, {"type": "integer", "minimum": 0, "maximum": 99}
SCHEMAS = [
    {"type": "null"}, {"type": "boolean"}, {"type": "integer"}, {"type": "number"}, text, True,
    {"enum": ["red", "green", 3, None]}, {"const": {"a": [1, True]}}, {"type": ["boolean", "null"]},
    {"type": "integer", "minimum": 17, "maximum": 23}, {"type": "integer", "exclusiveMinimum": -5, "exclusiveMaximum": 5},
    {"type": "number", "minimum": 0, "maximum": 1}, {"type": "number", "exclusiveMinimum": 0, "maximum": 2.5},
    {"type": "string", "minLength": 3, "maxLength": 5}, {"type": "string", "minLength": 2, "maxLength": 2},
    {"type": "array", "items": number, "minItems": 1, "maxItems": 4}, {"type": "array", "maxItems": 0},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3},
    {"type": "array", "prefixItems": [number, text], "items": False, "minItems": 2},
    {"type": "array", "items": {"type": "array", "items": number, "maxItems": 2}, "maxItems": 3},
    obj(a=number), obj(a=number, b=text, c={"type": "boolean"}), obj([], a=number, b=text), obj(["b"], a=text, b=number),
    {"type": "object", "additionalProperties": False}, obj(a=obj(b=obj(c=number))),
    obj(list={"type": "array", "items": obj(x=number, y=number), "maxItems": 3}),
    {"type": "object", "properties": {"a": number}, "additionalProperties": False},
    {"anyOf": [number, {"type": "boolean"}, obj(a=number)]}, {"anyOf": [{"const": "yes"}, {"const": "no"}]},
    {"oneOf": [obj(kind={"const": "a"}, a=number), obj(kind={"const": "b"}, b=text)]},
    {"allOf": [obj(a=number), {"properties": {"a": {"minimum": 90}}}]},
    {"$ref": "#/$defs/pair", "$defs": {"pair": obj(left=number, right=number)}},
    {"$defs": {"tree": obj(["v"], v=number, next={"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]})}, "$ref": "#/$defs/tree"},
    obj(name=text, tags={"type": "array", "items": {"enum": ["x", "y", "z"]}, "maxItems": 5}),
    obj(when={"enum": ["now", "later"]}, amount={"type": "number", "minimum": -1, "maximum": 1}),
    {"type": "object", "properties": {"a b": number, "\"": text, "é": {"type": "null"}}, "required": ["a b", "\"", "é"]},
    obj(**{"p%d" % i: {"type": "boolean"} for i in range(12)}), obj([], **{"p%d" % i: number for i in range(12)}),
    obj(command={"enum": ["add", "sub"]}, arguments={"type": "array", "items": number, "minItems": 2, "maxItems": 2}),
    {"title": "described", "description": "no effect", "type": "object", "properties": {"a": {"$comment": "x", **number}}, "required": ["a"]},
]


def ask_schema(i, schema, told, how):
    body = {"prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 200, "temperature": 1, "n": 2, "seed": 1000 + i}
    forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}},
             {"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"json_schema": schema}]
    status, answer = post("/v1/completions", **body, **forms[(i + how) % len(forms)])
    if status != 200:
        told.append("%s: %s" % (schema, answer))
        return
    for choice in answer["choices"]:
        if choice["finish_reason"] == "length":
            told.append(None)
            continue
        try:
            value = json.loads(choice["text"])
        except ValueError:
            told.append("%s: no JSON: %r" % (schema, choice["text"]))
            continue
        told.append(choice["text"] if choice["finish_reason"] == "stop" and fits(schema, value, schema)
                    else "%s: %r does not fit, or ended with %s" % (schema, choice["text"], choice["finish_reason"]))
        if told[-1] != choice["text"]:
            return


def all_at_once(calls):
    threads = [threading.Thread(target=call, args=arguments) for call, *arguments in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def ask_open(i, out):
    out[i] = post("/v1/completions", prompt=PROMPTS[i % 4], max_tokens=60, temperature=1, seed=i, ignore_eos=True, logprobs=2)[1]["choices"]


def check_answers():
    """All schemas, several at a time, next to answers without one."""
    alone, beside, told = {}, {}, [[] for _ in range(max(len(SCHEMAS), AT_ONCE))]
    for i in range(6):
        ask_open(i, alone)
    calls = [(ask_schema, i, SCHEMAS[i % len(SCHEMAS)], told[i], i // len(SCHEMAS)) for i in range(len(told))]
    all_at_once(calls + [(ask_open, i, beside) for i in range(6)])
    whole = cut = 0
    for i, answers in enumerate(told):
        if not answers:
            fail("schema %d has no answer" % i)
        for answer in answers:
            if answer is not None and answer.startswith(str(SCHEMAS[i % len(SCHEMAS)]) + ": "):
                fail(answer)
            whole += answer is not None
            cut += answer is None
    if whole < 9 * cut:
        fail("%d answers are whole, %d were cut at max_tokens" % (whole, cut))
    for i in range(6):
        if alone[i] != beside[i]:
            fail("an answer without a schema is another one next to those with: %s, alone %s" % (beside[i], alone[i]))
    print("%d answers fit their schemas, %d were cut at max_tokens" % (whole, cut))


def check_chat():
    schema = obj(a=number, b=text)
    form = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": schema}}
    status, answer = post("/v1/chat/completions", messages=[{"role": "user", "content": "37+48="}], response_format=form, logprobs=True)
    if status != 200 or not fits(schema, json.loads(answer["choices"][0]["message"]["content"]), schema):
        fail("a chat: %s" % answer)
    status, answer = post("/v1/completions", prompt="37+48=", response_format={"type": "json_object"}, max_tokens=40)
    if status != 200 or not answer["choices"][0]["text"].startswith("{"):
        fail("json_object: %s" % answer)
    # The end goes before min_tokens and ignore_eos, which put it off for as long as something else may come.
    status, answer = post("/v1/completions", prompt="37+48=", guided_json={"const": 7}, min_tokens=9, max_tokens=20, ignore_eos=True)
    if status != 200 or answer["choices"][0]["text"] != "7" or answer["choices"][0]["finish_reason"] != "stop":
        fail("min_tokens and ignore_eos: %s" % answer)
    status, answer = post("/v1/completions", prompt="37+48=", guided_json={"type": "string"}, stop=["a", "e", "o"], temperature=1, max_tokens=200)
    if status != 200 or any(c in answer["choices"][0]["text"] for c in "aeo"):
        fail("stop strings: %s" % answer)


def check_refused():
    bad = {"type": "object", "properties": {"a": {"not": {}}}}
    for body, param, code in [
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": bad}}},
             "response_format.json_schema.schema/properties/a/not", "unsupported"),
            ({"structured_outputs": {"json": bad}}, "structured_outputs.json/properties/a/not", "unsupported"),
            ({"guided_json": {"type": "string", "pattern": "a(?=b)"}}, "guided_json/pattern", "unsupported"),
            ({"guided_json": "{"}, "guided_json", "invalid_argument"),
            ({"guided_json": {"enum": []}}, "guided_json/enum", None),
            ({"guided_json": {}, "num_beams": 2}, "guided_json", "unsupported"),
            ({"guided_json": {}, "allowed_token_ids": [1]}, "allowed_token_ids", "unsupported"),
            ({"guided_json": {}, "echo": True, "logprobs": 1, "max_tokens": 0}, "guided_json", "unsupported"),
            ({"guided_regex": "a+"}, "guided_regex", "unsupported")]:
        status, answer = post("/v1/completions", prompt="37+48=", **body)
        error = answer.get("error", {})
        if status != 400 or not error["param"].startswith(param) or code not in (error["code"], None):
            fail("%s is answered with %d %s" % (body, status, answer))


if __name__ == "__main__":
    check_refused()
    check_chat()
    check_answers()
