# SPDX-License-Identifier: Apache-2.0
"""Makes a table in Markdown of run.sh's lines: medians over the rounds, ours beside its floor and the peers."""
import json
import statistics
import sys


def main():
    lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    figures = {}
    for line in lines:
        peer = "ours" if not line["backend"].startswith("transformers") else "compiled" if "compiled" in line["backend"] else "eager"
        for key, value in line.items():
            if key.endswith("_ms"):
                figures.setdefault((line["part"], key[:-3], peer), []).append(value)
    median = {key: statistics.median(values) for key, values in figures.items()}

    def cell(part, what, peer):
        value = median.get((part, what, peer))
        return "" if value is None else f"{value:.3f}"

    print("| part | work | ours, ms | floor, ms | ratio | transformers, ms | generate(), ms | compiled, ms | generate(), ms | rounds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for part in dict.fromkeys(line["part"] for line in lines):
        for work in "prefill", "decode", "embed":
            ours, floor = median.get((part, work, "ours")), median.get((part, work + "_floor", "ours"))
            if not any((part, work, peer) in median for peer in ("ours", "eager", "compiled")):
                continue
            generate = [cell(part, "generate", peer) if work == "decode" else "" for peer in ("eager", "compiled")]
            rounds = max(len(figures.get((part, work, peer), [])) for peer in ("ours", "eager", "compiled"))
            row = [part, work, cell(part, work, "ours"), cell(part, work + "_floor", "ours"), f"{floor / ours:.2f}" if ours else "",
                   cell(part, work, "eager"), generate[0], cell(part, work, "compiled"), generate[1], str(rounds)]
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
