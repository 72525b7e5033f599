/* SPDX-License-Identifier: Apache-2.0 */
/* From what became of a load's requests to figures. */
#include <math.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/mem.h"

static double ms(int64_t ns) { return (double)ns * 1e-6; }

/* A request that had to wait in the client, because it was slow or because too many were under way, has waited for the
 * server: counting from its sending would leave out what a slow server makes the next ones wait. */
int64_t bench_begin_ns(const bench_load *l, const bench_request *r) {
  return isfinite(l->rate) ? r->arrival_ns : r->sent_ns;
}

/* Returns whether the request has that latency. Where false is returned *out may be of no use: its divisor may be 0. */
static bool latency_ms(const bench_load *l, const bench_request *r, bench_latency which, double *out) {
  if (!r->ok) return false;
  switch (which) {
  case BENCH_TTFT: *out = ms(r->first_ns - bench_begin_ns(l, r)); return r->first_ns != 0;
  case BENCH_TPOT: *out = ms(r->last_ns - r->first_ns) / (double)(r->output_tokens - 1); return r->output_tokens > 1;
  default: *out = ms(r->end_ns - bench_begin_ns(l, r)); return true;
  }
}

static bench_summary summarize(const bench_load *l, bench_latency which, double *room) {
  size_t n = 0;
  if (which == BENCH_ITL) return bench_summarize(l->itl_ms, l->num_itl);
  for (size_t i = 0; i < l->num; i++) n += latency_ms(l, &l->requests[i], which, &room[n]);
  return bench_summarize(room, n);
}

/* Summarizes the times to the first token of some of the load's requests. */
static bench_summary summarize_ttft(const bench_load *l, size_t first, size_t end, double *room) {
  size_t n = 0;
  for (size_t i = first; i < end; i++) n += latency_ms(l, &l->requests[i], BENCH_TTFT, &room[n]);
  return bench_summarize(room, n);
}

/* Returns how many a second n events were, the first and the last so far apart; 0 where it cannot be said. */
static double rate_between(size_t n, int64_t first_ns, int64_t last_ns) {
  return n > 1 && last_ns > first_ns ? (double)(n - 1) / ms(last_ns - first_ns) * 1e3 : 0;
}

/* The rate of the answers from the first to the last: how long each of them took is not in it, so that a server that
 * keeps up has that of the arrivals. */
static double answer_rate(const bench_load *l) {
  int64_t first = INT64_MAX, last = 0;
  size_t n = 0;
  for (size_t i = 0; i < l->num; i++) {
    const bench_request *r = &l->requests[i];
    if (!r->ok) continue;
    n++;
    if (r->end_ns < first) first = r->end_ns;
    if (r->end_ns > last) last = r->end_ns;
  }
  return rate_between(n, first, last);
}

static bench_summary summarize_late(const bench_load *l, double *room) {
  for (size_t i = 0; i < l->sent; i++) room[i] = ms(l->requests[i].sent_ns - l->requests[i].arrival_ns);
  return bench_summarize(room, l->sent);
}

static bench_summary summarize_refusals(const bench_load *l, double *room) {
  size_t n = 0;
  for (size_t i = 0; i < l->num; i++)
    if (l->requests[i].refused) room[n++] = ms(l->requests[i].end_ns - l->requests[i].sent_ns);
  return bench_summarize(room, n);
}

tri_status bench_figure_out(const bench_load *l, bench_figures *out) {
  double *room = tri_malloc(l->num, sizeof *room);
  /* A load that ended at once has a duration, too: rates stay finite. */
  bench_figures f = {.seconds = ms(l->end_ns) * 1e-3 + 1e-12};
  if (!room) return TRI_NO_MEMORY;
  for (size_t i = 0; i < l->num; i++) {
    const bench_request *r = &l->requests[i];
    if (!r->ok) continue;
    f.ok++;
    f.input += r->prompt_tokens;
    f.cached += r->cached_tokens;
    f.output += r->output_tokens;
  }
  for (int i = 0; i < BENCH_NUM_LATENCIES; i++) f.latency_ms[i] = summarize(l, (bench_latency)i, room);
  f.first_ttft_ms = summarize_ttft(l, 0, l->num_chats, room);
  f.later_ttft_ms = summarize_ttft(l, l->num_chats, l->num, room);
  f.achieved = (double)f.ok / f.seconds;
  f.offered = rate_between(l->num, 0, l->requests[l->num - 1].arrival_ns);
  f.saturated = !l->interrupted && bench_is_saturated(answer_rate(l), f.offered);
  f.late_ms = summarize_late(l, room);
  f.refusal_ms = summarize_refusals(l, room);
  tri_free(room);
  *out = f;
  return TRI_OK;
}
