#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every program whose standard output takes nothing ends with a code that is not 0 and one line with the reason; one whose reader has
# left says nothing.
# Usage: full_output.sh TRIREME FAKE_COORDINATOR PROGRAM...
# shellcheck source=/dev/null disable=SC2154
abacus=$(realpath "$(dirname "$0")/../models/abacus")
. "$(dirname "$0")/fake.sh" "$@"
shift 2
programs=("$@")
bin=$(dirname "$trireme")
llama=$DATA/checkpoints/llama
export XDG_STATE_HOME=$dir/state
[[ -w /dev/full ]] || { echo "there is no /dev/full" && exit 77; }

# unwritten COMMAND...
unwritten() {
  local said got
  said=$("$@" 2>&1 >/dev/full)
  got=$?
  [[ $got != 0 ]] || failed "$* >/dev/full: exit code 0"
  [[ $(grep -c 'cannot write to stdout: No space left on device$' <<<"$said") == 1 ]] || failed "$* >/dev/full says: $said"
}
# left COMMAND...: its reader has closed the pipe, as a first text found that cannot be written any more; SIGPIPE does not end it.
left() {
  local said got
  said=$( (trap '' PIPE && exec 3>&1 && { while printf .; do :; done 2>/dev/null; "$@" 2>&3; echo $? >got; } | true) )
  got=$(cat got)
  [[ -z $said && $got != 0 ]] || failed "$* without a reader: exit code $got, says: $said"
}

# ---- help and versions of every program and of every command ----
commands=$("$trireme" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
kinds=$("$trireme" bench --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[[ $(wc -w <<<"$commands") -ge 17 && $(wc -w <<<"$kinds") -ge 5 ]] || failed "commands: $commands; kinds: $kinds"
unwritten "$trireme" --help
unwritten "$trireme" --version
unwritten "$trireme" help
for c in $commands; do
  unwritten "$trireme" "$c" --help
  unwritten "$trireme" help "$c"
done
for k in $kinds; do unwritten "$trireme" bench "$k" --help; done
for p in "${programs[@]}"; do
  unwritten "$bin/$p" --help
  unwritten "$bin/$p" --version
done

# ---- what they print, without a cluster ----
echo '[{"role":"user","content":"Hello"}]' >messages
echo '{{ messages[0].content }}' >template
mkdir packs
small=(--threads 1 --backend cpu)
unwritten "$trireme" journal ls
mkdir -p "$XDG_STATE_HOME/trireme/journal/one"
unwritten "$trireme" journal
unwritten "$trireme" plan --model "$abacus"
unwritten "$trireme" plan --model "$abacus" --json
unwritten "$trireme" plan --model "$abacus" --devices 2 --device h100
unwritten "$trireme" plan --model "$abacus" --memory-per-rank 1MiB
unwritten "$trireme" template --chat-template template messages
unwritten "$trireme" template --chat-template template --json messages
unwritten "$trireme" keygen a.key
unwritten "$trireme" pack --model "$llama" --nvme-path packs --threads 1
unwritten "$trireme" doctor --no-mpi-start
unwritten "$trireme" bench load --num-iters 1 "${small[@]}" --model "$llama"
unwritten "$trireme" bench stream --num-iters 1 "${small[@]}" --gpu-layers 0 --model "$llama"
unwritten "$trireme" bench latency --num-iters 1 "${small[@]}" --model "$llama" --input-len 8 --output-len 2

# ---- with a coordinator ----
start
unwritten "$trireme" status
for c in --json --stats --experts; do unwritten "$trireme" status "$c"; done
unwritten "$trireme" submit hello
unwritten "$trireme" submit hello --json
unwritten "$trireme" submit hello --n 2
echo '{"prompt":"hello"}' >prompts
unwritten "$trireme" submit --file prompts
want 1 "^trireme: output: No space left on device" "$trireme" submit --file prompts --output /dev/full
unwritten "$trireme" bench serve --num-prompts 2 --request-rate 100 --no-floors
unwritten "$trireme" bench throughput --num-prompts 2 --no-floors
stop
start --task embed
unwritten "$trireme" embed --text hello
unwritten "$trireme" embed --file <(echo '{"text":"hello"}') --json
stop

# ---- nobody reads ----
left "$trireme" --help
left "$trireme" plan --model "$abacus"
left "$trireme" journal
left "$bin/trireme-worker" --help

# A file that takes all is no failure, and neither is a refusal another one.
want 0 . "$trireme" plan --model "$abacus"
"$trireme" plan --model "$abacus" --memory-per-rank 1MiB >/dev/full 2>/dev/null
[[ $? == 3 ]] || failed "a plan that does not fit, and is not printed: exit code $?"
((failures == 0)) && echo "all fine"
exit $((failures > 0))
