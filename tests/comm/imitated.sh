#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# imitated.sh MODULE PROGRAM ARG...: a program with the imitation of the CUDA module, whose devices have memory of their own.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cp "$1" "$folder/libtrireme-cuda.so" && cp "$1" "$folder/libcuda.so.1" && cp "$2" "$folder/program" || exit 1
shift 2
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKE_MEMORY=4000000000
"$folder/program" "$@"
