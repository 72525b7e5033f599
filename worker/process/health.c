/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/health.h"

#include <limits.h>

#include "base/log.h"
#include "runtime/cost/disk_read.h"
#include "runtime/cost/machine_file.h"

/* Returns whether the leader owes its word that it has no job of a coordinator that is lost. */
static bool is_to_clear(const tri_worker *w) {
  return !w->rank && atomic_load(&w->ready) && atomic_load(&w->cleared) != atomic_load(&w->line);
}

/* Counts what the step thread has not taken as well: one that hangs has no word of its own. */
static bool has_work(const tri_worker *w) {
  return atomic_load(&w->busy) || tri_commands_hold(&w->commands) || is_to_clear(w);
}

/* Names the disks that weights come from: all of a pack's, and of a checkpoint the one of its first file. */
static void name_disks(const tri_engine *e, char out[TRI_DISK_NAME]) {
  tri_offload_source s = tri_offload_source_of(e->offload);
  int fds[TRI_STRIPES_MAX_FILES], count = s.pack ? s.num_files : 1;
  for (int i = 0; i < count; i++) fds[i] = s.files[i].fd;
  tri_disk_name(fds, count, out);
}

/* `trireme plan` predicts with what a worker has measured of its disks. */
void tri_health_keep(const tri_worker *w, tri_health *h, const tri_replica_stream *s) {
  static const double WORTH_WRITING = 1.05;
  double best = h->stream_rate.best;
  char path[PATH_MAX], disk[TRI_DISK_NAME];
  tri_error err = {0};
  if (best <= h->kept_rate * WORTH_WRITING || !tri_stream_rate_is_disk(s, w->local_ranks)) return;
  h->kept_rate = best;
  tri_machine_file_path(path);
  name_disks(w->engine, disk);
  if (!path[0] || !disk[0]) return;
  if (tri_machine_file_add_disk(path, disk, best, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "plan", "the measured rates are not saved: %s", err.message);
}

static tri_replica_swaps report_swaps(const tri_worker *w) {
  uint64_t bytes = w->engine->shard_block_bytes;
  return (tri_replica_swaps){
      .host_kv_blocks = (uint64_t)w->engine->limits.num_host_blocks * (uint64_t)w->layout.dp,
      .host_kv_blocks_used = atomic_load(&w->host_blocks_used),
      .out = atomic_load(&w->swaps_out),
      .in = atomic_load(&w->swaps_in),
      .out_bytes = atomic_load(&w->blocks_out) * bytes,
      .in_bytes = atomic_load(&w->blocks_in) * bytes,
  };
}

static tri_replica_prefixes report_prefixes(const tri_worker *w) {
  return (tri_replica_prefixes){.queries = atomic_load(&w->prefix_queries),
                                .hits = atomic_load(&w->prefix_hits),
                                .evictions = atomic_load(&w->prefix_evictions)};
}

tri_replica_health tri_health_take(tri_worker *w, tri_health *h) {
  tri_replica_health m = {.replica = (uint32_t)w->opts.group,
                          .rank = (uint32_t)w->rank,
                          .epoch = w->opts.epoch,
                          .busy = has_work(w),
                          .running = atomic_load(&w->running),
                          .waiting = atomic_load(&w->waiting),
                          .prompt_bound = atomic_load(&w->prompt_bound),
                          .kv_blocks_used = atomic_load(&w->blocks_used),
                          .tokens = atomic_load(&w->tokens),
                          .preemptions = atomic_load(&w->preemptions),
                          .rearrangements = atomic_load(&w->rearrangements),
                          .experts_moved = atomic_load(&w->experts_moved),
                          .moving_ns = atomic_load(&w->moving_ns),
                          /* what the control thread itself costs belongs to scheduling, too */
                          .scheduler_ns = atomic_load(&w->scheduler_ns) + (uint64_t)tri_thread_cpu_ns(),
                          .layer = TRI_LAYER_IDLE};
  if (atomic_load(&w->loaded)) {
    m.step = atomic_load(&w->engine->progress.step);
    m.layer = atomic_load(&w->engine->progress.layer);
    m.collective = tri_replica_sequence(&w->replica);
    m.exchange = atomic_load(&w->engine->progress.all2all);
    m.stream = tri_stream_report(w->engine, &h->stream_rate);
    if (!w->rank) m.swaps = report_swaps(w);
    if (!w->rank) m.prefixes = report_prefixes(w);
  }
  for (int i = 0; w->dp_ranks && !w->rank && i < 2 * w->layout.dp; i++) h->dp_ranks[i] = atomic_load(&w->dp_ranks[i]);
  m.dp_ranks = h->dp_ranks;
  m.num_dp_ranks = w->dp_ranks && !w->rank ? 2 * (size_t)w->layout.dp : 0;
  return m;
}
