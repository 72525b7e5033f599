#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# killed.sh RANKS SECONDS PROGRAM ARG...: under an mpirun that lets the others go on when one rank is killed: all but one must say
# that they have noticed. Exits 77 (skipped) where there is no mpirun.
ranks=$1 seconds=$2
shift 2
command -v mpirun >/dev/null || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
said=$(mpirun -n "$ranks" --enable-recovery --bind-to none --oversubscribe --mca mpi_yield_when_idle 1 --timeout "$seconds" "$@" 2>&1)
noticed=$(echo "$said" | grep -cE '^rank [0-9]+: (timeout|peer_lost) after')
echo "$said"
[ "$noticed" = $((ranks - 1)) ]
