/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/stream_report.h"

#include "base/wait.h"

enum { SECOND = 1000000000 };

void tri_stream_rate_note(tri_stream_rate *r, const tri_stream_figures *f, int64_t now_ns) {
  int64_t ns = now_ns - r->since_ns;
  if (r->since_ns && (ns < SECOND || f->passes == r->passes)) return;
  if (r->since_ns) {
    double rate = (double)(f->bytes - r->bytes) / (double)ns * SECOND;
    if (rate > r->best) r->best = rate;
  }
  r->since_ns = now_ns;
  r->bytes = f->bytes;
  r->passes = f->passes;
}

bool tri_stream_rate_is_disk(const tri_replica_stream *s, int local_ranks) {
  static const uint64_t ENOUGH = 256 << 20;
  return local_ranks == 1 && !s->dram_bytes && s->pass_bytes >= ENOUGH;
}

tri_replica_stream tri_stream_report(const tri_engine *e, tri_stream_rate *r) {
  if (!e->offload) return (tri_replica_stream){0};
  tri_stream_figures f = tri_weight_stream_figures(tri_offload_stream(e->offload));
  tri_stream_rate_note(r, &f, tri_now_ns());
  double rate = r->best > 0 ? r->best : tri_offload_bandwidth(e->offload);
  return (tri_replica_stream){.bytes = f.bytes,
                              .dram_bytes = f.bytes - f.read - f.peer,
                              .peer_bytes = f.peer,
                              .stall_ns = f.stall_ns,
                              .pass_bytes = e->tiers->streamed,
                              .pass_ns = f.pass_ns,
                              .bytes_per_s = (uint64_t)rate};
}
