#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# encoder_batching.sh with a coordinator that is an imitation, and scripts/plot_lines.py: what is asked of the programs, the table, and a
# figure whose labels are apart. Exit code 77 without python3.
# Usage: figure.sh TRIREME FAKE_COORDINATOR
set -u
trireme=$(realpath "$1") fake=$(realpath "$2") here=$(dirname "$(realpath "$0")")
plot=$here/../../scripts/plot_lines.py
command -v python3 >/dev/null || { echo "python3 is not here"; exit 77; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# A folder with a `trireme` whose `up` is the imitation: a request after the other, sooner for one strategy than for another.
mkdir "$work/bin" "$work/model"
cat >"$work/bin/trireme" <<END
#!/usr/bin/env bash
[[ \$1 = up ]] || exec "$trireme" "\$@"
echo "\$*" >>"$work/ups"
case \$* in
*none*) ms=4 ;;
*lazy*) echo "there is no such strategy" && exit 2 ;;
*) ms=0 ;;
esac
mkdir -p "\$XDG_RUNTIME_DIR/trireme"
exec "$fake" --task embed --embed-ms \$ms
END
chmod +x "$work/bin/trireme"
run() { # OPTION...
  rm -f "$work/ups"
  "$here/encoder_batching.sh" "$work/bin" "$work/out" --model "$work/model" --rates 20,400 --seconds 0.3 "$@" >"$work/said" 2>&1
}

run --strategies "dp-hungry dp-lazy none" -- --threads 1 && fail "a strategy that cannot be served"
grep -q '^dp-lazy: cannot be served: there is no such strategy$' "$work/said" || fail "what was said: $(cat "$work/said")"
[[ $(sed 's/.*--encoder-batching/--encoder-batching/' "$work/ups") == "--encoder-batching dp-hungry --threads 1
--encoder-batching dp-lazy --threads 1
--encoder-batching none --threads 1" ]] || fail "what up was told: $(cat "$work/ups")"
[[ $(grep -c '^{"strategy":"dp-hungry",.*"request_rate":[0-9]*,.*"request_throughput":' "$work/out/lines.jsonl") == 2 ]] || fail "$(cat "$work/out/lines.jsonl")"
[[ $(sed '1,3d; s/[0-9][0-9]*\.[0-9]/X/g; s/\\\*//g' "$work/out/table.md") == '| strategy | 20 /s | 400 /s |
|---|---|---|
| dp-hungry | X (X, X) | X (X, X) |
| none | X (X, X) | X (X, X) |' ]] && grep -q '^| none .*[0-9]\\\* ([0-9., ]*) |$' "$work/out/table.md" || fail "the table: $(cat "$work/out/table.md")"
STRATEGY_OPTION='' run --strategies none || fail "without strategies: $(cat "$work/said")"
grep -q 'encoder-batching' "$work/ups" && fail "up was told of a strategy"

# Five lines, of which two are nearly the same and one ends before the others.
for strategy in packed dp-hungry dp-lazy naive 'a <b> & "c"'; do
  for rate in 100 200 400 800; do
    case $strategy in packed) most=700 ;; dp-*) most=500 ;; *) most=150 ;; esac
    [[ $strategy = naive && $rate = 800 ]] ||
      echo "{\"strategy\":\"${strategy//\"/\\\"}\",\"offered\":$rate,\"answered\":$((rate < most ? rate : most))}"
  done
done >"$work/lines"
echo '{"strategy":"packed","loads":4}' >>"$work/lines" # has neither
draw() { python3 "$plot" "$@" --x offered --y answered --series strategy --output "$work/figure.svg" 2>&1; }
draw "$work/lines" --title "A & B" --y-unit "1/s" --diagonal all || fail "a figure"
python3 - "$work/figure.svg" <<'END' || fail "the figure: $(cat "$work/figure.svg")"
import sys
import xml.etree.ElementTree as tree

root = tree.parse(sys.argv[1]).getroot()
name = "{http://www.w3.org/2000/svg}"
width, height = float(root.get("width")), float(root.get("height"))
texts = root.findall(f".//{name}text")
labels = [t for t in texts if t.get("class").startswith("label")]
assert [t.text for t in labels] == ["packed", "dp-hungry", "dp-lazy", "naive", 'a <b> & "c"'], [t.text for t in labels]
places = sorted(float(t.get("y")) for t in labels)
assert all(b - a > 15 for a, b in zip(places, places[1:])), places
assert all(0 <= float(t.get("y")) <= height and float(t.get("x")) + 6.5 * len(t.text or "") * (t.get("text-anchor") == "start") <= width for t in texts)
assert {"A & B", "offered", "answered (1/s)", "all", "0", "200", "800"} <= {t.text for t in texts}, [t.text for t in texts]
lines = [p for p in root.findall(f".//{name}path") if p.get("class").startswith("series")]
assert [p.get("d").count(",") for p in lines] == [4, 4, 4, 3, 4]
ends = [[float(n) for n in p.get("d")[1:].split("L")[-1].split(",")] for p in lines]
assert ends[0][1] < ends[1][1] == ends[2][1] < ends[4][1] == ends[3][1] and ends[3][0] < ends[0][0], ends
assert "prefers-color-scheme:dark" in root.find(f"{name}style").text
END
echo '{"strategy":1' >>"$work/lines"
[[ $(draw "$work/lines") == *"lines:21: not JSON"* ]] || fail "a line that is not JSON: $(draw "$work/lines")"
[[ $(draw /dev/null) == *"has no line with numbers offered and answered"* ]] || fail "no lines"
[[ $(draw "$work/missing") == *"missing: No such file"* ]] || fail "a missing file"
((failures == 0)) && echo "the table and the figure have what was measured"
exit $((failures > 0))
