#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python examples of docs/examples get the bundled model's answers, over ZeroMQ (on a socket file, and by TCP with keys) and over HTTP
# (with a key), and say why where they get none. Exit code 77: there is no Python with pyzmq and msgpack; the other is run all the same.
. "$(dirname "$0")/lib.sh"
examples=$SRC/docs/examples skipped=0
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
python=''
for p in python3 /usr/bin/python3; do
  "$p" -c 'import msgpack, zmq' 2>/dev/null && python=$p && break
done
[ -n "$python" ] || { echo "no pyzmq and msgpack: ask_zeromq.py is not run"; skipped=77; }
asks() { # asks EXPECTED COMMAND...
  local expected=$1 said
  shift
  said=$("$@" 2>&1) || fail "${*: -2:1}: exit code $?: $said"
  [ "$said" = "$expected" ] || fail "${*: -2:1}: \"$said\" where \"$expected\" should come"
}
refuses() { # refuses WORDS COMMAND...
  local words=$1 said
  shift
  said=$("$@" 2>&1) && fail "${*: -2:1}: no failure: $said"
  [[ $said == *"$words"* && $said != *Traceback* ]] || fail "${*: -2:1}: \"$said\" where \"$words\" should stand"
}
long=$(printf '1+%.0s' $(seq 20000))

echo "reader 0123456789abcdef0123456789abcdef" >"$RUN/api.keys" && chmod 600 "$RUN/api.keys"
start_up --http 127.0.0.1:0 --api-key-file "$RUN/api.keys"
for _ in $(seq $LOOKS); do
  TRIREME_URL=$(sed -n 's/.* gateway: \(http:\/\/127.0.0.1:[0-9]*\)$/\1/p' "$RUN/log" | tail -n 1)
  [ -n "$TRIREME_URL" ] && curl -s -o /dev/null "$TRIREME_URL/live" && break
  sleep 0.05
done
export TRIREME_URL
refuses key python3 "$examples/ask_http.py" "37+48="
export TRIREME_API_KEY=0123456789abcdef0123456789abcdef
asks 85 python3 "$examples/ask_http.py" "37+48="
refuses tokens python3 "$examples/ask_http.py" "$long"
if [ $skipped = 0 ]; then
  asks 85 "$python" "$examples/ask_zeromq.py" "37+48="
  asks 12459 "$python" "$examples/ask_zeromq.py" "sort 52914="
  refuses no_capacity "$python" "$examples/ask_zeromq.py" "$long"
fi
stop_cluster TERM

if [ $skipped = 0 ]; then
  for who in server me; do "$BIN/trireme" keygen "$RUN/$who.key" >"$RUN/$who.pub"; done
  cp "$RUN/me.pub" "$RUN/allowed.keys"
  export TRIREME_KEY_FILE=$RUN/me.key TRIREME_SERVER_KEY
  TRIREME_SERVER_KEY=$(cat "$RUN/server.pub")
  port=$((20000 + $$ % 20000))
  TRIREME_ENDPOINT=tcp://127.0.0.1:$port
  start_up --endpoint "$TRIREME_ENDPOINT" --key-file "$RUN/server.key" --allowed-keys "$RUN/allowed.keys"
  asks 85 "$python" "$examples/ask_zeromq.py" "37+48="
  stop_cluster TERM
fi
echo "both examples answer"
exit $skipped
