#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Answers that fit a JSON Schema, of a cluster with the options given: over HTTP (constrained.py, and calls: forced_calls.py), and by `trireme submit`.
# Usage: constrained.sh AT_ONCE OPTION...    EXPERTS=N: of a model with so many experts
here=$(dirname "$0")
. "$here/lib.sh"
command -v python3 >/dev/null || { echo "SKIPPED: there is no python3"; exit 77; }
at_once=$1
shift
if [ -n "${EXPERTS-}" ]; then
  use_experts "$EXPERTS"
  cp "$SRC/tests/models/abacus/chat_template.jinja" "$MODEL"
fi

start_up --http 127.0.0.1:0 --deterministic --threads 1 --max-model-len 512 --max-num-seqs 256 --tool-parser hermes "$@"
has_url() {
  url=$(sed -n 's/.* gateway: \(http:\/\/127.0.0.1:[0-9]*\)$/\1/p' "$RUN/log" | tail -n 1)
  [ -n "$url" ]
}
until_holds "the gateway does not say where it is" has_url
python3 "$here/constrained.py" "$url" "$at_once" || fail "over HTTP"
python3 "$here/forced_calls.py" "$url" 0 || fail "calls that are forced"

echo '{"type": "object", "properties": {"a": {"type": "integer", "minimum": 10, "maximum": 99}}, "required": ["a"]}' >"$RUN/schema.json"
"$BIN/trireme" submit --json-schema "$RUN/schema.json" --max-tokens 60 --seed 3 "37+48=" >"$RUN/out" || fail "--json-schema"
python3 -c 'import json, sys; v = json.load(sys.stdin); sys.exit(not (list(v) == ["a"] and 10 <= v["a"] <= 99))' <"$RUN/out" || fail "--json-schema: $(cat "$RUN/out")"
"$BIN/trireme" submit --token-ids 51,55 --json-schema "$RUN/schema.json" --max-tokens 60 >"$RUN/out" || fail "--json-schema with --token-ids"
grep -q '^{.*}$' <(tr -d '\n' <"$RUN/out") || fail "--json-schema with --token-ids: $(cat "$RUN/out")"
echo '{"prompt": "1+1=", "json_schema": {"enum": [17]}}' | "$BIN/trireme" submit --file - 2>/dev/null | grep -q '"text":"17"' || fail "json_schema of a line"
"$BIN/trireme" submit --json-object --max-tokens 40 "37+48=" | grep -q '^{' || fail "--json-object"
"$BIN/trireme" grammar "$RUN/schema.json" >/dev/null || fail "trireme grammar refuses what requests may have"
echo '{"properties": {"a": {"not": {}}}}' >"$RUN/bad.json"
"$BIN/trireme" submit --json-schema "$RUN/bad.json" "37+48=" >"$RUN/out" 2>&1 && fail "a schema that cannot be kept is taken"
grep -q '/properties/a/not' "$RUN/out" || fail "a schema that cannot be kept: $(cat "$RUN/out")"
head -c 300000 /dev/zero | tr '\0' ' ' >"$RUN/long.json"
"$BIN/trireme" submit --json-schema "$RUN/long.json" "37+48=" >"$RUN/out" 2>&1 && fail "a schema that is too long is taken"
stop_cluster TERM
