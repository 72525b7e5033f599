#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the trireme command says of connections and of input that cannot be right, against tests/tools/fake_coordinator.c.
# Usage: client.sh TRIREME FAKE_COORDINATOR
# shellcheck source=/dev/null disable=SC2154
. "$(dirname "$0")/fake.sh" "$@"

# Addresses that nobody can be reached at are refused at once, although the limit is 5 s.
want 2 'the port is missing' timeout $HANG_S "$trireme" status --endpoint tcp://127.0.0.1
want 2 'port 99999 .*allowed are 1 to 65535' timeout $HANG_S "$trireme" status --endpoint tcp://127.0.0.1:99999
want 1 '"no-such-host.invalid" does not resolve' "$trireme" status --endpoint tcp://no-such-host.invalid:5

# Keys that do not fit: whichever of the two it is, the client cannot tell.
"$trireme" keygen server.key >server.pub && "$trireme" keygen client.key >client.pub
start --endpoint 'tcp://127.0.0.1:*' --key-file server.key --allow "$(cat client.pub)"
want 3 'closes each connection at once: it has no files left .*, or --server-key is not its public key, or it uses no keys' \
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
interrupted() { # PATTERN OPTION...: the last line of a submit --file that is interrupted with 64 requests under way
  local pattern=$1 long code
  shift
  "$trireme" submit "$@" --output long.out --concurrency 64 2>long.err <&0 &
  long=$!
  until_holds "a file has not 64 requests under way" run_now 64
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

# Lines of OpenAI's batches, beside our own; fields of a line that are nobody's come back in its answer.
cat >batch.jsonl <<'END'
{"custom_id":"a\"1","method":"POST","url":"/v1/completions","body":{"model":"fake","prompt":"one two","max_tokens":2,"user":"me"}}
{"custom_id":"b","method":"POST","url":"/v1/completions","body":{"prompt":["x"],"max_completion_tokens":1,"logprobs":1,"best_of":1}}
{"custom_id":"c","url":"/v1/completions","body":{"prompt":"error out_of_range"}}
{"custom_id":"d","url":"/v1/completions","body":{"prompt":"x","temprature":1}}
{"custom_id":"e","url":"/v1/chat/completions","body":{"messages":[]}}
{"custom_id":"f","url":"/v1/embeddings","body":{"model":"fake","input":[[1,2,3]],"encoding_format":"float"}}
{"custom_id":"g","url":"/v1/embeddings","body":{"input":"x","encoding_format":"base64"}}
{"prompt":"x","max_tokens":1,"id":7,"tags":["a",null,0.5],"who":{"b":null}}
{"prompt":"x","topk":3}
{"prompt":"x","choices":[]}
{"custom_id":7,"body":{}}
{"custom_id":"h","url":"/v1/completions","body":{"prompt":["x","y"]}}
END
want 1 'batch.jsonl:9: there is no request field named "topk"; did you mean top_k?$' "$trireme" submit --file batch.jsonl --output batch.out
line() { # NUMBER PATTERN: a line of batch.out has an extended regular expression, as a whole
  sed -n "$1p" batch.out | grep -Eqx -- "$2" || failed "line $1 of a batch: $(sed -n "$1p" batch.out)"
}
id='"id":"batch_req_[0-9a-f]{32}"'
line 1 "\{$id,\"custom_id\":\"a\\\\\"1\",\"response\":\{\"status_code\":200,\"request_id\":\"[0-9a-f]{32}\",\"body\":\{\"id\":\"cmpl-[0-9a-f]{32}\",\"object\":\"text_completion\",\"created\":[0-9]+,\"model\":\"fake\",\"choices\":\[\{\"index\":0,\"text\":\" the oars\",\"logprobs\":null,\"finish_reason\":\"length\",\"stop_reason\":null\}\],\"usage\":\{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4,\"prompt_tokens_details\":\{\"cached_tokens\":0\}\}\}\},\"error\":null\}"
line 2 '.*"model":null,"choices":\[\{"index":0,"text":" the","logprobs":\{"tokens":\[" the"\],"token_logprobs":\[-0.5\],.*"error":null\}'
line 3 '.*"custom_id":"c","response":\{"status_code":400,"request_id":"","body":\{"error":\{"message":"asked for","type":"invalid_request_error","param":"prompt","code":"out_of_range"\}\}\},"error":null\}'
line 4 '\{"id":"batch_req_line_4","custom_id":"d","response":\{"status_code":400,.*did you mean temperature.*'
line 5 '.*"custom_id":"e","response":\{"status_code":400,.*chat template.*"param":"url","code":"unsupported".*'
line 6 '.*"custom_id":"f",.*"status_code":200,.*\{"object":"list","data":\[\{"object":"embedding","index":0,"embedding":\[3\]\}\],"model":"fake","usage":\{"prompt_tokens":3,"total_tokens":3\}\}\},"error":null\}'
line 7 '.*"custom_id":"g",.*"param":"encoding_format".*'
line 8 '\{"line":8,"request_id":"[0-9a-f]*","id":7,"tags":\["a",null,0.5\],"who":\{"b":null\},"choices":.*'
line 10 '\{"line":10,"error":\{"code":"unknown_field","field":"choices",.*'
line 11 '\{"line":11,"error":.*custom_id must be a string.*'
line 12 '.*"custom_id":"h",.*prompt has 2 elements; a line has one prompt.*'

# --resume: what has been answered stays and is not asked again; errors are, and a line that is cut off.
for i in $(seq 9); do echo "{\"prompt\":\"p $i\",\"max_tokens\":1}"; done >many.jsonl
echo '{"custom_id":"z","url":"/v1/completions","body":{"prompt":"x","max_tokens":1}}' >>many.jsonl
"$trireme" submit --file many.jsonl --output whole.out 2>/dev/null || failed "a file of ten"
{ sed -n '1p;3p;10p' whole.out && echo '{"line":4,"error":{"code":"aborted","field":"","message":"interrupted"}}' && sed -n 6p whole.out | head -c 40; } >many.out
cp many.out before.out
want 0 '^trireme: 7 done, 0 failed, 3 before, ' "$trireme" submit --file many.jsonl --output many.out --resume
[[ $(sed -n '1,3p' many.out) == "$(sed -n '1,3p' before.out)" && $(wc -l <many.out) == 10 && ! -e many.out.resume ]] || failed "a resumed output: $(cat many.out)"
[[ $(sed -n 's/^{"line":\([0-9]*\),.*"choices".*/\1/p' many.out | sort -n | tr '\n' ' ') == '1 2 3 4 5 6 7 8 9 ' ]] || failed "a resumed output has other lines"
want 0 '^trireme: 0 done, 0 failed, 10 before, ' "$trireme" submit --file many.jsonl --output many.out --resume
want 0 '^trireme: 10 done, 0 failed, [0-9]' "$trireme" submit --file many.jsonl --output new.out --resume
want 0 '^trireme: new.out held [0-9]* bytes, which are overwritten; --resume ' "$trireme" submit --file many.jsonl --output new.out
cp many.jsonl other.out
want 1 '^trireme submit: new.out is being written by another trireme submit' flock new.out "$trireme" submit --file many.jsonl --output new.out --resume
want 1 '^trireme submit: other.out holds what is no answer' "$trireme" submit --file many.jsonl --output other.out --resume
cmp -s many.jsonl other.out || failed "a file that is no output is changed"
want 2 'resume belongs to --file with --output' "$trireme" submit --file many.jsonl --resume
sed 's/100000/300/' long.jsonl >slow.jsonl
want 0 'eta [0-9]*:[0-9][0-9]' timeout $HANG_S script -qefc "$(printf %q "$trireme") submit --file slow.jsonl --output slow.out --concurrency 4 & until grep -q 'eta [0-9]*:[0-9][0-9]' screen; do sleep 0.05; done; kill -INT \$!; wait \$!; true" screen
stop

# A full queue is no end: what had no room is sent again.
start --busy 25
want 0 '^trireme: 10 done, 0 failed, ' "$trireme" submit --file many.jsonl --output many.out --concurrency 4
stop

# Nor does a queue stand empty while refused lines pause, which takes minutes: each answer has the oldest of them sent again.
for i in $(seq 1500); do echo '{"prompt":"x","max_tokens":5}'; done >storm.jsonl
start --max-queue 4 --step-us 1000
want 0 '^trireme: 1500 done, 0 failed, ' timeout $HANG_S "$trireme" submit --file storm.jsonl --output storm.out --concurrency 64
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
want 3 ': give --kv-cache-memory-bytes 1572864 or more (max_model_len)$' "$trireme" plan --model "$abacus" --kv-cache-memory-bytes 1K
want 3 ': give --num-kv-blocks-override 64 or more, or --max-model-len 16 or less$' "$trireme" plan --model "$abacus" --num-kv-blocks-override 1
want 3 'or more memory; --memory-per-rank says' "$trireme" plan --model "$abacus" --memory-per-rank 1M --kv-cache-memory-bytes 1M
want 3 '"fits":false,"kv_tokens":0,"reason":"0 KV blocks of 16 tokens hold less than' "$trireme" plan --model "$abacus" --kv-cache-memory-bytes 1K --json
for o in --kv-cache-memory-bytes --memory-per-rank; do
  want 2 "allowed are 0 to 1024T" "$trireme" plan --model "$abacus" $o 8388608T
done
want 0 '"fits":true,"kv_tokens":[1-9][0-9]*}$' "$trireme" plan --model "$abacus" --json

((failures == 0)) && echo "all fine"
exit $((failures > 0))
