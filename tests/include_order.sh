#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The include order of docs/architecture.md: each folder may include only what lies below it, and each third-party library has
# one file (or folder) that may include its headers, so that it can be replaced in one place.
#   include_order.sh [DIR]        checks a source tree
#   include_order.sh --self-test  checks that violations are found
# Tests may include anything.
set -u

check() {
  (cd "$1" && find base text runtime kernels comm offload worker tools coordinator client -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \
    2>/dev/null | sort | xargs grep -n '^[[:space:]]*#[[:space:]]*include' /dev/null) | awk '
    BEGIN {
      # folder -> prefixes of what its files may include
      below = "base/"
      folder("base", "base/")
      folder("runtime/model", below " runtime/model/")
      folder("runtime/grammar", below " text/unicode/unicode.h runtime/grammar/")
      folder("tools/grammar", below " runtime/grammar/ tools/grammar/")
      folder("text/unicode", below " text/unicode/")
      folder("text/tokenizer", below " text/unicode/ text/tokenizer/")
      folder("text/jinja", below " text/unicode/ text/jinja/")
      folder("kernels", below " kernels/")
      folder("offload", below " kernels/ offload/")
      folder("comm", below " kernels/ comm/comm.h comm/distinct.h comm/all2all.h comm/all2all_impl.h comm/shm.h")
      folder("comm/device", below " kernels/ comm/comm.h comm/distinct.h comm/device/")
      folder("comm/wire", below " comm/wire/")
      below = below " runtime/model/ kernels/ comm/comm.h comm/all2all.h offload/"
      folder("runtime/load", below " runtime/load/")
      folder("runtime/step", below " runtime/step/")
      below = below " runtime/load/ runtime/step/"
      folder("runtime/forward", below " runtime/forward/")
      below = below " runtime/forward/"
      folder("runtime/engine", below " runtime/engine/")
      folder("worker/schedule", below " runtime/engine/embed_result.h runtime/grammar/ comm/wire/ worker/schedule/")
      below = below " runtime/engine/ runtime/cost/"
      folder("runtime/cost", below)
      folder("worker/placement", below " comm/wire/ worker/placement/")
      folder("worker/cost", below " comm/wire/ worker/schedule/ worker/cost/")
      below = below " comm/wire/ worker/"
      folder("worker", below)
      rule("worker/process/answer_grammars.c", below " runtime/grammar/ text/tokenizer/") # tokens as text, for constraints
      folder("tools", below " tools/")
      below = "base/ runtime/model/ text/unicode/ text/tokenizer/ comm/wire/"
      rule("tools/plan/texts.c", below " tools/") # looks at what the coordinator reads, too
      folder("coordinator/net", below " coordinator/net/")
      folder("coordinator/up", below " coordinator/up/ coordinator/net/signals.h coordinator/journal/journal.h")
      rule("coordinator/up/key_files.c", below " coordinator/up/ coordinator/net/allowed_keys.h client/gateway/keys.h")
      # the core: what it is given, then its parts, of which each sees one header of those below it
      rule("coordinator/record.h", below)
      rule("coordinator/core_config.h", below " coordinator/record.h")
      folder("coordinator/stats", below " coordinator/core_config.h coordinator/stats/")
      part = below " coordinator/core_config.h coordinator/core_impl.h coordinator/record.h coordinator/replies.h coordinator/stats/totals.h"
      rule("coordinator/core_impl.h", part)
      rule("coordinator/replies.h", part)
      rule("coordinator/replies.c", part)
      folder("coordinator/replicas", part " coordinator/replicas/")
      part = part " coordinator/replicas/replicas.h"
      folder("coordinator/queue", part " coordinator/queue/ coordinator/net/allowed_keys.h")
      part = part " coordinator/queue/queue.h"
      folder("coordinator/jobs", part " coordinator/jobs/")
      rule("coordinator/jobs/tokenize_pool.c", part " coordinator/jobs/ runtime/grammar/") # what cannot be kept is refused
      part = part " coordinator/jobs/jobs.h coordinator/jobs/response_cache.h coordinator/stats/"
      rule("coordinator/stats/report.c", part)
      rule("coordinator/stats/prometheus.c", part)
      rule("coordinator/core.h", part " coordinator/jobs/recovery.h")
      rule("coordinator/core.c", part " coordinator/core.h")
      # around the core
      folder("coordinator/journal", "base/ coordinator/journal/")
      rule("coordinator/journal/recorder.h", below " coordinator/core.h")
      rule("coordinator/journal/recorder.c", below " coordinator/core.h coordinator/journal/")
      part = part " coordinator/core.h coordinator/queue/shares.h coordinator/jobs/tokenize_pool.h coordinator/journal/recorder.h"
      folder("coordinator", part " coordinator/net/ coordinator/server.h coordinator/served_model.h coordinator/memory_watch.h coordinator/mpi_launch.h")
      rule("coordinator/mpi_launch.c", "base/ coordinator/mpi_launch.h comm/comm.h comm/wire/") # mpirun starts it with the workers
      folder("client", "base/ comm/wire/ client/trireme.h client/internal.h client/kept.h")
      folder("client/chat", "base/ text/tokenizer/ text/jinja/jinja.h client/chat/")
      below = "base/ comm/wire/ client/trireme.h"
      folder("client/openai", below " text/tokenizer/ client/chat/ client/openai/")
      rule("client/openai/tool_choice.c", below " text/tokenizer/ client/chat/ client/openai/ runtime/grammar/") # what cannot be kept is refused
      below = below " client/cli/"
      folder("client/cli", below)
      folder("client/cmd", below " text/tokenizer/ client/openai/ client/cmd/")
      folder("client/talk", below " text/tokenizer/ client/chat/")
      folder("client/gateway", "base/ comm/wire/ text/tokenizer/ client/trireme.h client/chat/ client/openai/ client/gateway/")
      folder("tools/eval", below " text/tokenizer/ tools/eval/")
      folder("tools/serve_bench", below " tools/serve_bench/")
      folder("tools/template", "base/ text/jinja/jinja.h client/chat/")
      folder("tools/top", below " tools/top/")
      # third-party header -> its only includers
      own["jansson.h"] = "^base/json/json\\.c$"
      own["hwloc.h"] = "^base/host/topo\\.c$"
      own["yaml.h"] = "^base/options/options_yaml\\.c$"
      own["pcre2.h"] = "^text/tokenizer/regex/regex(_script)?\\.c$"
      own["utf8proc.h"] = "^text/unicode/unicode(_cases)?\\.c$"
      own["xxhash.h"] = "^base/xxh3\\.c$"
      own["sanitizer/msan_interface.h"] = "^base/foreign\\.h$"
      own["cblas.h"] = "^kernels/cpu/blas\\.c$"
      own["zmq.h"] = "^comm/wire/z([a-z_]*\\.c|sock_impl\\.h)$"
      own["msgpack.h"] = "^comm/wire/pack\\.c$"
      own["mpi.h"] = "^comm/mpi\\.c$"
      own["liburing.h"] = "^offload/aio[a-z_]*\\.c$"
      own["curses.h"] = own["ncurses.h"] = "^tools/top/[a-z_]*\\.c$"
      own["event2/event.h"] = own["event2/buffer.h"] = own["event2/bufferevent.h"] = own["event2/listener.h"] = "^client/gateway/http_(conn|server)[a-z_]*\\.[ch]$"
      own["cuda_runtime.h"] = own["cuda_runtime_api.h"] = own["cuda.h"] = own["cuda_bf16.h"] = own["cuda_fp16.h"] = own["cuda_fp8.h"] = "^(kernels/cuda|comm/device)/"
      own["library_types.h"] = own["cublas_v2.h"] = own["cublasLt.h"] = "^kernels/cuda/"
      own["nccl.h"] = "^comm/device/nccl"
      # besides these, angle brackets hold the C library and the kernel only
      system_header = "^(assert|ctype|dirent|dlfcn|errno|fcntl|fenv|float|getopt|glob|inttypes|langinfo|libgen|limits|locale|malloc|" \
        "math|netdb|poll|pthread|pwd|grp|sched|semaphore|signal|spawn|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|" \
        "stdlib|string|strings|syslog|termios|time|unistd|ucontext|wchar|wctype|ifaddrs|immintrin|x86intrin|cpuid|arm_neon|" \
        "linux/.*|sys/.*|net/.*|netinet/.*|arpa/.*|asm/.*)\\.h$"
    }
    # A folder of the tree, with those below it that have no rule of their own; a file goes before its folder.
    function folder(name, to) { rule(name "/", to) }
    function rule(from, to) { allowed[from] = to }
    function rule_of(file) {
      if (file in allowed) return allowed[file]
      while (sub(/[^\/]*$/, "", file) && file != "" && !(file in allowed)) sub(/\/$/, "", file)
      return allowed[file]
    }
    # Headers of the inside of a folder of runtime, offload or worker.
    function is_private(header) { return header ~ /^(runtime|offload|worker)\/.*(_impl|_state)\.h$/ }
    function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
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
      if (is_private(header) && folder_of(header) != folder_of(file)) { wrong("\"" header "\" belongs to its folder alone"); next }
      count = split(rule_of(file), prefix, " ")
      for (k = 1; k <= count; k++) if (index(header, prefix[k]) == 1) next
      wrong("\"" header "\" lies above this file; it may include: " rule_of(file))
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
  for folder in base runtime/model/arch text/unicode text/tokenizer text/jinja runtime/load runtime/step runtime/forward runtime/engine \
    runtime/cost kernels/cpu comm/device comm/wire offload worker/schedule worker/cost worker/placement worker/process tools/bench coordinator/up coordinator/net coordinator/replicas coordinator/queue coordinator/jobs coordinator/stats client/chat client/cli client/cmd client/openai client/gateway tools/eval tools/serve_bench; do
    mkdir -p "$dir/$folder"
  done
  printf '#include <stdio.h>\n#include "base/mem.h"\n' >"$dir/kernels/good.c"
  check "$dir" >/dev/null || { echo "refused a tree that is in order"; exit 1; }
  while read -r file include; do
    printf '#include %s\n' "$include" >"$dir/$file"
    if check "$dir" >/dev/null; then
      echo "not found: $file includes $include"
      exit 1
    fi
    rm "$dir/$file"
  done <<'CASES'
base/x.c "kernels/backend.h"
base/x.c "runtime/model/config.h"
runtime/model/x.c "kernels/backend.h"
runtime/model/arch/x.c "runtime/engine/engine.h"
runtime/model/x.c "text/tokenizer/tokenizer.h"
text/tokenizer/x.c "runtime/model/config.h"
text/unicode/x.c "text/tokenizer/ids.h"
text/jinja/x.c "text/tokenizer/tokenizer.h"
runtime/load/x.c "runtime/step/batch.h"
runtime/step/x.c "runtime/load/weights.h"
runtime/step/x.c "runtime/forward/forward.h"
runtime/forward/x.c "runtime/engine/engine.h"
runtime/forward/x.c "comm/wire/zsock.h"
runtime/engine/x.c "worker/schedule/scheduler.h"
runtime/x.c "base/mem.h"
kernels/cpu/x.h "comm/comm.h"
kernels/x.c "runtime/model/config.h"
comm/wire/x.c "kernels/backend.h"
comm/wire/x.c "comm/comm.h"
comm/x.c "comm/wire/zsock.h"
comm/device/x.c "runtime/forward/forward.h"
offload/x.c "runtime/model/layout.h"
runtime/cost/x.c "worker/schedule/scheduler.h"
worker/x.c "tools/plan/plan.h"
tools/bench/x.c "coordinator/core.h"
tools/bench/x.c "text/tokenizer/tokenizer.h"
worker/x.c "text/tokenizer/tokenizer.h"
worker/schedule/x.c "runtime/engine/engine.h"
worker/schedule/x.c "worker/cost/swap_cost.h"
worker/cost/x.c "worker/process/worker.h"
worker/placement/x.c "worker/process/worker.h"
tools/bench/x.c "worker/schedule/scheduler_impl.h"
runtime/engine/x.c "runtime/forward/forward_state.h"
runtime/load/x.c "offload/stream_impl.h"
coordinator/x.c "comm/comm.h"
coordinator/up/x.c "kernels/backend.h"
coordinator/net/x.c "coordinator/core_impl.h"
coordinator/replicas/x.c "coordinator/queue/queue.h"
coordinator/queue/x.c "coordinator/jobs/jobs.h"
coordinator/queue/x.c "coordinator/replicas/replicas_impl.h"
coordinator/jobs/x.c "coordinator/core.h"
coordinator/stats/x.c "coordinator/jobs/jobs_impl.h"
coordinator/x.c "coordinator/jobs/jobs_impl.h"
client/cmd/x.c "coordinator/core.h"
client/cmd/x.c "client/gateway/gateway.h"
client/chat/x.c "client/cli/cli.h"
client/chat/x.c "client/openai/fields.h"
client/cli/x.c "client/cmd/cmd.h"
client/openai/x.c "client/gateway/gateway.h"
client/gateway/x.c "client/cmd/cmd.h"
client/gateway/x.c "client/cli/cli.h"
client/x.c "client/cli/cli.h"
tools/eval/x.c "client/cmd/cmd.h"
tools/eval/x.c "client/chat/chat_prompt.h"
tools/serve_bench/x.c "client/cmd/cmd.h"
tools/serve_bench/x.c "worker/scheduler.h"
client/x.c "runtime/engine/engine.h"
coordinator/x.c "core.h"
runtime/model/x.c <jansson.h>
coordinator/x.c <zmq.h>
comm/wire/x.c <zmq.h>
comm/wire/zsock.h <zmq.h>
worker/x.c <mpi.h>
client/gateway/x.c <event2/event.h>
kernels/x.c <cblas.h>
runtime/load/x.c <someother.h>
CASES
  echo "every planted violation was found"
}

case ${1-} in
--self-test) self_test ;;
-*) sed -n '3,8p' "$0"; exit 2 ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
