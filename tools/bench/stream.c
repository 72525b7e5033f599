/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme bench stream`: steps of one rank whose weights do not stay in memory, compared with the shortest time that
 * they could take.
 *
 * A step needs as long as the bare reader for its bytes (the same ranges of the same files, as many reads at once and
 * as large, into buffers, and nothing done about them), as long as bare copies of a device's from the host's memory,
 * and as long as it computes. Compute is the same step of an engine that keeps all weights, where there is memory
 * for that and this one; else it is not measured. All take turns, and medians are compared.
 *
 * Under mpirun several ranks are data-parallel ranks of a replica, which read or bring for each other what they have in
 * common: all do the same at the same time, and the slowest one counts.
 *
 * A stream reads ahead over the end of a step. Each timed step therefore follows another one without a pause, and what
 * it reads ahead is what was read ahead for it. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/wire/boot.h"
#include "kernels/roofline.h"
#include "base/log.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "base/wait.h"
#include "runtime/cost/disk_read.h"
#include "tools/bench/steps.h"
#include "tools/bench/verify.h"

enum { MAX_ROUNDS = 1024 };

struct bench_options {
  tri_serve_options serve;
  int input_len, batch_size, rounds;
  bool prompts, json, verify;
};

static const tri_option own_options[] = {
    {TRI_OPT(struct bench_options, input_len), .name = "input-len", .min = 1, .max = 1 << 20, .fallback = "32",
     .metavar = "N", .group = "Benchmark", .help = "prompt tokens of each sequence"},
    {TRI_OPT(struct bench_options, batch_size), .name = "batch-size", .min = 1, .max = 1024, .fallback = "1",
     .metavar = "N", .group = "Benchmark", .help = "sequences that decode together"},
    {TRI_OPT(struct bench_options, rounds), .name = "num-iters", .min = 1, .max = MAX_ROUNDS, .fallback = "5",
     .metavar = "N", .group = "Benchmark", .help = "timed steps"},
    {TRI_OPT(struct bench_options, prompts), .name = "prompts", .fallback = "false", .group = "Benchmark",
     .help = "time prefill steps of all sequences instead of decode steps"},
    {TRI_OPT(struct bench_options, verify), .name = "verify", .fallback = "false", .group = "Benchmark",
     .help = "instead: compare every streamed part, twice, with its file, and with the checksums of a pack"},
    {TRI_OPT(struct bench_options, json), .name = "json", .fallback = "false", .group = "Benchmark",
     .help = "print one JSON object instead of a table"},
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static tri_options_spec spec = {
    .program = "trireme bench stream",
    .arg_option = "model",
    .usage = "MODEL {--gpu-layers N | --cpu-offload-gb N | --max-in-cpu BYTES} [OPTION]...\n"
             "       mpirun -n N trireme-bench-stream --model DIR {-tp N | -dp N --replicas 1} ...",
    .summary =
        "Times steps of one rank that streams its weights, without a server, compared with the disk alone and with "
        "computing alone.",
    .epilog =
        "The floor is the longest of these: a bare reader, which reads the same ranges of the same files and discards\n"
        "them; on a GPU, bare copies from host memory; and the same step with all weights in memory, which is left "
        "out\n"
        "if they do not fit. The ratio is the floor divided by the step. Under mpirun, ranks are data-parallel ranks "
        "of\n"
        "one replica (-dp), which share what they read, or tensor-parallel ranks with a slice of every layer (-tp).\n\n"
        "Other options of trireme-worker are accepted and ignored.\n",
    .version = "trireme bench stream " TRIREME_VERSION,
    .config_file = true,
};

struct side {
  tri_bench_rank rank;
  tri_bench_steps steps;
};

struct bench {
  struct bench_options o;
  tri_comm *world; /* of several ranks; NULL: there is one */
  int rank, size, local_rank, local_size;
  tri_parallel layout;
  struct side streamed, resident;
  bool computes;                      /* resident is there */
  tri_error why;                      /* where it is not */
  tri_stream_extent *extents, *homes; /* of a pass, of this rank: from files, and from the host's memory */
  int num_extents, num_homes;
  tri_status st; /* of the bare reader */
  tri_error err;
  tri_disk_figures disk; /* of the last round */
  double step[MAX_ROUNDS], stall[MAX_ROUNDS], reader[MAX_ROUNDS], link[MAX_ROUNDS], compute[MAX_ROUNDS]; /* seconds */
};

/* ---- rounds ---- */

/* Begins something on all ranks at a time. */
static tri_status meet(const struct bench *b) { return b->world ? tri_comm_barrier(b->world) : TRI_OK; }

/* The slowest rank's time. */
static tri_status take_slowest(const struct bench *b, double *seconds) {
  double all[TRI_SPLIT_MAX_RANKS];
  if (!b->world) return TRI_OK;
  TRI_CHECK(tri_comm_all_gather(b->world, seconds, all, sizeof *seconds));
  for (int r = 0; r < b->size; r++)
    if (all[r] > *seconds) *seconds = all[r];
  return TRI_OK;
}

static tri_stream_figures figures(const struct bench *b) {
  return tri_weight_stream_figures(tri_offload_stream(b->streamed.rank.engine->offload));
}

/* Waits until the stream has read ahead as far as it can: nothing has come for a while. */
static void await_rest(const struct bench *b) {
  enum { LOOK_MS = 20, REST_LOOKS = 5 };
  uint64_t seen = figures(b).bytes;
  for (int quiet = 0; quiet < REST_LOOKS; quiet++) {
    nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    uint64_t now = figures(b).bytes;
    if (now != seen) quiet = 0;
    seen = now;
  }
}

/* Reads what a pass reads, in a thread that is bound to no core, as the stream's is not; for a moment before, since a
 * step follows another one, too. */
static void *read_barely(void *ctx) {
  static const double BEFORE = 0.2, ALL = 1e9;
  struct bench *b = ctx;
  cpu_set_t all;
  tri_reader_config reads = tri_offload_reads();
  tri_offload_source s = tri_offload_source_of(b->streamed.rank.engine->offload);
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all); /* a wish */
  b->st = tri_disk_read(&reads, s.files, s.num_files, b->extents, b->num_extents, BEFORE, &b->disk, &b->err);
  if (b->st == TRI_OK)
    b->st = tri_disk_read(&reads, s.files, s.num_files, b->extents, b->num_extents, ALL, &b->disk, &b->err);
  return NULL;
}

static tri_status time_reader(struct bench *b, double *seconds, tri_error *err) {
  pthread_t thread;
  await_rest(b);
  TRI_CHECK(meet(b));
  if (pthread_create(&thread, NULL, read_barely, b)) return tri_fail(err, TRI_NO_MEMORY, "io", "no thread to read");
  pthread_join(thread, NULL);
  *seconds = b->disk.seconds;
  if (b->st != TRI_OK) *err = b->err;
  return b->st == TRI_OK ? take_slowest(b, seconds) : b->st;
}

/* Copies what this rank brings in a pass to one place of its device, where nothing else is. */
static tri_status time_link(struct bench *b, double *seconds) {
  enum { LINK_PIECE = 64 << 20 };
  tri_backend *be = b->streamed.rank.backend;
  void *to;
  await_rest(b);
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_STAGING, LINK_PIECE, &to));
  TRI_CHECK(be->ops.stream_sync(be));
  TRI_CHECK(meet(b));
  int64_t start = tri_now_ns();
  for (int i = 0; i < b->num_homes; i++)
    for (size_t at = 0, n; at < b->homes[i].bytes; at += n) {
      n = b->homes[i].bytes - at < LINK_PIECE ? b->homes[i].bytes - at : LINK_PIECE;
      be->ops.upload_rows(be, to, n, b->homes[i].home + at, n, n, 1);
    }
  be->ops.event_record(be, TRI_EVENT_UPLOAD, TRI_STREAM_COPY);
  tri_status st = be->ops.event_wait(be, TRI_EVENT_UPLOAD);
  *seconds = (double)(tri_now_ns() - start) * 1e-9;
  be->ops.mem_free(be, TRI_MEM_STAGING, to, LINK_PIECE);
  return st == TRI_OK ? take_slowest(b, seconds) : st;
}

/* Runs a step of the kind that is timed. */
static tri_status run_step(const struct bench *b, struct side *s) {
  return b->o.prompts ? tri_bench_steps_feed_some(&s->steps, 0, b->o.batch_size) : tri_bench_steps_decode(&s->steps);
}

static tri_status time_compute(struct bench *b, double *seconds) {
  TRI_CHECK(meet(b));
  int64_t start = tri_now_ns();
  tri_status st = run_step(b, &b->resident);
  *seconds = (double)(tri_now_ns() - start) * 1e-9;
  return st == TRI_OK ? take_slowest(b, seconds) : st;
}

/* The first of two steps finds a full ring, as the second one does not. */
static tri_status time_step(struct bench *b, double *seconds, double *stall) {
  TRI_CHECK(run_step(b, &b->streamed));
  tri_stream_figures before = figures(b);
  int64_t start = tri_now_ns();
  tri_status st = run_step(b, &b->streamed);
  *seconds = (double)(tri_now_ns() - start) * 1e-9;
  *stall = (double)(figures(b).stall_ns - before.stall_ns) * 1e-9;
  return st == TRI_OK ? take_slowest(b, seconds) : st;
}

static tri_status run_rounds(struct bench *b, tri_error *err) {
  tri_status st = tri_bench_steps_feed(&b->streamed.steps);
  if (st == TRI_OK && b->computes) st = tri_bench_steps_feed(&b->resident.steps);
  for (int i = 0; st == TRI_OK && i < b->o.rounds; i++) {
    if (b->num_extents) st = time_reader(b, &b->reader[i], err);
    if (st == TRI_OK && b->num_homes) st = time_link(b, &b->link[i]);
    if (st == TRI_OK && b->computes) st = time_compute(b, &b->compute[i]);
    if (st == TRI_OK) st = time_step(b, &b->step[i], &b->stall[i]);
  }
  if (st == TRI_OK || err->status) return st;
  return tri_fail(err, st, "", "%s", tri_engine_failure(b->streamed.rank.engine, st));
}

/* ---- set up ---- */

static int most_decodes(const struct bench *b) { return 2 * b->o.rounds + 1; }

static tri_status open_side(const struct bench *b, const tri_serve_options *serve, struct side *out, tri_error *err) {
  enum { MOST_TOKENS = 8192 };
  int len = b->o.input_len + most_decodes(b) + 1, all = b->o.batch_size * b->o.input_len;
  int tokens = all < MOST_TOKENS || b->o.prompts ? all : MOST_TOKENS;
  if (tokens < b->o.input_len) tokens = b->o.input_len;
  tri_engine_config ec = {.max_num_seqs = b->o.batch_size, .max_num_batched_tokens = tokens, .max_model_len = len};
  if (ec.max_num_batched_tokens < b->o.batch_size) ec.max_num_batched_tokens = b->o.batch_size;
  tri_comm *world = NULL;
  if (b->world) TRI_CHECK(tri_comm_split(b->world, 0, b->rank, NULL, &world));
  TRI_CHECK(world ? tri_bench_rank_open_in(world, b->layout, b->local_rank, b->local_size, serve, &ec, b->o.batch_size,
                                           len, &out->rank, err)
                  : tri_bench_rank_open(serve, &ec, b->o.batch_size, len, &out->rank, err));
  return tri_bench_steps_create(out->rank.engine, b->o.batch_size, b->o.input_len, most_decodes(b), &out->steps);
}

static void close_side(struct side *s) {
  tri_bench_steps_destroy(&s->steps);
  tri_bench_rank_close(&s->rank);
}

/* The same engine with all weights in memory, if there is room. */
static tri_status open_resident(struct bench *b, tri_error *err) {
  tri_serve_options all = b->o.serve;
  all.offload_weights = TRI_OFFLOAD_NONE;
  all.gpu_layers = -1;
  all.cpu_offload_gb = 0;
  all.max_in_cpu = 0;
  tri_status st = open_side(b, &all, &b->resident, &b->why);
  b->computes = st == TRI_OK;
  if (st == TRI_OK) return st;
  close_side(&b->resident);
  return st == TRI_NO_CAPACITY || st == TRI_NO_MEMORY ? TRI_OK : tri_fail(err, st, b->why.field, "%s", b->why.message);
}

/* All that this rank reads and copies in a pass, one after the other. */
static tri_status list_extents(struct bench *b, tri_error *err) {
  const tri_engine *e = b->streamed.rank.engine;
  tri_offload_source source = tri_offload_source_of(e->offload);
  int n = 0, own = source.num_readers ? tri_split_rank(e->split) + 1 : 0;
  for (int i = 0; i < e->tiers->num_streamed; i++) n += source.parts[i].num_extents;
  b->extents = tri_calloc((size_t)n + 1, sizeof *b->extents);
  b->homes = tri_calloc((size_t)n + 1, sizeof *b->homes);
  if (!b->extents || !b->homes) return tri_fail(err, TRI_NO_MEMORY, "", "no memory for %d ranges of files", n);
  for (int i = 0; i < e->tiers->num_streamed; i++)
    for (int k = 0; k < source.parts[i].num_extents; k++) {
      const tri_stream_extent *x = &source.parts[i].extents[k];
      if (x->reader && x->reader != own) continue;
      if (x->home)
        b->homes[b->num_homes++] = *x;
      else
        b->extents[b->num_extents++] = *x;
    }
  return TRI_OK;
}

static tri_status set_up(struct bench *b, tri_error *err) {
  tri_model_config model;
  TRI_CHECK(tri_model_config_load(b->o.serve.model, TRI_CONFIG_RULES(&b->o.serve), &model, err));
  if (model.encoder || model.seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "only the weights of decoders are streamed, and %s is none",
                    model.arch->model_type);
  tri_status st = open_side(b, &b->o.serve, &b->streamed, err);
  if (st != TRI_OK) return err->status ? st : tri_fail(err, st, "", "%s", tri_status_text(st));
  if (!b->streamed.rank.engine->offload)
    return tri_fail(err, TRI_USAGE, "gpu_layers",
                    "all weights stay in memory: --gpu-layers, --cpu-offload-gb or --max-in-cpu says which leave");
  TRI_CHECK(list_extents(b, err));
  return b->o.verify ? TRI_OK : open_resident(b, err);
}

/* ---- figures ---- */

struct report {
  double step, stall, reader, link, compute, floor; /* seconds; compute 0: not measured */
  double files, dram, peer;                         /* bytes of a step */
};

static int tokens_of_step(const struct bench *b) {
  return b->layout.dp * b->o.batch_size * (b->o.prompts ? b->o.input_len : 1);
}

static double sum(const tri_stream_extent *x, int count) {
  double bytes = 0;
  for (int i = 0; i < count; i++) bytes += (double)x[i].bytes;
  return bytes;
}

static struct report make_report(struct bench *b) {
  const tri_engine *e = b->streamed.rank.engine;
  int n = b->o.rounds;
  struct report r = {.step = tri_median(b->step, n),
                     .stall = tri_median(b->stall, n),
                     .reader = tri_median(b->reader, n),
                     .link = tri_median(b->link, n),
                     .compute = tri_median(b->compute, n),
                     .files = sum(b->extents, b->num_extents),
                     .dram = sum(b->homes, b->num_homes)};
  r.peer = (double)e->tiers->streamed - r.files - r.dram;
  r.floor = r.reader > r.compute ? r.reader : r.compute;
  if (r.link > r.floor) r.floor = r.link;
  return r;
}

static void print_json(const struct bench *b, const struct report *r) {
  const tri_engine *e = b->streamed.rank.engine;
  printf("{\"model\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"batch_size\":%d,\"input_len\":%d,"
         "\"stay_bytes\":%zu,\"ring_bytes\":%zu,\"file_bytes\":%.0f,\"host_memory_bytes\":%.0f,\"source\":\"%s\","
         "\"prompts\":%s,\"step_s\":%.5g,\"stall_s\":%.5g,\"file_bytes_per_s\":%.5g,\"host_memory_bytes_per_s\":%.5g,"
         "\"tokens_per_s\":%.5g,\"ranks\":%d,\"peer_bytes\":%.0f,\"link_s\":%.5g,\"reader_s\":%.5g,\"reader_bytes_per_"
         "s\":%.5g,\"direct\":%s,",
         e->model.arch->model_type, b->streamed.rank.backend->name, b->streamed.rank.backend->isa,
         b->streamed.rank.threads, b->o.batch_size, b->o.input_len, e->weights->bytes, e->weights->ring_bytes, r->files,
         r->dram, tri_offload_source_of(e->offload).pack ? "pack" : "checkpoint", b->o.prompts ? "true" : "false",
         r->step, r->stall, r->files / r->step, r->dram / r->step, tokens_of_step(b) / r->step, b->size, r->peer,
         r->link, r->reader, r->reader > 0 ? r->files / r->reader : 0, b->disk.direct ? "true" : "false");
  printf(b->computes ? "\"compute_s\":%.5g," : "\"compute_s\":null,", r->compute);
  printf("\"floor_s\":%.5g,\"ratio\":%.3f}\n", r->floor, r->floor / r->step);
}

static void print_text(const struct bench *b, const struct report *r) {
  const tri_engine *e = b->streamed.rank.engine;
  printf("%s: %.1f MB stay, %.1f MB are a ring, %.1f MB come in every step, backend %s %s, %d threads\n",
         e->model.arch->model_type, (double)e->weights->bytes * 1e-6, (double)e->weights->ring_bytes * 1e-6,
         (r->files + r->dram + r->peer) * 1e-6, b->streamed.rank.backend->name, b->streamed.rank.backend->isa,
         b->streamed.rank.threads);
  printf("step of %d %s%s:   %9.3f s   waits for weights %9.3f s   %9.2f tokens/s\n", b->o.batch_size,
         b->o.prompts ? "prompt" : "sequence", b->o.batch_size > 1 ? "s" : "", r->step, r->stall,
         tokens_of_step(b) / r->step);
  if (r->files > 0)
    printf("  from files:           %9.1f MB, %6.2f GB/s (%s)\n", r->files * 1e-6, r->files / r->step * 1e-9,
           tri_offload_about(e->offload));
  if (r->dram > 0) printf("  from the host:        %9.1f MB, %6.2f GB/s\n", r->dram * 1e-6, r->dram / r->step * 1e-9);
  if (r->peer > 0)
    printf("  from other ranks:     %9.1f MB, %6.2f GB/s (%d of them, which do the same)\n", r->peer * 1e-6,
           r->peer / r->step * 1e-9, b->layout.dp - 1);
  if (r->dram > 0)
    printf("floor, bare copies:     %9.3f s   %6.2f GB/s over %s link%s\n", r->link, b->size * r->dram / r->link * 1e-9,
           b->size > 1 ? "all" : "the", b->size > 1 ? "s" : "");
  if (r->files > 0)
    printf("floor, the bare reader: %9.3f s   %6.2f GB/s, %s\n", r->reader, r->files / r->reader * 1e-9,
           b->disk.direct ? "past the page cache" : "through the page cache");
  if (b->computes)
    printf("floor, compute alone:   %9.3f s   with all weights in memory\n", r->compute);
  else
    printf("floor, compute alone:   not measured: %s\n", b->why.message);
  printf("ratio %.2f\n", r->floor / r->step);
}

static tri_status measure(struct bench *b, tri_error *err) {
  TRI_CHECK(run_rounds(b, err));
  struct report r = make_report(b);
  if (b->rank) return TRI_OK;
  if (b->o.json)
    print_json(b, &r);
  else
    print_text(b, &r);
  return TRI_OK;
}

/* Joins the ranks that mpirun has started; without it this is the only one. */
static tri_status join(struct bench *b, int *argc, char ***argv, tri_error *err) {
  const tri_comm_config cc = {.policy = {.yield_us = 200000}, .timeout_ms = 60000};
  tri_serve_layout y;
  b->size = b->local_size = 1;
  b->layout = (tri_parallel){.tp = 1, .pp = 1, .dp = 1};
  if (!tri_boot_under_mpi()) return tri_bench_rank_check(&b->o.serve, err);
  if (!b->o.serve.model) return tri_fail(err, TRI_USAGE, "model", "--model is missing");
  TRI_CHECK(tri_mpi_init(argc, argv, err));
  TRI_CHECK(tri_comm_mpi_world(&cc, &b->world));
  b->rank = b->world->rank;
  b->size = b->world->size;
  TRI_CHECK(tri_comm_mpi_local(b->world, &b->local_rank, &b->local_size));
  TRI_CHECK(tri_serve_layout_make(&b->o.serve, &y, err));
  b->layout.tp = y.tp;
  b->layout.dp = y.dp;
  if (y.pp * y.ep * y.replicas == 1 && y.tp * y.dp == b->size && b->size <= TRI_SPLIT_MAX_RANKS) return TRI_OK;
  return tri_fail(err, TRI_USAGE, "tensor_parallel_size",
                  "%d ranks: it times one replica of one stage without expert parallelism, with -tp %d or -dp %d "
                  "--replicas 1, or both, at most %d ranks",
                  b->size, b->size, b->size, TRI_SPLIT_MAX_RANKS);
}

/* The others would wait for a rank that has failed. */
static void leave(struct bench *b, tri_status st) {
  if (b->world && st != TRI_OK) tri_mpi_abort(tri_exit_code(st));
  close_side(&b->resident);
  close_side(&b->streamed);
  tri_free(b->extents);
  tri_free(b->homes);
  if (b->world) tri_comm_destroy(b->world);
  if (b->world) tri_mpi_finalize();
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct bench b;
  tri_options *opts = NULL;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_STEPS, own_options, NUM_OWN);
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &b.o, argc, argv, &opts);
  if (code >= 0) return code;
  tri_log_setup(TRI_LOG_WARN, "-"); /* the figures say the rest */
  tri_status st = join(&b, &argc, &argv, &err);
  if (st == TRI_OK) st = set_up(&b, &err);
  if (st == TRI_OK) st = b.o.verify ? tri_bench_verify(b.streamed.rank.engine, b.o.json, &err) : measure(&b, &err);
  if (st != TRI_OK) fprintf(stderr, "trireme bench stream: %s\n", err.status ? err.message : tri_status_text(st));
  leave(&b, st);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, tri_exit_code(st));
}
