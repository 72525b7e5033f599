#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that people have, unchanged, against `trireme up --http` with the bundled model.
#   run.sh FOLDER [CLIENT...]   openai langchain llama_index lm_eval aiperf; without names all of them
# FOLDER has the programs. Each client gets a Python environment in TRIREME_CLIENTS (~/.cache/trireme-clients), which is kept: of 0.1 GB
# (openai) to 1.2 GB (aiperf). Exit code 77: an environment cannot be made, as there is no pip or no PyPI.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
[[ $# -ge 1 && -d $1 ]] || { sed -n '3,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
export BIN SRC
BIN=$(realpath "$1") SRC=$(realpath "$here/../..")
shift
[[ $# -gt 0 ]] || set -- openai langchain llama_index lm_eval aiperf
. "$here/../e2e/lib.sh"
environments=${TRIREME_CLIENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme-clients}
unset HF_HUB_OFFLINE

packages_of() { # CLIENT
  case $1 in
  openai) echo openai==3.54.0 ;;
  langchain) echo langchain-openai==1.7.3 ;;
  llama_index) echo llama-index-llms-openai-like==0.8.1 ;;
  lm_eval) echo lm_eval==0.4.13 transformers==5.23.0 tenacity requests tiktoken aiohttp ;;
  aiperf) echo aiperf==0.13.0 ;;
  *) echo "run.sh: no client is called $1" >&2; return 1 ;;
  esac
}

# Sets python to that of the client's environment.
make_environment() { # CLIENT
  local folder packages
  packages=$(packages_of "$1") || exit 2
  folder=$environments/$1-$(cksum <<<"$packages" | cut -d' ' -f1)
  python=$folder/bin/python
  [[ -e $folder/made ]] && return
  rm -rf "$folder"
  mkdir -p "$environments"
  # shellcheck disable=SC2086
  if ! { python3 -m venv "$folder" && timeout 900 "$python" -m pip install --quiet --disable-pip-version-check --retries 1 $packages; } >"$RUN/pip" 2>&1; then
    echo "SKIPPED: $1: $(tail -n 1 "$RUN/pip")"
    return 77
  fi
  touch "$folder/made"
}

run_openai() { "$python" "$here/openai_client.py" "$url/v1"; }
run_langchain() { "$python" "$here/langchain_client.py" "$url/v1"; }
run_llama_index() { "$python" "$here/llama_index_client.py" "$url/v1"; }

# Tasks from files of this folder: every answer must be the right one, and of each question's choices the right one the most probable.
lm_eval_task() { # TASK METRIC TOKENS
  (
    cd "$RUN" || exit 1
    HF_HUB_OFFLINE=1 HF_HOME=$RUN/hf "$(dirname "$python")/lm_eval" --model local-completions --tasks "$1" --include_path . \
      --model_args "model=abacus,base_url=$url/v1/completions,num_concurrent=4,max_retries=1,$3"
  ) >"$RUN/lm_eval" 2>&1
  grep -q "|$2 *|.*| *1|" "$RUN/lm_eval"
}
run_lm_eval() {
  cp "$here"/sums.* "$here"/choices.* "$RUN"/
  lm_eval_task sums exact_match tokenized_requests=False,tokenizer_backend=None &&
    lm_eval_task choices acc "tokenizer_backend=huggingface,tokenizer=$MODEL"
}

# Questions that the model answers, since what it says to random texts has no words.
run_aiperf() {
  local n
  for n in $(seq 20); do echo "{\"text\": \"count $n to $((n + 9))=\"}"; done >"$RUN/questions.jsonl"
  "$(dirname "$python")/aiperf" profile --model abacus --url "$url" --endpoint-type chat --streaming --tokenizer "$MODEL" --concurrency 4 \
    --request-count 20 --input-file "$RUN/questions.jsonl" --custom-dataset-type single_turn --artifact-dir "$RUN/aiperf" --ui simple >"$RUN/aiperf.log" 2>&1 &&
    grep -qE 'Request Count[^0-9]*20\.00' "$RUN/aiperf.log"
}

# Sets url to that of a cluster with a gateway, for MODEL.
serve() {
  start_up --http 127.0.0.1:0 --backend cpu
  for _ in $(seq $LOOKS); do
    url=$(sed -n 's/.* gateway: \(http:\/\/127.0.0.1:[0-9]*\)$/\1/p' "$RUN/log" | tail -n 1)
    [[ -n $url ]] && curl -s -o /dev/null "$url/live" && return
    sleep 0.05
  done
  fail "no gateway"
}

check() { # CLIENT COMMAND...
  local client=$1
  shift
  if "$@" >"$RUN/said" 2>&1; then
    echo "$client passed ($(packages_of "$client" | cut -d' ' -f1))"
  else
    failed=1
    echo "$client FAILED"
    tail -n 20 "$RUN/said" "$RUN/$client" "$RUN/$client.log" 2>/dev/null
  fi
}

serve
failed=0 skipped=0 embeds=''
for client in "$@"; do
  make_environment "$client"
  case $? in
  0) ;;
  77) skipped=1 && continue ;;
  *) exit 2 ;;
  esac
  check "$client" "run_$client"
  [[ $client != openai ]] || embeds=$python
done
if [[ -n $embeds ]]; then
  kill -INT "$CLUSTER" && wait "$CLUSTER"
  MODEL=$DATA/checkpoints/bert
  serve
  check openai "$embeds" "$here/openai_client.py" "$url/v1" --embeddings
fi
[[ $failed = 0 ]] || exit 1
[[ $skipped = 0 ]] || exit 77
