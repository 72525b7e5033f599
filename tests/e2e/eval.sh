#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `trireme eval` of the bundled model and of its int8 form: its figures are those that follow from what HTTP answers, window by window;
# and what it refuses, with which words.
here=$(dirname "$0")
. "$here/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
second=ipc://$RUN/second.sock

start_second() { # ARGS...: a cluster beside the other
  "$BIN/trireme" up --endpoint "$second" --threads 1 --deterministic "$@" >"$RUN/second.log" 2>&1 &
  SECOND=$!
  until_holds "the second cluster is not ready: $(tail -n 5 "$RUN/second.log")" serves_second
}
serves_second() { "$BIN/trireme" status --endpoint "$second" --json 2>/dev/null | grep -q '"state": *"serving"'; }
stop_second() {
  kill "$SECOND"
  until_holds "the second cluster does not end" ended "$SECOND"
}
ended() { ! kill -0 "$1" 2>/dev/null; }
url_of() { sed -n 's|.*gateway: \(http://127.0.0.1:[0-9]*\)$|\1|p' "$1"; } # LOG
eval_json() { "$BIN/trireme" eval "$@" --json >"$RUN/out" 2>"$RUN/err" || fail "eval $*: $(cat "$RUN/err")"; }
refused() { # CODE WORDS ARGS...
  local code=$1 words=$2 got
  shift 2
  "$BIN/trireme" eval "$@" >"$RUN/out" 2>"$RUN/err"
  got=$?
  [ $got = "$code" ] && grep -qF -- "$words" "$RUN/err" && [ ! -s "$RUN/out" ] || fail "eval $*: exit code $got, said: $(cat "$RUN/err" "$RUN/out")"
}

# The same figures by another way: prompts over HTTP, one at a time, and the loop of transformers' documentation over them.
cat >"$RUN/by_http.py" <<'END'
import json, math, struct, sys, urllib.request
out, size, stride, urls = json.load(open(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
PROMPT, MOST = 20, 24
def ask(url, path, body):
    data = json.dumps(body).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(url + path, data, {'Content-Type': 'application/json'})))
ids = ask(urls[0], '/tokenize', dict(prompt=open(out['text']).read()))['tokens']
def float32(x): return struct.unpack('f', struct.pack('f', x))[0] # which the shortest text stands for
def scores(url):
    own, best, before, answers = {}, {}, 0, []
    for begin in range(0, len(ids), stride):
        end = min(begin + size, len(ids))
        c = ask(url, '/v1/completions', dict(prompt=ids[begin:end], max_tokens=0, prompt_logprobs=1))['choices'][0]
        for at in range(end - (end - before), end):
            if at == begin: continue
            assert at not in own
            place = c['prompt_logprobs'][at - begin]
            own[at] = float32(place[str(ids[at])]['logprob'])
            best[at] = max(place, key=lambda k: place[k]['logprob'])
        before = end
        c = ask(url, '/v1/completions', dict(prompt=ids[begin:min(begin + PROMPT, end)], max_tokens=MOST, temperature=0, ignore_eos=True, return_token_ids=True))
        answers.append(c['choices'][0]['token_ids'])
        if end == len(ids): break
    assert sorted(own) == list(range(1, len(ids)))
    return own, best, answers
def same(name, got, wanted):
    if not abs(got - wanted) <= 1e-9 * abs(wanted): sys.exit(f'{name} is {got}, by HTTP {wanted}')
def perplexity(own): return math.exp(-sum(own.values()) / len(own))
sides = [scores(u) for u in urls]
same('tokens', out['tokens'], len(ids)); same('predicted_tokens', out['predicted_tokens'], len(ids) - 1); same('windows', out['windows'], len(sides[0][2]))
same('perplexity', out['perplexity'], perplexity(sides[0][0]))
said = f'{len(ids)} tokens, {out["windows"]} windows, perplexity {out["perplexity"]:.4f}'
if len(sides) == 2:
    (a, best_a, answers_a), (b, best_b, answers_b) = sides
    forced, greedy = out['teacher_forced'], out['greedy']
    gaps = [abs(a[i] - b[i]) for i in a]
    equal = [next((k for k in range(MOST) if x[k] != y[k]), MOST) for x, y in zip(answers_a, answers_b)]
    same('the second perplexity', out['against']['perplexity'], perplexity(b))
    same('same_top_token', forced['same_top_token'], sum(best_a[i] == best_b[i] for i in a)); same('agreement', forced['agreement'], forced['same_top_token'] / len(a))
    same('mean_logprob_difference', forced['mean_logprob_difference'], sum(gaps) / len(gaps)); same('max_logprob_difference', forced['max_logprob_difference'], max(gaps))
    same('prompts', greedy['prompts'], len(equal)); same('equal_tokens', greedy['equal_tokens'], sum(equal)); same('greedy agreement', greedy['agreement'], sum(equal) / (MOST * len(equal)))
    same('equal_continuations', greedy['equal_continuations'], equal.count(MOST))
    # A comparison of a model with itself would find the same figures for much that is wrong.
    if not (max(gaps) > 0 and 0 < sum(equal) < MOST * len(equal) and 0 < forced['same_top_token'] < len(a)): sys.exit(f'the forms do not differ: {out}')
    said += f'; against {out["against"]["perplexity"]:.4f}, top tokens {forced["agreement"]:.4f}, greedy {greedy["agreement"]:.4f}'
print(said)
END

start_up --threads 1 --deterministic --http 127.0.0.1:0
# A client may have three jobs there, so that most requests come when the queue is full.
start_second --model "$MODEL" -q int8 --http 127.0.0.1:0 --max-queued-per-client 3
until_holds "no HTTP" grep -q 'gateway: http' "$RUN/log"
until_holds "no HTTP of the second" grep -q 'gateway: http' "$RUN/second.log"
url=$(url_of "$RUN/log") second_url=$(url_of "$RUN/second.log")
# Sums and sorted digits, of which the model knows something, and a text that it does not know.
sed 's/^{"prompt": *"\([^"]*\)".*"answer": *"\([^"]*\)".*/\1\2/' "$MODEL/questions.jsonl" | head -25 >"$RUN/text"
head -c 600 "$SRC/LICENSE" >>"$RUN/text"

# Windows of the usual size, and odd ones.
eval_json "$MODEL" --text "$RUN/text"
python3 "$RUN/by_http.py" "$RUN/out" 1023 511 "$url" || fail "the usual windows"
eval_json "$MODEL" --text "$RUN/text" --window 101 --stride 37 --against "$second" --prompt-tokens 20 --max-tokens 24
python3 "$RUN/by_http.py" "$RUN/out" 101 37 "$url" "$second_url" || fail "a comparison"
cp "$RUN/out" "$RUN/comparison"
"$BIN/trireme" status --endpoint "$second" | grep -q '^requests: .* 0 failed, .* [1-9][0-9]* refused' || fail "no request came when the queue was full: $("$BIN/trireme" status --endpoint "$second")"
# The same again, one request at a time and the text from the standard input: no figure depends on when answers come.
eval_json "$MODEL" --text - --window 101 --stride 37 --against "$second" --prompt-tokens 20 --max-tokens 24 --concurrency 1 <"$RUN/text"
[ "$(sed 's/"text":"[^"]*"//' "$RUN/out")" = "$(sed 's/"text":"[^"]*"//' "$RUN/comparison")" ] || fail "one at a time: $(cat "$RUN/out" "$RUN/comparison")"
# A cluster agrees with itself; without continuations nothing is said of them.
eval_json "$MODEL" --text "$RUN/text" --window 64 --against "$TRIREME_ENDPOINT"
grep -q '"agreement":1,"mean_logprob_difference":0,"max_logprob_difference":0}.*"greedy":.*"agreement":1,' "$RUN/out" || fail "a cluster against itself: $(cat "$RUN/out")"
eval_json "$MODEL" --text "$RUN/text" --window 64 --against "$second" --max-tokens 0
grep -q '"teacher_forced"' "$RUN/out" && ! grep -q '"greedy"' "$RUN/out" || fail "--max-tokens 0: $(cat "$RUN/out")"
# A short text needs no folder, and has the same tokens.
head -c 300 "$RUN/text" >"$RUN/short"
eval_json "$MODEL" --text "$RUN/short"
mv "$RUN/out" "$RUN/with"
eval_json --text "$RUN/short"
cmp -s "$RUN/out" "$RUN/with" || fail "a text by the coordinator's tokenizer: $(cat "$RUN/out" "$RUN/with")"
"$BIN/trireme" eval "$MODEL" --text "$RUN/text" --window 101 --stride 37 --against "$second" >"$RUN/out" || fail "a table"
[ "$(grep -cE '^(Text|Model|Against|Perplexity|Same top token|Log probabilities|Equal tokens|Equal to the end) ' "$RUN/out")" = 9 ] || fail "a table: $(cat "$RUN/out")"
cat "$RUN/out"

# What is refused.
: >"$RUN/empty"
printf 7 >"$RUN/one"
refused 2 "--text says which file" "$MODEL"
refused 1 "cannot open $RUN/none: No such file" "$MODEL" --text "$RUN/none"
refused 1 "cannot read $RUN: Is a directory" "$MODEL" --text "$RUN"
refused 2 "$RUN/empty is empty" "$MODEL" --text "$RUN/empty"
refused 2 "--stride 9 must be less than --window 9" "$MODEL" --text "$RUN/short" --window 9 --stride 9
refused 2 "--prompt-tokens has no meaning without --against" "$MODEL" --text "$RUN/short" --prompt-tokens 9
refused 3 "--window 1024: the limit is 1023" "$MODEL" --text "$RUN/short" --window 1024
refused 3 "limit for both is max_model_len 1024" "$MODEL" --text "$RUN/short" --against "$second" --max-tokens 1000
refused 3 "trireme eval DIR --text FILE" --text "$RUN/text"
refused 1 "there was no socket $RUN/none" "$MODEL" --text "$RUN/short" --endpoint "ipc://$RUN/none" --against "$second" --connect-timeout-ms 100
# The same model with a tokenizer that puts no token before a text.
cp "$MODEL"/{config.json,generation_config.json,tokenizer_config.json,model.safetensors} "$RUN"
python3 -c 'import json, sys; t = json.load(open(sys.argv[1])); t["post_processor"] = None; json.dump(t, open(sys.argv[2], "w"))' "$MODEL/tokenizer.json" "$RUN/tokenizer.json"
refused 3 "the tokenizer.json in $RUN is not the one of the served model" "$RUN" --text "$RUN/short"
refused 3 "cannot open $here/tokenizer.json" "$here" --text "$RUN/short"
stop_second
start_second --model "$RUN"
refused 3 "second.sock: its tokenizer.json is not the one of" "$MODEL" --text "$RUN/short" --against "$second"
refused 2 "has 1 token: the first one is not predicted, so that there must be 2" "$RUN" --text "$RUN/one" --endpoint "$second"
stop_second
start_second --model "$DATA/checkpoints/bert"
refused 3 "is an encoder" "$MODEL" --text "$RUN/short" --against "$second"
stop_second
start_second --model "$DATA/checkpoints/llama"
refused 3 "has no tokenizer" --text "$RUN/short" --endpoint "$second"
stop_second
stop_cluster TERM
