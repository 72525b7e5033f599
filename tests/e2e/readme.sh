#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The README's commands by hand, as they stand there, but for the build and the port.
. "$(dirname "$0")/lib.sh"
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || { echo "skipped: no python3"; exit 77; }
export PATH=$BIN:$PATH XDG_RUNTIME_DIR=$RUN TRIREME_ENDPOINT=ipc://$RUN/trireme.sock # where it is by default
{
  echo 'set -em'
  sed -n '/^Or by hand/,/^## /s/^    //p' "$SRC/README.md" | grep -vE '^(scripts/|cmake |export PATH)' |
    sed "s#127.0.0.1:8000#127.0.0.1:$port#; s#^trireme serve \([^ ]*\)#trireme serve \1 --port $port#; s#2>serve.log#2>$RUN/log#"
  echo 'wait %1'
} >"$RUN/commands"
grep -q 'trireme serve .* --port' "$RUN/commands" || fail "the README has no such block: $(cat "$RUN/commands")"
cd "$SRC" || exit 1
timeout $HANG_S bash "$RUN/commands" >"$RUN/said" 2>"$RUN/errors" || fail "$(cat "$RUN/commands"): exit code $?: $(cat "$RUN/said")"
grep -q '"text":"85"' "$RUN/said" || fail "no answer over HTTP: $(cat "$RUN/said")"
grep -q '12459' "$RUN/said" || fail "no answer from the shell: $(cat "$RUN/said")"
grep -q 'exit code 0' "$RUN/log" || fail "the cluster did not end well: $(tail -3 "$RUN/log")"
[ -z "$(ours)" ] || fail "left running: $(ours)"
echo "the README's commands: $(wc -l <"$RUN/commands") lines, as they should"
