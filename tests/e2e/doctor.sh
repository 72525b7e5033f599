#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# trireme doctor: text and JSON, exit codes, what fails by name, devices as the driver's program tells of them, and the last hang's report.
# shellcheck source=/dev/null
. "$(dirname "$0")/lib.sh"
export XDG_STATE_HOME=$RUN/state
mkdir "$RUN/bin" "$RUN/nvme"
export PATH=$RUN/bin:$PATH # before any real nvidia-smi
doctor() { # CODE ARGS...
  local want=$1 code
  shift
  "$BIN/trireme" doctor "$@" >"$RUN/out" 2>"$RUN/err"
  code=$?
  [ $code = "$want" ] || fail "doctor $*: exit code $code, not $want: $(cat "$RUN/out" "$RUN/err")"
}
level() { grep -o "\"check\":\"$1\",\"level\":\"[a-z]*\"" "$RUN/out" | head -1 | sed 's/.*:"\([a-z]*\)"/\1/'; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'; }
smi() { printf '#!/bin/sh\n%s\n' "$1" >"$RUN/bin/nvidia-smi" && chmod +x "$RUN/bin/nvidia-smi"; }

smi 'exit 127'
port=$(free_port)
doctor 0 --model "$MODEL" --nvme-path "$RUN/nvme" --ports "$port"
for check in cores memory memlock nofile shm disk nvme "gpu          none" port mpirun mpi-start; do
  grep -q "^  \(ok\|warn\)  *$check" "$RUN/out" || fail "no finding of $check: $(cat "$RUN/out")"
done
grep -q "two ranks have met" "$RUN/out" || fail "no start of two ranks"
doctor 0 --json --no-mpi-start --ports "$port"
python3 -c 'import json, sys
d = json.load(sys.stdin)
assert d["worst"] in ("ok", "warn") and len(d["hosts"]) == 1, d
for f in d["hosts"][0]["findings"]: assert set(f) == {"check", "level", "value", "limit", "advice"} and (f["level"] == "ok") == (not f["advice"]), f' <"$RUN/out" || fail "not the JSON that is documented"
[ "$(level gpu)" = ok ] || fail "a host without a device is no failure"

# What fails, by name.
for wrong in abc 0 -5 1,abc 80,99999 "80," ","; do
  doctor 2 --no-mpi-start --ports="$wrong"
done
doctor 1 --json --no-mpi-start --ports "$port" --nvme-path "$RUN/nothing" --model "$RUN/none"
grep -q "there is no folder $RUN/none\"" "$RUN/out" || fail "the model that is not there: $(cat "$RUN/out")"
[ "$(level nvme) $(level disk)" = "fail fail" ] || fail "folders that are not there: $(cat "$RUN/out")"
python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("", int(sys.argv[1]))); s.listen(); print("listens", flush=True); time.sleep(60)' "$port" >"$RUN/listens" &
listener=$!
for _ in $(seq $LOOKS); do [ -s "$RUN/listens" ] && break || sleep 0.05; done
doctor 1 --json --no-mpi-start --ports "$port"
kill $listener
[ "$(level port)" = fail ] || fail "a port that is taken: $(cat "$RUN/out")"
printf '#!/bin/sh\necho "HYDRA build details"\n' >"$RUN/bin/mpirun" && chmod +x "$RUN/bin/mpirun"
doctor 1 --json --ports "$port"
[ "$(level mpirun) $(level mpi-start)" = "fail fail" ] || fail "another MPI: $(cat "$RUN/out")"
rm "$RUN/bin/mpirun"
doctor 2 --hosts a:x
doctor 3 --hostfile "$RUN/none"
doctor 2 --no-such-option

# Devices, as nvidia-smi has them.
smi 'echo "NVIDIA T1, 570.1, 81559, 4, 345, 1980, 0, 5, 5, 16, 16"; echo "NVIDIA T1, 570.1, 81559, 4, 345, 1980, 3, 5, 5, 16, 16"'
doctor 1 --json --no-mpi-start --ports "$port"
grep -q '"level":"ok","value":"0: NVIDIA T1, driver 570.1, 4 of 81559 MiB in use' "$RUN/out" && grep -q '"level":"fail","value":"1: NVIDIA T1.*3 uncorrected ECC errors' "$RUN/out" ||
  fail "devices: $(cat "$RUN/out")"
smi 'echo "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver."; exit 9'
doctor 1 --json --no-mpi-start --ports "$port"
[ "$(level gpu)" = fail ] && grep -q "nvidia-smi ended with code 9: NVIDIA-SMI has failed" "$RUN/out" || fail "a driver that does not answer: $(cat "$RUN/out")"
smi 'exit 127'

# A list of hosts goes through the launcher.
echo "localhost slots=2" >"$RUN/hosts"
doctor 0 --json --hostfile "$RUN/hosts" --ports "$port" --model "$MODEL"
grep -q '"host":"localhost","findings":\[{"check":"cores"' "$RUN/out" && [ "$(level disk) $(level mpi-start)" = "ok ok" ] || fail "a host file: $(cat "$RUN/out")"

# In a Slurm job the list is that of its nodes; what is started on one of them looks at that one alone.
printf '#!/bin/sh\nwhile [ "${1#/}" = "$1" ]; do shift; done\nexec "$@"\n' >"$RUN/bin/srun" && chmod +x "$RUN/bin/srun"
export SLURM_JOB_NODELIST="n[1-2]"
doctor 0 --json --no-mpi-start --launcher srun --ports "$port"
[ "$(grep -o '"host":"[^"]*","findings":\[{"check":"cores"' "$RUN/out" | cut -d'"' -f4 | tr '\n' ' ')" = "n1 n2 " ] || fail "a Slurm job's nodes: $(cat "$RUN/out")"
SLURM_JOB_NODELIST="n[1-" doctor 2
unset SLURM_JOB_NODELIST

doctor 1 --last-hang
grep -q "no report of a replica that hung.*$RUN/state/trireme/last-hang.txt" "$RUN/err" || fail "no word about a report that is not there: $(cat "$RUN/err")"
mkdir -p "$RUN/state/trireme"
echo "late: rank 1" >"$RUN/state/trireme/last-hang.txt"
doctor 0 --last-hang
[ "$(cat "$RUN/out")" = "late: rank 1" ] || fail "not the report: $(cat "$RUN/out")"
echo "all fine"
