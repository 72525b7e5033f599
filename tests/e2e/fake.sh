# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Shared by command.sh and client.sh: a fake coordinator, and what a command says. Sourced with TRIREME and FAKE_COORDINATOR.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/wait.sh"
trireme=$(realpath "$1") fake=$(realpath "$2")
DATA=$(dirname "$trireme")/../tests/data # with the drawn weights
dir=$(mktemp -d /tmp/tri-command-XXXXXX)
cd "$dir" || exit 1
export TRIREME_ENDPOINT=ipc://$dir/t.sock TRIREME_RECONNECT_TIMEOUT_MS=0
export OMPI_MCA_odls_base_sigkill_timeout=0 # an MPI job that fails is killed at once, instead of getting two seconds
unset TRIREME_KEY_FILE TRIREME_SERVER_KEY
failures=0 server=

start() { # start OPTION...: a coordinator that listens
  rm -f endpoint # of the one before
  "$fake" "$@" >endpoint 2>fake.err &
  server=$!
  for _ in $(seq $LOOKS); do
    [[ -s endpoint ]] && return
    sleep 0.05
  done
  echo "the fake coordinator does not start" && cat fake.err && exit 1
}
stop() {
  [[ -n $server ]] && kill "$server" 2>/dev/null && wait "$server"
  server=
}
trap 'stop; rm -rf "$dir"' EXIT

failed() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
# until_holds WHAT COMMAND...: waits until a command succeeds.
until_holds() {
  local what=$1
  shift
  for _ in $(seq $LOOKS); do
    "$@" && return
    sleep 0.05
  done
  failed "$what"
}
# Conditions to wait for: a number of requests run; so many have been answered; a program waits, as one does whose coordinator is not there.
# shellcheck disable=SC2317 # until_holds runs them
run_now() { "$trireme" status | grep -q "^$1 running, "; } # NUMBER
answered() { "$trireme" status | sed -n 's/^requests: \([0-9]*\) done.*/\1/p'; }
# shellcheck disable=SC2317
has_answered() { [[ $(answered) -ge $1 ]]; } # NUMBER
# shellcheck disable=SC2317
waits() { [[ $(cat "/proc/$1/comm") == trireme ]] && grep -q '^State:.S' "/proc/$1/status"; } # PID
# want CODE PATTERN COMMAND...: exit code, and a basic regular expression that its output (stdout and stderr) must match
want() {
  local code=$1 pattern=$2 out got
  shift 2
  out=$("$@" 2>&1)
  got=$?
  if [[ $got != "$code" ]] || ! grep -q -- "$pattern" <<<"$out"; then
    failed "$* : exit code $got, expected $code; output, which should match '$pattern':"
    head -20 <<<"$out"
  fi
}
