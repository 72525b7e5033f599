#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cpack -G DEB makes packages that have what they should and depend on what the programs link and launch.
# With `install`: they are installed in a copy of this system (an overlay that goes with the test, without a network), serve the bundled
# model to a user there, answer a program that is linked with the library, and are purged: no file of theirs is left, and the user's state is.
# Usage: package.sh CPACK BUILD [install]
here=$(dirname "$0")
. "$here/lib.sh"
cpack=$1 build=$2 mode=${3-}
skip() {
  echo "SKIPPED: $*"
  exit 77
}
command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null || skip "this system has no dpkg-deb and dpkg-shlibdeps"

packages=(libtrireme0 libtrireme-dev trireme)
# The CUDA module, where it is built, is one file, which takes long to compress.
(cd "$build" && "$cpack" -G DEB -B "$RUN/packages" -D "CPACK_COMPONENTS_ALL=$(IFS=';'; echo "${packages[*]}")") >"$RUN/cpack" 2>&1 || fail "cpack: $(tail -5 "$RUN/cpack")"
version=$(sed -n 's/^#define TRIREME_VERSION "\(.*\)"/\1/p' "$build/generated/base/version.h")
files=()
for package in "${packages[@]}"; do
  file=$(find "$RUN/packages" -maxdepth 1 -name "${package}_$version-1_*.deb")
  [ -e "$file" ] || fail "no package $package of version $version: $(ls "$RUN/packages")"
  files+=("$file")
  dpkg-deb -c "$file" | sed 's/.* \.\(\/.*\)/\1/; s/ -> .*//' >"$RUN/$package.list"
done
has() { # has PACKAGE PATTERN...: paths
  local package=$1 pattern
  shift
  for pattern; do grep -qE "^/usr/$pattern\$" "$RUN/$package.list" || fail "$package has no /usr/$pattern"; done
}
has trireme bin/trireme bin/trireme-{up,worker,coordinator,gateway,chat,bench-latency} share/man/man1/trireme-up.1.gz share/trireme/models/abacus/config.json \
  share/bash-completion/completions/trireme{,-up} share/zsh/site-functions/_trireme share/fish/vendor_completions.d/trireme{,-up}.fish \
  share/trireme/cluster-configs/trireme.sbatch share/doc/trireme/{README.md,copyright,changelog.gz}
has libtrireme0 'lib/(.*/)?libtrireme.so.0'
has libtrireme-dev include/trireme.h 'lib/(.*/)?libtrireme.so' 'lib/(.*/)?pkgconfig/trireme.pc'
has trireme lib/systemd/system/trireme@.service share/systemd/user/trireme@.service
dpkg-deb --fsys-tarfile "${files[2]}" | tar -xO ./usr/lib/systemd/system/trireme@.service ./usr/share/systemd/user/trireme@.service >"$RUN/units"
[ "$(grep -c '^ExecStart=/usr/bin/trireme up ' "$RUN/units")" = 2 ] || fail "units of another folder: $(grep ^ExecStart "$RUN/units")"
twice=$(sort "$RUN"/*.list | grep -v '/$' | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
depends=$(dpkg-deb -f "${files[2]}" Depends)
for name in openmpi-bin libzmq5 libopenmpi libjansson4 libpcre2 libc6 "libtrireme0 (= $version-1)"; do
  [[ $depends == *"$name"* ]] || fail "trireme does not depend on $name: $depends"
done
# The image for CPUs, of the same distribution, installs what the packages depend on.
image=$SRC/cluster-configs/containers/Dockerfile
if [ "$(sed -n 's/^FROM \(.*\)-slim$/\1/p' "$image")" = "$(. /etc/os-release && echo "$ID:$VERSION_ID")" ]; then
  installs=$(sed -n '/^FROM .*-slim/,/^COPY/p' "$image" | tr ' ' '\n')
  for name in $(tr ',|' '\n' <<<"$depends" | sed -E 's/^ *([^ ]*).*/\1/' | grep -vE '^(libc6|libgcc-s1|libtrireme0|libtinfo6)$'); do
    grep -qx "${name/%libopenblas0/libopenblas0-pthread}" <<<"$installs" || fail "$image does not install $name"
  done
fi
[ "$mode" = install ] || { echo "$(cat "$RUN"/*.list | grep -cv '/$') files in ${#files[@]} packages"; exit 0; }

if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error "${files[@]}" >"$RUN/lintian" 2>&1 || fail "lintian: $(grep ^E: "$RUN/lintian")"
  echo "lintian: no errors, $(grep -c ^W: "$RUN/lintian") warnings"
else
  echo "lintian is not here"
fi

# The rest is another shell's, in namespaces of its own: whatever it leaves goes with them.
cat >"$RUN/inside" <<'END'
set -u
fail() { echo "FAILED: $*"; [ ! -s "$root/tmp/log" ] || tail -n 25 "$root/tmp/log"; exit 1; }
run=$1 root=$run/over/root up=$run/over/up
shift
mount -t tmpfs none "$run/over" && mkdir "$up" "$run/over/work" "$root" || exit 77
mount -t overlay none -o "lowerdir=/,upperdir=$up,workdir=$run/over/work" "$root" || exit 77
mount -t tmpfs none "$root/tmp" && chmod 1777 "$root/tmp" && mount -t proc none "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" || exit 77
ip link set lo up || exit 77
cp "$@" "$root/tmp"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"; }
user() { inside setpriv --reuid=reader --regid=reader --clear-groups env HOME=/home/reader OMPI_MCA_mpi_yield_when_idle=1 "$@"; }
inside dpkg-query -s libopenblas0-pthread >/dev/null 2>&1 || inside dpkg-query -s libopenblas0 >/dev/null || fail "no OpenBLAS"
inside useradd -m reader || fail "no user"
# Files that are other than those of the system below; of dpkg and its like, which write down what they did, only what has our name.
changed() { (cd "$up" && find . ! -type d) | grep -vE '^\./(home/reader|tmp|var/(lib/dpkg/(status|triggers|lock|available)|log|cache)|etc/ld.so.cache)' | sort; }
changed >"$run/before"

# libopenblas0 is an empty package that stands for one of three; the build needs one of those alone.
inside dpkg -i --ignore-depends=libopenblas0 $(for f; do echo "/tmp/${f##*/}"; done) >"$run/dpkg" 2>&1 || fail "dpkg -i: $(grep -A3 -i 'problem\|error' "$run/dpkg" | head -20)"
user trireme serve /usr/share/trireme/models/abacus >"$root/tmp/log" 2>&1 &
serve=$!
user trireme status --wait 60 >/dev/null || fail "it does not serve"
said=$(user curl -s http://127.0.0.1:8000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "37+48=", "temperature": 0}')
[[ $said == *'"text":"85"'* ]] || fail "over HTTP: $said"
said=$(user trireme submit --temperature 0 "sort 52914=")
[ "$said" = 12459 ] || fail "submit: $said"
cat >"$root/tmp/x.c" <<'C'
#include <stdio.h>
#include <trireme.h>
int main(void) {
  trireme_error error = {0};
  trireme_config config;
  trireme *c;
  trireme_config_init(&config);
  if (trireme_connect(&config, &c, &error) != TRIREME_OK) return 1;
  puts(trireme_server_version(c));
  trireme_close(c);
}
C
said=$(user sh -c 'cd /tmp && cc x.c $(pkg-config --cflags --libs trireme) -o x && ./x')
[ "$said" = "$(inside trireme --version | cut -d' ' -f2)" ] || fail "a program that is linked with the library says '$said'"
inside bash -c '. /usr/share/bash-completion/completions/trireme-up && complete -p trireme-up' >/dev/null || fail "no completion"
supervisor=$(pgrep -x trireme-up -u "$(inside id -u reader)") && kill "$supervisor"
wait $serve || fail "it ended with $?"
state() { (cd "$root/home/reader" && find . -type f -exec cksum {} + | sort); }
state >"$run/state"
[ -s "$run/state" ] || fail "no state of the user to look at"

inside dpkg --purge trireme libtrireme-dev libtrireme0 >"$run/dpkg" 2>&1 || fail "dpkg --purge: $(tail -5 "$run/dpkg")"
grep -qi warning "$run/dpkg" && fail "dpkg --purge: $(cat "$run/dpkg")"
changed >"$run/after"
cmp -s "$run/before" "$run/after" || fail "left behind: $(comm -3 "$run/before" "$run/after")"
left=$(find "$root"/{usr,etc,var,opt} -xdev -iname '*trireme*' -newer "$run/before" 2>/dev/null)
[ -z "$left" ] || fail "left behind: $left"
state | cmp -s - "$run/state" || fail "the user's state was touched"
echo "installed, served and purged; $(wc -l <"$run/state") files of the user stayed"
END
mkdir "$RUN/over"
[ "$(id -u)" = 0 ] || skip "only root can mount a copy of the system"
[ -z "$(find /usr/bin -name 'trireme*')" ] || skip "a package of Trireme is installed here"
timeout 200 unshare --mount --pid --fork --mount-proc --net --kill-child bash "$RUN/inside" "$RUN" "${files[@]}"
status=$?
[ $status != 77 ] || skip "no overlay or no namespaces here"
exit $status
