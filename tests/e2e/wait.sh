# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# How long the scripts of e2e and fault wait. No test says how long something takes: a machine may be busy, and what is measured is printed.
# This limit alone finds what stands still, and every wait has it. It is shorter than ctest's, which says less.
HANG_MS=90000
LOOKS=$((HANG_MS / 20)) # at least as many looks, one every 0.02 or 0.05 s
HANG_S=$((HANG_MS / 1000))
now_ms() { date +%s%3N; }
hung() { [ $(($(now_ms) - $1)) -ge $HANG_MS ]; } # SINCE
