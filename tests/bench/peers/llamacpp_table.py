# SPDX-License-Identifier: Apache-2.0
"""llamacpp_table.py LINES: medians of what llamacpp.sh has measured, and from the least to the most of them."""
import json
import statistics
import sys

UNITS = {"decode": ("rate", 1, "tokens/s"), "prompt": ("rate", 1, "tokens/s"), "first": ("seconds", 1, "s"), "memory": ("bytes", 1e6, "MB")}


def cell(values, unit):
    if not values:
        return ""
    digits = 2 if unit == "s" else 0
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main():
    rows = {}
    with open(sys.argv[1], encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            key, scale, unit = UNITS[line["what"]]
            theirs = line["peer"] == "llama.cpp"
            row = rows.setdefault(line["row"], {"unit": unit, True: [], False: []})
            row[theirs].append(line[key] / scale)
    print("| row | unit | Trireme | llama.cpp |\n|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['unit']} | {cell(row[False], row['unit'])} | {cell(row[True], row['unit'])} |")


if __name__ == "__main__":
    main()
