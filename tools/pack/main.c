/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme pack`: makes the packs of a layout's ranks ahead of time, without a cluster.
 *
 * One rank after the other: a pack is bound by the disks, and one at a time shares them with none. A signal ends it
 * between two writes; the next run continues the pack. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/options/serve_layout.h"
#include "base/standard_output.h"
#include "base/host/topo.h"
#include "base/version.h"
#include "base/wait.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/offload_options.h"

struct pack_options {
  tri_serve_options serve;
};

static tri_options_spec spec = {
    .program = "trireme pack",
    .usage = "MODEL --nvme-path DIR[,DIR...] [OPTION]...",
    .summary = "Writes the packs that the ranks of a layout stream their weights from, so that a start finds them.",
    .epilog = "A pack is for one layout, type and quantization, and for the present state of the checkpoint. Complete "
              "packs are\n"
              "kept, incomplete ones are continued. Ranks on other hosts need packs on those hosts.\n\n"
              "Other options of trireme-worker are accepted and ignored.\n",
    .version = "trireme pack " TRIREME_VERSION,
    .config_file = true,
    .arg_option = "model",
};

struct packing {
  const tri_serve_options *o;
  tri_quantization quantization;
  tri_model_config model;
  tri_checkpoint *ckpt;
  tri_expert_placement *placement;
  tri_serve_layout layout;
  tri_offload_config offload;
  tri_pool *pool;
  tri_backend *backend;
};

static atomic_bool stop;

/* An atomic store is all that is safe here; the writer looks at it between two writes. */
static void on_signal(int number) {
  (void)number;
  atomic_store(&stop, true);
}

/* ---- what it shows ---- */

/* The first look at the pack under way. */
static struct {
  int64_t ns;
  uint64_t done;
} first;

/* Writes the time that is left at the rate so far: ", eta 1:23", or nothing while that says little.
 *
 * The rate counts from the first look: bytes that an earlier run has written are no progress of this one. */
static void eta_text(uint64_t done, uint64_t all, char out[32]) {
  int64_t now = tri_now_ns();
  out[0] = '\0';
  if (!first.ns || done < first.done) {
    first.ns = now;
    first.done = done;
  }
  double seconds = (double)(now - first.ns) * 1e-9;
  if (done == first.done || done >= all || seconds < 2) return;
  long long s = (long long)(seconds * (double)(all - done) / (double)(done - first.done) + 0.5);
  snprintf(out, 32, ", eta %lld:%02lld", s / 60, s % 60);
}

static void show(const char *path, uint64_t done, uint64_t all) {
  enum { WIDTH = 40 };
  char bar[WIDTH + 1], eta[32];
  int filled = all ? (int)((double)done / (double)all * WIDTH) : WIDTH;
  if (!isatty(STDERR_FILENO)) {
    fprintf(stderr, "%s: %.1f of %.1f MiB\n", path, (double)done / 0x1p20, (double)all / 0x1p20);
    return;
  }
  for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '=' : ' ';
  bar[WIDTH] = '\0';
  const char *name = strrchr(path, '/');
  eta_text(done, all, eta);
  fprintf(stderr, "\r\033[K%s [%s] %.1f of %.1f MiB%s%s", name ? name + 1 : path, bar, (double)done / 0x1p20,
          (double)all / 0x1p20, eta, done == all ? "\n" : "");
  if (done == all) first.ns = 0;
}

/* ---- packs ---- */

/* Ranks count as a cluster counts them: tensor-parallel ranks next to each other, then data-parallel ones, then
 * stages. */
static tri_parallel rank_of(const struct packing *p, int rank) {
  const tri_serve_layout *y = &p->layout;
  return (tri_parallel){.tp = y->tp,
                        .pp = y->pp,
                        .dp = y->dp,
                        .ep = y->ep,
                        .tp_rank = rank % y->tp,
                        .dp_rank = rank / y->tp % y->dp,
                        .pp_rank = rank / y->tp / y->dp,
                        .quantized = p->quantization != TRI_QUANTIZE_NONE,
                        .placement = p->placement,
                        .host_experts = tri_offload_host_experts(&p->offload, true)};
}

static tri_status pack_rank(const struct packing *p, int rank, tri_error *err) {
  char path[PATH_MAX];
  bool made;
  tri_shard shard;
  TRI_CHECK(tri_shard_make(&p->model, rank_of(p, rank), &shard, err));
  tri_weights_config wc = {.backend = p->backend,
                           .model = &p->model,
                           .shard = &shard,
                           .ckpt = p->ckpt,
                           .dtype = p->o->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)p->o->dtype,
                           .quantization = p->quantization,
                           .seed = p->o->seed};
  TRI_CHECK(tri_offload_make_pack(p->o->nvme_path, &wc, show, &stop, path, &made, err));
  /* stdout has the results, a line each; progress goes to stderr. */
  printf("rank %d: %s %s\n", rank, path, made ? "made" : "was there");
  fflush(stdout);
  return TRI_OK;
}

/* Finds what the backend wants of FP8 that reads the pack, which need not be on this host: then it is widened. */
static void choose_quantization(struct packing *p) {
  const tri_serve_options *o = p->o;
  tri_backend *be = NULL;
  bool known = tri_backend_create(&(tri_backend_config){.name = o->backend}, &be, NULL) == TRI_OK;
  p->model.stored.wide_blocks_only = !known || be->wide_blocks_only;
  p->quantization =
      tri_stored_quantization(&p->model.stored, (tri_quantization)o->quantization, known && be->prefers_fp8);
  tri_backend_destroy(be);
}

static tri_status set_up(struct packing *p, tri_error *err) {
  const tri_serve_options *o = p->o;
  if (!o->nvme_path) return tri_fail(err, TRI_USAGE, "nvme_path", "--nvme-path is missing");
  TRI_CHECK(tri_model_config_load(o->model, TRI_CONFIG_RULES(o), &p->model, err));
  if ((p->model.encoder && !p->model.attention.causal) || p->model.seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "only the weights of decoders are streamed, and %s is none",
                    p->model.arch->model_type);
  TRI_CHECK(tri_serve_layout_make(o, &p->layout, err));
  choose_quantization(p);
  if (o->load_format != TRI_LOAD_DUMMY) TRI_CHECK(tri_checkpoint_open(o->model, &p->ckpt, err));
  tri_expert_placement_config pc = {.ep = p->layout.ep,
                                    .strategy = (tri_expert_strategy)o->expert_placement_strategy,
                                    .num_redundant = o->num_redundant_experts,
                                    .file = o->init_expert_location};
  TRI_CHECK(tri_expert_placement_make(&p->model, &pc, &p->placement, err));
  TRI_CHECK(tri_offload_of_options(o, &p->offload, err));
  TRI_CHECK(tri_offload_check_experts(&p->offload, &p->model, rank_of(p, 0), false, err));
  int threads = o->threads ? o->threads : tri_topo_num_cores();
  if (tri_pool_create(threads, NULL, 0, &p->pool) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "threads", "no %d threads", threads);
  tri_backend_config bc = {.name = "cpu", .pool = p->pool};
  return tri_backend_create(&bc, &p->backend, err);
}

static tri_status pack(struct packing *p, tri_error *err) {
  TRI_CHECK(set_up(p, err));
  for (int rank = 0; rank < tri_serve_layout_world(&p->layout); rank++) TRI_CHECK(pack_rank(p, rank, err));
  return TRI_OK;
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct pack_options o;
  static struct packing p = {.o = &o.serve};
  tri_options *opts = NULL;
  tri_error err = {0};
  spec.count = tri_serve_options_copy(table, TRI_FOR_PACK, NULL, 0);
  spec.options = table;
  int code = tri_options_main(&spec, &o, argc, argv, &opts);
  if (code < 0) {
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    tri_status st = tri_serve_model_find(&o.serve, &err);
    if (st == TRI_OK) st = pack(&p, &err);
    code = tri_exit_code(st);
    const char *field = tri_error_field_beside(&err);
    if (st != TRI_OK)
      fprintf(stderr, "trireme pack: %s%s%s%s\n", err.message, *field ? " (" : "", field, *field ? ")" : "");
  }
  tri_backend_destroy(p.backend);
  tri_pool_destroy(p.pool);
  tri_expert_placement_free(p.placement);
  tri_checkpoint_close(p.ckpt);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, code);
}
