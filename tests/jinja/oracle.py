#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What jinja2 makes of templates: oracle.py <LINES.jsonl, lines as of tests/tools/render_template.c, prints lines like it.

The environment is that of transformers' chat templates (utils/chat_template_utils.py): an immutable sandbox with trim_blocks,
lstrip_blocks, loop controls, `generation` blocks, tojson without ensure_ascii, raise_exception and strftime_now.
"""
import datetime
import functools
import json
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    """{% generation %}, which marks what an assistant says: a call block, whose names are its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

    def same(self, caller):
        return caller()


class Raised(Exception):
    """By raise_exception."""


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


@functools.lru_cache(maxsize=8)
def compiled(env, source):
    return env.from_string(source)


def render(env, line):
    try:
        template = compiled(env, line["template"])
    except jinja2.TemplateSyntaxError as e:
        return {"error": {"kind": "syntax", "message": str(e)}}
    except Exception as e:
        return {"error": {"kind": "syntax", "message": str(e)}}
    now = datetime.datetime.fromtimestamp(line.get("now", 0), datetime.timezone.utc)
    try:
        return {"text": template.render(strftime_now=now.strftime, **line.get("variables", {}))}
    except Raised as e:
        return {"error": {"kind": "raise_exception", "message": str(e)}}
    except jinja2.UndefinedError as e:
        return {"error": {"kind": "undefined", "message": str(e)}}
    except Exception as e:
        return {"error": {"kind": "type", "message": f"{type(e).__name__}: {e}"}}


def main():
    env = environment()
    for line in sys.stdin:
        print(json.dumps(render(env, json.loads(line)), ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
