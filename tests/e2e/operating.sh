#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An operator's view of a cluster in its log.
here=$(dirname "$0")
. "$here/lib.sh"

start_up --log-requests
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
grep -q "INFO - request: id=.* finish=stop\$" "$RUN/log" || fail "no line of the request"
grep -v ' try: ' "$RUN/log" | grep -q '37+48' && fail "the log has the text of a request"
# The last line of the start can be typed as it is.
try=$(sed -n 's/.* - coordinator: try: trireme \(.*\)/\1/p' "$RUN/log")
[ "$(wc -l <<<"$try")" = 1 ] || fail "what to type next: $try"
eval "\"\$BIN/trireme\" $try" >"$RUN/out" 2>/dev/null || fail "it cannot be typed: $try"
[ "$(<"$RUN/out")" = 85 ] || fail "no sensible answer to: $try: $(cat "$RUN/out")"
# Requests that have just come are not in the groups' last reports yet: status says so, and an idle one does not.
for _ in $(seq $LOOKS); do
  "$BIN/trireme" submit --ignore-eos --max-tokens 200 "1+1=" >/dev/null &
  job=$!
  sleep 0.05
  "$BIN/trireme" status >"$RUN/status"
  wait $job
  grep -q '^Replicas count sequences, as of their last reports, up to [0-9.]* s ago' "$RUN/status" && break
done
grep -q '^Replicas count sequences' "$RUN/status" || fail "status does not say that counts differ: $(cat "$RUN/status")"
# shellcheck disable=SC2317 # until_holds runs it
counts_agree() { ! "$BIN/trireme" status | grep -q '^Replicas count'; }
until_holds "an idle cluster's counts differ" counts_agree

# The table on a small terminal, without colours and with them; a key shows the internals, another one ends it.
top() { # PATTERN TERM [VARIABLE=VALUE...]: leaves in $RUN/screen what it writes to a terminal of 80x24; i is typed once the pattern is there, q behind i's tables
  local pattern=$1 kind=$2
  shift 2
  : >"$RUN/screen"
  {
    until_holds "top does not show $pattern" shows "$pattern"
    printf i
    until_holds "top shows nothing behind i" shows us/TOKEN
    printf q
  } | env "$@" TERM="$kind" timeout $HANG_S script -qefc "stty rows 24 cols 80; \"$BIN/trireme\" top --interval 0.5" /dev/null >"$RUN/screen" 2>&1
}
# shellcheck disable=SC2317 # until_holds runs it
shows() { grep -Eq -- "$1" "$RUN/screen"; }
if command -v script >/dev/null; then
  while [ ! -e "$RUN/looked" ]; do "$BIN/trireme" submit --ignore-eos --max-tokens 100 "1+1=" >/dev/null; done & # something to measure, between two looks
  top '[0-9.]+ m?s  p99 [0-9.]+ m?s' vt100 || fail "top ended with $?"
  : >"$RUN/looked"
  wait $!
  for word in serving batch queue KV tokens/s 'first token' p99 REPL. RANK 'q quits'; do
    grep -q "$word" "$RUN/screen" || fail "top does not show $word: $(cat -v "$RUN/screen")"
  done
  for word in LAYER COLLECTIVE us/TOKEN; do
    [ "$(grep -c "$word" "$RUN/screen")" -ge 1 ] || fail "top does not show $word behind i: $(cat -v "$RUN/screen")"
  done
  grep -q BLOCK "$RUN/screen" && fail "top shows a block"
  green=$(printf '\033[32m')
  grep -qF "$green" "$RUN/screen" && fail "colours on a terminal without any"
  top 'q quits' xterm || fail "top ended with $?"
  grep -qF "$green" "$RUN/screen" || fail "no colour: $(cat -v "$RUN/screen")"
  top 'q quits' xterm NO_COLOR=1 || fail "top ended with $?"
  grep -qF "$green" "$RUN/screen" && fail "a colour in spite of NO_COLOR"
else
  echo "script is not here: top was not looked at"
fi
stop_cluster TERM

# A gateway's is a curl. The options are those of a file, as the units of systemd have it.
: >"$RUN/log"
printf 'http: 0\nlog-requests: true\n' >"$RUN/options.yaml"
start_up --config "$RUN/options.yaml"
until_holds "the gateway says nothing of what to try" grep -q 'gateway: try: ' "$RUN/log"
tail -n 1 "$RUN/log" | grep -q ' - gateway: try: curl http://127.0.0.1:[0-9]*/v1/' || fail "the last line of the start: $(tail -n 1 "$RUN/log")"
try=$(sed -n 's/.* - gateway: try: \(curl .*\)/\1/p' "$RUN/log")
eval "$try -sS" >"$RUN/out" || fail "it cannot be typed: $try"
grep -q '"content":"85"' "$RUN/out" || fail "no sensible answer to: $try: $(cat "$RUN/out")"

url=$(grep -o 'http://127.0.0.1:[0-9]*' <<<"$try" | head -n 1)
# A port that somebody has is told before anything is loaded, and nothing is left of that start.
since=$(date +%s%3N)
said=$(timeout $HANG_S "$BIN/trireme" serve "$MODEL" --port "${url##*:}" --endpoint "ipc://$RUN/second.sock" 2>&1) && fail "two clusters at one port"
echo "a port that is taken: told after $(($(date +%s%3N) - since)) ms"
grep -q "serve: cannot listen at 127.0.0.1 port ${url##*:}: Address already in use; --http \[ADDR:\]PORT, or --port of trireme serve, takes another one\$" <<<"$said" || fail "a port that is taken: $said"
grep -qv ' - serve: ' <<<"$said" && fail "something was started for a port that is taken: $said"

# The files for other programs: what they name is there, and who reads them finds nothing wrong.
curl -sS "$url/health" >/dev/null
curl -sS "$url/metrics" >"$RUN/metrics" || fail "no metrics"
"$BIN/trireme" serve --help-all >"$RUN/help"
if command -v python3 >/dev/null; then
  python3 "$here/cluster_configs.py" "$SRC" "$RUN/metrics" "$RUN/help" || fail "cluster-configs"
  sed 's/trireme:num_requests_running/trireme:num_requests_walking/' "$RUN/metrics" >"$RUN/other"
  python3 "$here/cluster_configs.py" "$SRC" "$RUN/other" "$RUN/help" >/dev/null && fail "a metric that is not there was not missed"
else
  echo "python3 is not here: dashboard, rules and manifests were not looked at"
fi
if command -v promtool >/dev/null; then
  promtool check rules "$SRC/cluster-configs/prometheus/trireme.rules.yml" || fail "promtool finds the rules wrong"
else
  echo "promtool is not here: it has not read the rules"
fi
if command -v systemd-analyze >/dev/null; then
  mkdir -p "$RUN/units"
  for unit in trireme@ trireme-user@; do # a program that is there, and a name for the template
    sed "s|^ExecStart=[^ ]*|ExecStart=$BIN/trireme|" "$SRC/cluster-configs/systemd/$unit.service" >"$RUN/units/${unit}x.service"
    said=$(systemd-analyze verify "$RUN/units/${unit}x.service" 2>&1) || fail "$unit: $said"
    [ -z "$said" ] || fail "$unit: $said"
  done
else
  echo "systemd-analyze is not here: the units were not looked at"
fi
stop_cluster TERM

# SIGHUP has a gateway's keys read again, and ends nothing.
keys() { # NAME: has the key of that name alone
  printf '%s key-of-%s\n' "$1" "$1" >"$RUN/new.keys"
  chmod 600 "$RUN/new.keys"
  mv "$RUN/new.keys" "$RUN/keys"
}
models() { curl -sS -m $HANG_S -o /dev/null -w '%{http_code}' -H "Authorization: Bearer key-of-$1" "$url/v1/models"; } # NAME
keys ann
: >"$RUN/log"
start_up --http 127.0.0.1:0 --api-key-file "$RUN/keys"
until_holds "the gateway says nothing of what to try" grep -q 'gateway: try: ' "$RUN/log"
url=$(grep -o 'http://127.0.0.1:[0-9]*' "$RUN/log" | head -n 1)
[ "$(models ann)" = 200 ] || fail "a key does not let in: $(models ann)"
keys bob
kill -HUP "$CLUSTER"
until_holds "SIGHUP does nothing" grep -q 'the API keys were read again\|draining' "$RUN/log"
[ "$(models ann) $(models bob)" = "401 200" ] || fail "the keys were not read again: $(models ann) $(models bob)"
"$BIN/trireme" status | grep -q serving || fail "SIGHUP has ended a cluster with keys"
stop_cluster TERM
grep -q 'SIGHUP: draining' "$RUN/log" && fail "SIGHUP drains a cluster with keys"

# One that was ignored at the start, as by nohup, stays so; any other one drains. Signals of lower numbers are taken first.
: >"$RUN/log"
trap '' HUP
start_up
trap - HUP
kill -HUP "$CLUSTER"
stop_cluster TERM
grep -q 'SIGTERM: draining' "$RUN/log" || fail "SIGHUP after nohup: $(grep 'draining' "$RUN/log")"
start_up
stop_cluster HUP
grep -q 'SIGHUP: draining' "$RUN/log" || fail "SIGHUP does not drain"
