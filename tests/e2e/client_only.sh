#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# -DTRIREME_CLIENT_ONLY=ON where pkg-config knows ZeroMQ and msgpack alone: libtrireme is built, installed and linked by a
# program that knows nothing but its .pc file. With the command's libraries beside them, the command is built as well, in
# a folder whose name a shell would take apart.
# Usage: client_only.sh CMAKE CC
set -u
cmake=$1 cc=$2 src=$(realpath "$(dirname "$0")/../..")
dir=$(mktemp -d /tmp/tri-client-only-XXXXXX)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

fail() {
  echo "FAILED: $*"
  exit 1
}
give() { # give FOLDER MODULE...: their .pc files, without what only a static library needs
  local to=$1 module
  shift
  mkdir -p "$to"
  for module in "$@"; do
    pkg-config --exists "$module" || continue
    sed '/^Requires.private/d' "$(pkg-config --variable=pcfiledir "$module")/$module.pc" >"$to/$module.pc"
  done
}
build() { # build FOLDER TARGET, with the modules of pc.FOLDER
  PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR="$dir/pc.$1" "$cmake" -S "$src" -B "$1" -DCMAKE_C_COMPILER="$cc" -DTRIREME_CLIENT_ONLY=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON -DCMAKE_INSTALL_PREFIX="$dir/tree" -DCMAKE_BUILD_TYPE=Debug -DTRIREME_WERROR=ON >"$1.log" 2>&1 || fail "configuring: $(tail -20 "$1.log")"
  "$cmake" --build "$1" --target "$2" -j2 >>"$1.log" 2>&1 || fail "building $2: $(grep -A5 -E 'error|Error' "$1.log" | head -40)"
}

give pc.library libzmq msgpack msgpack-c
build library all
grep -q 'libtrireme without the command' library.log || fail "not said that there is no command"
[ ! -e library/bin/trireme ] || fail "a command without its libraries"
"$cmake" --install library >install.log 2>&1 || fail "installing: $(tail -3 install.log)"
cat >x.c <<'END'
#include <stdio.h>
#include <trireme.h>
int main(void) {
  trireme_error error = {0};
  trireme_config config;
  trireme *c;
  trireme_config_init(&config);
  config.endpoint = "ipc:///nowhere/at/all";
  config.connect_timeout_ms = 20;
  printf("%s %d %s\n", trireme_version(), trireme_connect(&config, &c, &error) != TRIREME_OK, error.code);
}
END
pc=$(dirname "$(find "$dir/tree" -name trireme.pc)")
# shellcheck disable=SC2046
"$cc" -Wall -Werror x.c $(PKG_CONFIG_LIBDIR=$pc pkg-config --cflags --libs trireme) -Wl,-rpath,"$(PKG_CONFIG_LIBDIR=$pc pkg-config --variable=libdir trireme)" -o x ||
  fail "a program does not link"
said=$(./x)
[[ $said =~ ^[0-9]+\.[0-9]+\.[0-9]+" 1 not_found"$ ]] || fail "the program said '$said'"
if readelf -d "$(find "$dir/tree" -name libtrireme.so)" | grep NEEDED | grep -E 'jansson|hwloc|yaml|mpi|blas|uring|pcre|utf8|xxhash|curses'; then
  fail "the library needs them"
fi

odd="the command's \$0"
give "pc.$odd" libzmq msgpack msgpack-c jansson yaml-0.1 ncurses tinfo
build "$odd" programs
said=$("$odd/bin/trireme" submit --endpoint ipc:///nowhere/at/all --connect-timeout-ms 20 x 2>&1)
[[ $said == *"there was no socket /nowhere/at/all"* ]] || fail "the command said '$said'"
said=$(PATH=/usr/bin:/bin "$odd/bin/trireme" up --model x 2>&1)
[[ $said == *"was only the client installed?"* ]] || fail "up said '$said'"
echo "the library alone needs ZeroMQ and msgpack, the command what it reads and shows as well"
