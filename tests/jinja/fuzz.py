#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random templates, rendered by Trireme and by jinja2: fuzz.py RENDER_TEMPLATE [COUNT [SEED]]. Prints what differs.

Where jinja2 fails, any error is right. It needs jinja2 3.1 (see oracle.py).
"""
import copy
import json
import random
import subprocess
import sys

import make_cases
import oracle

NAMES = list(make_cases.VARIABLES) + ["missing", "x", "y"]
ATTRIBUTES = ["role", "content", "a", "b", "items", "tool_calls", "function", "missing", "C"]
STRINGS = ["", "a", "o", " x ", "ab\\n", "<s>", "Äß", "role", "a,b,c", "%s", "{}", "\\u00e9"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "join", "join(',')", "items", "default('q')",
           "default('q', true)", "dictsort", "first", "last", "replace('a', 'b')", "int", "float", "tojson", "tojson(indent=2)", "sort",
           "unique|list", "reverse|list", "map('string')|list", "map(attribute='role')|list", "selectattr('role')|list", "max", "min",
           "sum", "abs", "round", "indent", "wordcount", "select|list", "reject('none')|list", "map('upper')|join('-')"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "boolean", "number", "integer", "true", "false",
         "odd", "even", "equalto 1", "in [1, 'a']", "not none", "not string", "divisibleby 2", "sameas none", "lower", "float"]
METHODS = ["upper()", "lower()", "strip()", "lstrip('a')", "split()", "split(',')", "split('a', 1)", "startswith('a')", "endswith('b')",
           "replace('a', 'b')", "get('a')", "get('q', 3)", "items()", "keys()", "values()", "title()", "join(['a', 'b'])", "rstrip()",
           "capitalize()", "find('a')", "count('a')", "format(1)"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(r, depth):
    kind = r.random()
    if depth <= 0 or kind < 0.15:
        return r.choice([r.choice(NAMES), r.choice(NAMES), str(r.randint(-3, 12)), f"'{r.choice(STRINGS)}'", r.choice(["true", "none", "false", "1.5", "2.0"])])
    sub = lambda: expression(r, depth - 1)
    if kind < 0.30:
        return f"{sub()} {r.choice(OPERATORS)} {sub()}"
    if kind < 0.45:
        return f"({sub()})|{r.choice(FILTERS)}"
    if kind < 0.53:
        return f"({sub()}) is {r.choice(TESTS)}"
    if kind < 0.61:
        return f"({sub()}).{r.choice(METHODS)}"
    if kind < 0.67:
        return f"({sub()}).{r.choice(ATTRIBUTES)}"
    if kind < 0.74:
        if r.random() < 0.5:  # of names: jinja2 folds constants, and then fails otherwise than when it renders
            return f"{r.choice(NAMES)}[{r.choice(['1:', ':-1', '::-1', '1:3'])}]"
        return f"({sub()})[{r.choice([sub(), str(r.randint(-2, 3))])}]"
    if kind < 0.79:
        return f"{sub()} if {sub()} else {sub()}"
    if kind < 0.84:
        return "[" + ", ".join(sub() for _ in range(r.randint(0, 3))) + "]"
    if kind < 0.88:
        return "{" + ", ".join(f"'{r.choice('abc')}': {sub()}" for _ in range(r.randint(0, 2))) + "}"
    if kind < 0.91:
        return f"not {sub()}"
    if kind < 0.94:
        return f"-({sub()})"
    return f"({sub()})"


def body(r, depth):
    return "".join(statement(r, depth) for _ in range(r.randint(1, 3)))


def statement(r, depth):
    minus = lambda: r.choice(["", "", "", "-"])
    begin, end = lambda: "{%" + minus() + " ", lambda: " " + minus() + "%}"
    space = r.choice(["", " ", "\n", "\n  ", "x", " y\n"])
    kind = r.random()
    if depth <= 0 or kind < 0.4:
        return space + "{{" + minus() + " " + expression(r, 2) + " " + minus() + "}}"
    if kind < 0.55:
        other = begin() + "else" + end() + body(r, depth - 1) if r.random() < 0.5 else ""
        return space + begin() + "if " + expression(r, 2) + end() + body(r, depth - 1) + other + begin() + "endif" + end()
    if kind < 0.75:
        what = r.choice(["l", "messages", "d", "d.items()", "s", "range(3)", "tools", expression(r, 1)])
        target = r.choice(["x", "x", "x, y"])
        test = " if " + expression(r, 1) if r.random() < 0.2 else ""
        inside = body(r, depth - 1) + r.choice(["", "", "{{ loop.index }}{{ loop.last }}", "{% if loop.index > 1 %}{% break %}{% endif %}"])
        return space + begin() + f"for {target} in {what}{test}" + end() + inside + begin() + "endfor" + end()
    if kind < 0.9:
        return space + begin() + f"set {r.choice('xy')} = " + expression(r, 2) + end()
    if kind < 0.95:
        return space + begin() + "set x" + end() + body(r, depth - 1) + begin() + "endset" + end()
    name = r.choice("mn")
    return space + begin() + f"macro {name}(x, y=1)" + end() + body(r, depth - 1) + begin() + "endmacro" + end() + "{{ " + name + "(" + expression(r, 1) + ") }}"


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    env = oracle.environment()
    lines = [{"template": body(r, 2), "variables": make_cases.VARIABLES, "now": 0} for _ in range(count)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    got = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(got) == count
    differ = texts = 0
    for line, answer in zip(lines, got):
        want, answer = oracle.render(env, copy.deepcopy(line)), json.loads(answer)
        shown = want.get("text", "")
        if " at 0x" in shown or "<built-in" in shown or "<class" in shown or len(shown) > 1 << 20:
            continue
        texts += "text" in want
        if answer.get("text") == want["text"] if "text" in want else "error" in answer:
            continue
        differ += 1
        print(f"{line['template']!r}\n  jinja2  {str(want)[:300]}\n  trireme {str(answer)[:300]}")
    print(f"{differ} of {count} differ; {texts} have a text")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
