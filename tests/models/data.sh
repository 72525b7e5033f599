#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# data.sh DRAW_WEIGHTS OUT: copies tests/data to OUT and draws there the weights that the checkpoints have recipes for. The build
# does it for <build>/tests/data.
set -e
cd "$(dirname "$0")/../.."
rm -rf "$2"
mkdir -p "$2"
cp -r tests/data/. "$2"
for recipe in "$2"/checkpoints/*/weights.txt; do
  set -- "$@" "${recipe%/weights.txt}"
done
draw=$1
shift 2
"$draw" "$@"
