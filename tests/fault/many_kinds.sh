# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Shared by the fault tests: many kinds of requests, what each client is told, and whether that is what it is told undisturbed. Sourced
# behind lib.sh.
words="pod kit ru lo mav bex tun sir wa hob jel cad nim vor pex dul zam fo gir tek lub" # a long prompt
# All of them run at once in SLOTS sequences: 18 have tokens to stream then, and the others are two beam searches and one that does not stream.
common=(--deterministic --threads 1 --backend cpu --max-model-len 4096 --max-num-seqs "${SLOTS:-40}")

# An answer of this schema has hundreds of tokens.
echo '{"type":"array","minItems":40,"maxItems":60,"items":{"type":"object","properties":{"a":{"type":"integer","minimum":0,"maximum":9999},"b":{"type":"string","maxLength":6}},"required":["a","b"]}}' >"$RUN/schema.json"

# One request's arguments on each line, with the prompt behind a tab.
cat >"$RUN/requests" <<EOF
--temperature 0 --ignore-eos --max-tokens 800	count 1 to 40=
--temperature 0 --ignore-eos --max-tokens 400 --no-stream	count 3 to 30=
--temperature 0.9 --seed 11 --ignore-eos --max-tokens 800	reverse stone=
--temperature 1.1 --top-k 20 --top-p 0.95 --min-p 0.01 --seed 12 --ignore-eos --max-tokens 400	first $words=
--temperature 1 --seed 13 --n 3 --ignore-eos --max-tokens 400	sort 52914=
--temperature 1.3 --seed 14 --n 3 --logit-bias 507=-14 --min-tokens 20 --max-tokens 600	count 7 to 12=
--temperature 1.4 --seed 15 --n 4 --ignore-eos --stop 77 --stop xq --stop rok --max-tokens 600	reverse stone=
--temperature 0.8 --seed 16 --logprobs 3 --ignore-eos --max-tokens 400	37+48=
--temperature 0.8 --seed 17 --n 2 --logprobs 0 --prompt-logprobs 2 --echo --ignore-eos --max-tokens 500	first $words=
--temperature 0 --prompt-logprobs 1 --ignore-eos --max-tokens 400	first $words=
--num-beams 4 --n 2 --max-tokens 400	count 1 to 40=
--num-beams 3 --ignore-eos --length-penalty 0.5 --max-tokens 300 --no-stream	count 20 to 90=
--temperature 0.9 --seed 18 --repetition-penalty 1.05 --presence-penalty 0.4 --frequency-penalty 0.02 --ignore-eos --max-tokens 600	count 1 to 9=
--temperature 0 --repetition-penalty 1.3 --ignore-eos --max-tokens 600	count 11 to 19=
--temperature 0 --stop "38;39" --stop "39 4" --ignore-eos --max-tokens 600	count 1 to 40=
--temperature 1 --seed 19 --allowed-token-ids 48,49,50,51,52,53,54,55,56,57,32 --max-tokens 600	305+306=
--temperature 1 --seed 20 --logit-bias 50=3 --logit-bias 507=-20 --max-tokens 600	305+306=
--temperature 1.5 --seed 21 --stop-token-ids 51,52 --min-tokens 350 --max-tokens 600	reverse oak=
--temperature 1 --seed 23 --n 2 --json-schema "$RUN/schema.json" --max-tokens 600	37+48=
--temperature 0.9 --seed 24 --logprobs 1 --json-object --ignore-eos --max-tokens 400	sort 52914=
--temperature 1.2 --seed 22 --ignore-eos --max-tokens 600 --deadline-ms 100000	452+671=
EOF
COUNT=$(wc -l <"$RUN/requests")

# What a client was told, whatever the pieces: of each choice its tokens, text and log probabilities, and the end.
told() { # JOB
  awk '
    /"event":"tokens"/ {
      match($0, /"index":[0-9]+/); index_ = substr($0, RSTART + 8, RLENGTH - 8)
      match($0, /"offset":[0-9]+/); offset = substr($0, RSTART + 9, RLENGTH - 9)
      if (/"of_prompt":true/) index_ = "prompt"
      match($0, /"text":"([^"\\]|\\.)*"/); text[index_] = text[index_] substr($0, RSTART + 8, RLENGTH - 9)
      match($0, /"token_ids":\[[0-9,]*\]/); ids = substr($0, RSTART + 13, RLENGTH - 14)
      if (ids == "") next
      if (offset != num[index_] + 0) print "tokens of choice " index_ " from " offset ", after " num[index_] + 0
      num[index_] += split(ids, unused, ",")
      all[index_] = all[index_] ids ","
      if (match($0, /"logprobs":\[/)) logprobs[index_] = logprobs[index_] substr($0, RSTART + 12, length($0) - RSTART - 15) ","
      next
    }
    /"event":"done"/ {
      for (i in all) print i, num[i], all[i], text[i], logprobs[i] | "sort"
      close("sort")
      sub(/"queue_ms".*/, "") # times, and the seed, which may have been drawn
      print
      next
    }
    !/"event":"accepted"/ { print }' "$1"
}
requests_start() { # OUT; EXTRA says more arguments of each, with {} for its number
  local i=0 args prompt
  mkdir -p "$RUN/$1"
  while IFS=$'\t' read -r args prompt; do
    i=$((i + 1))
    eval "args=($args)" # of the list above
    {
      LIMIT_S=$WHOLE_S client submit --json "${args[@]}" ${EXTRA:+${EXTRA//\{\}/$(printf %032x $i)}} "$prompt" >"$RUN/$1/$i" 2>"$RUN/$1/$i.err"
      echo "exit code $? at $(date +%T)" >>"$RUN/$1/$i.err"
    } &
  done <"$RUN/requests"
}
# Returns when so many of the requests have tokens, of which up to 16 do while steps are held.
requests_run() { # OUT N
  for _ in $(seq $LOOKS); do
    [ "$(grep -ls '"token_ids":\[[0-9]' "$RUN/$1"/* | wc -l)" -ge "$2" ] && return
    sleep 0.05
  done
  fail "$1: the requests do not begin: $(cat "$RUN/$1"/*.err)"
}
requests_end() { # OUT
  local i
  for _ in $(seq $LOOKS); do
    [ "$(grep -lsE '"event":"(done|error)"' "$RUN/$1"/* | wc -l)" = "$COUNT" ] && break
    sleep 0.05
  done
  for i in $(seq "$COUNT"); do
    told "$RUN/$1/$i" >"$RUN/$1/$i.told"
    grep -q '"event":"done"' "$RUN/$1/$i.told" || fail "$1: request $i, $(sed -n "${i}p" "$RUN/requests"): $(tail -c 300 "$RUN/$1/$i") $(cat "$RUN/$1/$i.err")"
    [ "$1" = whole ] || cmp -s "$RUN/whole/$i.told" "$RUN/$1/$i.told" ||
      fail "$1: request $i, $(sed -n "${i}p" "$RUN/requests"), ended with another answer: $(diff "$RUN/whole/$i.told" "$RUN/$1/$i.told" | cut -c 1-600)"
  done
}
