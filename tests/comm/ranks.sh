#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ranks.sh RANKS SECONDS PROGRAM ARG...: a program under mpirun on this host, whatever its cores, ended after SECONDS.
# A job that fails is killed at once, instead of getting two seconds.
# 0 ranks: the program alone, without mpirun. Exits 77 (skipped) where there is no mpirun.
ranks=$1 seconds=$2
shift 2
[ "$ranks" = 0 ] && exec timeout "$seconds" "$@"
command -v mpirun >/dev/null || exit 77
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Open MPI keeps memory until the process ends, which LeakSanitizer takes for leaks.
export LSAN_OPTIONS="detect_leaks=0${LSAN_OPTIONS:+:$LSAN_OPTIONS}" ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
exec mpirun -n "$ranks" --bind-to none --oversubscribe --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0 --timeout "$seconds" "$@"
