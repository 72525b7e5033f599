#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes text/unicode/unicode_tables.c: where the Hugging Face tokenizers library (0.23) knows another version of
Unicode than the libraries that we link.

Its patterns know Unicode 16, its lower case and numbers 17, its normal forms, accents and scripts 9, BERT's punctuation, accents and control
characters 8. PCRE2 and utf8proc know 13 or later, as they come.

Each version is dumped by an interpreter that has it (Python 3.6 has 9, 3.9 has 13; the PyPI package unicodedata2 brings others, 8 to Python
2.7 only, and is preferred where it is installed), and the dumps are put together, with scripts from the PyPI package fonttools==4.55.0 (Unicode 16). Alphabetic comes
from the PyPI package regex, for 13.0.0 (regex==2020.11.13) and for 16.0.0 (regex==2024.11.6):

  for each of 8.0.0 9.0.0 13.0.0 16.0.0 17.0.0:  PYTHON scripts/unicode_tables.py dump > VERSION.json
  PYTHON scripts/unicode_tables.py write FOLDER > text/unicode/unicode_tables.c; clang-format leaves it alone
"""
from __future__ import print_function

import json
import sys

if sys.version_info[0] == 2:
    chr = unichr  # noqa: F821


def dump():
    try:
        import unicodedata2 as unicode
    except ImportError:
        import unicodedata as unicode
    try:
        import regex
        alphabetic = regex.compile(u"\\p{Alphabetic}")
    except ImportError:
        alphabetic = None
    points = [chr(c) for c in range(0x110000)]
    lower = {}
    for c in points:  # the interpreter's own lower() knows its own version only
        if unicode.category(c) == "Lu" and " CAPITAL " in unicode.name(c, ""):
            try:
                lower[ord(c)] = ord(unicode.lookup(unicode.name(c).replace(" CAPITAL ", " SMALL ")))
            except KeyError:
                pass
    json.dump({
        "version": unicode.unidata_version,
        "category": [unicode.category(c) for c in points],
        "combining": {ord(c): unicode.combining(c) for c in points if unicode.combining(c)},
        "decomposition": {ord(c): unicode.decomposition(c) for c in points if unicode.decomposition(c)},
        "lower": lower,
        "alphabetic": [ord(c) for c in points if alphabetic.match(c)] if alphabetic else None,
    }, sys.stdout)


def ranges(points, key=lambda c: True):
    """[first, last, key] of neighbours with one key."""
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1 and out[-1][2] == key(c):
            out[-1][1] = c
        else:
            out.append([c, c, key(c)])
    return out


def table(head, rows):
    lines, line = [], "   "
    for row in rows:
        if len(line) + len(row) > 118:
            lines.append(line)
            line = "   "
        line += " " + row + ","
    print("\nconst %s = {" % head)
    print("\n".join(lines + [line]))
    print("};")


def sized(kind, name, rows):
    table("%s %s[]" % (kind, name), rows)
    print("const size_t %s_count = sizeof %s / sizeof *%s;" % (name, name, name))


def write(folder):
    from fontTools import unicodedata as scripts
    versions = {}
    for version in ("8.0.0", "9.0.0", "13.0.0", "16.0.0", "17.0.0"):
        versions[version] = json.load(open("%s/%s.json" % (folder, version)))
        assert versions[version]["version"] == version
    old8, old9, base, new, last = (versions[v]["category"] for v in versions)
    every = range(0x110000)

    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Unicode 8, 9, 16 and 17 where they differ from what PCRE2 and utf8proc know. Written by scripts/unicode_tables.py. */")
    print('#include "text/unicode/unicode_tables.h"\n\n/* clang-format off */')

    def plain(name, points):
        sized("tok_range", name, ["{0x%x, 0x%x}" % (a, b) for a, b, _ in ranges(points)])

    plain("tok_unicode8_nonspacing", [c for c in every if old8[c] == "Mn"])
    plain("tok_unicode8_other", [c for c in every if old8[c] in ("Cc", "Cf", "Co")])
    plain("tok_unicode8_punctuation", [c for c in every if old8[c][0] == "P"])
    plain("tok_unicode9_marks", [c for c in every if old9[c][0] == "M"])

    # Later characters that have a class or decompose, and those which they decompose to.
    data = versions["17.0.0"]
    later = {c for c in every if old9[c] == "Cn" and last[c] != "Cn"}
    active = {c for c in later if str(c) in data["combining"] or str(c) in data["decomposition"]}
    for c in sorted(active):
        parts = data["decomposition"].get(str(c), "").split()
        active.update(p for p in (int(x, 16) for x in parts if x[0] != "<") if p in later)
    plain("tok_unicode9_unknown", active)

    def script(c):
        return scripts.script_name(scripts.script(chr(c))).replace(" ", "_")

    old_alphabetic, alphabetic = (set(versions[v]["alphabetic"]) for v in ("13.0.0", "16.0.0"))
    added = [c for c in every if new[c] != base[c] and new[c] != "Cn" or c in alphabetic and c not in old_alphabetic]
    rows = ranges(added, lambda c: (new[c], script(c), c in alphabetic))
    sized("tok_addition", "tok_unicode16_additions",
          ['{0x%x, 0x%x, "%s", "%s", %s}' % (a, b, k[0], k[1], str(k[2]).lower()) for a, b, k in rows])
    reclassified = [c for c in added if base[c] != "Cn"]
    print("%d added, %d reclassified: %s" % (len(added), len(reclassified), [hex(c) for c in reclassified]), file=sys.stderr)

    plain("tok_unicode17_numbers", [c for c in every if last[c][0] == "N" and base[c] == "Cn"])
    lower = {c: to for c, to in ((int(k), v) for k, v in data["lower"].items()) if base[c] == "Cn"}
    sized("tok_lower_addition", "tok_unicode17_lower",
          ["{0x%x, 0x%x, %d}" % row for row in map(tuple, ranges(lower, lambda c: lower[c] - c))])

    # Hiragana and Katakana count as Han, as in SentencePiece; a space belongs to every script.
    names = {"Hiragana": "Han", "Katakana": "Han"}
    known = {c: names.get(script(c), script(c)) for c in every if old9[c] not in ("Cn", "Cs", "Co") and c != 32}
    known[0x30fc] = "Han"
    numbers = {name: i + 1 for i, name in enumerate(sorted(set(known.values())))}
    sized("tok_script_range", "tok_unicode9_scripts",
          ["{0x%x, 0x%x, %d}" % row for row in map(tuple, ranges(known, lambda c: numbers[known[c]]))])


if __name__ == "__main__":
    dump() if sys.argv[1:] == ["dump"] else write(sys.argv[2])
