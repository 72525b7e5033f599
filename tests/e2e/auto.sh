#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which backend `--backend auto` gives a group of two, with a module in the place of the CUDA one that only says that it has a device.
# Usage: auto.sh MODULE; it needs no device, and takes none where there is one.
here=$(dirname "$0")
. "$here/lib.sh"
mkdir "$RUN/bin" && cp "$BIN"/{trireme,make_experts} "$BIN"/trireme-{up,coordinator,worker} "$RUN/bin" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
# A driver's library that nobody calls.
cp "$1" "$RUN/bin/libcuda.so.1"
export LD_LIBRARY_PATH=$RUN/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
BIN=$RUN/bin

gives() { # BACKEND WORDS-OF-THE-LOG OPTION...
  local backend=$1 words=$2
  shift 2
  : >"$RUN/log"
  start_up -tp 2 --threads 1 "$@"
  [ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "$*: a wrong answer"
  [ "$(grep -c "backend $backend " "$RUN/log")" = 2 ] || fail "$*: not two workers with backend $backend"
  grep -q "$words" "$RUN/log" || fail "$*: nothing about \"$words\""
  stop_cluster TERM
}

gives cuda 'device 1: imitation; the cores near it are not known' --backend auto
pci=$(find /sys/bus/pci/devices/ -mindepth 1 2>/dev/null | sort | head -1)
if [ -n "$pci" ] && grep -q '^[0-9]' "$pci/local_cpulist" 2>/dev/null; then
  FAKE_PCI=$(basename "$pci" | tr a-f A-F) gives cuda 'device 0: imitation; on the [0-9]* cores near it'
fi
FAKE_DEVICE=GPU-0 gives cpu 'not every rank of the replica has its own GPU'
FAKE_DEVICE=none gives cpu 'not every rank'
gives cpu '2 ranks' --deterministic
gives cpu 'disable-custom-all-reduce has no effect: there are no GPUs on backend cpu' --backend cpu --disable-custom-all-reduce

# Devices without the kernels of others are told of once, whichever ranks have them.
told_once() { # the last cluster's log
  [ "$(grep -c ' of 2 ranks)' "$RUN/log")" = 1 ] || fail "missing kernels are not told of once"
}
FAKE_LACKS_KERNELS=0 gives cuda 'some kernels are off (2 of 2 ranks)'
told_once
FAKE_LACKS_KERNELS=1 gives cuda "devices of other ranks lack kernels that this one's has (1 of 2 ranks)"
told_once

# Nor does it go without a word where a device has an op only in a slow form.
FAKE_GENERAL=3 gives cuda 'attention and experts of this model: the GPU has kernels for any shape alone, which are slow'

# An op that the device's backend lacks is told by its name, and nothing else runs in its place.
: >"$RUN/log"
FAKE_LACKS_ATTENTION=1 "$BIN/trireme" up --model "$MODEL" --threads 1 --backend cuda >>"$RUN/log" 2>&1 &
lacking=$!
for _ in $(seq $LOOKS); do
  grep -q 'failed: backend cuda has no op attention' "$RUN/log" && break
  sleep 0.05
done
kill -TERM $lacking
wait $lacking 2>/dev/null
grep -q 'failed: backend cuda has no op attention' "$RUN/log" || fail "a missing op is not told by its name"

# Steps that end behind their launch: of one rank two of a lane are under way, of stages two of different lanes.
head -12 "$MODEL/questions.jsonl" >"$RUN/questions"
sed 's/^{"prompt": *\("[^"]*"\).*/{"prompt": \1, "temperature": 0, "max_tokens": 200}/' "$RUN/questions" >"$RUN/prompts"
sed 's/.*"reference": *"\([^"]*\)".*/\1/' "$RUN/questions" >"$RUN/reference"
for layout in "-tp 1" "-pp 2" "-tp 2 -pp 2" "-dp 2 -ep 2" "-dp 2 -ep 2 -pp 2"; do
  case $layout in *-ep*) use_experts 3 ;; esac
  # shellcheck disable=SC2086
  FAKE_EVENTS=1 start_up $layout --threads 1 --backend cuda
  "$BIN/trireme" submit --file "$RUN/prompts" --output "$RUN/answers.jsonl" >"$RUN/submit.log" 2>&1 || fail "steps that end late: $(tail -3 "$RUN/submit.log")"
  stop_cluster TERM
  json_field text <"$RUN/answers.jsonl" | cmp -s - "$RUN/reference" || fail "$layout: other answers when steps end late"
  rm "$RUN/answers.jsonl"
done

# Products are measured once, on tensor rank 0, and every rank has the tactics; the second start finds them in the user's file.
export XDG_CACHE_HOME=$RUN/cache
tactics=$XDG_CACHE_HOME/trireme/tactics-imitation-sm-00.txt
gives cuda 'measured [1-9][0-9]* of [0-9]* shapes of products in .* 0 were known; launches take 50.0% less time' --autotune --log-level debug
[ "$(grep -c 'tune: measured' "$RUN/log")" = 1 ] || fail "not one rank has measured"
[ "$(grep -c 'tune: m 8 n [0-9]* k [0-9]*: own kernel' "$RUN/log")" -ge 4 ] || fail "no line for each shape"
[ "$(grep -o 'this rank has [1-9][0-9]* tactics' "$RUN/log" | sort | uniq -c | awk '{print $1}')" = 2 ] || fail "not the same tactics on both ranks"
grep -q "tactics are saved in $tactics" "$RUN/log" && grep -q '^for Imitation, sm_00$' "$tactics" || fail "no tactics were kept"
cp "$tactics" "$RUN/first"
gives cuda 'tune: [1-9][0-9]* tactics for products: 0 of .*share/trireme/cuda-gemm-tactics.txt, [1-9]'
gives cuda 'measured 0 of [1-9]' --autotune
cmp -s "$tactics" "$RUN/first" || fail "the second start has changed the tactics"
# A damaged file, and a folder that cannot be written to: one line each, and service goes on.
echo damaged >"$tactics"
gives cuda "tactics-imitation-sm-00.txt:1: the line is not .* the file is not used"
rm -r "$XDG_CACHE_HOME" && : >"$XDG_CACHE_HOME"
gives cuda 'tactics are not saved: .* cannot be written' --autotune
rm "$XDG_CACHE_HOME"
gives cuda 'tactics are saved in' --autotune -tp 1 -pp 2
[ "$(grep -c 'tune: measured [1-9]' "$RUN/log")" = 2 ] || fail "not both stages have measured"
grep -q "^linear m 1 n $(grep -o '"vocab_size": *[0-9]*' "$MODEL/config.json" | grep -o '[0-9]*$') " "$tactics" || fail "nothing of the last stage's head"
gives cpu 'there is one kernel for each product on backend cpu' --backend cpu --autotune
echo "devices where each rank has one, else the CPU"
