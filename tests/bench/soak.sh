#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mixed requests for a long time on a streamed model whose processes have less memory than the whole model needs, with faults.
#   soak.sh MINUTES [OPTION...]      OPTIONs go to `trireme up`; BIN, SRC and BAD_DISK_LIBRARY as for the fault tests
# The model (235 MB in bfloat16, made up) is packed into two folders. First a cluster with all weights in memory answers every request
# undisturbed. Then one that streams them, with 24 MiB less than the former took, answers the same again and again: short and long prompts,
# answers of 4 to 40 tokens, one to three of a prompt, greedy and drawn, with more sequences than the KV cache holds, beside streams of
# which one is cancelled and one's client is killed. In the first 60% of the time workers are killed, reads fail, and reads stand still
# until the group is lost; all the time reads stand still for 2 s now and then.
# Right is: each request ends with the undisturbed answer, whatever its group has come to; a process's resident memory, the median of the last quarter of its life, is at most 3% and 2 MiB above that of the first quarter (the
# first 10 s of a process do not count); nothing is left behind.
. "$(dirname "$0")/../fault/lib.sh"
minutes=${1:?how many minutes}
shift
BAD_DISK_LIBRARY=${BAD_DISK_LIBRARY:?the library of a disk that fails}
before=$(find /dev/shm -mindepth 1 -maxdepth 1 -printf '%f\n' | sort)
mkdir "$RUN/model" "$RUN/drive1" "$RUN/drive2" "$RUN/run" "$RUN/tmp" || fail "no folders"
export TRIREME_ENDPOINT=ipc://$RUN/run/c.sock XDG_RUNTIME_DIR=$RUN/run TMPDIR=$RUN/tmp XDG_CACHE_HOME=$RUN BAD_DISK=$RUN/disk
printf - >"$RUN/disk"
say() { echo "$(date +%T) $*" | tee -a "$RUN/said"; }
disk() { printf %s "$1" 1<>"$RUN/disk"; } # without truncating what is mapped

# ---- the model and the requests ----

cp "$MODEL"/{generation_config,tokenizer,tokenizer_config}.json "$RUN/model"
sed 's/"hidden_size": 192/"hidden_size": 512/; s/"head_dim": 24/"head_dim": 64/; s/"intermediate_size": 448/"intermediate_size": 1536/
  s/"num_hidden_layers": 4/"num_hidden_layers": 32/' "$MODEL/config.json" >"$RUN/model/config.json"
sed 's/^{"prompt": *"\([^"]*\)".*/\1/' "$MODEL/questions.jsonl" | awk '
  { all = all $0 " "; last[NR] = $0 }
  NR % 6 == 0 {
    kind = NR / 6 % 4
    prompt = kind == 0 ? last[NR] : kind == 1 ? last[NR] " " last[NR - 1] : substr(all, 1 + NR, kind == 2 ? 60 : 500)
    printf "{\"prompt\": \"%s\", \"max_tokens\": %d, \"ignore_eos\": true, \"temperature\": %s, \"seed\": %d%s}\n", prompt, 4 + NR * 31 % 37,
      NR % 4 ? "0" : "0.9", NR, NR % 5 ? "" : ", \"n\": 3"
  }' | head -24 >"$RUN/mix.jsonl"
[ "$(wc -l <"$RUN/mix.jsonl")" = 24 ] || fail "not 24 requests"
texts() { sed 's/"[a-z_]*_ms": *[0-9.e+-]*//g; s/"preemptions": *[0-9]*//g; s/"request_id": *"[0-9a-f]*"//g' "$1"; }
stream() { client submit --ignore-eos --temperature 0 --seed 1 "$@" "37+48="; } # ARGS...

common=(--model "$RUN/model" --load-format dummy --seed 3 --backend cpu --threads 1 --deterministic --kv-cache-memory-bytes 32M --max-num-seqs 16 -tp 2 "$@")
streamed=("${common[@]}" --gpu-layers 0 --nvme-path "$RUN/drive1,$RUN/drive2" --max-restarts 1000)
up() { # MIB ARGS...
  local most=$1
  shift
  (
    [ -z "$most" ] || ulimit -d $((most * 1024)) || exit 1
    LD_PRELOAD=$BAD_DISK_LIBRARY exec "$BIN/trireme" up "$@" >>"$RUN/log" 2>&1
  ) &
  CLUSTER=$!
}

# ---- what is right ----

up '' "${common[@]}" --offload-weights none
wait_ready
whole_kib=$(awk '/^VmData:/ { print $2 }' "/proc/$(rank_pid 0 0)/status")
client submit --file "$RUN/mix.jsonl" --output "$RUN/out" --concurrency 4 || fail "an undisturbed request failed"
texts "$RUN/out" >"$RUN/want"
stream --max-tokens 40 >"$RUN/want.stream" || fail "an undisturbed stream failed"
stop_cluster TERM
most=$((whole_kib / 1024 - 24))
up "$most" "${common[@]}" --offload-weights none --max-restarts 0
wait "$CLUSTER"
code=$?
[ $code = 3 ] || fail "the whole model in $most MiB ended with $code: the limit is none"
grep -q 'ERROR.* no memory for ' "$RUN/log" || fail "a model that has no memory does not say so"
say "all weights in memory take $((whole_kib / 1024)) MiB; from now on $most MiB are allowed"

# ---- faults ----

sampler() {
  while sleep 2 && [ -d "$RUN" ]; do # also where the test has failed
    ours | while read -r pid name; do
      [[ $name == trireme* ]] && awk -v pid="$pid" -v name="$name" -v at="$SECONDS" '/^VmRSS:/ { print pid, name, at, $2 }' "/proc/$pid/status" 2>/dev/null
    done
  done >>"$RUN/samples" 2>/dev/null
}
losses() { grep -c 'starting it again' "$RUN/log"; }
starts() { grep -c 'is ready: ' "$RUN/log"; }
# Returns when the group that is lost is there again.
await_start() { # STARTS
  for _ in $(seq $LOOKS); do
    [ "$(starts)" -gt "$1" ] && client status --json 2>/dev/null | grep -q '"state": *"serving"' && return
    kill -0 "$CLUSTER" 2>/dev/null || fail "the cluster ended after a fault"
    sleep 0.1
  done
  fail "no group was ready after a fault"
}
lose() { # WHAT COMMAND...: the group is lost by it, and comes back
  local had lost what=$1
  had=$(starts) lost=$(losses)
  shift
  "$@" || fail "$what could not be done"
  for _ in $(seq $LOOKS); do
    [ "$(losses)" -gt "$lost" ] && break
    sleep 0.1
  done
  disk -
  [ "$(losses)" -gt "$lost" ] || fail "$what: the group was not lost"
  await_start "$had"
  faults["$what"]=$((${faults["$what"]:-0} + 1))
}
declare -A faults=()
stall() {
  disk s
  sleep 2
  disk -
  faults[pause]=$((${faults[pause]:-0} + 1))
}

# ---- requests ----

answered=0 cancelled=0 gone=0
# Each line is the undisturbed one.
check_batch() { # OUT
  [ "$(wc -l <"$1")" = 24 ] || fail "$(wc -l <"$1") answers to 24 requests: $(head -c 300 "$1")"
  texts "$1" | paste -d '\n' "$RUN/want" - | awk -v bad="$RUN/bad" 'NR % 2 { want = $0; next } want != $0 { print > bad }'
  [ ! -s "$RUN/bad" ] || fail "answers that are not the undisturbed ones: $(head -c 600 "$RUN/bad")"
  answered=$((answered + 24))
}
check_stream() { # CODE OUT ERR
  [ "$1" = 0 ] || fail "a stream ended with $1: $(cat "$3")"
  cmp -s "$RUN/want.stream" "$2" || fail "a stream ended well with another answer: $(tail -c 100 "$2")"
  answered=$((answered + 1))
}
# Beside a batch: a stream, one that is cancelled, and one whose client goes away.
others() {
  local id cancels=0 kills=0
  id=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  stream --max-tokens 40 >"$RUN/stream.out" 2>"$RUN/stream.err" &
  local whole=$!
  stream --max-tokens 900 --request-id "$id" >"$RUN/cancelled.out" 2>"$RUN/cancelled.err" &
  local cancel=$!
  "$BIN/trireme" submit --ignore-eos --max-tokens 900 "1+1=" >/dev/null 2>&1 &
  local killed=$!
  sleep 1.$((RANDOM % 10))
  kill -9 $killed 2>/dev/null && kills=1
  wait $killed 2>/dev/null
  client cancel "$id" >"$RUN/cancel" 2>&1 && cancels=1
  wait $cancel && fail "a stream that was cancelled ended well: $(cat "$RUN/cancel")"
  [ -s "$RUN/cancelled.err" ] || fail "a stream that was cancelled ended without a word"
  wait $whole
  echo "$? $cancels $kills" >"$RUN/ended"
}
round() { # NUMBER
  local batch beside code cancels kills
  LIMIT_S=180 client submit --file "$RUN/mix.jsonl" --output "$RUN/out" --concurrency 10 >"$RUN/batch" 2>&1 &
  batch=$!
  others &
  beside=$!
  sleep 0.$((3 + RANDOM % 6))
  if [ $SECONDS -ge $((begin + minutes_s * 6 / 10)) ]; then
    [ $(($1 % 3)) != 0 ] || stall
  else
    case $(($1 % 4)) in
    0) stall ;;
    1) lose "worker killed" kill -9 "$(rank_pid 0 $(($1 / 4 % 2)))" ;;
    2) lose "failed reads" disk e ;;
    3) lose "reads that stand still" disk s ;;
    esac
  fi
  wait $batch
  [ $? -lt 100 ] || fail "a batch did not end in 180 s: $(cat "$RUN/batch")"
  wait $beside || fail "see above"
  check_batch "$RUN/out"
  read -r code cancels kills <"$RUN/ended"
  cancelled=$((cancelled + cancels)) gone=$((gone + kills))
  check_stream "$code" "$RUN/stream.out" "$RUN/stream.err"
}

: >"$RUN/log"
up "$most" "${streamed[@]}"
wait_ready
sampler &
sampler=$!
begin=$SECONDS minutes_s=$(awk -v m="$minutes" 'BEGIN { printf "%d", m * 60 }') rounds=0
while [ $SECONDS -lt $((begin + minutes_s)) ]; do
  round $rounds
  rounds=$((rounds + 1))
  [ $((rounds % 10)) != 0 ] || say "$rounds rounds: $answered answers right, $cancelled cancelled, $gone clients killed"
done
kill $sampler
wait $sampler 2>/dev/null

# ---- what is left ----

stop_cluster TERM
awk '
  function median(a, n, i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && a[j] < a[j - 1]; j--) { t = a[j]; a[j] = a[j - 1]; a[j - 1] = t }
    return a[int((n + 1) / 2)]
  }
  !($1 in from) { from[$1] = $3; name[$1] = $2; order[++pids] = $1 }
  $3 >= from[$1] + 10 { n[$1]++; at[$1, n[$1]] = $3; rss[$1, n[$1]] = $4 }
  END {
    for (p = 1; p <= pids; p++) {
      pid = order[p]
      if (n[pid] < 12) continue
      k = int(n[pid] / 4)
      for (i = 1; i <= k; i++) { a[i] = rss[pid, i]; b[i] = rss[pid, n[pid] - k + i] }
      first = median(a, k); last = median(b, k)
      printf "%s %d: %d s, resident %.1f MiB, at the end %.1f MiB%s\n", name[pid], pid, at[pid, n[pid]] - from[pid], first / 1024, last / 1024,
        (last > first * 1.03 + 2048 ? ": it grows" : "")
    }
  }' "$RUN/samples" | tee "$RUN/memory"
[ -s "$RUN/memory" ] || fail "no process has lived for long enough"
grep -q 'it grows' "$RUN/memory" && fail "resident memory grows: $(grep 'it grows' "$RUN/memory")"
left=$(find "$RUN/run" "$RUN/tmp" -mindepth 1; find "$RUN/drive1" "$RUN/drive2" -type f -name '*.part')
[ -z "$left" ] || fail "left behind: $left"
[ "$(find "$RUN/drive1" "$RUN/drive2" -type f | wc -l)" = 4 ] || fail "not the packs of two ranks in two folders: $(ls "$RUN/drive1" "$RUN/drive2")"
# Segments of others come and go: those that nobody has mapped are left by somebody.
for segment in $(comm -13 <(echo "$before") <(find /dev/shm -mindepth 1 -maxdepth 1 -printf '%f\n' | sort)); do
  grep -qs "/dev/shm/$segment" /proc/[0-9]*/maps || fail "a shared memory segment is left: $segment"
done
{ [ $answered -gt 0 ] && [ "$cancelled" -gt 0 ]; } || fail "nothing was answered, or nothing cancelled"
echo "$minutes minutes, $rounds rounds: $answered answers right, $cancelled cancelled, $gone clients killed; faults: $(for f in "${!faults[@]}"; do echo -n "$f ${faults[$f]}; "; done)"
