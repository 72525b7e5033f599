#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A worker leaves what it has measured for a benchmark, by its device and type, and `trireme plan --devices` of that device goes by it.
# Usage: plan_measured.sh MODULE, an imitation of the CUDA one; it needs no device.
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/lib.sh"
export XDG_CACHE_HOME=$RUN
mkdir "$RUN/bin" && cp "$BIN"/trireme "$BIN"/trireme-{up,coordinator,worker,plan} "$RUN/bin" && cp -r "$BIN/../libexec" "$RUN" && cp "$1" "$RUN/bin/libtrireme-cuda.so" || fail "no copies of the programs"
cp "$1" "$RUN/bin/libcuda.so.1" # a driver's library that nobody calls
export LD_LIBRARY_PATH=$RUN/bin${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
BIN=$RUN/bin file=$RUN/trireme/machine.json
measured() { "$BIN/trireme" plan --backend cuda --model "$MODEL" --devices 2 --memory-per-rank 1GiB; }
measured | grep -q '^for the GPUs of this host$' || fail "the devices of another host: $(measured)"
measured | grep -q "best (NVIDIA H200, as measured)" || fail "a device without figures: $(measured)"
start_up --backend cuda --threads 2
"$BIN/trireme" bench serve --num-prompts 2 --random-input-len 8 --random-output-len 4 >"$RUN/bench" 2>&1 || fail "$(cat "$RUN/bench")"
for _ in $(seq $LOOKS); do
  [ -s "$file" ] && break
  sleep 0.05
done
stop_cluster TERM
grep -q '^{"Imitation, sm_00": {"read_bytes_per_s": [0-9.e+]*, "bfloat16_flops_per_s": [0-9.e+]*}$' "$file" || fail "in the file: $(cat "$file")"
measured | grep -q '^machine: .* at best (measured by a worker), products .* (measured by a worker)$' || fail "figures are not used: $(measured)"
sed -i 's/"read_bytes_per_s": [0-9.e+]*/"read_bytes_per_s": null/' "$file"
measured >"$RUN/got" 2>&1
grep -q "machine.json: Imitation, sm_00.read_bytes_per_s must be a number above 0: the file is not used" "$RUN/got" || fail "a malformed file: $(cat "$RUN/got")"
grep -q "best (NVIDIA H200, as measured)" "$RUN/got" || fail "a malformed file is used"
echo "figures are left, used, and refused where they are malformed"
