/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of a host that bring a model's weights over one link each and gather them from each other's rings, with the
 * product's own streams and without a model:
 *
 *   device_gather --fork N [--parts P] [--mib M] [--passes K] [--bench]
 *
 * N processes, each with a device of its own, stream P parts of M MiB from memory of the host that all of them share,
 * through rings of 4 parts. Without --bench every part is downloaded and compared as it comes. With it the same passes
 * are timed beside plain copies of the same memory, in turns: one device copies all, each copies all at the same time
 * (what replicas do by themselves), and each copies its share at the same time (which is the floor). Exit code 77:
 * there are not so many devices, or they do not reach each other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm.h"
#include "offload/stream.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/wait.h"

enum { MOST_RANKS = 8, MOST_PARTS = 1024, MOST_ROUNDS = 64, RING_PARTS = 4, READS = 16, SKIPPED = 77 };
static const size_t PIECE = (size_t)16 << 20, PLAIN_PIECE = (size_t)64 << 20;

struct options {
  int ranks, parts, passes;
  size_t part_bytes;
  bool bench;
};

struct rank {
  const struct options *o;
  int rank;
  tri_shm *shm;
  tri_comm comm;
  tri_backend *backend;
  tri_split *split;
  tri_stream_ring rings[MOST_RANKS];
  char *ring, *home, *seen; /* seen: of a part that was downloaded */
  tri_ring_place places[MOST_PARTS];
  size_t bytes[MOST_PARTS], ring_bytes;
  tri_stream_part parts[MOST_PARTS];
  tri_stream_extent *extents;
  int num_extents;
  tri_weight_stream *stream;
};

static int failed(const struct rank *r, const char *what, tri_status st) {
  fprintf(stderr, "device_gather: rank %d: %s: %s\n", r->rank, what, tri_status_text(st));
  return 1;
}

/* ---- what all have ---- */

static size_t all_bytes(const struct options *o) { return (size_t)o->parts * o->part_bytes; }

/* Each rank brings one run of a part. */
static tri_status cut(struct rank *r) {
  const struct options *o = r->o;
  size_t share = (o->part_bytes / (size_t)o->ranks + 4095) / 4096 * 4096;
  size_t most = (size_t)o->parts * (o->part_bytes / PIECE + (size_t)o->ranks + 1);
  r->extents = tri_calloc(most, sizeof *r->extents);
  if (!r->extents) return TRI_NO_MEMORY;
  for (int i = 0; i < o->parts; i++) {
    tri_stream_extent *first = &r->extents[r->num_extents];
    r->bytes[i] = o->part_bytes;
    for (size_t at = 0, n; at < o->part_bytes; at += n) {
      size_t end = (at / share + 1) * share, left = (end < o->part_bytes ? end : o->part_bytes) - at;
      n = left < PIECE ? left : PIECE;
      r->extents[r->num_extents++] = (tri_stream_extent){.home = r->home + (size_t)i * o->part_bytes + at,
                                                         .bytes = n,
                                                         .at = at,
                                                         .reader = (int)(at / share + (size_t)i) % o->ranks + 1};
    }
    r->parts[i] = (tri_stream_part){.extents = first, .num_extents = (int)(&r->extents[r->num_extents] - first)};
  }
  r->ring_bytes = tri_ring_bytes(r->bytes, o->parts, RING_PARTS);
  return tri_ring_plan(r->bytes, o->parts, r->ring_bytes, r->places) ? TRI_OK : TRI_INTERNAL;
}

static void fill_part(const struct rank *r, int part) {
  uint64_t seed = (uint64_t)part + 1;
  uint64_t *words = (uint64_t *)(r->home + (size_t)part * r->o->part_bytes);
  for (size_t i = 0; i < r->o->part_bytes / sizeof *words; i++) words[i] = tri_splitmix64(&seed);
}

/* Every rank fills some parts, and pins all: plain copies read all. */
static tri_status fill(struct rank *r) {
  tri_error err = {0};
  size_t all = all_bytes(r->o), share = all / (size_t)r->o->ranks / 4096 * 4096, first = (size_t)r->rank * share;
  TRI_CHECK(tri_split_take_home(r->split, first, r->rank == r->o->ranks - 1 ? all - first : share, &err));
  for (int i = r->rank; i < r->o->parts; i += r->o->ranks) fill_part(r, i);
  TRI_CHECK(tri_shm_barrier(r->shm, &r->comm));
  return r->backend->ops.host_pin(r->backend, r->home, all);
}

static tri_status share_memory(struct rank *r) {
  tri_reader_config reads = {.piece_bytes = 2 << 20, .num_buffers = READS};
  tri_split_config sc = {.rank = r->rank,
                         .size = r->o->ranks,
                         .buffer_bytes = tri_reader_memory_bytes(&reads),
                         .home_bytes = all_bytes(r->o)};
  tri_split_name name = {0};
  tri_error err = {0};
  tri_status st = r->rank ? TRI_OK : tri_split_create(&sc, &name, &r->split, &err);
  TRI_CHECK(tri_shm_broadcast(r->shm, &r->comm, &name, sizeof name, 0));
  if (r->rank) st = tri_split_open(&sc, &name, &r->split, &err);
  if (st != TRI_OK) return st;
  r->home = tri_split_home(r->split);
  return tri_shm_barrier(r->shm, &r->comm);
}

/* ---- rings ---- */

static tri_status all_ok(struct rank *r, tri_status mine, tri_status *all) {
  int32_t own = (int32_t)mine, told[MOST_RANKS];
  TRI_CHECK(tri_shm_all_gather(r->shm, &r->comm, &own, told, sizeof own));
  *all = TRI_OK;
  for (int i = 0; i < r->o->ranks; i++)
    if (told[i] != TRI_OK) *all = (tri_status)told[i];
  return TRI_OK;
}

/* TRI_UNSUPPORTED, on all ranks: some device does not reach another. */
static tri_status open_rings(struct rank *r) {
  tri_peer_handle own = {0}, handles[MOST_RANKS];
  tri_status all, st;
  TRI_CHECK(r->backend->ops.mem_alloc(r->backend, TRI_MEM_WEIGHTS, r->ring_bytes, (void **)&r->ring));
  TRI_CHECK(r->backend->ops.stream_sync(r->backend));
  st = r->backend->ops.peer_show(r->backend, r->ring, &own);
  TRI_CHECK(all_ok(r, st, &all));
  if (all != TRI_OK) return all;
  TRI_CHECK(tri_shm_all_gather(r->shm, &r->comm, &own, handles, sizeof own));
  for (int i = 0; i < r->o->ranks && st == TRI_OK; i++) {
    void *memory = NULL;
    if (i != r->rank) st = r->backend->ops.peer_open(r->backend, &handles[i], &memory);
    r->rings[i] = (tri_stream_ring){memory, r->ring_bytes};
  }
  TRI_CHECK(all_ok(r, st, &all));
  return all;
}

static tri_status open_stream(struct rank *r) {
  tri_error err = {0};
  tri_weight_stream_config config = {.parts = r->parts,
                                     .part_bytes = r->bytes,
                                     .places = r->places,
                                     .num_parts = r->o->parts,
                                     .backend = r->backend,
                                     .ring = r->ring,
                                     .reads = {.piece_bytes = 2 << 20, .num_buffers = READS},
                                     .split = r->split,
                                     .rings = r->rings};
  config.reads.memory = tri_split_buffers(r->split, r->rank);
  tri_status st = tri_weight_stream_create(&config, &r->stream, &err);
  if (st != TRI_OK) fprintf(stderr, "device_gather: %s\n", err.message);
  return st;
}

/* ---- passes ---- */

static tri_status look_at_part(struct rank *r, int part) {
  tri_backend *be = r->backend;
  be->ops.download(be, r->seen, r->ring + r->places[part].at, r->bytes[part]);
  TRI_CHECK(be->ops.stream_sync(be));
  return memcmp(r->seen, r->home + (size_t)part * r->o->part_bytes, r->bytes[part]) ? TRI_CORRUPT : TRI_OK;
}

/* A pass ends when the device has the last part, as a step's last product would. */
static tri_status pass(struct rank *r, bool look) {
  for (int i = 0; i < r->o->parts; i++) {
    TRI_CHECK(tri_weight_stream_acquire(r->stream, i));
    if (look) TRI_CHECK(look_at_part(r, i));
    tri_weight_stream_release(r->stream, i);
  }
  return r->backend->ops.stream_sync(r->backend);
}

/* Copies `share` of the parts' bytes, from `from` of them on, as a stream by itself would. */
static tri_status copy_plainly(struct rank *r, double from, double share) {
  tri_backend *be = r->backend;
  for (int i = 0; i < r->o->parts && share > 0; i++) {
    size_t first = (size_t)((double)r->bytes[i] * from), end = first + (size_t)((double)r->bytes[i] * share);
    const char *home = r->home + (size_t)i * r->o->part_bytes;
    for (size_t at = first, n; at < end; at += n) {
      n = end - at < PLAIN_PIECE ? end - at : PLAIN_PIECE;
      be->ops.upload_rows(be, r->ring + r->places[i].at + at, n, home + at, n, n, 1);
    }
  }
  be->ops.event_record(be, TRI_EVENT_UPLOAD, TRI_STREAM_COPY);
  return be->ops.event_wait(be, TRI_EVENT_UPLOAD);
}

enum way { ALONE, EACH_ALL, SHARES, GATHERED, WAYS };
static const char *const names[WAYS] = {"one device copies all", "each device copies all", "each copies its share",
                                        "split fetch"};

static tri_status go(struct rank *r, enum way way) {
  double share = 1.0 / r->o->ranks;
  switch (way) {
  case ALONE: return copy_plainly(r, 0, r->rank ? 0 : 1);
  case EACH_ALL: return copy_plainly(r, 0, 1);
  case SHARES: return copy_plainly(r, share * r->rank, share);
  default: return pass(r, false);
  }
}

/* Sets *seconds to what the slowest rank took. A stream reads ahead over the end of a pass: the timed one follows
 * another without a pause, and so do plain copies. */
static tri_status time_way(struct rank *r, enum way way, double *seconds) {
  double own, all[MOST_RANKS];
  TRI_CHECK(tri_shm_barrier(r->shm, &r->comm));
  TRI_CHECK(go(r, way));
  int64_t start = tri_now_ns();
  TRI_CHECK(go(r, way));
  own = (double)(tri_now_ns() - start) * 1e-9;
  TRI_CHECK(tri_shm_all_gather(r->shm, &r->comm, &own, all, sizeof own));
  *seconds = 0;
  for (int i = 0; i < r->o->ranks; i++)
    if (all[i] > *seconds) *seconds = all[i];
  return TRI_OK;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Plain copies write where the stream's parts are: what comes there is not looked at. */
static tri_status bench(struct rank *r) {
  static double seconds[WAYS][MOST_ROUNDS];
  double all = (double)all_bytes(r->o), medians[WAYS];
  for (int k = 0; k < r->o->passes; k++)
    for (int way = 0; way < WAYS; way++) TRI_CHECK(time_way(r, (enum way)way, &seconds[way][k]));
  for (int way = 0; way < WAYS; way++) {
    qsort(seconds[way], (size_t)r->o->passes, sizeof(double), compare);
    medians[way] = seconds[way][r->o->passes / 2];
    double moved = way == EACH_ALL ? all * r->o->ranks : all;
    if (!r->rank)
      printf("%-24s %8.4f s  %7.2f GB/s over the links, least %.4f s\n", names[way], medians[way],
             moved / medians[way] * 1e-9, seconds[way][0]);
  }
  tri_stream_figures f = tri_weight_stream_figures(r->stream);
  if (!r->rank)
    printf("split fetch has %.3f of what shares have, and is %.2f times as fast as each device copying all; rank 0 has "
           "had %.2f of its bytes from peers\n",
           medians[SHARES] / medians[GATHERED], medians[EACH_ALL] / medians[GATHERED],
           (double)f.peer / (double)f.bytes);
  return TRI_OK;
}

static tri_status verify(struct rank *r) {
  for (int k = 0; k < r->o->passes; k++) TRI_CHECK(pass(r, true));
  tri_stream_figures f = tri_weight_stream_figures(r->stream);
  size_t all = all_bytes(r->o) * (size_t)r->o->passes, own = f.bytes - f.peer;
  bool shared = own * (size_t)r->o->ranks <= all + 2 * all_bytes(r->o) + 4096 * (size_t)r->o->ranks * MOST_PARTS;
  if (!r->rank)
    printf("%d passes of %d parts, %.1f MiB each, on %d devices: %s\n", r->o->passes, r->o->parts,
           (double)r->o->part_bytes / 0x1p20, r->o->ranks, shared ? "right" : "WRONG: not over one link");
  return shared ? TRI_OK : TRI_CORRUPT;
}

/* ---- from nothing and back ---- */

static void close_rank(struct rank *r) {
  bool ended = tri_weight_stream_destroy(r->stream);
  for (int i = 0; i < r->o->ranks; i++)
    if (r->rings[i].memory) r->backend->ops.peer_close(r->backend, (void *)r->rings[i].memory);
  tri_shm_barrier(r->shm, &r->comm);
  if (r->ring && ended) r->backend->ops.mem_free(r->backend, TRI_MEM_WEIGHTS, r->ring, r->ring_bytes);
  if (r->home) r->backend->ops.host_unpin(r->backend, r->home);
  tri_split_close(r->split);
  tri_free(r->extents);
  tri_free(r->seen);
  tri_backend_destroy(r->backend);
}

static tri_status set_up(struct rank *r) {
  tri_status all;
  r->seen = tri_malloc(r->o->part_bytes, 1);
  if (!r->seen) return TRI_NO_MEMORY;
  TRI_CHECK(share_memory(r));
  TRI_CHECK(cut(r));
  TRI_CHECK(open_rings(r));
  TRI_CHECK(all_ok(r, fill(r), &all));
  return all == TRI_OK ? open_stream(r) : all;
}

static int run_rank(tri_shm *shm, int rank, const struct options *o) {
  static struct rank r;
  tri_error err = {0};
  tri_status all, st;
  r = (struct rank){.o = o, .rank = rank, .shm = shm};
  r.comm = (tri_comm){.rank = rank, .size = o->ranks, .cfg = {.policy = {.yield_us = 1000}, .timeout_ms = 120000}};
  st = tri_backend_create(&(tri_backend_config){.name = "cuda", .device = rank}, &r.backend, &err);
  if (st != TRI_OK && !rank) printf("skipped: %s\n", err.message);
  if (all_ok(&r, st, &all) != TRI_OK || all != TRI_OK) return SKIPPED;
  st = set_up(&r);
  if (st == TRI_UNSUPPORTED && !rank) printf("skipped: these devices do not reach each other's memory\n");
  if (st == TRI_UNSUPPORTED) return SKIPPED;
  if (st != TRI_OK) return failed(&r, "set up", st);
  st = o->bench ? bench(&r) : verify(&r);
  if (st != TRI_OK) return failed(&r, tri_weight_stream_failure(r.stream), st);
  close_rank(&r);
  return 0;
}

static int wait_for(const pid_t *pids, int count) {
  int code = 0;
  for (int i = 0; i < count; i++) {
    int status;
    if (waitpid(pids[i], &status, 0) != pids[i] || !WIFEXITED(status))
      code = 1;
    else if (WEXITSTATUS(status) && code != 1)
      code = WEXITSTATUS(status);
  }
  return code;
}

static bool read_options(int argc, char **argv, struct options *o) {
  *o = (struct options){.parts = 9, .passes = 5, .part_bytes = 40 << 20};
  for (int i = 1; i < argc; i++) {
    const char *value = i + 1 < argc ? argv[i + 1] : "0";
    if (!strcmp(argv[i], "--bench")) {
      o->bench = true;
      continue;
    }
    if (!strcmp(argv[i], "--fork")) o->ranks = atoi(value);
    if (!strcmp(argv[i], "--parts")) o->parts = atoi(value);
    if (!strcmp(argv[i], "--passes")) o->passes = atoi(value);
    if (!strcmp(argv[i], "--mib")) o->part_bytes = (size_t)atoi(value) << 20;
    i++;
  }
  return o->ranks >= 2 && o->ranks <= MOST_RANKS && o->parts > RING_PARTS && o->parts <= MOST_PARTS && o->passes > 0 &&
         o->passes <= MOST_ROUNDS && o->part_bytes;
}

int main(int argc, char **argv) {
  struct options o;
  char name[TRI_SHM_NAME_BYTES];
  tri_shm *shm[MOST_RANKS];
  pid_t pids[MOST_RANKS];
  if (!read_options(argc, argv, &o)) {
    fputs("usage: device_gather --fork RANKS (2 to 8) [--parts P] [--mib M] [--passes K] [--bench]\n", stderr);
    return 2;
  }
  if (tri_shm_create(name, o.ranks, &shm[0]) != TRI_OK) return 1;
  for (int r = 1; r < o.ranks; r++)
    if (tri_shm_open(name, r, o.ranks, &shm[r]) != TRI_OK) return 1;
  tri_shm_unlink(name);
  for (int r = 0; r < o.ranks; r++) {
    pids[r] = fork();
    if (pids[r] < 0) return 1;
    if (pids[r]) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = run_rank(shm[r], r, &o);
    fflush(stdout);
    _exit(code);
  }
  return wait_for(pids, o.ranks);
}
