#!/usr/bin/env bash
# What an operator sees of a cluster in its log.
here=$(dirname "$0")
. "$here/lib.sh"

start_up --log-requests
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
want="INFO - request: id=[0-9a-f]{32} client=uid:$(id -u) prompt_tokens=7 generation_tokens=3 cached_tokens=0 queue_ms=[0-9.]+ first_token_ms=[0-9.]+ total_ms=[0-9.]+ finish=stop\$"
grep -Eq "$want" "$RUN/log" || fail "no line of the request"
grep -q '37+48' "$RUN/log" && fail "the log has the text of a request"
"$BIN/trireme" submit --max-tokens 100000 "1+1=" 2>/dev/null && fail "too many tokens were accepted"
grep -q ' request: .* error=no_capacity$' "$RUN/log" || fail "no line of a request that failed"
# The last line of the start can be typed as it is.
try=$(sed -n 's/.* - coordinator: try: trireme \(.*\)/\1/p' "$RUN/log")
[ "$(wc -l <<<"$try")" = 1 ] || fail "what to type next: $try"
eval "\"\$BIN/trireme\" $try" >"$RUN/out" 2>/dev/null || fail "it cannot be typed: $try"
[ -s "$RUN/out" ] || fail "no answer to: $try"
# Work of the last ten seconds is told of, and nothing else is.
for _ in $(seq 150); do grep -q ' throughput: ' "$RUN/log" && break; sleep 0.1; done
grep -Eq 'INFO - throughput: prompt [0-9]+\.[0-9] tokens/s, generated [0-9]+\.[0-9] tokens/s, 0 running, 0 waiting, KV 0\.0%' "$RUN/log" || fail "no line of the throughput"
stop_cluster TERM

# A gateway's is a curl.
: >"$RUN/log"
start_up --http 0
for _ in $(seq 50); do grep -q 'gateway: try: ' "$RUN/log" && break; sleep 0.1; done
tail -n 1 "$RUN/log" | grep -q ' - gateway: try: curl http://127.0.0.1:[0-9]*/v1/' || fail "the last line of the start: $(tail -n 1 "$RUN/log")"
try=$(sed -n 's/.* - gateway: try: \(curl .*\)/\1/p' "$RUN/log")
eval "$try -sS" >"$RUN/out" || fail "it cannot be typed: $try"
grep -q '"choices"' "$RUN/out" || fail "no answer to: $try: $(cat "$RUN/out")"
stop_cluster TERM
