#!/usr/bin/env bash
# What the trireme command says of connections and of input that cannot be right, against tests/tools/fake_coordinator.c.
# Usage: client.sh TRIREME FAKE_COORDINATOR
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/fake.sh" "$@"

# Addresses that nobody can be reached at are refused at once, although the limit is 5 s.
want 2 'the port is missing' timeout 10 "$trireme" status --endpoint tcp://127.0.0.1
want 2 'port 99999 .*allowed are 1 to 65535' timeout 10 "$trireme" status --endpoint tcp://127.0.0.1:99999
want 1 '"no-such-host.invalid" does not resolve' "$trireme" status --endpoint tcp://no-such-host.invalid:5

# Keys that do not fit: whichever of the two it is, the client cannot tell.
"$trireme" keygen server.key >server.pub && "$trireme" keygen client.key >client.pub
start --endpoint 'tcp://127.0.0.1:*' --key-file server.key --allow "$(cat client.pub)"
want 3 'does not let this key in, or --server-key is not its public key, or it uses no keys' \
  "$trireme" status --endpoint "$(cat endpoint)" --key-file client.key --server-key "$(cat client.pub)"
stop
start --endpoint 'tcp://127.0.0.1:*' --insecure-tcp
want 0 '0 running' "$trireme" status --endpoint "$(cat endpoint)"
want 3 'or it uses no keys' "$trireme" status --endpoint "$(cat endpoint)" --key-file client.key --server-key "$(cat server.pub)"
stop

# Values that cannot be right.
start
want 2 '^trireme submit: --seed is -1; it must not be negative$' "$trireme" submit x --seed -1
want 2 '^trireme submit: --seed needs an integer from 0 to 18446744073709551615, not "x"$' "$trireme" submit x --seed x
want 2 '^trireme submit: --stop has 0 bytes; allowed are 1 to 256$' "$trireme" submit x --stop ''
want 2 'with commas between them, not "1,,2"$' "$trireme" submit x --stop-token-ids 1,,2
want 2 'with commas between them, not "1,,2"$' "$trireme" submit --token-ids 1,,2
want 2 'max-tokens is -2; allowed are -1 to 1048576, but not 0$' "$trireme" submit x --max-tokens -2
want 2 'max-tokens is 0; allowed are -1 to 1048576, but not 0$' "$trireme" submit x --max-tokens 0
# shellcheck disable=SC2317 # want runs it
one_line() { "$@" | tr -s '\n ' ' '; }
want 0 'max-tokens N .*\[-1 to 1048576, but not 0' one_line "$trireme" submit --help
echo '{"prompt":"x","max_tokens":0}' >zero.jsonl
want 1 'zero.jsonl:1: max_tokens is 0; allowed are -1 to 1048576, but not 0$' "$trireme" submit --file zero.jsonl

# An interrupted file: what was under way has failed, and the rest was not sent. Empty lines are nobody's.
interrupted() { # PATTERN OPTION...: the last line of a submit --file that is interrupted after a second
  local pattern=$1 long code
  shift
  "$trireme" submit "$@" --output long.out --concurrency 64 2>long.err <&0 &
  long=$!
  sleep 2
  kill -INT $long
  wait $long
  code=$?
  [[ $code == 1 && $(wc -l <long.out) == 64 ]] && tail -1 long.err | grep -q "^trireme: 0 done, 64 failed, ${pattern}0.0 req/s" ||
    { failed "an interrupted file: $code" && tail -3 long.err; }
}
for i in $(seq 300); do printf '{"prompt":"a long one %d","max_tokens":100000}\n\n' "$i"; done >long.jsonl
interrupted '236 not sent, ' --file long.jsonl
interrupted 'the rest not sent, ' --file - < <(cat long.jsonl)
head -128 long.jsonl >short.jsonl
interrupted '' --file short.jsonl
stop

# Benchmarks look at their input before they measure anything, and say on a terminal what takes the time.
want 1 'cannot open missing.jsonl: No such file' "$trireme" bench serve --prompt-file missing.jsonl
start
want 1 'cannot read .: Is a directory' "$trireme" bench serve --prompt-file . --num-prompts 2
want 0 'measuring the machine (--no-floors skips this)' script -qec "$(printf %q "$trireme") bench serve --num-prompts 2" /dev/null
"$trireme" bench serve --num-prompts 2 2>&1 | grep -q measuring && failed "measuring: said where nobody reads it"
want 2 'stats and --experts exclude each other' "$trireme" status --json --stats
want 0 '^{"num_experts":2,"rows":..3,4..}$' "$trireme" status --experts
stop

# What does not fit: the advice is about the limit, and JSON has the reason.
abacus=$SRC/tests/models/abacus
want 3 'give more --kv-cache-memory-bytes or a smaller --max-model-len (max_model_len)$' "$trireme" plan --model "$abacus" --kv-cache-memory-bytes 1K
want 3 'give more --num-kv-blocks-override or' "$trireme" plan --model "$abacus" --num-kv-blocks-override 1
want 3 'may use (memory); --memory-per-rank says' "$trireme" plan --model "$abacus" --memory-per-rank 1M --kv-cache-memory-bytes 1M
want 3 '"fits":false,"kv_tokens":0,"reason":"0 KV blocks of 16 tokens hold less than' "$trireme" plan --model "$abacus" --kv-cache-memory-bytes 1K --json
for o in --kv-cache-memory-bytes --memory-per-rank; do
  want 2 "allowed are 0 to 1024T" "$trireme" plan --model "$abacus" $o 8388608T
done
want 0 '"fits":true,"kv_tokens":[1-9][0-9]*}$' "$trireme" plan --model "$abacus" --json

((failures == 0)) && echo "all fine"
exit $((failures > 0))
