#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The container files of cluster-configs/containers, which nothing here runs: a Dockerfile and the Apptainer file beside it build the same in the same
# images, what they name is in the tree, and the CUDA image is built where nvcc is and runs in that toolkit's own runtime.
#   containers.sh [DIR]        checks a source tree
#   containers.sh --self-test  checks that each kind of mistake is found
set -u

bad=
says() { echo "$*" && bad=1; }
images() { sed -nE 's/^(FROM|From:) +([^ ]+).*/\2/p' "$1"; }
# The commands of cmake, ninja and cpack, one a line.
builds() { sed -E ':join; /\\$/ { N; s/\\\n *//; b join }' "$1" | sed -E 's/^ *(RUN)? *//; s/ *&& */\n/g' | sed -E 's/^DESTDIR=[^ ]* //' | grep -E '^(cmake|ninja|cpack) '; }

check_file() { # FILE
  local file=$1 name
  case $file in
  *Dockerfile*)
    [ -s "$file.dockerignore" ] || says "$file has no $(basename "$file").dockerignore: its context would have build/ and .git/"
    for name in $(sed -nE 's/^COPY ([^-][^ ]*) .*/\1/p' "$file"); do [ -e "$name" ] || says "$file copies $name, which does not exist"; done
    ;;
  esac
  for name in $(grep -oE '(^|[ "])scripts/[a-z-]+\.sh' "$file" | tr -d ' "'); do [ -x "$name" ] || says "$file runs $name, which is no program"; done
  for name in $(grep -oE -- '--preset [a-z]+' "$file" | sed 's/.* //'); do
    grep -q "\"name\": \"$name\"" CMakePresets.json || says "$file names the preset $name, which CMakePresets.json has not"
  done
  for name in $(grep -oE 'CPACK_COMPONENTS_ALL=[^"]*' "$file" | sed 's/.*=//' | tr ';' ' '); do
    grep -qE "^package\($name " cmake/packages.cmake || says "$file makes the package $name, which cmake/packages.cmake has not"
  done
}

check_cuda() { # FILE
  local file=$1 from
  mapfile -t from < <(images "$file")
  [[ ${from[0]} =~ ^nvidia/cuda:[0-9.]+-devel- ]] || says "$file is built in ${from[0]}, which has no nvcc"
  [ "${from[1]-}" = "${from[0]/-devel-/-runtime-}" ] || says "$file runs in ${from[1]-no other image}, whose libraries are not those of ${from[0]}"
  grep -q -- '-DTRIREME_CUDA=ON' "$file" || says "$file does not insist on CUDA"
  grep -q 'CPACK_COMPONENTS_ALL=[^"]*;trireme-cuda' "$file" || says "$file does not package the module"
}

check() {
  local docker apptainer file
  cd "$1" || return 1
  for docker in cluster-configs/containers/Dockerfile{,.cuda}; do
    apptainer=cluster-configs/containers/trireme${docker#*Dockerfile}.def
    apptainer=${apptainer/.cuda/-cuda}
    [ -s "$docker" ] && [ -s "$apptainer" ] || { says "there is no pair $docker, $apptainer" && continue; }
    for file in "$docker" "$apptainer"; do
      check_file "$file"
      [[ $docker != *.cuda ]] || check_cuda "$file"
    done
    [ "$(images "$docker" | head -1)" = "$(images "$apptainer" | head -1)" ] || says "$docker and $apptainer are built in different images"
    diff <(builds "$docker") <(builds "$apptainer") >/dev/null || says "$docker and $apptainer are built in different ways: $(diff <(builds "$docker") <(builds "$apptainer"))"
    [ -n "$(builds "$docker")" ] || says "$docker builds nothing"
  done
  [ -z "$bad" ]
}

self_test() {
  local from to file
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  (check "$PWD") || { echo "the tree's own files are refused"; exit 1; }
  while IFS='|' read -r file from to; do
    rm -rf "${dir:?}"/*
    mkdir -p "$dir/cluster-configs" "$dir/cmake"
    cp -r cluster-configs/containers "$dir/cluster-configs/" && cp -r scripts CMakePresets.json "$dir/" && cp cmake/packages.cmake "$dir/cmake/" || exit 1
    if [ -z "$from" ]; then rm "$dir/$file"; else sed -i "s|$from|$to|" "$dir/$file"; fi
    cmp -s "$file" "$dir/$file" && { echo "nothing was changed in $file"; exit 1; }
    (check "$dir") >/dev/null && { echo "not found: '$from' became '$to' in $file"; exit 1; }
  done <<'END'
cluster-configs/containers/Dockerfile.cuda.dockerignore||
cluster-configs/containers/trireme-cuda.def||
cluster-configs/containers/Dockerfile.cuda|-devel-|-base-
cluster-configs/containers/Dockerfile.cuda|13.0.1-runtime|12.9.1-runtime
cluster-configs/containers/trireme-cuda.def|TRIREME_CUDA=ON|TRIREME_CUDA=AUTO
cluster-configs/containers/Dockerfile.cuda|;trireme-cuda|
cluster-configs/containers/Dockerfile.cuda|--preset package|--preset packages
cluster-configs/containers/trireme.def|debian:12|debian:13
cluster-configs/containers/trireme.def|TRIREME_CUDA=OFF|TRIREME_CUDA=AUTO
cluster-configs/containers/Dockerfile|COPY scripts/install-deps.sh|COPY scripts/install.sh
cmake/packages.cmake|^package(trireme-cuda|package(trireme-devices
END
  echo "each mistake was found"
}

case ${1-} in
--self-test) cd "$(dirname "$0")/.." && self_test ;;
*) check "$(realpath "${1:-.}")" ;;
esac
