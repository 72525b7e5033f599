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
  grep -q "its weights (hash [0-9a-f]*) are not those of replica 0 ([0-9a-f]*), which serves" "$RUN/log" && break
  sleep 0.05
done
client status | grep -q "replica 1 is .*its weights (hash" || fail "the status does not say that the weights are others: $(client status)"
for _ in $(seq 10); do [ "$(client submit --temperature 0 "37+48=")" = 85 ] || fail "a wrong answer beside a group with other weights"; done
[ "$(rank_pid 0 0)" = "$old" ] || fail "group 0 was started again"
stop_cluster TERM
echo "changed weights are refused beside a group that has the others"

fill '^]' # 1e18 as bfloat16, which is finite, as its products with queries are not
for layout in "-tp 1" "-pp 2"; do
  : >"$RUN/log"
  # shellcheck disable=SC2086
  timeout $HANG_S "$BIN/trireme" up --model "$RUN/model" $layout >>"$RUN/log" 2>&1
  code=$?
  [ $code = 3 ] || fail "$layout, weights that give no numbers: exit code $code: $(tail -n 3 "$RUN/log")"
  grep -q "logits of the canary, .* are not finite: the weights of $RUN/model are damaged" "$RUN/log" || fail "$layout: no word about the logits"
  nothing_left
done
echo "weights that give no numbers are not served"

# damage TENSOR: the last number of that tensor alone is NaN of bfloat16.
damage() {
  cp "$MODEL/model.safetensors" "$RUN/model"
  chmod u+w "$RUN/model/model.safetensors"
  python3 - "$RUN/model/model.safetensors" "$1" <<'PYTHON'
import json, struct, sys
with open(sys.argv[1], 'r+b') as f:
    header = struct.unpack('<Q', f.read(8))[0]
    end = json.loads(f.read(header))[sys.argv[2]]['data_offsets'][1]
    f.seek(8 + header + end - 2)
    f.write(b'\xc0\x7f')
PYTHON
}

# refused TENSOR WEIGHT OPTIONS...
refused() {
  local tensor=$1 weight=$2
  shift 2
  damage "$tensor"
  timeout $HANG_S "$BIN/trireme" up --model "$RUN/model" "$@" >"$RUN/log" 2>&1
  code=$?
  [ $code = 3 ] || fail "$tensor with a NaN, $*: exit code $code: $(tail -n 3 "$RUN/log")"
  grep -q "1 of the [0-9]* numbers of weight $weight are infinite or NaN" "$RUN/log" || fail "$tensor, $*: no word of $weight: $(tail -n 3 "$RUN/log")"
  nothing_left
}
mkdir "$RUN/packs"
refused model.embed_tokens.weight "EMBED (embed_tokens.weight)"
refused model.layers.3.mlp.down_proj.weight "DOWN of layer 3 (layers.3.mlp.down_proj.weight)" -tp 2 -pp 2
refused model.layers.3.mlp.down_proj.weight "DOWN of layer 3 (layers.3.mlp.down_proj.weight)" --gpu-layers 0
refused model.layers.1.self_attn.v_proj.weight "QKV of layer 1 (layers.1.self_attn.q_proj.weight, layers.1.self_attn.k_proj.weight, layers.1.self_attn.v_proj.weight)" --gpu-layers 1 -tp 2 --nvme-path "$RUN/packs"
echo "one damaged number among weights that stay or are streamed is found before anything is served"
