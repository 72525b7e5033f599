#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gguf.sh MODELCHECK CHECKPOINTS [single|ranks]: GGUF files that are made of checkpoints (tests/models/make_gguf.py).
#   single (default)  one rank: of each family that is read from them, as numbers, the stored answers; as blocks, the bits of
#                     a folder, or a file, with the numbers that the blocks stand for, also in int8 and with weights from the file in every
#                     step; in several files
#                     Q8_0 also as it is kept, in the error of those numbers
#   ranks             the same over several ranks
modelcheck=$1 checkpoints=$2 what=${3-single}
here=$(dirname "$0") failed=0
made=$(mktemp -d) || exit 1
mkdir "$made/packs" && trap 'rm -rf "$made"' EXIT

fail() {
  failed=$((failed + 1))
  echo "FAILED: $*"
}

# make NAME FOLDER ARG...
make() {
  from=$checkpoints/$1 to=$made/$2
  shift 2
  python3 "$here/../models/make_gguf.py" "$from" "$to" "$@" || fail "make_gguf.py $from"
  for folder in "$to" "$to/twin"; do
    [ -d "$folder" ] && ln -s "$from/expected.safetensors" "$folder/"
  done
}

# answers NAME FOLDER ARG...: those of the file are those that are stored
answers() {
  make "$@"
  out=$("$modelcheck" "$made/$2" 2>&1) || {
    fail "$2"
    echo "$out" | tail -n 3
  }
}

# bits RANKS FOLDER ARG...: of the logits
bits() {
  n=$1 where=$2
  shift 2
  "$here/../comm/ranks.sh" "$n" 60 "$modelcheck" "$@" "$where" 2>&1 | sed -n "s/.*logits' bits //p"
}

# same RANKS FOLDER ARG...: its GGUF file and its twin have the same bits
same() {
  ranks=$1 name=$2
  shift 2
  one=$(bits "$ranks" "$made/$name" "$@") other=$(bits "$ranks" "$made/$name/twin" "$@")
  [ -n "$one" ] && [ "$one" = "$other" ] || fail "$name $*: bits ${one:-none}, of its twin ${other:-none}"
}

# error RANKS FOLDER ARG...: of the logits, in three digits
error() {
  n=$1 where=$2
  shift 2
  "$here/../comm/ranks.sh" "$n" 60 "$modelcheck" --dtype float32 "$@" "$where" 2>&1 | sed -n "s/.*worst nmse \([^ ]*\) (limit.*/\1/p" | tail -n 1
}

# kept RANKS FOLDER ARG...: blocks of int8 that stay as they are have the error of the numbers that they stand for
kept() {
  ranks=$1 name=$2
  shift 2
  one=$(error "$ranks" "$made/$name" -q int8 "$@") other=$(error 0 "$made/$name" -q none)
  [ -n "$one" ] && [ "$one" = "$other" ] || fail "$name $*: error ${one:-none}, of the widened blocks ${other:-none}"
}

if [ "$what" = single ]; then
  for name in bloom_odd cohere cohere_qk_norm deepseek_v2 deepseek_v2_lite deepseek_v3 deepseek_v3_odd falcon_new \
    falcon_new_one_norm falcon_odd gemma2_odd gemma3_text gemma_odd glm4 gpt2 gpt2_odd gpt_neox_odd gpt_neox_sequential \
    gpt_oss_odd granite llama llama3 llama_bias llama_head_dim llama_odd llama_rope_linear llama_rope_longrope \
    llama_rope_yarn mistral_odd mixtral_odd mxfp4_gpt_oss olmo2 olmoe_odd phi3_longrope phi3_odd phi_odd qwen2_moe_odd \
    qwen2_odd qwen3_moe_odd qwen3_odd stablelm stablelm_parallel starcoder2; do
    answers $name $name
  done
  for name in deepseek_v2 deepseek_v3 phi_odd; do answers $name old_$name --old; done
  make llama parts --split 3
  "$modelcheck" "$made/parts" >/dev/null 2>&1 || fail 'a set of three files'
fi
for blocks in Q4_0 Q4_1 Q8_0; do
  make llama $blocks --blocks $blocks
  make mixtral_odd moe_$blocks --blocks $blocks
  make gemma2_odd gemma_$blocks --blocks $blocks
done
make mxfp4_gpt_oss oss_MXFP4 --blocks Q8_0
make deepseek_v3 latent_Q8_0 --blocks Q8_0
make deepseek_v3 latent_Q4_1 --blocks Q4_1 --old
for folder in Q4_0 Q4_1 Q8_0 moe_Q8_0 gemma_Q4_1 oss_MXFP4 latent_Q8_0 latent_Q4_1; do
  if [ "$what" = single ]; then
    same 0 $folder --dtype float32
    case $folder in
    *Q8_0)
      kept 0 $folder
      kept 0 $folder --offload-weights nvme --nvme-path "$made/packs"
      same 0 $folder -q w8a8 --dtype float32 ;;
    oss*) same 0 $folder -q w8a8 --dtype float32 ;; # has both: a twin has no Q8_0 to keep
    *) same 0 $folder -q int8 --dtype float32 ;;
    esac
    same 0 $folder --dtype bfloat16
    same 0 $folder --dtype float32 --offload-weights nvme --nvme-path "$made/packs" # a pack of widened weights
  else
    case $folder in oss* | latent*) same 2 $folder --dtype float32 -tp 2 ;; *) same 3 $folder --dtype float32 -tp 3 ;; esac
    same 2 $folder --dtype float32 -pp 2
    case $folder in
    latent_Q8_0) kept 2 $folder -tp 2 ;;
    *Q8_0)
      kept 3 $folder -tp 3
      kept 4 $folder -tp 2 -pp 2 ;;
    esac
    same 4 $folder --dtype bfloat16 -tp 2 -pp 2
  fi
done
[ $failed = 0 ] && echo "all are right"
exit $((failed != 0))
