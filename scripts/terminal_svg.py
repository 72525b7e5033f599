#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws text as a terminal shows it: an SVG on standard output. Lines that begin with "$ " are what was typed.

   terminal_svg.py TITLE <TEXT >FILE.svg
"""
import sys
from xml.sax.saxutils import escape

SIZE, ADVANCE, LINE, MARGIN, BAR = 13, 8.1, 19, 18, 34


def row(text, y):
    if text.startswith("$ "):
        shown = f'<tspan fill="#7ee787">$</tspan><tspan fill="#ffffff" font-weight="bold">{escape(text[1:])}</tspan>'
    else:
        shown = escape(text)
    return f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{shown}</text>'


def main():
    lines = sys.stdin.read().rstrip("\n").split("\n")
    width = int(max(len(line) for line in lines) * ADVANCE) + 2 * MARGIN
    height = BAR + len(lines) * LINE + MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
          f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" fill="#c9d1d9">')
    print(f'<title>{escape(sys.argv[1])}</title>')
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>')
    for i, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        print(f'<circle cx="{MARGIN + 18 * i}" cy="17" r="6" fill="{colour}"/>')
    for i, line in enumerate(lines):
        if line:
            print(row(line, BAR + 14 + i * LINE))
    print("</svg>")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main()
