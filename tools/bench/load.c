/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme bench load`: how soon one rank has its weights, against the disk's own rate in the same run.
 *
 * The floor reads the checkpoint's files from one end to the other with the same reader, as many reads at once and as
 * large, and does nothing with the bytes. Both begin without the files in the page cache. They take turns, and medians
 * are compared, as rates: a rank of several reads its slices only. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/roofline.h"
#include "base/log.h"
#include "base/standard_output.h"
#include "base/host/topo.h"
#include "base/wait.h"
#include "base/options/serve_layout.h"
#include "base/version.h"
#include "runtime/load/weights.h"

enum { MAX_ROUNDS = 100, MIB = 1 << 20 };

struct bench_options {
  tri_serve_options serve;
  int rounds, depth, piece;
  unsigned io;
  bool direct, json;
};

static const char *const io_names[] = {"auto", "io_uring", "threads", NULL}; /* as in tri_aio_kind */

static const tri_option own_options[] = {
    {TRI_OPT(struct bench_options, rounds), .name = "num-iters", .min = 1, .max = MAX_ROUNDS, .fallback = "3",
     .metavar = "N", .group = "Benchmark", .help = "times that the weights are loaded"},
    {TRI_OPT(struct bench_options, io), .name = "io", .choices = io_names, .fallback = "auto", .group = "Benchmark",
     .help = "how files are read; auto: io_uring, or threads if it is not permitted"},
    {TRI_OPT(struct bench_options, depth), .name = "queue-depth", .min = 1, .max = 32, .fallback = "32", .metavar = "N",
     .group = "Benchmark", .help = "reads at a time"},
    {TRI_OPT(struct bench_options, piece), .name = "piece-size", .min = 1, .max = 4, .fallback = "4", .metavar = "MIB",
     .group = "Benchmark", .help = "size of the longest read"},
    {TRI_OPT(struct bench_options, direct), .name = "direct", .fallback = "true", .group = "Benchmark",
     .help = "bypass the page cache if the file system allows it"},
    {TRI_OPT(struct bench_options, json), .name = "json", .fallback = "false", .group = "Benchmark",
     .help = "print one JSON object instead of a table"},
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static tri_options_spec spec = {
    .program = "trireme bench load",
    .usage = "MODEL [OPTION]...",
    .arg_option = "model",
    .summary = "Times how one rank loads its weights (with -tp, the first rank), compared with reading the same files "
               "and discarding the bytes.",
    .epilog = "Other options of trireme-worker are accepted and ignored.\n",
    .version = "trireme bench load " TRIREME_VERSION,
    .config_file = true,
};

struct bench {
  struct bench_options o;
  tri_reader_config io;
  tri_pool *pool;
  tri_backend *backend;
  tri_model_config model;
  tri_shard shard;
  tri_checkpoint *ckpt;
  tri_quantization quantization;
  double load[MAX_ROUNDS], floor[MAX_ROUNDS]; /* seconds */
  double read_bytes, file_bytes;
  size_t weight_bytes;
  const char *io_name;
  bool direct;
  int threads;
};

/* ---- a round ---- */

static uint64_t file_size(const tri_checkpoint *c, int file) {
  off_t end = lseek(tri_checkpoint_fd(c, file), 0, SEEK_END);
  return end > 0 ? (uint64_t)end : 0;
}

/* Bytes that are not on the disk yet stay in the cache: direct reads do without it all the same. */
static void drop_cache(const struct bench *b) {
  for (int i = 0; i < tri_checkpoint_num_files(b->ckpt); i++)
    posix_fadvise(tri_checkpoint_fd(b->ckpt, i), 0, 0, POSIX_FADV_DONTNEED);
}

/* Waits for one read and forgets what it brought. */
static tri_status take(tri_reader *r, tri_error *err) {
  int slot;
  void *data;
  tri_status st = tri_reader_next(r, &slot, &data, err);
  if (st == TRI_OK) tri_reader_release(r, slot);
  return st;
}

/* A read is waited for only where every buffer is taken (TRI_AGAIN), so that the disk always has as many as it may. */
static tri_status read_file(struct bench *b, tri_reader *r, int file, tri_error *err) {
  uint64_t size = file_size(b->ckpt, file);
  for (uint64_t at = 0; at < size;) {
    int slot;
    size_t n = size - at < b->io.piece_bytes ? (size_t)(size - at) : b->io.piece_bytes;
    tri_status st = tri_reader_start(r, file, at, n, &slot, err);
    if (st == TRI_OK) at += n;
    if (st == TRI_AGAIN) st = take(r, err);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

static tri_status time_floor(struct bench *b, double *seconds, tri_error *err) {
  tri_reader *r = NULL;
  tri_status st;
  int number;
  TRI_TRY(tri_reader_create(&b->io, &r, err));
  for (int i = 0; i < tri_checkpoint_num_files(b->ckpt); i++)
    TRI_TRY(tri_reader_add_file(r, tri_checkpoint_fd(b->ckpt, i), tri_checkpoint_path(b->ckpt, i), &number, err));
  drop_cache(b);
  int64_t start = tri_now_ns();
  for (int i = 0; i < tri_checkpoint_num_files(b->ckpt); i++) TRI_TRY(read_file(b, r, i, err));
  while ((st = take(r, err)) == TRI_OK) continue;
  if (st != TRI_AGAIN) goto cleanup;
  st = TRI_OK;
  *seconds = (double)(tri_now_ns() - start) * 1e-9;
  b->file_bytes = (double)tri_reader_bytes(r);
  b->io_name = tri_reader_name(r);
  b->direct = tri_reader_is_direct(r);
cleanup:
  tri_reader_destroy(r);
  return st;
}

struct area {
  char *p;
  size_t bytes;
};

static void touch(void *ctx, int index, int count) {
  const struct area *a = ctx;
  size_t share = a->bytes / (size_t)count;
  memset(a->p + share * (size_t)index, 1, share);
}

/* The host of a virtual machine may have taken back what was free, and gives it again a page fault at a time, slower
 * than a disk reads: that is for who had the memory before. */
static void ready_memory(struct bench *b) {
  struct area a = {.bytes = b->weight_bytes};
  tri_backend *be = b->backend;
  if (!be->host_memory || be->ops.mem_alloc(be, TRI_MEM_WEIGHTS, a.bytes, (void **)&a.p) != TRI_OK) return;
  tri_pool_run(b->pool, touch, &a);
  be->ops.mem_free(be, TRI_MEM_WEIGHTS, a.p, a.bytes);
}

static tri_dtype dtype_of(const tri_serve_options *o) {
  return o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)o->dtype;
}

/* Headers are not in the time, as they are not in the floor's: set_up has opened the checkpoint. */
static tri_status time_load(struct bench *b, double *seconds, tri_error *err) {
  tri_weights *w = NULL;
  ready_memory(b);
  drop_cache(b);
  int64_t start = tri_now_ns();
  tri_status st = tri_weights_load_with(b->backend, &b->model, &b->shard, b->ckpt, dtype_of(&b->o.serve),
                                        b->quantization, &b->io, &w, err);
  *seconds = (double)(tri_now_ns() - start) * 1e-9;
  if (st != TRI_OK) return st;
  b->read_bytes = (double)w->read_bytes;
  tri_weights_destroy(w);
  return TRI_OK;
}

/* ---- from the options to the figures ---- */

static tri_status set_up(struct bench *b, tri_error *err) {
  const tri_serve_options *o = &b->o.serve;
  int pins[1024], oversubscribed;
  tri_weight_map map;
  tri_status st;
  b->io = tri_reader_config_default();
  b->io.piece_bytes = (size_t)b->o.piece * MIB;
  b->io.num_buffers = b->o.depth;
  b->io.kind = (tri_aio_kind)b->o.io;
  b->io.buffered = !b->o.direct;
  TRI_TRY(tri_model_config_load(o->model, TRI_CONFIG_RULES(o), &b->model, err));
  if (b->model.seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "model_type %s is an encoder-decoder: only single models are timed",
                    b->model.arch->model_type);
  tri_serve_layout y;
  TRI_TRY(tri_serve_layout_make(o, &y, err));
  tri_parallel p = {.tp = y.tp, .pp = 1, .dp = y.dp, .ep = y.ep};
  TRI_TRY(tri_shard_make(&b->model, p, &b->shard, err));
  TRI_TRY(tri_checkpoint_open(o->model, &b->ckpt, err));
  b->threads = o->threads ? o->threads : tri_topo_num_cores();
  TRI_TRY(tri_topo_assign(0, 1, b->threads, pins, &oversubscribed));
  TRI_TRY(tri_pool_create(b->threads, pins, oversubscribed ? 0 : 200, &b->pool));
  tri_backend_config bc = {.name = strcmp(o->backend, "auto") ? o->backend : "cpu", .pool = b->pool};
  TRI_TRY(tri_backend_create(&bc, &b->backend, err));
  b->model.stored.wide_blocks_only = b->backend->wide_blocks_only;
  b->quantization =
      tri_stored_quantization(&b->model.stored, (tri_quantization)o->quantization, b->backend->prefers_fp8);
  TRI_TRY(tri_weight_map_make(&b->model, &b->shard, b->ckpt, dtype_of(o), b->quantization, NULL, &map, err));
  b->weight_bytes = map.bytes;
  tri_weight_map_free(&map);
cleanup:
  return st == TRI_OK || err->status ? st : tri_fail(err, st, "", "%s", tri_status_text(st));
}

static void print(struct bench *b) {
  double load = tri_median(b->load, b->o.rounds), floor = tri_median(b->floor, b->o.rounds);
  double rate = b->read_bytes / load, floor_rate = b->file_bytes / floor;
  if (b->o.json) {
    printf(
        "{\"model\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"tp\":%d,\"io\":\"%s\",\"direct\":%s,"
        "\"queue_depth\":%d,\"piece_bytes\":%zu,\"weight_bytes\":%zu,\"read_bytes\":%.0f,\"seconds\":%.4f,"
        "\"bytes_per_s\":%.0f,\"floor_bytes\":%.0f,\"floor_seconds\":%.4f,\"floor_bytes_per_s\":%.0f,\"ratio\":%.3f}\n",
        b->model.arch->model_type, b->backend->name, b->backend->isa, b->threads, tri_parallel_stage_size(b->shard.p),
        b->io_name, b->direct ? "true" : "false", b->o.depth, b->io.piece_bytes, b->weight_bytes, b->read_bytes, load,
        rate, b->file_bytes, floor, floor_rate, rate / floor_rate);
    return;
  }
  printf("%s, %.1f MB of weights, rank 0 of %d, backend %s %s, %d threads; %s, %d reads of %d MiB at once, %s\n"
         "load:  %9.1f MB in %8.3f s   %7.3f GB/s\n"
         "floor: %9.1f MB in %8.3f s   %7.3f GB/s (the files read, nothing done with them)   ratio %.2f\n",
         b->model.arch->model_type, (double)b->weight_bytes / 1e6, tri_parallel_stage_size(b->shard.p),
         b->backend->name, b->backend->isa, b->threads, b->io_name, b->o.depth, b->o.piece,
         b->direct ? "past the page cache" : "through the page cache", b->read_bytes / 1e6, load, rate / 1e9,
         b->file_bytes / 1e6, floor, floor_rate / 1e9, rate / floor_rate);
}

static void tear_down(struct bench *b) {
  tri_checkpoint_close(b->ckpt);
  tri_backend_destroy(b->backend);
  tri_pool_destroy(b->pool);
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct bench b;
  tri_options *opts = NULL;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_LOAD, own_options, NUM_OWN);
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &b.o, argc, argv, &opts);
  if (code >= 0) return code;
  tri_log_setup(TRI_LOG_WARN, "-"); /* what reads is in the figures */
  tri_status st = b.o.serve.model ? TRI_OK : tri_fail(&err, TRI_USAGE, "model", "--model is missing");
  if (st == TRI_OK) st = set_up(&b, &err);
  for (int i = 0; st == TRI_OK && i < b.o.rounds; i++) {
    st = time_floor(&b, &b.floor[i], &err);
    if (st == TRI_OK) st = time_load(&b, &b.load[i], &err);
  }
  if (st == TRI_OK)
    print(&b);
  else
    fprintf(stderr, "trireme bench load: %s\n", err.status ? err.message : tri_status_text(st));
  tear_down(&b);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, tri_exit_code(st));
}
