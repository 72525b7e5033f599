#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lines of JSON as a figure: an SVG of one line for each series, readable on light and on dark pages.

  plot_lines.py LINES --x offered_rate --y request_throughput --series strategy --output FIGURE.svg
                [--title TEXT] [--x-label TEXT] [--x-unit UNIT] [--y-label TEXT] [--y-unit UNIT] [--diagonal TEXT]

LINES is a file of JSON objects, or - for the standard input; those without the three fields are left out. Of several values at one x the
median is drawn. --diagonal draws y = x, with that text. The standard library is all that it needs."""
import argparse
import json
import math
import statistics
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 820, 490, 84, 66, 64
FONT, SMALL = 14, 13
GAP = 18  # between the labels of two lines
# Colours that people with each kind of colour blindness tell apart (Okabe and Ito), on white and on black.
COLOURS = [("#0072b2", "#58b0e8"), ("#c04f00", "#ff8c42"), ("#00805d", "#2fc79a"), ("#a8487f", "#e49ac4"), ("#8a6d00", "#e8c33a"),
           ("#5b5fc7", "#a3a6ff"), ("#5f6770", "#b0b8c0")]
MARKERS = ["M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z", "M-3.6,-3.6h7.2v7.2h-7.2z", "M0,-4.8L4.6,3.6H-4.6z", "M0,-5L5,0L0,5L-5,0z",
           "M0,4.8L4.6,-3.6H-4.6z", "M-4.4,-1.5h2.9v-2.9h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9z", "M-4.6,-2h9.2v4h-9.2z"]


# A system has one colour in every figure, and what bounds them all is grey.
SYSTEMS = {"Trireme": 0, "vLLM": 1, "transformers": 2, "NCCL": 3, "floor": 6, "cuBLAS": 6, "link alone": 6, "the bare reader": 6}


def kinds(names):
    """{series: (number of its colour, number of the series before it that have the same)}: its system's colour, or one that, as far as
    there are any, no system has. A figure without systems has all colours for its series."""
    of = {name: next((kind for system, kind in SYSTEMS.items() if name.startswith(system)), None) for name in names}
    free = [kind for kind in range(len(COLOURS)) if kind not in of.values()]
    if len(free) < len(COLOURS):
        free.sort(key=lambda kind: kind in SYSTEMS.values())
    for i, name in enumerate([n for n in names if of[n] is None]):
        of[name] = free[i % len(free)]
    order = list(of.values())
    return {name: (kind, order[:i].count(kind)) for i, (name, kind) in enumerate(of.items())}


def fainter(again):
    """How a series shows that another one has its colour."""
    return f' opacity="{0.55 ** again:.2f}"' if again else ""


def read(path, x, y, series):
    """{series: [(x, y), ...]}, in the order in which they come; x rises."""
    found = {}
    with sys.stdin if path == "-" else open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                sys.exit(f"plot_lines.py: {path}:{number}: not JSON: {error}")
            if not isinstance(row, dict) or row.get(series) is None:
                continue
            values = [row.get(x), row.get(y)]
            if all(isinstance(v, (int, float)) and math.isfinite(v) and v >= 0 for v in values):
                found.setdefault(str(row[series]), {}).setdefault(values[0], []).append(values[1])
    if not found:
        sys.exit(f"plot_lines.py: {path} has no line with numbers {x} and {y}, and {series}")
    return {name: [(at, statistics.median(points[at])) for at in sorted(points)] for name, points in found.items()}


def ticks(most):
    """Round numbers from 0 until one is not less than `most`, about six of them."""
    if most <= 0:
        return [0, 1]
    rough = most / 6
    unit = 10 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= rough * 0.999)
    return [i * step for i in range(math.ceil(most / step * 0.9999) + 1)]


def number(value):
    return f"{value:,.10g}"


def width(text):
    """What a label takes at most: letters of this size are narrower than that on average."""
    return len(text) * 7.6


def spread(wanted, least, most):
    """Places for labels near those that are wanted, GAP apart and between the two ends as far as they fit."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    below = least - GAP
    for i in order:
        below = places[i] = max(wanted[i], below + GAP)
    above = most + GAP
    for i in reversed(order):
        above = places[i] = min(places[i], above - GAP)
    return places


def style():
    rules = ["text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}"]
    for dark in (False, True):
        ink, soft, grid, page = (("#e6edf3", "#a9b3bd", "#2b323a", "#0d1117") if dark else ("#1f2328", "#57606a", "#e3e6ea", "#ffffff"))
        block = [f".page{{fill:{page}}}", f".ink{{fill:{ink}}}", f".soft{{fill:{soft}}}", f".axis{{stroke:{soft}}}",
                 f".grid{{stroke:{grid}}}", f".diagonal{{stroke:{soft}}}"]
        for i, pair in enumerate(COLOURS):
            block += [f".line{i}{{stroke:{pair[dark]}}}", f".fill{i}{{fill:{pair[dark]}}}"]
        rules.append("@media (prefers-color-scheme:dark){" + "".join(block) + "}" if dark else "".join(block))
    return "<style>" + "".join(rules) + "</style>"


class Figure:
    def __init__(self, data, a):
        self.data, self.a = data, a
        self.right = WIDTH - 38 - max(width(name) for name in data)
        points = [p for line in data.values() for p in line]
        self.x_most = max(p[0] for p in points) or 1
        self.y_ticks = ticks(max(p[1] for p in points))
        self.y_most = self.y_ticks[-1]
        self.x_ticks = [value for value in ticks(self.x_most) if value <= self.x_most * 1.0001]
        self.out = []

    def x(self, value):
        return LEFT + value / self.x_most * (self.right - LEFT)

    def y(self, value):
        return HEIGHT - BOTTOM - value / self.y_most * (HEIGHT - BOTTOM - TOP)

    def add(self, text):
        self.out.append(text)

    def text(self, x, y, text, kind="ink", anchor="start", size=SMALL, more=""):
        self.add(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{more}>{escape(text)}</text>')

    def stroke(self, kind, ends, width=1, more=""):
        path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in ends)
        self.add(f'<path class="{kind}" d="{path}" fill="none" stroke-width="{width}"{more}/>')

    def axes(self):
        a, bottom = self.a, HEIGHT - BOTTOM
        for value in self.y_ticks:
            self.stroke("grid", [(LEFT, self.y(value)), (self.right, self.y(value))])
            self.text(LEFT - 9, self.y(value) + 4.5, number(value), "soft", "end")
        for value in self.x_ticks:
            self.stroke("axis", [(self.x(value), bottom), (self.x(value), bottom + 5)])
            self.text(self.x(value), bottom + 21, number(value), "soft", "middle")
        self.stroke("axis", [(LEFT, TOP), (LEFT, bottom), (self.right, bottom)])
        self.text(LEFT, 28, a.title, size=16, more=' font-weight="600"')
        self.text((LEFT + self.right) / 2, HEIGHT - 16, label(a.x_label or a.x, a.x_unit), anchor="middle", size=FONT)
        middle = (TOP + bottom) / 2
        self.text(22, middle, label(a.y_label or a.y, a.y_unit), anchor="middle", size=FONT, more=f' transform="rotate(-90 22 {middle:.1f})"')

    def diagonal(self, text):
        most = min(self.x_most, self.y_most)
        x, y = self.x(most), self.y(most)
        self.stroke("diagonal", [(self.x(0), self.y(0)), (x, y)], 1.2, ' stroke-dasharray="5 5"')
        middle = min(max(x, LEFT + width(text) / 2), self.right - width(text) / 2)
        self.text(middle, y - 8, text, "soft", "middle")  # above it, where nothing is that is less

    def labels(self):
        ends = [line[-1] for line in self.data.values()]
        places = spread([self.y(y) for _, y in ends], TOP, HEIGHT - BOTTOM)
        of = kinds(list(self.data))
        for name, end, place in zip(self.data, ends, places):
            kind, at = of[name][0], self.right + 24
            self.stroke(f"line{kind}", [(self.x(end[0]), self.y(end[1])), (self.right + 8, self.y(end[1])), (at - 4, place)], 1,
                        ' stroke-opacity="0.55"')
            self.text(at, place + 4.5, name, f"label fill{kind}")

    def lines(self):
        of = kinds(list(self.data))
        for name, line in self.data.items():
            kind, again = of[name]
            more = ' stroke-linejoin="round"' + (' stroke-dasharray="6 4"' if again else "")
            self.stroke(f"series line{kind}", [(self.x(x), self.y(y)) for x, y in line], 2.2, more)
            for x, y in line:
                self.add(f'<path class="fill{kind}" d="{MARKERS[kind]}" transform="translate({self.x(x):.1f} {self.y(y):.1f})"/>')

    def svg(self):
        self.axes()
        if self.a.diagonal:
            self.diagonal(self.a.diagonal)
        self.labels()
        self.lines()
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
        page = f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>'
        return "\n".join([head, f"<title>{escape(self.a.title)}</title>", style(), page, *self.out, "</svg>", ""])


def label(text, unit):
    return f"{text} ({unit})" if unit else text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lines", metavar="LINES", help="a file of JSON objects, one a line; -: the standard input")
    p.add_argument("--x", required=True, metavar="FIELD", help="what goes to the right")
    p.add_argument("--y", required=True, metavar="FIELD", help="what goes up")
    p.add_argument("--series", required=True, metavar="FIELD", help="a line for each of its values")
    p.add_argument("--output", required=True, metavar="FILE", help="the SVG")
    p.add_argument("--title", default="")
    p.add_argument("--diagonal", metavar="TEXT", help="a line of y = x, with this text")
    for axis in "xy":
        p.add_argument(f"--{axis}-label", metavar="TEXT", help="by default the field's name")
        p.add_argument(f"--{axis}-unit", metavar="UNIT")
    a = p.parse_args()
    try:
        figure = Figure(read(a.lines, a.x, a.y, a.series), a).svg()
        with open(a.output, "w", encoding="utf-8") as out:
            out.write(figure)
    except OSError as error:
        sys.exit(f"plot_lines.py: {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
