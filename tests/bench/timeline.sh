#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The timeline of a decode step inside its recorded graph, kernel by kernel.
# Usage: timeline.sh BIN PLAIN_BIN MODEL SEQUENCES [OPTION]...   BIN: a build with -DTRIREME_CUDA_TIMELINE=ON; PLAIN_BIN: the same without, whose step
# the sum is compared with; OPTION: of `trireme bench latency`.
set -euo pipefail
bin=$1 plain=$2 model=$3 sequences=$4
shift 4
here=$(cd "$(dirname "$0")" && pwd)
file=$(mktemp)
trap 'rm -f "$file"' EXIT
bench() { "$1/trireme" bench latency "$model" --load-format dummy --dtype bfloat16 --backend cuda --batch-size "$sequences" --input-len 128 --output-len 64 --json "${@:2}"; }
step() { python3 -c 'import json, sys; print(json.loads(sys.stdin.read().splitlines()[-1])["decode_ms"])'; }
plain_ms=$(bench "$plain" "$@" | step)
stamped_ms=$(TRIREME_TIMELINE=$file bench "$bin" "$@" | step)
echo "$sequences sequences of $model: $plain_ms ms a step, $stamped_ms with stamps"
python3 "$here/timeline.py" "$file" "$plain_ms"
