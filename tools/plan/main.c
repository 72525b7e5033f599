/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme plan`: the byte ledger of every rank of a layout, before anything is loaded.
 *
 * Limits, shards, ledgers and tiers come from the same files of runtime/ that a worker uses at its start, with the same
 * inputs, so that both agree. Of the weights only the headers are read, unless a disk has to be measured. */
#include <stdio.h>
#include <string.h>

#include "base/standard_output.h"
#include "base/version.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/offload_options.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/model/expert_balance.h"
#include "runtime/model/folder.h"
#include "runtime/model/sentence.h"
#include "runtime/step/limits.h"
#include "tools/plan/plan.h"

static const tri_option own_options[] = {
    {TRI_OPT(struct plan_options, memory), .name = "memory-per-rank", .max = TRI_MOST_BYTES, .fallback = "0",
     .metavar = "BYTES", .group = "Plan",
     .help = "memory of each rank, of which it may use --gpu-memory-utilization on GPUs, all on CPUs; 0: that of "
             "--device, or what is free here, of a GPU or of the host divided by its ranks"},
    {TRI_OPT(struct plan_options, device), .name = "device", .choices = tri_device_kinds, .metavar = "KIND",
     .group = "Plan",
     .help = "plan for GPUs that need not be here, with the memory, rates and links of an h200, h100, a100, l40s or "
             "b200; default: the GPUs here, else an h200 with --backend cuda or --devices"},
    {TRI_OPT(struct plan_options, hosts), .name = "hosts", .metavar = "H:N,...", .group = "Plan",
     .help = "hosts and ranks on each, as for trireme up: shows the placement of ranks"},
    {TRI_OPT(struct plan_options, rebalance), .name = "rebalance", .metavar = "FILE", .group = "Plan",
     .help = "instead of a plan: from the output of trireme status --experts, print the --init-expert-location for -ep "
             "expert-parallel ranks and --num-redundant-experts, on --nnodes hosts; needs no --model"},
    {TRI_OPT(struct plan_options, disk_bandwidth), .name = "disk-bandwidth", .letters = true, .min = 0, .max = 1e15,
     .fallback = "0", .metavar = "BYTES/S", .group = "Plan",
     .help = "read bandwidth of all disks of a host that stream weights, shared by its ranks, as 3.5e9 or 3.5GB; 0: as "
             "a worker has measured, else measured now"},
    {TRI_OPT(struct plan_options, host_bandwidth), .name = "host-bandwidth", .letters = true, .min = 0, .max = 1e15,
     .fallback = "0", .metavar = "BYTES/S", .group = "Plan",
     .help = "read bandwidth of a host's memory, shared by its ranks, for experts there (--cpu-moe); 0: measured now"},
    {TRI_OPT(struct plan_options, json), .name = "json", .fallback = "false", .group = "Plan",
     .help = "print one JSON object instead of a table"},
    {TRI_OPT(struct plan_options, devices), .name = "devices", .min = 0, .max = 1024, .fallback = "0", .metavar = "N",
     .group = "Layouts for a number of GPUs",
     .help = "rank the layouts for N GPUs (or ranks, with --backend cpu) by the predicted time of a token; 0: plan the "
             "layout that is given"},
    {TRI_OPT(struct plan_options, nnodes), .name = "nnodes", .min = 1, .max = 1024, .fallback = "1", .metavar = "N",
     .group = "Layouts for a number of GPUs", .help = "hosts that the GPUs are divided over"},
    {TRI_OPT(struct plan_options, all), .name = "all", .fallback = "false", .group = "Layouts for a number of GPUs",
     .help = "show every layout that fits, not only ten"},
    {TRI_OPT(struct plan_options, context_len), .name = "context-len", .min = 0, .max = 1 << 24, .fallback = "0",
     .metavar = "N", .group = "Layouts for a number of GPUs",
     .help = "context of each decoding sequence, in tokens; 0: 1024, or --max-model-len if that is less"},
    {TRI_OPT(struct plan_options, read_bandwidth), .name = "read-bandwidth", .letters = true, .min = 0, .max = 1e15,
     .fallback = "0", .metavar = "BYTES/S", .group = "Layouts for a number of GPUs",
     .help = "read bandwidth of a rank's memory, as 4.57e12; 0: as measured, else that of --device"},
    {TRI_OPT(struct plan_options, flops), .name = "flops", .min = 0, .max = 1e18, .fallback = "0", .metavar = "FLOP/S",
     .group = "Layouts for a number of GPUs",
     .help = "highest rate of a rank's matrix products, as 790e12; 0: as measured, else that of --device"},
    {TRI_OPT(struct plan_options, link_bandwidth), .name = "link-bandwidth", .letters = true, .min = 0, .max = 1e15,
     .fallback = "0", .metavar = "BYTES/S", .group = "Layouts for a number of GPUs",
     .help = "bandwidth of a rank's links inside a host; 0: that of --device (214e9 for an H200), 5e9 for CPUs"},
    {TRI_OPT(struct plan_options, network_bandwidth), .name = "network-bandwidth", .letters = true, .min = 0,
     .max = 1e15, .fallback = "0", .metavar = "BYTES/S", .group = "Layouts for a number of GPUs",
     .help = "bandwidth of each rank between hosts; 0: 50e9, or 1.25e9 for CPUs"},
    {TRI_OPT(struct plan_options, network_latency), .name = "network-latency", .min = 0, .max = 1e6, .fallback = "0",
     .metavar = "US", .group = "Layouts for a number of GPUs",
     .help = "least time of a collective or a transfer between hosts, in microseconds; 0: 10 to 15, or 50 for CPUs"},
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

/* Names of llama.cpp's options, as `trireme serve` takes them. */
static const tri_option_word words[] = {
    {.words = "c ctx-size", .option = "max-model-len"},
    {.words = "np parallel", .option = "max-num-seqs"},
    {.words = "b batch-size", .option = "max-num-batched-tokens"},
    {.words = "n-gpu-layers", .option = "gpu-layers"},
    {.words = "cmoe", .option = "cpu-moe"},
    {.words = "ncmoe", .option = "n-cpu-moe"},
};

static tri_options_spec spec = {
    .program = "trireme plan",
    .usage = "MODEL [-tp N] [-pp N] [OPTION]...\n       trireme plan MODEL --devices N [--nnodes N] [OPTION]...",
    .summary =
        "Shows what memory each rank needs (weights, activations, KV cache) and how many tokens the KV cache holds, "
        "without loading anything. Exit code 3 if the model does not fit.",
    .epilog =
        "Other options of trireme-worker are accepted and ignored, so that both can read the same --config file.\n\n"
        "Examples:\n"
        "  trireme plan DIR -tp 2                           # on this machine\n"
        "  trireme plan DIR --device h100 --devices 8       # the fastest layouts of eight H100\n",
    .version = "trireme plan " TRIREME_VERSION,
    .config_file = true,
    .arg_option = "model",
    .words = words,
    .num_words = sizeof words / sizeof *words,
};

static tri_status place(struct plan *p, tri_error *err) {
  const tri_serve_layout *y = &p->layout;
  int ranks = p->num_ranks;
  if (!p->o->hosts) return TRI_OK;
  TRI_CHECK(tri_hosts_parse(p->o->hosts, &p->hosts, err));
  p->places = tri_calloc((size_t)y->replicas * (size_t)ranks, sizeof *p->places);
  if (!p->places) return TRI_NO_MEMORY;
  if (tri_hosts_place(&p->hosts, y->replicas, ranks, false, p->places) == TRI_OK) return TRI_OK;
  return tri_fail(err, TRI_USAGE, "hosts",
                  "--hosts \"%.100s\" has too few places: tensor-parallel %d x pipeline-parallel %d x data-parallel %d "
                  "needs %d",
                  p->o->hosts, y->tp, y->pp, y->dp * y->replicas, y->replicas * ranks);
}

/* Returns whether a layout that has too little would have enough with more memory: a cache of a size that was given is
 * too small whatever there is, and so are other limits that were. */
static bool is_short_of_memory(const struct plan_options *o, const tri_error *err) {
  bool cache_given = o->serve.kv_cache_memory || o->serve.num_kv_blocks;
  if (err->status != TRI_NO_CAPACITY) return false;
  if (!strcmp(err->field, "max_model_len")) return !cache_given;
  return !strcmp(err->field, "memory") || !strcmp(err->field, "gpu_layers");
}

static tri_status plan(const struct plan_options *o, tri_model_config *c, const tri_checkpoint *ckpt, tri_error *err) {
  const tri_serve_options *v = &o->serve;
  struct plan p = {.o = o, .c = c, .ckpt = ckpt};
  p.ledger = (tri_ledger_config){.dtype = v->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)v->dtype,
                                 .kv_bytes = (int64_t)v->kv_cache_memory,
                                 .num_kv_blocks = v->num_kv_blocks};
  tri_dtype kv = v->kv_cache_dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)v->kv_cache_dtype;
  tri_status st;
  if (o->devices) return plan_devices(&p, err);
  TRI_CHECK(tri_offload_of_options(v, &p.offload, err));
  p.ledger.offload = &p.offload;
  p.ledger.deterministic = v->deterministic;
  if (o->nnodes > 1)
    return tri_fail(err, TRI_USAGE, "nnodes", "--nnodes %d goes with --devices; --hosts places one layout", o->nnodes);
  TRI_TRY(tri_serve_layout_make(v, &p.layout, err));
  p.num_ranks = tri_serve_layout_world(&p.layout);
  tri_expert_placement_config pc = {.ep = p.layout.ep,
                                    .strategy = (tri_expert_strategy)v->expert_placement_strategy,
                                    .num_redundant = v->num_redundant_experts,
                                    .file = v->init_expert_location,
                                    .moves = v->enable_eplb};
  TRI_TRY(tri_expert_placement_make(c, &pc, &p.placement, err));
  TRI_TRY(plan_find_backend(&p, err));
  TRI_TRY(tri_offload_check_experts(&p.offload, c, plan_parallel(&p), v->deterministic, err));
  TRI_TRY(plan_limits(&p, v->max_model_len, &p.limits, err));
  if (tri_limits_stretch(c, &p.limits)) /* `up` serves it, and warns, too */
    fprintf(stderr, "trireme plan: warning: max_model_len %d exceeds the %lld positions that the model was made for\n",
            p.limits.max_model_len, (long long)c->max_position_embeddings);
  p.ledger.kv_dtype = tri_kv_dtype(c, kv, p.ledger.dtype, p.ledger.device);
  p.ranks = tri_calloc((size_t)p.num_ranks, sizeof *p.ranks);
  if (!p.ranks) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "tensor_parallel_size", "no memory for %d ranks", p.num_ranks));
  TRI_TRY(place(&p, err));
  st = plan_ranks(&p, err);
  /* Ranks that were made before one did not fit are shown: they say by how much. */
  if (st == TRI_OK || p.num_made || o->json) plan_print(&p, err);
cleanup:
  tri_hosts_free(&p.hosts);
  tri_free(p.places);
  tri_free(p.ranks);
  tri_expert_placement_free(p.placement);
  return st;
}

/* Looks at nothing of the layout but its numbers of shares, stages and hosts. */
static tri_status rebalance(const struct plan_options *o, tri_error *err) {
  tri_serve_layout y = {.ep = o->serve.ep};
  tri_expert_counts counts = {0};
  tri_buf text = {0};
  double balancedness = 1;
  int hosts = o->nnodes / o->serve.pp; /* of a stage */
  int32_t *host_of = NULL;
  if (!y.ep) TRI_CHECK(tri_serve_layout_make(&o->serve, &y, err));
  if (hosts > 1 && (o->nnodes % o->serve.pp || y.ep % hosts))
    return tri_fail(err, TRI_USAGE, "nnodes", "%d shares of the experts in %d stages are not equal parts of %d hosts",
                    y.ep, o->serve.pp, o->nnodes);
  tri_status st = tri_expert_counts_read(o->rebalance, &counts, err);
  if (st == TRI_OK && hosts > 1 && !(host_of = tri_calloc((size_t)y.ep, sizeof *host_of))) st = TRI_NO_MEMORY;
  for (int e = 0; host_of && e < y.ep; e++) host_of[e] = e / (y.ep / hosts);
  if (st == TRI_OK)
    st = tri_expert_rebalance_all(&counts, o->serve.num_redundant_experts, y.ep, host_of, &text, &balancedness, err);
  if (st == TRI_OK) {
    fwrite(text.data, 1, text.len, stdout);
    fprintf(stderr, "trireme plan: balancedness %.3f (mean / most rows of a share) for what was counted\n",
            balancedness);
  }
  tri_buf_free(&text);
  tri_free(host_of);
  tri_expert_counts_free(&counts);
  return st;
}

/* A folder without any weights is planned by its config.json: so is a model that is not fetched yet. */
static tri_status open_weights(const tri_serve_options *o, tri_checkpoint **out, tri_error *err) {
  if (o->load_format == TRI_LOAD_DUMMY || tri_folder_is_bare(o->model)) return TRI_OK;
  return tri_checkpoint_open(o->model, out, err);
}

static tri_status check_folder(const tri_serve_options *o, tri_model_config *c, const tri_checkpoint *ckpt,
                               tri_error *err) {
  TRI_CHECK(plan_check_texts(o->model, c, err));
  tri_weights_find_head(c, ckpt);
  return ckpt ? tri_weights_check(c, ckpt, err) : TRI_OK;
}

static tri_status plan_model(struct plan_options *o, tri_error *err) {
  tri_status st = TRI_OK;
  tri_checkpoint *ckpt = NULL;
  TRI_CHECK(tri_serve_model_find(&o->serve, err));
  tri_model_config *config = tri_calloc(1, sizeof *config);
  if (!config) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  TRI_TRY(tri_model_config_load(o->serve.model, TRI_CONFIG_RULES(&o->serve), config, err));
  tri_model_config_warn(config, "plan");
  TRI_TRY(open_weights(&o->serve, &ckpt, err));
  TRI_TRY(tri_model_config_pool(o->serve.model, (tri_pooling)o->serve.pooling, config, err));
  if (ckpt) TRI_TRY(tri_sentence_add_weights(o->serve.model, config, ckpt, err));
  TRI_TRY(check_folder(&o->serve, config, ckpt, err));
  TRI_TRY(plan(o, config, ckpt, err));
cleanup:
  tri_checkpoint_close(ckpt);
  tri_free(config);
  return st;
}

static const char *prefix_of(const tri_error *err) {
  bool memory = !strcmp(err->field, "memory") || !strcmp(err->field, "max_model_len");
  if (err->status == TRI_NO_CAPACITY && memory) return "does not fit: ";
  return tri_exit_code(err->status) == TRI_EXIT_REFUSED ? "refused: " : "";
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct plan_options o;
  tri_options *opts = NULL;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_PLAN, own_options, NUM_OWN);
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &o, argc, argv, &opts);
  o.argc = argc;
  o.argv = argv;
  if (code < 0) {
    tri_status st = o.rebalance ? rebalance(&o, &err) : plan_model(&o, &err);
    code = tri_exit_code(st);
    if (st != TRI_OK) {
      fflush(stdout); /* the table comes first */
      const char *field = tri_error_field_beside(&err);
      fprintf(stderr, "trireme plan: %s%s%s%s%s%s\n", prefix_of(&err), err.message, *field ? " (" : "", field,
              *field ? ")" : "", is_short_of_memory(&o, &err) ? "; --memory-per-rank says what each rank may use" : "");
    }
  }
  tri_options_free(opts);
  return tri_stdout_end(spec.program, code);
}
