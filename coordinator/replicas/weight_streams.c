/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that do not stay in memory: what ranks tell of theirs, as sums and as metrics. */
#include "coordinator/replicas/replicas_impl.h"

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Bytes and rates of ranks add up. They wait concurrently, so that of times the longest is the replica's. */
tri_replica_stream weight_streams_of(const replica *g) {
  tri_replica_stream sum = {0};
  for (uint32_t r = 0; r < g->world; r++) {
    const tri_replica_stream *s = &g->ranks[r].stream;
    sum.bytes += s->bytes;
    sum.dram_bytes += s->dram_bytes;
    sum.peer_bytes += s->peer_bytes;
    sum.pass_bytes += s->pass_bytes;
    sum.bytes_per_s += s->bytes_per_s;
    sum.stall_ns = larger(sum.stall_ns, s->stall_ns);
    sum.pass_ns = larger(sum.pass_ns, s->pass_ns);
  }
  return sum;
}

/* A rank that streams has pass_bytes. Where none does, the metrics are left out with their heads. */
static bool any_streams(const tri_core *c) {
  bool any = false;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) any |= weight_streams_of(replica_at(c, i)).pass_bytes > 0;
  return any;
}

/* A metric's value in the unit of its name. */
typedef double (*figure)(const tri_replica_stream *s);
static double dram_bytes(const tri_replica_stream *s) { return (double)s->dram_bytes; }
static double peer_bytes(const tri_replica_stream *s) { return (double)s->peer_bytes; }
static double file_bytes(const tri_replica_stream *s) { return (double)s->bytes - dram_bytes(s) - peer_bytes(s); }
static double stall_s(const tri_replica_stream *s) { return (double)s->stall_ns * 1e-9; }
static double pass_s(const tri_replica_stream *s) { return (double)s->pass_ns * 1e-9; }
static double bytes_per_s(const tri_replica_stream *s) { return (double)s->bytes_per_s; }

/* One line for each rank that streams. Those of a replica that was lost are gone with it. */
static void print(const tri_core *c, FILE *f, const char *name, const char *labels, figure of) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    for (uint32_t r = 0; r < g->world && g->state != REPLICA_LOST; r++)
      if (g->ranks[r].stream.pass_bytes)
        fprintf(f, "trireme:%s{group=\"%u\",rank=\"%u\"%s} %.15g\n", name, i, r, labels, of(&g->ranks[r].stream));
  }
}

static void head(FILE *f, const char *name, const char *type, const char *help) {
  fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s %s\n", name, help, name, type);
}

void weight_stream_metrics(const tri_core *c, FILE *f) {
  if (!any_streams(c)) return;
  head(f, "streamed_bytes_total", "counter", "Bytes of weights that have come, by where they come from.");
  print(c, f, "streamed_bytes_total", ",tier=\"nvme\"", file_bytes);
  print(c, f, "streamed_bytes_total", ",tier=\"cpu\"", dram_bytes);
  print(c, f, "streamed_bytes_total", ",tier=\"peer\"", peer_bytes);
  head(f, "stream_stall_seconds_total", "counter", "Time that steps have waited for weights.");
  print(c, f, "stream_stall_seconds_total", "", stall_s);
  head(f, "stream_pass_seconds", "gauge", "From the end of the last pass over the layers but one to that of the last.");
  print(c, f, "stream_pass_seconds", "", pass_s);
  head(f, "stream_bandwidth_bytes_per_second", "gauge", "The best rate at which weights have come.");
  print(c, f, "stream_bandwidth_bytes_per_second", "", bytes_per_s);
}
