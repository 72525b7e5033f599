# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Of storm.sh: a disk that is full or slow, and overload. Sourced behind lib.sh. Each fault runs in the background and ends by itself.
BAD_DISK_LIBRARY=${BAD_DISK_LIBRARY:-$(find "$(realpath "$BIN/../tests")" -name libbad_disk.so 2>/dev/null)}
export BAD_DISK=$RUN/switch
printf - >"$BAD_DISK"
LEFT_OUT=
: >"$RUN/bursts"

# The journal's own file system, which is gone with the mount namespace that storm.sh runs in, whatever ends the script.
own_disk() {
  mkdir "$RUN/disk" || fail "no folder"
  if mount -t tmpfs -o size=160m tmpfs "$RUN/disk" 2>/dev/null; then MOUNTED=$RUN/disk; else LEFT_OUT+="; full left out: no mount is allowed here"; fi
  [ "$BAD_DISK_LIBRARY" ] || LEFT_OUT+="; slow left out: no libbad_disk.so"
}
can_full() { [ "$MOUNTED" ] && [ ! -e "$RUN/disk/fill" ]; }
can_slow() { [ "$BAD_DISK_LIBRARY" ] && [ "$(cat "$BAD_DISK")" = - ]; }
can_burst() { [ ! -e "$RUN/burst" ]; }

# Requests whose records have half a MiB: twice a segment of the journal at once.
awk 'BEGIN { for (j = 0; j < 80; j++) { printf "{\"prompt\": \"1+1=\", \"max_tokens\": 1, \"allowed_token_ids\": [48"; for (i = 1; i < 131072; i++) printf ",48"; print "]}" } }' >"$RUN/bulky"
serves() { [ ! -e "$RUN/down" ] || ! sleep 0.1; }
said_full() { grep -c 'the disk of .* is full: new requests are refused' "$RUN/log"; }
# Over before any other fault: the room that a coordinator leaves at its end is there for the next start, which none is refused for then.
fill() {
  SAID_FULL=$(said_full)
  head -c 200M /dev/zero >"$RUN/disk/fill" 2>/dev/null
}
# Until the coordinator has said it, or everything has ended under which it would, and for some seconds more.
full() { # SECONDS
  for _ in $(seq 20); do
    [ "$(said_full)" = "$SAID_FULL" ] || break
    serves && LIMIT_S=5 client submit --file "$RUN/bulky" --concurrency 40 >/dev/null 2>&1
  done
  sleep "$1"
  rm -f "$RUN/disk/fill" # storm.sh may have failed
}

first_token() { # NAME: how long an answer of one token takes; nothing where the coordinator is killed meanwhile
  local since
  since=$(now_ms)
  serves && LIMIT_S=5 client submit --max-tokens 1 "1+1=" >/dev/null 2>&1 && echo "$1 $(($(now_ms) - since))" >>"$RUN/times"
}
slow() { # SECONDS
  first_token quick
  printf d 1<>"$BAD_DISK" # without truncating what is mapped
  for _ in 1 2 3; do first_token slow; done
  sleep "$1"
  printf - 1<>"$BAD_DISK"
}

# 4000 short requests of another client. How they end does not count, but the client must.
burst() {
  client bench serve --no-floors --json --num-prompts 4000 --max-concurrency 1000 --random-input-len 8 --random-output-len 4 >"$RUN/burst" 2>&1
  [ $? -lt 124 ] || echo "a burst of requests does not end" >>"$RUN/never"
  grep -o '"\(completed\|refused\)":[0-9]*' "$RUN/burst" >>"$RUN/bursts"
  rm -f "$RUN/burst"
}

sum() { awk -F: -v name="\"$1\"" '$1 == name { n += $2 } END { print n + 0 }' "$RUN/bursts"; } # NAME
refusals() { echo "$(grep -c 'disk of the journal is full' "$RUN/refused") by a full disk, $(grep -vc 'disk of the journal is full' "$RUN/refused") by a full queue; of bursts $(sum completed) answered, $(sum refused) refused"; }
