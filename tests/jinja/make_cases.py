#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes cases.jsonl: templates, one for each construct that chat templates use, with what jinja2 makes of them.

make_cases.py >cases.jsonl; it needs jinja2 3.1 (see oracle.py).
"""
import json

import oracle

MESSAGES = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "  What's 3 < 5?\n\nÄpfel \u00df \U0001f600 \\ \"q\" "},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1.5, "y": [True, None], "ü": "é"}}}]},
    {"role": "tool", "content": "42", "tool_call_id": "c1"},
    {"role": "assistant", "content": "<think>hm</think> It is.", "reasoning_content": "hm"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
]
TOOLS = [{"type": "function", "function": {"name": "get", "description": "Gets\nit", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["a", "b"]}, "n": {"type": ["integer", "null"]}},
    "required": ["city"]}}}]
VARIABLES = {"messages": MESSAGES, "tools": TOOLS, "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True,
             "n": 7, "f": 2.5, "s": "hello world", "e": "", "l": [3, 1, 2], "d": {"b": 2, "a": 1, "C": 3}, "t": True, "z": None,
            "big": 123456789012345678901234567890, "low": -98765432109876543210}

EXPRESSIONS = r"""
1 + 2 * 3 - 4|7 // 2|-7 // 2|7 % 3|-7 % 3|7 / 2|2 ** 10|2 ** -1|7.5 // 2|7.5 % 2|-7.5 % 2|1e3|1.0|0.1 + 0.2|1e16|1e-5|123456789012345680.0
1_000 + 1|10 / 5|3 * 'ab'|'ab' * 2|[1] * 3|[1] + [2]|(1,) + (2,)|(1, 2)|()|[]|{}|{'a': 1, 'b': [1, 'x', None, True, 1.5]}|[1, 'it\'s', "q\"", 'both\'"', "n\nt\t\\"]
s|s.upper()|s.title()|s.split()|s.split('o')|s.split('o', 1)|s.rsplit('o', 1)|s[0]|s[-1]|s[1:4]|s[::-1]|s[::2]|s[:-2]|s[20:]|s[100]|s['x']
l[0]|l[-1]|l[1:]|l[::-1]|l[5]|d.b|d['a']|d.missing|d['missing']|d.items()|d.keys()|d.values()|d.items|d.get('a')|d.get('q', 5)|d.get('q')|d['items']
s ~ n ~ z ~ t ~ f|n if t|n if not t|n if not t else 'no'|1 < 2 < 3|1 < 2 > 3|1 == 1.0|true == 1|'a' < 'b'|[1,2] < [1,3]|'ell' in s|'x' not in s|2 in l|'a' in d|none is none
not t|t and n|e or 'x'|z or n or 1|undefined_thing|undefined_thing.x|undefined_thing == none|undefined_thing is defined|s is string|n is number|n is integer|f is float|l is sequence|d is mapping|l is iterable|s is iterable|n is iterable|t is boolean|t is true|n is odd|n is even|n is divisibleby 7|n is divisibleby(2)
n is eq 7|n is equalto(7)|n is ne 7|n is gt 3|n is in [1,7]|s is upper|'ABC' is upper|'abc' is lower|s is sameas s|z is none|z is not none|s is not defined|range is callable|'upper' is filter|'odd' is test
s|upper|s|title|s|capitalize|s|length|l|length|d|length|z|default('x')|undefined_thing|default('x')|e|default('x', true)|undefined_thing|default|s|replace('o', '0')|s|replace('o', '0', 1)|'  x '|trim|'xxaxx'|trim('x')|l|join(', ')|l|join|[1,'a',none]|join('-')|l|first|l|last|s|first|[]|first|l|sort|l|sort(reverse=true)|['b','A','c']|sort|['b','A','c']|sort(case_sensitive=true)|l|max|l|min|l|sum|l|reverse|list|s|reverse|s|list|l|unique|list
d|dictsort|d|dictsort(true)|d|dictsort(false, 'value')|d|items|list|d|list|messages|map(attribute='role')|list|messages|map(attribute='role')|join(',')|messages|selectattr('role', 'equalto', 'user')|list|length|messages|selectattr('tool_calls')|list|length|messages|selectattr('tool_calls', 'defined')|list|length|messages|rejectattr('role', 'eq', 'user')|map(attribute='role')|list|l|select('odd')|list|l|reject('odd')|list|l|map('string')|list|['a','b']|map('upper')|join|messages|map(attribute='tool_calls.0.id', default='-')|list
'42'|int|'x'|int|'x'|int(5)|'3.7'|int|3.9|int|'1.5'|float|'x'|float|n|float|f|round|2.567|round(2)|2.5|round|3.5|round|2.1|round(0, 'ceil')|-5|abs|(-5.5)|abs|'%s-%d' % ('a', 3)|'%05.2f|%x|%r' % (3.14159, 255, 'q')|'%s'|format(5)|'{} {1} {x!r:>5} {{}}'.format(1, x='z')|'{} {} {x!r:>5} {{}}'.format(1, 2, x='z')|'{:,}'.format(1234567)|'{:.2f}'.format(2.345)|'{:>8}|{:<4}|{:^5}'.format('a','b','c')
tools|tojson|tools|tojson(indent=2)|messages[1]|tojson|messages[1].content|tojson(ensure_ascii=true)|d|tojson(separators=(',', ':'))|d|tojson(sort_keys=true)|1e-7|tojson|1.0|tojson|z|tojson|(1, 2)|tojson|'a/b<c>'|tojson|undefined_thing|tojson|d.items()|tojson|[]|tojson(indent=4)|{}|tojson(indent=1)|{1: 2, none: 3, true: 4, 1.5: 0}|tojson
s.startswith('he')|s.endswith(('x', 'd'))|s.strip('hd')|s.lstrip('h')|s.rstrip('d')|s.replace('l', 'L', 1)|s.find('o')|s.find('q')|s.rfind('o')|s.count('l')|s.index('w')|s.capitalize()|'a,b'.split(',')|' a  b '.split()|' a  b c'.split(none, 1)|'-'.join(['a', 'b'])|'A'.lower()|"it's a".title()|"it's a"|title|'x'.isdigit()|'12'.isdigit()|'a1'.isalnum()|'ab'.isalpha()|' '.isspace()|'a\nb\r\nc'.splitlines()|'a\nb'.splitlines(true)|'prefix'.removeprefix('pre')|'x.y'.removesuffix('.y')
range(3)|list|range(1, 10, 3)|list|range(3, 0, -1)|list|range(0)|list|dict(a=1, b=2)|dict([('x', 1)])|namespace(a=1).a|namespace().q|'Äß'.upper()|'ÄÖ'|lower|'\u00e9\x41\101\n'|'a' 'b' "c"|"\q"|messages[1].content|messages[1]['content'][-3:]|messages[2].tool_calls[0].function.arguments|string|messages|length|messages[0].role == 'system' and messages[0].content|loop|caller
l.append(1)|d.update({})|d.pop('a')|s.foo|s.foo()|n.foo|z.foo|z.foo()|none()|raise_exception('no ' ~ n)|l|nofilter|l is notest|1 +|(1|[1, 2|'a|{{|s|int(base=16)|'ff'|int(0, 16)|'a\tb'|indent|'a\n\nb'|indent(2)|'a\n\nb'|indent(2, true, true)|'a\nb'|indent('> ')|s|wordcount|'<a href="x">'|e|[[1, 2], [3]]|map('sum')|list|[[2, 'a'], [1, 'b']]|sort|list|[1, 2, 3, 4, 5]|batch(2)|list|[1, 2, 3]|batch(2, 0)|list|'%s' % none|'%d%%' % 5|'%s %s' % ('a',)|{'a': 1}.a|{'a': {'b': 2}}.a.b|(l, 1)[0]|-n|+n|-s|not undefined_thing|undefined_thing + 1|undefined_thing ~ 1|undefined_thing in l|1 in undefined_thing|s is in 'xhello worldx'|t + 1|true + true|'a' + 1|1 < 'a'|1 == 'a'|[] == []|{} == {}|{'a': 1} == {'a': 1.0}|n / 0|n % 0|strftime_now('%d %b %Y %H:%M:%S')
"""

# Whole expressions, one a line: numbers, parts of texts, and arguments that a function takes or does not.
WHOLE = r"""
'1_000'|int
'1__0'|int
'_1'|int
'1_'|int
'0x_1f'|int(0,16)
'0x1f'|int(0,16)
'0x1f'|int(0,0)
'0b11'|int(0,0)
'0o17'|int(0,8)
'010'|int(0,0)
'00'|int(0,0)
'zz'|int(0,36)
'1'|int(7,37)
'-12'|int
'+5'|int
' 12 '|int
'- 5'|int
'١٢'|int
'1e5'|int
'1_0.5'|int
'inf'|int(9)
'1e400'|float
'1e400'|int(3)
'-inf'|float
'nan'|float
'infinity'|float
'nan(1)'|float
'0x1p3'|float
('1'*5000)|float
'1_0.5_0'|float
'1_.5'|float
'9223372036854775807'|int
'-9223372036854775808'|int
''|int
'-'|int
'.'|float
'5.'|float
'.5e1'|float
none|int
[]|int(4)
(1e308*10)|int
2.5|round(-1)
12345|round(-2)
12350|round(-2)
12250|round(-2)
-12350|round(-2)
-15|round(-1)
25|round(-1)
5|round(-400)
1234.5|round(-400)
-1234.5|round(-400)
1250.0|round(-2)
1e-50|round(60)
2.5|round(400)
2.675|round(2)
true|round
2.1|round(0,'ceil')
2.1|round(0,'up')
2.1|round(1,'floor')
2.1|round(400,'ceil')
2.1|round(-400,'ceil')
21|round(-1,'ceil')
'x'|round
7|round(2)
range(5)[2]
range(5)[-1]
range(5)[9]
range(0)[0]
'hello'.startswith('l', 2)
'hello'.startswith('l', 2, 2)
'hello'.startswith('', 5)
'hello'.startswith('', 6)
'hello'.startswith('h', -9)
'hello'.startswith('h', none, 3)
'hello'.startswith(('x','l'), -2)
'hello'.startswith((1,'l'), -2)
'hello'.endswith('l', 0, 4)
'hello'.endswith('o', 4)
'hello'.endswith('', 3, 2)
'éàü'.startswith('à', 1)
'hello'.find('l', 3)
'hello'.find('l', 4)
'éàüà'.find('à', 2)
'hello'.rfind('l', 0, 3)
'hello'.index('l', -2)
'hello'.index('h', 1)
'hello'.count('l', 3)
'hello'.count('', 3)
'hello'.count('', 9)
'a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\r\nj\rk\nl'.splitlines()
'a\x0bb\x0cc\x1cd\x1de\x1ef\x85g\u2028h\u2029i\r\nj\rk\nl\n'.splitlines(true)
'a\n\nb'.splitlines()
'\n'.splitlines()
''.splitlines()
'a\r'.splitlines(keepends=true)
'²'.isdecimal()
'²'.isdigit()
'½'.isdigit()
'½'.isnumeric()
'٣'.isdecimal()
'٣'.isdigit()
'a'.upper(1)
'a,b'.split(separator=',')
'a,b'.split(sep=',')
'a,b'.split(',', maxsplit=0)
'a,b'.split(',', 1, 2)
{'a':1}.get('a', default=2)
{'a':1}.get('a', 1, 2)
{'a':1}.items(1)
[1].index(1, 1)
[1].count(1)
(1,2).index(2)
[1].copy()
(1,).copy()
'a'.strip(chars='a')
'a'.replace('a','b',1,2)
'%d' % 1e10
'{x}'.format(x=1)
[2,1]|sort(foo=1)
[2,1]|sort(true)
'a'|upper(1)
['a','b']|map('upper', 1)|list
['a','b']|map('replace', 'a', 'b')|list
[1,2]|select('odd', 1)|list
[{'a':1}]|selectattr('a','eq',1)|list
[{'a':1}]|map(attribute='b', default=3)|list
1 is eq(1,2)
1 is odd(1)
1 is eq(b=1)
'a'|default('x', boolean=true)
''|d('x', true)
{'b':1,'a':2}|tojson(indent=2, sort_keys=true)
[1,2]|sum(start=5)
[1]|join(d=',')
[1,2,3]|batch(2, fill_with=0)|list
'ab'|replace(old='a', new='c')
"ΑΣ. ΣΑ ΑΣ'Α Σ ΑΣ'".lower()
"ΑΣ. ΣΑ ΑΣ'Α Σ ΑΣ'"|title
"ΑΣ. ΣΑ ΑΣ'Α Σ ΑΣ'".title()
'ΟΔΌΣ'|capitalize
'ﬁn ŉ ᾳ ǆ ß ΐ'.upper()
'ﬁn ŉ ᾳ ǆ ß ΐ'.title()
'ﬁn ŉ ᾳ ǆ ß ΐ'|title
'ﬁN'|capitalize
'ªa ʰa ⓐa'.title()
'<a>'|safe + '<b>' + "'c'"
'<a>' + '<b>'|safe
'<a>'|safe ~ '<b>' + '<c>'
('<a>'|safe)[1:] + '<'
('<a>'|safe|trim|string)[0] + '<'
('<A>'|safe).lower() + '<'
('<A>'|safe|upper) + '<'
('<A>'|safe|title) + '<'
('<A>'|safe|replace('A', '&')) + '<'
('<A>'|safe).replace('A', '&') + '<'
(', '|safe).join(['<', '>'|safe]) + '&'
('<%s>%d'|safe) % ('<', 3)
('<{}>{x}'|safe).format('<', x='&')
('<%s>'|safe)|format('<')
('<a>'|safe) * 2 + '<'
2 * ('<a>'|safe) + '<'
'<a>'|e + '<'
'<a>'|e|e
'<a>'|safe|e
5|safe + '<'
none|safe + '<'
undefined_thing|safe + '<'
['<a>'|safe]
'<a>'|safe|tojson
('<a>'|safe|indent(1)) + '<'
('a <b>'|safe).split() | join + '<'
('<a>'|safe).split('a')[0] + '<'
('<a>'|safe) == '<a>'
'<a>'|safe + 1
'<'|safe + undefined_thing
('<a>'|safe|default('x')) + '<'
('<a>'|safe|first) + ('<'|safe)
messages[1].content|safe + messages[1].content
[[1], [1]]|unique|list
[{}]|unique|list
[(1, 2), (1, 2), (1, 'a')]|unique|list
[(1, [2])]|unique|list
'a' % undefined_thing
'%s' % undefined_thing
'a' % none
range(5)[1:3]
range(5)[::-1]
range(5)[3:1]
range(5)[::2]
range(10, 0, -3)[1:]
range(5)[1:3]|list
range(5)[::-2]|list
range(5)[10:]
range(5)['x':]
range(5)[1:][0]
range(stop=3)
' a  b c '.rsplit(none, 1)
' a b'.rsplit(none, 1)
' a'.rsplit(none, 1)
' a b '.rsplit(none, 0)
'  '.rsplit(none, 0)
' a  b c '.rsplit()
'a\n\n\nb'.rsplit('\n\n', 1)
'aaa'.rsplit('aa')
'a,b,c'.rsplit(',', 1)
'a,b,c'.rsplit(',', maxsplit=0)
'a,b,c'.rsplit(',')
'abc'.rsplit('', 1)
'é\u3000ü'.rsplit(none, 1)
'a.b.c'.partition('.')
'a.b.c'.rpartition('.')
'abc'.partition('.')
'abc'.rpartition('.')
'abc'.partition('')
'abc'.partition()
'ab'.center(5)
'ab'.center(5, '*')
'abc'.center(6, '*')
'abc'.center(2)
'ab'.center(5, '**')
'ab'.center()
'é'.ljust(3, 'ü') ~ '!'
'é'.rjust(3)
'42'.zfill(5)
'-42'.zfill(5)
'+'.zfill(3)
''.zfill(2)
'abc'.zfill(2)
'abc'.zfill()
'aaa'.rfind('aa')
0 ** -1
0.0 ** -1
10.0 ** 400
2.0 ** -2000
(-8) ** 2.0
(1e308 * 10) ** 2
'\x1c\u3000'.isspace()
'abc'.rfind('')
'abc'.rfind('abcd')
'éaéa'.rfind('é')
'éaéa'.rfind('é', 0, 2)
'hello'[1:4:2]
[1,2,3][::-1]
[1,2,3][::0]
(1,2,3)[1:]
"""

TEMPLATES = [
    "a\n", "a\n\n", "", "{# c #}x", "a {#- c -#} b", "  {# c #}\nx", "{{ 1 }}\n{{ 2 }}\n", "{% if t %}\nyes\n{% endif %}\nend",
    "  {% if t %}\n  yes\n  {% endif %}\n  end", "x {%- if t -%} y {%- endif -%} z", "x\n  {%+ if t %}y{% endif +%}\nz", "{{- 1 -}} a {{- 2 }} b",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }} {{ m.role }}\n{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ x }}{{ loop.index }}{% else %}none{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}none{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% break %}{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}", "{% for a in l %}{% for b in l %}{{ loop.depth }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }}", "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a.b = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set x %}  block {{ n }} {% endset %}[{{ x }}]", "{% set x | upper | trim %} a b {% endset %}[{{ x }}]", "{% set d.x = 1 %}",
    "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if n == 1 %}a{% elif n == 2 %}b{% elif z %}q{% else %}c{% endif %}", "{% if t %}{% set q = 5 %}{% endif %}{{ q }}", "{% if not t %}{% set q = 5 %}{% endif %}[{{ q }}]",
    "{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='z') }}{{ m(*[1, 2], **{'c': 5}) }}{{ m() }}", "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{{ n }}{{ q }}{% endmacro %}{% set q = 1 %}{{ m() }}{% set q = 2 %}{{ m() }}", "{% macro m(a) %}{% set q = a %}{{ q }}{% endmacro %}{{ m(1) }}[{{ q }}]", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller }}{% endmacro %}[{{ m() }}]", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
    "{% macro m() %}{% endmacro %}{{ m }}{{ [m] }}", "{% macro f(m) %}{{ m.role|upper }}{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}", "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b')|upper %}aa{% endfilter %}", "{% raw %}{{ x }} {% if %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "  {% raw %}\nx\n  {% endraw %}\ny",
    "{% generation %}{{ s }}{% endgeneration %}!",
    "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}", "{% for x in l %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% set ns = namespace(x=1) %}{% generation %}{% set ns.x = 2 %}{% endgeneration %}{{ ns.x }}", "{% for x in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "[{{ self.TEXT }}]{{ self is defined }}", "{{ self.TEXT.x }}", "{{ self.TEXT() }}", "{{ 'a' if s is defined if t else 'b' }}", "{{ (s is defined) if t }}", "{% if s is defined is true %}a{% endif %}",
    "{{ s is defined not in l }}", "{{ 'x' is in s }}", "{{ s is string and n is odd or z is none }}", "{{ 3 is divisibleby n }}{{ 'a' if n is odd else 'b' }}", "{{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}} }}", "{%if t%}x{%endif%}", "{% if t %}x", "{% endif %}", "{% for x in %}", "{% foo %}", "{{ }}", "{{ 1 2 }}", "{{ a. }}", "{% set = 1 %}", "{# x", "{% raw %}x", "{{ 'x }}",
    "{% for x in n %}{% endfor %}", "{% for x in z %}{% endfor %}", "{% for x in undefined_thing %}a{% endfor %}b", "{% for c in s %}{{ c }}.{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% break %}", "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{% for x in l|map('string') %}{{ x }}{{ loop.last }}{% endfor %}", "{% set m = l|map('string') %}{{ m|list }}{{ m|list }}", "{% for i in range(3) %}{{ i }}{% endfor %}", "{{ range(200000)|length }}",
    "\ufeffx", "a\r\nb\rc\n", "{{ s }}\r\n{% if t %}\r\nx{% endif %}", "\t {% if t %}\n\tx{% endif %}", "x{{ '\n' }}\n{% if t %}y{% endif %}", "{{ s -}}\n\n  x", "{{ s }}  \n  {{- n }}", "{%- set x = 1 %}\n{{ x }}", "{% if t -%}\n   x\n{%- endif %}\ny", "{{ '%}' }}{% if '%}' %}a{% endif %}",
    "{% for m in messages %}{% if m.content is string %}{{ '<|' + m.role + '|>' + m.content|trim + eos_token }}{% elif m.content is iterable %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}({{ c.function.arguments|tojson }}){% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}",
    "{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}{%- else %}{%- set rest = messages %}{%- endif %}{{ bos_token }}{{ system }}{%- for m in rest %}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ '!' }}{%- endif %}{{ m.role }}{%- endfor %}",
    "{%- set content = messages[4].content %}{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}{{ content }}|{{ messages[4].content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
    "{%- macro walk(v, depth=0) %}{%- if v is mapping %}{%- for k, x in v|dictsort %}{{ '\\n' ~ '  ' * depth ~ k }}:{{ walk(x, depth + 1) }}{%- endfor %}{%- elif v is iterable and v is not string %}{%- for x in v %}[{{ walk(x, depth + 1) }}]{%- endfor %}{%- else %} {{ v }}{%- endif %}{%- endmacro %}{{ walk(tools) }}",
    "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}{% set i = (messages|length - 1) - loop.index0 %}{% if ns.last < 0 and m.role == 'user' and m.content is string %}{% set ns.last = i %}{% endif %}{% endfor %}{{ ns.last }}",
    "{{ tools | selectattr('function.name', 'in', ['get', 'put']) | map(attribute='function') | map(attribute='name') | join(', ') }}", "{% if tools is defined and tools %}{{ tools[0].function.parameters.properties.items()|list }}{% endif %}", "{{ messages | map(attribute='content') | select('string') | list | length }}",
    "{{ (messages|last).content[0]['text'] ~ (messages|first)['role'] }}", "{{ not (t and z) }}{{ t and not z }}{{ n > 5 and n < 9 }}", "{{ 'x' if z else ('y' if t else 'w') }}", "{{ {'a': l}['a'][0] }}{{ [d][0].b }}", "{{ s[n - 7:n - 2] }}", "{{ '\\\\n' }}{{ '\\t|' }}", "{{ n.__class__ }}", "{{ s.__len__() }}",
    "{% set x = d %}{{ x.update }}", "{{ l.append }}", "{{ messages.0.role }}", "{{ loop is defined }}{% for a in [1] %}{{ loop is defined }}{% endfor %}", "{{ [1, 2, 3,] }}{{ {'a': 1,} }}{{ (1,) }}", "{{ d | tojson | length }}", "{{ 5 | string + 'a' }}", "{{ -1 | abs }}", "{{ 2 ** 3 ** 2 }}", "{{ 'a' ~ 'b' | upper }}", "{{ 1 if 0 }}x",
    "{{ 9223372036854775807 }}", "{{ 0.5 }}{{ 5e-324 }}{{ 1.7976931348623157e308 }}{{ 1e22 }}{{ 123456.789 }}", "{{ [1.0, 2.50] }}", "{{ ('a', ) }}{{ ('a') }}", "{{ true }}{{ True }}{{ None }}{{ none }}{{ false }}", "{% set true = 1 %}", "{{ 'é'|length }}{{ 'é'[0] }}{{ '日本語'[1:] }}",
    "{{ 'a\x7f\x80é'|tojson(ensure_ascii=true) }}{{ 'a\x7f\x80é'|tojson }}",
    "{{ big }}{{ low }}{{ [big, {'a': low}] }}{{ big ~ 'x' }}{{ big|string|length }}{{ big|tojson }}{{ {'a': [low]}|tojson(indent=1) }}{{ {big: 1}|tojson }}",
    "{{ big is number }}{{ big is integer }}{{ big is float }}{{ big is string }}{{ big is defined }}{{ 'y' if big else 'n' }}{{ big|int }}{{ low|abs }}{{ big|abs }}{{ big|float }}{{ low|float }}",
    "{{ big == big }}{{ big == low }}{{ big != n }}{{ big == 1.5 }}{{ big > n }}{{ low < n }}{{ n < big }}{{ n > low }}{{ big > low }}{{ big <= 2.5 }}{{ low >= f }}{{ [big, n, low]|sort }}{{ [n, big]|max }}{{ big in [n, big] }}",
    "{{ l[big] }}", "{{ big + 'x' }}", "{{ '%s' % big }}", "{% for x in big %}{% endfor %}", "{{ big|length }}",
]


def main():
    env = oracle.environment()
    sources = list(TEMPLATES)
    for group in EXPRESSIONS.strip().split("\n"):
        # A bar is both a filter's and what lies between expressions: every run of neighbours is an expression.
        parts = group.split("|")
        sources += ["[{{ " + "|".join(parts[i : i + n]) + " }}]" for n in (1, 2) for i in range(len(parts) - n + 1)]
    sources += ["[{{ " + line + " }}]" for line in WHOLE.strip().split("\n")]
    seen = set()
    print(json.dumps({"variables": VARIABLES}, ensure_ascii=False))
    for source in sources:
        if source in seen or "or 1|undefined" in source:  # unknown filters are found where they are used
            continue
        seen.add(source)
        line = {"template": source, "now": 1764028800}
        want = oracle.render(env, {**line, "variables": VARIABLES})
        if " at 0x" in want.get("text", "") or "<built-in" in want.get("text", "") or "<class" in want.get("text", ""):
            continue  # addresses and types, which no template shows
        if "error" in want:
            want = {"error": want["error"]["kind"]}
        print(json.dumps({**line, "want": want}, ensure_ascii=False))


if __name__ == "__main__":
    main()
