#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An installed tree has what the README names, and its programs, configurations and model work from there without the sources.
# Usage: install.sh CMAKE BUILD
here=$(dirname "$0")
. "$here/lib.sh"
cmake=$1 build=$2 tree=$RUN/tree
"$cmake" --install "$build" --prefix "$tree" >"$RUN/installed" 2>&1 || fail "cmake --install: $(tail -3 "$RUN/installed")"
for f in bin/trireme bin/trireme-worker share/trireme/cuda-gemm-tactics.txt share/trireme/cluster-configs/trireme.sbatch share/trireme/cluster-configs/replicas.yaml \
  share/trireme/models/abacus/questions.jsonl share/doc/trireme/README.md share/doc/trireme/LICENSE; do
  [ -e "$tree/$f" ] || fail "$f is not installed"
done
# The README's and the documents' links lead somewhere.
for page in "$tree"/share/doc/trireme/README.md "$tree"/share/doc/trireme/docs/*.md "$tree"/share/doc/trireme/docs/*/*.md; do
  grep -o '](\([^):#]*\)[)#]' "$page" | sed 's/^](//; s/.$//' | sort -u | while read -r link; do
    [ -z "$link" ] || [ -e "$(dirname "$page")/$link" ] || echo "${page#"$tree"/}: $link"
  done
done >"$RUN/missing"
[ -s "$RUN/missing" ] && fail "links to what is not installed: $(cat "$RUN/missing")"

# Units of systemd run the programs of this tree, and are right in their own place.
for unit in lib/systemd/system share/systemd/user; do
  grep -q "^ExecStart=$tree/bin/trireme up " "$tree/$unit/trireme@.service" || fail "$unit: $(grep ^ExecStart "$tree/$unit/trireme@.service")"
  if command -v systemd-analyze >/dev/null; then
    mkdir -p "$RUN/${unit##*/}"
    cp "$tree/$unit/trireme@.service" "$RUN/${unit##*/}/trireme@x.service"
    said=$(systemd-analyze verify "$RUN/${unit##*/}/trireme@x.service" 2>&1) || fail "$unit: $said"
    [ -z "$said" ] || fail "$unit: $said"
    kind=--system
    [ "$unit" != share/systemd/user ] || kind=--user
    systemd-analyze "$kind" unit-paths | grep -qx "/usr/local/$unit" || fail "systemd does not look for units in /usr/local/$unit"
  else
    echo "systemd-analyze is not here: the units in $unit were not looked at"
  fi
done

# Every program names the version that the library's package file has.
version=$(sed -n 's/^Version: *//p' "$tree"/lib*/pkgconfig/trireme.pc "$tree"/lib/*/pkgconfig/trireme.pc 2>/dev/null)
[ -n "$version" ] || fail "no version in trireme.pc"
for program in "$tree"/bin/trireme*; do
  "$program" --version | grep -qE " ${version//./\\.}$" || fail "${program##*/} --version: $("$program" --version), not $version"
done

# shellcheck disable=SC2034
BIN=$tree/bin MODEL=$tree/share/trireme/models/abacus # start_up's
cd "$RUN" || exit 1
start_up --config "$tree/share/trireme/cluster-configs/local-cpu.yaml"
[ "$("$BIN/trireme" submit --temperature 0 "37+48=")" = 85 ] || fail "37+48"
stop_cluster TERM
echo "installed: $(find "$tree" -type f | wc -l) files; a cluster out of them answers"
