#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm on this one machine: its controller and N node daemons, for testing batch scripts and srun.
#
#   slurm.sh up N         starts nodes n1 ... nN and waits until they are idle
#   slurm.sh down         ends its jobs, and stops everything
#   slurm.sh run CMD...   runs a command with that Slurm in its environment (srun, sbatch, squeue ...)
#   slurm.sh env          prints that environment: eval "$(slurm.sh env)"; srun -N2 -n4 --mpi=pmix PROGRAM
#
# Everything lies in TRIREME_SLURM_DIR (/tmp/trireme-slurm), with an authentication daemon and ports of its own, so that a Slurm or munge which the machine
# already runs is left alone. Each node claims 4 CPUs whatever the machine has: tests want ranks, not speed.
# Exit code 77 (skipped, with the reason) where this cannot work: not root, slurm or munge missing.
#
# Seen with Debian 12 (Slurm 22.05, Open MPI 4.1.4): MPI programs need --mpi=pmix (Debian's Open MPI speaks nothing else that Slurm
# offers). Without --kill-on-bad-exit=1 the other ranks outlive a killed one. scancel sends SIGCONT and SIGTERM at once and SIGKILL
# after KillWait (5 s here). SIGKILL to srun leaves its ranks running.
set -euo pipefail

state=${TRIREME_SLURM_DIR:-/tmp/trireme-slurm}
port=${TRIREME_SLURM_PORT:-17100}
conf=$state/slurm.conf
self=$(readlink -f "$0")

skip() {
  echo "slurm.sh: skipped: $*" >&2
  exit 77
}

check_possible() {
  [ "$(id -u)" = 0 ] || skip "a Slurm of one's own needs root"
  for tool in slurmctld slurmd munged srun; do
    command -v "$tool" >/dev/null || skip "$tool is missing (scripts/install-deps.sh --slurm)"
  done
}

write_conf() {
  local n=$1 host
  host=$(hostname -s)
  cat >"$conf" <<TEXT
ClusterName=trireme
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$state/munge/socket
StateSaveLocation=$state/ctld
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/slurmctld.log
SlurmdPidFile=$state/slurmd.%n.pid
SlurmdLogFile=$state/slurmd.%n.log
SlurmdSpoolDir=$state/spool.%n
TmpFS=$state/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
MpiDefault=none
TaskProlog=$state/prolog
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=30
KillWait=5
MinJobAge=60
NodeName=n[1-$n] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + n))] CPUs=4 RealMemory=2000 State=UNKNOWN
PartitionName=main Nodes=n[1-$n] Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
TEXT
}

# Open MPI names its shared memory by the host and a rank's number on its node, which two nodes of one machine have in common: ranks of one group
# on both would take each other's, and crash. What a task prolog prints is set for each task, Open MPI's daemons among them; a batch script, which
# is no task of a step, would have its mpirun carry its own node's folder to all.
write_prolog() {
  printf '#!/bin/sh\n[ -z "$SLURM_STEP_NUM_NODES" ] || echo "export OMPI_MCA_btl_vader_backing_directory=%s/tmp.$SLURMD_NODENAME"\n' "$state" >"$state/prolog"
  chmod 755 "$state/prolog"
}

# Versions that insist on control groups, which a container need not have, know a word to do without; older ones refuse that word.
start_nodes() {
  local n=$1
  for plugin in '' 'CgroupPlugin=disabled'; do
    echo "$plugin" >"$state/cgroup.conf"
    if slurmd -N n1; then
      for i in $(seq 2 "$n"); do slurmd -N "n$i" || return 1; done
      return 0
    fi
  done
  return 1
}

start_munge() {
  mkdir -p "$state/munge"
  (umask 077 && head -c 1024 /dev/urandom >"$state/munge/key")
  munged --force --key-file="$state/munge/key" --socket="$state/munge/socket" --pid-file="$state/munge/pid" \
    --log-file="$state/munge/log" --seed-file="$state/munge/seed" 2>/dev/null
}

failed() {
  echo "slurm.sh: $*" >&2
  tail -n 15 "$state"/*.log >&2 2>/dev/null || true
  down
  exit 1
}

up() {
  local n=$1 idle
  check_possible
  case $n in '' | *[!0-9]*) usage ;; esac
  if [ -s "$state/slurmctld.pid" ] && kill -0 "$(cat "$state/slurmctld.pid")" 2>/dev/null; then
    echo "slurm.sh: one runs already in $state: end it with \"down\", or set TRIREME_SLURM_DIR and TRIREME_SLURM_PORT for another" >&2
    exit 1
  fi
  down
  mkdir -p "$state/ctld"
  chmod 755 "$state"
  for i in $(seq "$n"); do mkdir -p "$state/spool.n$i" "$state/tmp.n$i"; done
  write_conf "$n"
  write_prolog
  start_munge || failed "munged does not start: $(tail -n 3 "$state/munge/log" 2>/dev/null)"
  export SLURM_CONF=$conf
  slurmctld || failed "slurmctld does not start"
  start_nodes "$n" || failed "a slurmd does not start"
  for _ in $(seq 100); do
    idle=$(sinfo --noheader --Node --format=%T 2>/dev/null | grep -c '^idle$' || true)
    [ "$idle" = "$n" ] && return
    sleep 0.2
  done
  failed "the nodes are not idle after 20 s"
}

# Jobs are told to end as by scancel, and killed after KillWait: without their node's daemon they would stay.
end_jobs() {
  [ -s "$state/slurmctld.pid" ] && kill -0 "$(cat "$state/slurmctld.pid")" 2>/dev/null || return 0
  SLURM_CONF=$conf timeout 5 scancel --user="$(id -un)" 2>/dev/null || true
  for _ in $(seq 100); do
    [ -n "$(SLURM_CONF=$conf timeout 5 squeue --noheader 2>/dev/null)" ] || return 0
    sleep 0.1
  done
}

down() {
  local pids=() pid
  [ -d "$state" ] || return 0
  end_jobs
  for file in "$state"/slurmd.*.pid "$state/slurmctld.pid" "$state/munge/pid"; do
    [ -s "$file" ] && pids+=("$(cat "$file")")
  done
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for _ in $(seq 30); do
    local left=0
    for pid in "${pids[@]}"; do kill -0 "$pid" 2>/dev/null && left=1; done
    [ $left = 0 ] && break
    sleep 0.1
  done
  for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
  rm -rf "$state"
}

print_env() { echo "export SLURM_CONF=$conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"; }

usage() {
  sed -n '2,16p' "$self"
  exit 2
}

case ${1-} in
up) up "${2-}" ;;
down) down ;;
run)
  shift
  if [ $# -lt 1 ] || [ ! -e "$conf" ]; then usage; fi
  eval "$(print_env)"
  exec "$@"
  ;;
env) print_env ;;
*) usage ;;
esac
