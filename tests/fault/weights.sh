#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Right weights or none: a checkpoint that gives no numbers is not served, nor are files that have changed beside groups with the others.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
state_of() { field "\"group\":$1,\"epoch\":[0-9]*,\"state\":\"[a-z_]*\"" | sed 's/.*:"\(.*\)"/\1/'; } # GROUP
mkdir "$RUN/model"
cp "$MODEL"/*.json "$MODEL"/*.safetensors "$RUN/model"
chmod -R u+w "$RUN/model"

# fill PATTERN: a copy of the weights whose every 16-bit number is PATTERN takes their place at once.
fill() {
  local file=$RUN/model/model.safetensors header size
  header=$((8 + $(od -An -tu8 -N8 "$file")))
  size=$(stat -c %s "$file")
  head -c $header "$file" >"$RUN/new"
  yes "$(printf "%s" "$1")" | tr -d '\n' | head -c $((size - header)) >>"$RUN/new"
  mv "$RUN/new" "$file"
}

start_up -dp 2 --model "$RUN/model" # a second --model counts
groups_ready 2
old=$(rank_pid 0 0)
fill "0000000."
kill -9 "$(rank_pid 1 0)"
for _ in $(seq $LOOKS); do
  grep -q "its weights (hash [0-9a-f]*) are not those of group 0 ([0-9a-f]*), which serves" "$RUN/log" && break
  sleep 0.05
done
client status | grep -q "group 1 is .*its weights (hash" || fail "the status does not say that the weights are others: $(client status)"
for _ in $(seq 10); do [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer beside a group with other weights"; done
[ "$(rank_pid 0 0)" = "$old" ] || fail "group 0 was started again"
stop_cluster TERM
echo "changed weights are refused beside a group that has the others"

fill "$(printf '\xff\x7f')" # NaN of bfloat16
for layout in "-tp 1" "-pp 2"; do
  : >"$RUN/log"
  # shellcheck disable=SC2086
  timeout $HANG_S "$BIN/trireme" up --model "$RUN/model" $layout >>"$RUN/log" 2>&1
  code=$?
  [ $code = 3 ] || fail "$layout, weights that are no numbers: exit code $code"
  grep -q "logits of the canary, .* are not finite: the weights of $RUN/model are damaged" "$RUN/log" || fail "$layout: no word about the logits"
  nothing_left
done
echo "weights that are no numbers are not served"
