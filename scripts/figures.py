#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the plots of docs/performance.md: of each docs/figures/NAME.jsonl an SVG beside it.

  figures.py [DIR]            makes all of a source tree
  figures.py --check [DIR]    says which SVG is not what its lines make, and which value docs/performance.md does not have

The first line of a file is {"figure": {...}}: kind (bars or lines), title, unit, measured (when, where, by which command), and own_scale
for bars whose groups have scales of their own. The others are values: {"work": ..., "series": ..., "value": ...} of bars,
{"x": ..., "series": ..., "value": ...} of lines. Of several values the median is drawn, and a thin line from the least to the most."""
import argparse
import glob
import json
import os
import re
import statistics
import sys
from xml.sax.saxutils import escape

import plot_lines

WIDTH, LEFT, RIGHT, BAR, BETWEEN, LABEL = 820, 24, 660, 15, 3, 24


def read(path):
    with open(path, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return rows[0]["figure"], rows[1:]


def said(values):
    """A bar's label: the median, or both ends where it is none of the values."""
    if len(values) % 2 or min(values) == max(values):
        return plot_lines.number(statistics.median(values))
    return f"{plot_lines.number(min(values))}-{plot_lines.number(max(values))}"


class Bars:
    def __init__(self, head, rows):
        self.head, self.works, self.series, self.out = head, {}, [], []
        for row in rows:
            if row["series"] not in self.series:
                self.series.append(row["series"])
            self.works.setdefault(row["work"], {}).setdefault(row["series"], []).append(row["value"])
        self.kinds = plot_lines.kinds(self.series)

    def text(self, x, y, text, kind="ink", size=plot_lines.SMALL, more=""):
        self.out.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size}"{more}>{escape(text)}</text>')

    def legend(self, y):
        x = LEFT
        for name in self.series:
            kind, again = self.kinds[name]
            self.out.append(f'<rect class="fill{kind}" x="{x:.1f}" y="{y - 10}" width="12" height="12"{plot_lines.fainter(again)}/>')
            self.text(x + 17, y, name)
            x += 40 + plot_lines.width(name)

    def group(self, y, work, found, most):
        self.text(LEFT, y + LABEL - 7, work)
        y += LABEL
        for name in self.series:
            if name not in found:
                continue
            kind, again = self.kinds[name]
            values = found[name]
            scale = (RIGHT - LEFT) / most
            long = statistics.median(values) * scale
            self.out.append(f'<rect class="fill{kind}" x="{LEFT}" y="{y}" width="{long:.1f}" height="{BAR}"{plot_lines.fainter(again)}/>')
            ends = LEFT + min(values) * scale, LEFT + max(values) * scale
            if len(values) > 1:
                self.out.append(f'<path class="axis" d="M{ends[0]:.1f},{y + BAR / 2}L{ends[1]:.1f},{y + BAR / 2}" stroke-width="2"/>')
            self.text(max(LEFT + long, ends[1]) + 6, y + 12, said(values) + (" " + self.head["unit"] if self.head["unit"] else ""), "soft")
            y += BAR + BETWEEN
        return y

    def svg(self):
        own = self.head.get("own_scale", False)
        self.text(LEFT, 28, self.head["title"], size=16, more=' font-weight="600"')
        note = self.head.get("note", "") + ("; " if self.head.get("note") and own else "") + ("each group has a scale of its own" if own else "")
        self.text(LEFT, 48, note, "soft")
        self.legend(72)
        y, most = 80, max(max(map(max, found.values())) for found in self.works.values())
        for work, found in self.works.items():
            y = self.group(y, work, found, max(map(max, found.values())) if own else most)
        height = y + 14
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
        page = f'<rect class="page" width="{WIDTH}" height="{height}"/>'
        return "\n".join([head, f"<title>{escape(self.head['title'])}</title>", plot_lines.style(), page, *self.out, "</svg>", ""])


def lines(head, path):
    a = argparse.Namespace(title=head["title"], x="x", y="value", x_label=head["x_label"], x_unit=head.get("x_unit"),
                           y_label=head["y_label"], y_unit=head["unit"], diagonal=head.get("diagonal"))
    figure = plot_lines.Figure(plot_lines.read(path, "x", "value", "series"), a)
    return figure.svg()


def made(path):
    head, rows = read(path)
    return lines(head, path) if head["kind"] == "lines" else Bars(head, rows).svg()


def unsaid(path, page):
    """Values that the page does not have."""
    numbers = set(re.findall(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", page))
    numbers = {float(n.replace(",", "")) for n in numbers}
    return [row["value"] for row in read(path)[1] if float(row["value"]) not in numbers]


def check(root, paths):
    with open(os.path.join(root, "docs/performance.md"), encoding="utf-8") as file:
        page = file.read()
    wrong = []
    for path in paths:
        svg = path[: -len("jsonl")] + "svg"
        name = os.path.basename(svg)
        wrong += [f"{os.path.basename(path)}: {value} is not in docs/performance.md" for value in unsaid(path, page)]
        wrong += [] if f"(figures/{name})" in page else [f"docs/performance.md does not show {name}"]
        if not os.path.exists(svg) or open(svg, encoding="utf-8").read() != made(path):
            wrong.append(f"{name} is not what its lines make: run scripts/figures.py")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong or not paths else 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--check", action="store_true")
    p.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), metavar="DIR")
    a = p.parse_args()
    paths = sorted(glob.glob(os.path.join(a.root, "docs/figures/*.jsonl")))
    if a.check:
        sys.exit(check(a.root, paths))
    for path in paths:
        with open(path[: -len("jsonl")] + "svg", "w", encoding="utf-8") as out:
            out.write(made(path))


if __name__ == "__main__":
    main()
