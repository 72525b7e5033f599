#!/bin/sh
# The include order of docs/architecture.md: each folder may include only what lies below it, and each third-party library has
# one file (or folder) that may include its headers, so that it can be replaced in one place.
#   include_order.sh [DIR]        checks a source tree
#   include_order.sh --self-test  checks that violations are found
# Tests may include anything.
set -u

check() {
  (cd "$1" && find runtime kernels comm offload worker coordinator client -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    2>/dev/null | sort | xargs grep -n '^[[:space:]]*#[[:space:]]*include' /dev/null) | awk '
    BEGIN {
      # includer (first match counts) -> prefixes of what it may include
      wire = "comm/wire comm/zsock.h comm/endpoint.h comm/boot.h"
      n = 0
      rule("^runtime/base/", "runtime/base/")
      rule("^runtime/model/", "runtime/base/ runtime/model/")
      rule("^kernels/", "runtime/base/ kernels/")
      rule("^comm/(wire|zsock|endpoint|boot)", "runtime/base/ " wire)
      rule("^comm/", "runtime/base/ kernels/ comm/")
      rule("^offload/", "runtime/base/ kernels/ offload/")
      rule("^runtime/", "runtime/ kernels/ comm/comm.h offload/")
      rule("^worker/", "runtime/ kernels/ comm/ offload/ worker/")
      rule("^coordinator/mpi_launch\\.c$", "runtime/base/ coordinator/ comm/comm.h " wire) # mpirun starts it with the workers
      rule("^coordinator/", "runtime/base/ runtime/model/ coordinator/ " wire)
      rule("^client/", "runtime/base/ runtime/model/ client/ " wire)
      # third-party header -> its only includers
      own["jansson.h"] = "^runtime/base/json\\.c$"
      own["hwloc.h"] = "^runtime/base/topo\\.c$"
      own["yaml.h"] = "^runtime/base/options_yaml\\.c$"
      own["pcre2.h"] = "^runtime/model/tok_regex\\.c$"
      own["utf8proc.h"] = "^runtime/model/tok_unicode\\.c$"
      own["xxhash.h"] = "^runtime/model/tok_vocab\\.c$"
      own["cblas.h"] = "^kernels/cpu/blas\\.c$"
      own["zmq.h"] = "^comm/zsock\\.c$"
      own["msgpack.h"] = "^comm/wire_pack\\.c$"
      own["mpi.h"] = "^comm/mpi\\.c$"
      own["liburing.h"] = "^offload/aio[a-z_]*\\.c$"
      own["curses.h"] = own["ncurses.h"] = "^client/cmd/(top|term)[a-z_]*\\.c$"
      own["cuda_runtime.h"] = own["cuda_runtime_api.h"] = own["cuda.h"] = own["cuda_bf16.h"] = own["cuda_fp16.h"] = "^(kernels/cuda|comm)/"
      own["cublas_v2.h"] = own["cublasLt.h"] = "^kernels/cuda/"
      own["nccl.h"] = "^comm/nccl"
      # besides these, angle brackets hold the C library and the kernel only
      system_header = "^(assert|ctype|dirent|dlfcn|errno|fcntl|fenv|float|getopt|glob|inttypes|langinfo|libgen|limits|locale|malloc|" \
        "math|netdb|poll|pthread|pwd|grp|sched|semaphore|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|" \
        "stdlib|string|strings|syslog|termios|time|unistd|ucontext|wchar|wctype|ifaddrs|immintrin|x86intrin|cpuid|arm_neon|" \
        "linux/.*|sys/.*|net/.*|netinet/.*|arpa/.*|asm/.*)\\.h$"
    }
    function rule(from, to) { from_re[++n] = from; allowed[n] = to }
    function wrong(why) { print place ": " why; bad++ }
    {
      file = $0; sub(/:.*/, "", file)
      place = $0; sub(/:[[:space:]]*#.*/, "", place)
      line = $0; sub(/^[^#]*#[[:space:]]*include[[:space:]]*/, "", line)
      quote = substr(line, 1, 1); header = substr(line, 2); sub(/[">].*/, "", header)
      seen++
      if (quote == "<") {
        if (header in own) {
          if (file !~ own[header]) wrong("<" header "> belongs to " own[header] " alone")
        } else if (header !~ system_header) wrong("<" header "> is neither a system header nor listed in tests/include_order.sh")
        next
      }
      if (header !~ /\//) { wrong("\"" header "\" is not a path from the root of the repository"); next }
      for (i = 1; i <= n; i++) if (file ~ from_re[i]) break
      count = split(allowed[i], prefix, " ")
      for (k = 1; k <= count; k++) if (index(header, prefix[k]) == 1) next
      wrong("\"" header "\" lies above this file; it may include: " allowed[i])
    }
    END {
      if (!seen) { print "no includes found: is this the source tree?"; exit 1 }
      if (bad) { print bad " of " seen " includes are out of order"; exit 1 }
      print seen " includes are in order"
    }'
}

self_test() {
  dir=$(mktemp -d) || exit 1
  trap 'rm -rf "$dir"' EXIT
  mkdir -p "$dir/runtime/base" "$dir/runtime/model" "$dir/kernels/cpu" "$dir/comm" "$dir/offload" "$dir/worker" \
    "$dir/coordinator" "$dir/client/cmd"
  printf '#include <stdio.h>\n#include "runtime/base/mem.h"\n' >"$dir/kernels/good.c"
  check "$dir" >/dev/null || { echo "refused a tree that is in order"; exit 1; }
  while read -r file include; do
    printf '#include %s\n' "$include" >"$dir/$file"
    if check "$dir" >/dev/null; then
      echo "not found: $file includes $include"
      exit 1
    fi
    rm "$dir/$file"
  done <<'CASES'
runtime/base/x.c "kernels/backend.h"
runtime/base/x.c "runtime/model/config.h"
runtime/model/x.c "kernels/backend.h"
runtime/model/x.c "runtime/engine.h"
kernels/cpu/x.h "comm/comm.h"
kernels/x.c "runtime/model/config.h"
comm/wire_x.c "kernels/backend.h"
comm/x.c "runtime/engine.h"
offload/x.c "runtime/model/layout.h"
runtime/x.c "worker/scheduler.h"
runtime/x.c "comm/zsock.h"
worker/x.c "coordinator/core.h"
coordinator/x.c "comm/comm.h"
coordinator/x.c "kernels/backend.h"
client/cmd/x.c "coordinator/core.h"
client/x.c "runtime/engine.h"
coordinator/x.c "core.h"
runtime/model/x.c <jansson.h>
coordinator/x.c <zmq.h>
worker/x.c <mpi.h>
kernels/x.c <cblas.h>
runtime/x.c <someother.h>
CASES
  echo "every planted violation was found"
}

case ${1-} in
--self-test) self_test ;;
-*) sed -n '2,7p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
