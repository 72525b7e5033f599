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
stop_cluster TERM
