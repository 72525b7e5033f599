/* SPDX-License-Identifier: Apache-2.0 */
/* modelcheck: checkpoints against the answers that a reference implementation stored beside them.
 *
 *   modelcheck DIR... [-tp N] [-pp N] [--backend cpu|ref] [--dtype auto] ...     mpirun -n W modelcheck DIR... ...
 *
 * A DIR holds config.json, the weights and expected.safetensors (tests/data/checkpoints/README.md has the format).
 * Prints one line per prompt (normalised squared error of all logits, greedy agreement), one per layer for prompt 0 (so
 * that the first wrong layer shows), and a verdict, which is also the exit status: 0 all right, 1 one wrong, 3 one
 * refused (those after it are not looked at).
 *
 * With --dtype float16 or bfloat16 the limits are 1.5 times the reference's own error in that type, where DIR has a
 * rounding.json; a greedy token may then differ where the reference's lead is within that error, and what follows it is
 * not compared.
 *
 * With --quantization the same lines say what it costs: greedy tokens may differ, and the verdict is that of the worst
 * prompt's error alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/options/options.h"
#include "base/host/topo.h"
#include "base/options/serve_options.h"
#include "runtime/engine/expert_transfer.h"
#include "tests/modelcheck/modelcheck.h"

enum { MAX_DIRS = 1024, HOT_STEP_BYTES = 16384 };

static const char *const dtypes[] = {"float32", "float16", "bfloat16", "auto", NULL}; /* in the order of tri_dtype */
static const char *const exchanges[] = {"allgather", "coordinated", "auto", NULL};
static const char *const backends[] = {"auto", "cpu", "cuda", "ref", NULL};

static const tri_option options[] = {
    {TRI_OPT(struct mc_args, tp), .name = "tensor-parallel-size", .alias = "tp", .min = 1, .max = 64, .fallback = "1",
     .help = "tensor-parallel ranks"},
    {TRI_OPT(struct mc_args, pp), .name = "pipeline-parallel-size", .alias = "pp", .min = 1, .max = 64, .fallback = "1",
     .help = "pipeline stages"},
    {TRI_OPT(struct mc_args, ep), .name = "expert-parallel-size", .alias = "ep", .min = 0, .max = 64, .fallback = "0",
     .help = "expert-parallel ranks"},
    {TRI_OPT(struct mc_args, dp), .name = "data-parallel-size", .alias = "dp", .min = 1, .max = 64, .fallback = "1",
     .help = "data-parallel ranks, each with its own sequences"},
    {TRI_OPT(struct mc_args, all2all), .name = "all2all-backend", .choices = exchanges, .fallback = "coordinated",
     .help = "how tokens of several data-parallel ranks reach their experts"},
    {TRI_OPT(struct mc_args, expert_strategy), .name = "expert-placement-strategy",
     .choices = tri_expert_strategy_names, .fallback = "linear", .help = "experts of an expert-parallel rank"},
    {TRI_OPT(struct mc_args, num_redundant_experts), .name = "num-redundant-experts", .min = 0, .max = 1 << 16,
     .fallback = "0", .help = "copies of experts in each layer"},
    {TRI_OPT(struct mc_args, expert_location), .name = "init-expert-location", .metavar = "NAME",
     .help = "file with the logical expert of each physical expert"},
    {TRI_OPT(struct mc_args, move_experts), .name = "move-experts", .fallback = "false",
     .help = "move some of them to other ranks, at random, before every step"},
    {TRI_OPT(struct mc_args, all2all_rows), .name = "exchange-rows", .min = 0, .max = MAX_ROWS, .fallback = "0",
     .help = "rows of a data-parallel rank that are exchanged at a time; 0: 1024"},
    {TRI_OPT(struct mc_args, threads), .name = "threads", .min = 1, .max = 256, .fallback = "1",
     .help = "threads of each rank"},
    {TRI_OPT(struct mc_args, chunk), .name = "chunk", .min = 0, .max = MAX_ROWS, .fallback = "0",
     .help = "feed prompts in chunks of so many tokens; 0: whole"},
    {TRI_OPT(struct mc_args, block_size), .name = "block-size", .min = 1, .max = 256, .fallback = "16",
     .help = "tokens of a KV block"},
    {TRI_OPT(struct mc_args, backend), .name = "backend", .choices = backends, .fallback = "cpu",
     .help = "kernels to check"},
    {TRI_OPT(struct mc_args, dtype), .name = "dtype", .choices = dtypes, .fallback = "auto",
     .help = "type of the weights in memory; auto: as stored"},
    {TRI_OPT(struct mc_args, quantization), .name = "quantization", .alias = "q", .choices = tri_quantization_names,
     .fallback = "none",
     .help =
         "int8 weights (int8) and inputs (w8a8) of linear layers, or fp8 weights: what they cost; fp8 that is stored "
         "costs nothing"},
    {TRI_OPT(struct mc_args, kv_dtype), .name = "kv-cache-dtype", .choices = dtypes, .fallback = "float32",
     .help = "type of the KV cache"},
    {TRI_OPT(struct mc_args, deterministic), .name = "deterministic", .fallback = "false",
     .help = "bit-identical results whatever the batch"},
    {TRI_OPT(struct mc_args, bf16_sums), .name = "bf16-sums", .fallback = "false",
     .help = "all sums of a tensor group are as those of long prompts, in bfloat16 where activations are"},
    {TRI_OPT(struct mc_args, offload), .name = "offload-weights", .choices = tri_offload_tier_names, .fallback = "none",
     .help = "streams weights through a ring whose places are filled with 0xff as soon as they are released"},
    {TRI_OPT(struct mc_args, gpu_layers), .name = "gpu-layers", .alias = "ngl", .min = 0, .max = 1 << 16,
     .fallback = "0", .help = "of --offload-weights: layers that stay"},
    {TRI_OPT(struct mc_args, ring_parts), .name = "offload-prefetch-step", .min = 2, .max = 1024, .fallback = "2",
     .help = "of --offload-weights: parts in the ring"},
    {TRI_OPT(struct mc_args, chunk_tokens), .name = "forward-chunk", .min = 0, .max = MAX_ROWS, .fallback = "0",
     .help = "of --offload-weights: tokens that go through a part at a time; 0: 512"},
    {TRI_OPT(struct mc_args, max_in_cpu), .name = "max-in-cpu", .min = 0, .max = 1 << 30, .fallback = "0",
     .help =
         "of --offload-weights: bytes of the host's memory for a device's weights; 0: as many as there is room for"},
    {TRI_OPT(struct mc_args, nvme_path), .name = "nvme-path", .metavar = "NAME",
     .help = "of --offload-weights: a folder; streams from packs alone"},
    {TRI_OPT(struct mc_args, cpu_moe), .name = "cpu-moe", .fallback = "false",
     .help = "the experts are computed beside the backend as beside a device, by backend cpu"},
    {TRI_OPT(struct mc_args, n_cpu_moe), .name = "n-cpu-moe", .min = 0, .max = 1 << 16, .fallback = "0",
     .help = "those of so many first layers that have any"},
    {TRI_OPT(struct mc_args, hot_experts), .name = "hot-experts", .min = 0, .max = 1 << 16, .fallback = "0",
     .help = "so many of each such layer are computed by the backend, other ones in every few steps"},
    {TRI_OPT(struct mc_args, pooling), .name = "pooling", .choices = tri_pooling_names, .fallback = "model",
     .help = "what an encoder without a classifier makes of a sequence"},
    {TRI_OPT(struct mc_args, replays), .name = "replays", .min = 0, .max = 1 << 24, .fallback = "0",
     .help = "so many decode steps more, which must give the bits of the first time"},
    {TRI_OPT(struct mc_args, limit), .name = "limit", .min = 0, .max = 1, .fallback = "0",
     .help = "largest normalised squared error; 0: by type (float32 1e-11, or more where "
             "DIR/expected.safetensors says that the reference errs more, int8 5e-2, w8a8 1e-1, 16 bits as "
             "DIR/rounding.json says)"},
};

static const tri_options_spec spec = {.program = "modelcheck",
                                      .usage = "[OPTION]... DIR...",
                                      .summary = "Checks models' logits against stored reference answers.",
                                      TRI_OPTIONS(options),
                                      .min_args = 1,
                                      .max_args = MAX_DIRS};

void *mc_read_tensor(const struct mc_expected *x, const char *name, const tri_st_tensor **info) {
  const tri_st_tensor *t = tri_checkpoint_find(x->file, name);
  if (!t) return NULL;
  void *p = tri_malloc(t->bytes ? t->bytes : 1, 1);
  if (p && pread(tri_checkpoint_fd(x->file, t->file), p, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes) {
    fprintf(stderr, "modelcheck: %s cannot be read: the model is not checked\n", name);
    exit(1);
  }
  *info = t;
  return p;
}

static void read_own_error(struct mc_expected *x, int prompt) {
  const tri_st_tensor *t = NULL;
  char name[64];
  snprintf(name, sizeof name, "rounding.%d", prompt);
  double *e = mc_read_tensor(x, name, &t);
  if (e && t->bytes == sizeof *e && isfinite(*e)) x->own_error = fmax(x->own_error, *e);
  tri_free(e);
}

/* Some rows of a prompt alone can err more than all together: one that is longer than a sequence may be is compared
 * where the reference has all of its rows. */
static bool is_left_out(const struct mc_expected *x, int i, int64_t most) {
  char prompt[64], positions[64];
  snprintf(prompt, sizeof prompt, "prompt.%d", i);
  snprintf(positions, sizeof positions, "positions.%d", i);
  const tri_st_tensor *t = tri_checkpoint_find(x->file, prompt);
  return t && t->shape[0] > most && tri_checkpoint_find(x->file, positions);
}

static tri_status read_expected(const char *dir, bool encoder, int64_t most, struct mc_expected *x, tri_error *err) {
  char path[4200];
  const tri_st_tensor *t = NULL;
  snprintf(path, sizeof path, "%s/expected.safetensors", dir);
  tri_status st = tri_checkpoint_open_file(path, &x->file, err);
  for (; st == TRI_OK && x->num_prompts < MAX_PROMPTS; x->num_prompts++) {
    int i = x->num_prompts;
    char name[64];
    snprintf(name, sizeof name, "prompt.%d", i);
    if (is_left_out(x, i, most) || !(x->prompt[i] = mc_read_tensor(x, name, &t))) break;
    x->len[i] = (int)t->shape[0];
    /* Where the rotary angles depend on the length, a KV cache gives answers of its own. */
    snprintf(name, sizeof name, "greedy_cached.%d", i);
    x->greedy[i] = mc_read_tensor(x, name, &t);
    snprintf(name, sizeof name, "greedy.%d", i);
    if (!x->greedy[i]) x->greedy[i] = mc_read_tensor(x, name, &t);
    read_own_error(x, i);
    if (encoder) continue;
    if (!x->greedy[i] || t->shape[0] > MAX_GREEDY)
      return tri_fail(err, TRI_CORRUPT, name, "%s has no usable %s", path, name);
    x->num_greedy = (int)t->shape[0];
  }
  if (st == TRI_OK && !x->num_prompts) st = tri_fail(err, TRI_CORRUPT, "prompt.0", "%s has no prompt.0", path);
  return st;
}

static size_t widest(const tri_model_config *c) {
  return (size_t)(c->embed.size > c->hidden_size ? c->embed.size : c->hidden_size);
}

void mc_fetch(const struct mc_trace *t, float *to, const float *from, size_t n) {
  tri_backend *be = t->e->backend;
  be->ops.download(be, to, from, n * sizeof *to);
  be->ops.stream_sync(be);
}

static void see_hidden(void *ctx, int layer, tri_mat x) {
  struct mc_trace *t = ctx;
  if (!t->on) return;
  /* The last state may be projected: each layer's rows follow one another in their own width. */
  size_t width = (size_t)x.cols, rows = (size_t)x.rows;
  float *to = t->hidden + (size_t)layer * MAX_ROWS * widest(&t->e->model) + (size_t)t->row * width;
  for (size_t i = 0; i < rows; i++) mc_fetch(t, to + i * width, x.data + i * (size_t)x.ld, width);
}

static void see_logits(void *ctx, tri_mat logits) {
  struct mc_trace *t = ctx;
  size_t v = (size_t)logits.cols;
  for (int i = 0; i < logits.rows && t->logit_row < MAX_ROWS; i++)
    mc_fetch(t, t->logits + (size_t)t->logit_row++ * v, logits.data + (size_t)i * (size_t)logits.ld, v);
}

static bool leads(const struct mc_check *c) { return !c->shard->rank; }

/* Ranks of a shard are those of a group without others. */
static int rank_of(const struct mc_check *c, int stage) { return stage * c->a.tp; }
static int sampler_of(const struct mc_check *c) { return rank_of(c, c->a.pp - 1); }

void mc_begin_step(struct mc_check *c) {
  if (leads(c)) tri_plan_begin(c->writer, (uint32_t)(c->step % (uint64_t)c->a.pp), c->step);
  c->step++;
}

/* Tells the shards what each has in the step. */
static tri_status tell_dp_ranks(struct mc_check *c) {
  struct facts {
    uint32_t tokens, longest;
  } all[1024], own = {0};
  uint32_t tokens[TRI_MAX_DP_RANKS], longest[TRI_MAX_DP_RANKS];
  int dp = tri_replica_num_dp_ranks(&c->replica);
  if (dp == 1) return TRI_OK;
  if (leads(c)) own = (struct facts){c->writer->h.num_tokens, tri_plan_longest(c->writer)};
  TRI_CHECK(tri_comm_all_gather(c->replica.world, &own, all, sizeof own));
  for (int d = 0; d < dp; d++) {
    tokens[d] = all[tri_replica_rank(&c->replica, 0, d, 0)].tokens;
    longest[d] = all[tri_replica_rank(&c->replica, 0, d, 0)].longest;
  }
  if (leads(c)) tri_plan_set_dp_ranks(c->writer, tokens, longest, (uint32_t)dp);
  return TRI_OK;
}

/* All ranks make the same ones. */
static tri_status move_experts(struct mc_check *c) {
  const tri_expert_placement *p = c->engine->placement;
  for (int n = 0; c->a.move_experts && n < 20; n++) {
    uint64_t random = tri_splitmix64(&c->moves);
    tri_expert_move m = {.layer = (int32_t)(random % (uint64_t)p->num_layers),
                         .to = (int32_t)((random >> 16) % (uint64_t)p->num_slots),
                         .from = (int32_t)((random >> 32) % (uint64_t)p->num_slots),
                         .swaps = random >> 60 & 1};
    if (tri_expert_move_is_sound(p, c->a.ep, &m)) TRI_CHECK(tri_engine_move_expert(c->engine, &m));
  }
  return TRI_OK;
}

/* Each rank by itself: exchanges at random beside those that it chooses, and some of their bytes, so that a step finds
 * one at any point. */
static void exchange_hot(struct mc_check *c) {
  tri_hot_experts *hot = c->engine->hot;
  const tri_shard *s = &c->engine->shard;
  for (int n = 0; hot && n < 10; n++) {
    uint64_t random = tri_splitmix64(&c->moves);
    tri_hot_exchange x = {.layer = (int32_t)(random % (uint64_t)s->layers.count),
                          .slot = (int32_t)((random >> 16) % (uint64_t)s->p.hot_experts),
                          .in = (int32_t)((random >> 32) % (uint64_t)s->slots.count)};
    if (!(random >> 61)) (void)tri_hot_experts_exchange(hot, &x);
    if (random >> 60 & 1) tri_hot_experts_go_on(hot);
  }
}

/* Says what came of it, for the leader. */
static void show_hot(const struct mc_check *c) {
  if (!c->engine->hot || !tri_replica_is_leader(&c->replica)) return;
  tri_hot_stats s = tri_hot_experts_stats(c->engine->hot);
  printf("hot experts: %llu exchanges, %llu of %llu rows in %llu windows\n", (unsigned long long)s.exchanges,
         (unsigned long long)s.hot_rows, (unsigned long long)s.rows, (unsigned long long)s.windows);
}

tri_status mc_run_step(struct mc_check *c, tri_step_result *result) {
  tri_comm *w = c->shard;
  size_t len = 0;
  tri_status st;
  TRI_TRY(move_experts(c));
  exchange_hot(c);
  TRI_TRY(tell_dp_ranks(c));
  if (leads(c)) {
    const void *plan = tri_plan_finish(c->writer, &len);
    memcpy(c->plan, plan, len);
  }
  TRI_TRY(tri_comm_broadcast(w, &len, sizeof len, 0));
  TRI_TRY(tri_comm_broadcast(w, c->plan, len, 0));
  const tri_step_result *mine;
  TRI_TRY(tri_engine_step(c->engine, c->plan, len, &mine));
  static char packed[65536];
  size_t bytes = mine ? tri_result_pack(mine, packed, sizeof packed) : 0;
  TRI_TRY(tri_comm_broadcast(w, &bytes, sizeof bytes, sampler_of(c)));
  TRI_TRY(tri_comm_broadcast(w, packed, bytes, sampler_of(c)));
  st = tri_result_unpack(packed, bytes, result, MAX_PROMPTS);
cleanup:
  return st;
}

static int blocks_per_prompt(const struct mc_check *c) { return c->engine->limits.num_blocks / MAX_PROMPTS; }

void mc_add(struct mc_check *c, int slot, tri_seq_kind kind, int flags, int start, int n, const uint32_t *ids,
            int rope_len) {
  if (!leads(c)) return;
  int32_t blocks[MAX_ROWS];
  int bs = c->engine->limits.block_size, first = (start + bs - 1) / bs, end = (start + n + bs - 1) / bs;
  /* Blocks run backwards: nothing may depend on their order. */
  for (int i = first; i < end; i++) blocks[i - first] = slot * blocks_per_prompt(c) + (blocks_per_prompt(c) - 1 - i);
  tri_plan_seq s = {.slot = (uint32_t)slot,
                    .kind = (uint8_t)kind,
                    .flags = (uint8_t)flags,
                    .num_tokens = (uint32_t)n,
                    .start = (uint32_t)start,
                    .first_block = (uint32_t)first,
                    .num_blocks = (uint32_t)(end - first),
                    .rope_len = (uint32_t)rope_len};
  static const tri_sample_params greedy = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1},
                                 scored = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = 5};
  const tri_sample_params *params = c->a.replays ? &scored : &greedy;
  tri_plan_add(c->writer, &s, ids, blocks, flags & TRI_SEQ_FLAG_PARAMS ? params : NULL, (uint32_t)(start + n));
}

double mc_nmse(const float *got, const float *want, size_t n) {
  double err = 0, norm = 0;
  for (size_t i = 0; i < n; i++) {
    double d = (double)got[i] - want[i];
    err += d * d, norm += (double)want[i] * want[i];
  }
  return norm > 0 ? err / norm : err;
}

tri_status mc_feed_prompt(struct mc_check *c, int i, uint32_t *token) {
  uint32_t ids[MAX_ROWS];
  int n = c->exp.first[i], chunk = c->a.chunk ? c->a.chunk : n;
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  c->trace.on = i == 0;
  c->trace.logit_row = 0;
  for (int k = 0; k < n; k++) ids[k] = (uint32_t)c->exp.prompt[i][k];
  for (int at = 0; at < n; at += chunk) {
    int m = n - at < chunk ? n - at : chunk;
    bool last = at + m == n;
    c->trace.row = at;
    mc_begin_step(c);
    mc_add(c, i, TRI_SEQ_CHUNK,
           (at ? 0 : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS) | TRI_SEQ_FLAG_ALL_LOGITS |
               (last ? TRI_SEQ_FLAG_SAMPLE : 0),
           at, m, ids + at, n);
    tri_status st = mc_run_step(c, &r);
    if (st != TRI_OK) return st;
  }
  c->trace.on = false;
  *token = sampled[0].sample.token;
  return TRI_OK;
}

tri_status mc_collect(struct mc_check *c, int from, float *data, size_t count) {
  tri_comm *w = c->shard;
  tri_comm_req req = {0};
  if (from == 0 || !count) return TRI_OK;
  if (w->rank == 0) return tri_comm_recv(w, data, count * sizeof *data, from, TRI_TAG_TRACE);
  if (w->rank != from) return TRI_OK;
  tri_status st = tri_comm_isend(w, data, count * sizeof *data, 0, TRI_TAG_TRACE, &req);
  return st == TRI_OK ? tri_comm_wait(w, &req) : st;
}

tri_status mc_compare_hidden(struct mc_check *c, double *worst) {
  const tri_model_config *model = &c->engine->model;
  size_t h = widest(model), most = (size_t)c->exp.first[0] * h;
  int layers = (int)model->num_layers;
  for (int s = 0; s < c->a.pp; s++) {
    tri_range r = tri_stage_layers(model, c->engine->shard.p, s);
    int end = r.first + r.count + (s == c->a.pp - 1);
    for (int l = r.first; l < end; l++) {
      tri_status st = mc_collect(c, rank_of(c, s), c->trace.hidden + (size_t)l * MAX_ROWS * h, most);
      if (st != TRI_OK) return st;
    }
  }
  for (int l = 0; leads(c) && l <= layers; l++) {
    char name[64];
    const tri_st_tensor *t;
    snprintf(name, sizeof name, "hidden.0.%d", l);
    float *want = mc_read_tensor(&c->exp, name, &t);
    if (!want) continue;
    size_t n =
        (size_t)c->exp.first[0] * (size_t)(l == layers && !model->encoder ? model->embed.size : model->hidden_size);
    double e = mc_nmse(c->trace.hidden + (size_t)l * MAX_ROWS * h, want, n);
    if (tri_replica_is_leader(&c->replica))
      printf("layer %-3d %s nmse %.2e\n", l, l == layers ? "(after the final norm)" : "(input)", e);
    *worst = !(e <= *worst) ? e : *worst;
    tri_free(want);
  }
  return TRI_OK;
}

/* A shard's prompts are those of all others, in another order and some steps later: in every step they have other rows
 * than this one, and now and then one has none. */
static int prompt_of(const struct mc_check *c, int i) { return (i + c->replica.p.dp_rank) % c->exp.num_prompts; }

static tri_status wait_steps(struct mc_check *c, int steps) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  for (int i = 0; i < steps; i++) {
    mc_begin_step(c);
    TRI_CHECK(mc_run_step(c, &r));
  }
  return TRI_OK;
}

/* Leaves of a long prompt's logits the rows that the reference has kept (positions.I). Returns how many there are. */
static size_t keep_positions(const struct mc_check *c, int i) {
  size_t v = (size_t)c->engine->model.vocab_size, rows = (size_t)c->exp.first[i];
  char name[64];
  const tri_st_tensor *t;
  snprintf(name, sizeof name, "positions.%d", i);
  int64_t *kept = mc_read_tensor(&c->exp, name, &t);
  if (kept) rows = (size_t)t->shape[0];
  for (size_t k = 0; kept && k < rows; k++)
    memmove(c->trace.logits + k * v, c->trace.logits + (size_t)kept[k] * v, v * sizeof *c->trace.logits);
  tri_free(kept);
  return rows;
}

/* The error of a prompt's logits, for the shard's leader. */
static tri_status compare_logits(struct mc_check *c, int i, double *error) {
  size_t v = (size_t)c->engine->model.vocab_size, n = (size_t)c->exp.first[i] * v;
  char name[64];
  const tri_st_tensor *t;
  TRI_CHECK(mc_collect(c, sampler_of(c), c->trace.logits, n));
  if (!leads(c)) return TRI_OK;
  c->bits = tri_hash_bytes(c->bits, c->trace.logits, n * sizeof *c->trace.logits);
  n = keep_positions(c, i) * v;
  bool cut = c->exp.first[i] < c->exp.len[i];
  size_t stored = cut ? (size_t)c->exp.len[i] * v : n;
  snprintf(name, sizeof name, "logits.%d", i);
  float *want = mc_read_tensor(&c->exp, name, &t);
  *error = want && t->bytes == stored * 4 ? mc_nmse(c->trace.logits, want, n) : NAN;
  tri_free(want);
  return TRI_OK;
}

static void hash_sample(struct mc_check *c, const tri_sample_result *s) {
  c->sampled = tri_hash_bytes(c->sampled, &s->token, sizeof s->token);
  if (!c->a.replays) return;
  c->sampled = tri_hash_bytes(c->sampled, &s->logprob, sizeof s->logprob);
  c->sampled = tri_hash_bytes(c->sampled, s->top_logprobs, (size_t)s->num_top * sizeof *s->top_logprobs);
}

tri_status mc_decode(struct mc_check *c, uint32_t tokens[][MAX_GREEDY]) {
  tri_step_token sampled[MAX_PROMPTS];
  tri_step_result r = {.tokens = sampled};
  c->trace.looks = false;
  for (int k = 1; k < c->exp.num_greedy; k++) {
    mc_begin_step(c);
    for (int n = 0; n < c->exp.num_prompts; n++) {
      int i = prompt_of(c, n);
      if (k < c->exp.compared[i])
        mc_add(c, i, TRI_SEQ_DECODE, TRI_SEQ_FLAG_SAMPLE, c->exp.first[i] + k - 1, 1, &tokens[i][k - 1], 0);
    }
    TRI_CHECK(mc_run_step(c, &r));
    for (int n = 0, at = 0; n < c->exp.num_prompts; n++) {
      int i = prompt_of(c, n);
      if (k >= c->exp.compared[i]) continue;
      tokens[i][k] = sampled[at].sample.token;
      hash_sample(c, &sampled[at++].sample);
    }
  }
  return TRI_OK;
}

/* With rounded weights or rows a token may choose another expert than the reference's, where two score alike: that
 * moves its prompt further than rounding does. Fewer than half of the prompts may be moved so. */
static bool may_be_moved(const struct mc_check *c, double error, int moved) {
  bool has_experts = c->engine->model.moe.num_experts > 0;
  return c->rounds && has_experts && error <= 4 * mc_limit(c) && 2 * (moved + 1) < c->exp.num_prompts;
}

/* Returns the shard's leader's judgement. Prints the group's leader's figures, and all that is wrong. */
static bool judge(const struct mc_check *c, uint32_t tokens[][MAX_GREEDY], const double *errors, double *worst) {
  double limit = mc_limit(c);
  bool right = true;
  int agreed = 0, moved = 0, compared = 0;
  for (int i = 0; i < c->exp.num_prompts && leads(c); i++) {
    int same = 0, most = c->exp.compared[i];
    bool is_near = errors[i] <= limit || may_be_moved(c, errors[i], moved);
    moved += errors[i] > limit;
    while (same < most && tokens[i][same] == (uint32_t)c->exp.greedy[i][same]) same++;
    bool ok = is_near && (c->rounds || mc_greedy_right(c, i, same, same < most ? tokens[i][same] : 0));
    agreed += same;
    compared += most;
    if (tri_replica_is_leader(&c->replica) || !ok)
      printf("prompt %d (%d tokens%s): nmse %.2e, greedy %d of %d%s\n", i, c->exp.first[i],
             c->exp.first[i] < c->exp.len[i] ? ", which is as long as a sequence may be" : "", errors[i], same, most,
             ok ? "" : "   <-- wrong");
    right &= ok;
    *worst = !(errors[i] <= *worst) ? errors[i] : *worst;
  }
  if (c->rounds && tri_replica_is_leader(&c->replica))
    printf("quantization %s: worst nmse %.2e, greedy %d of %d\n", tri_quantization_names[c->a.quantization], *worst,
           agreed, compared);
  return right;
}

static tri_status check_prompts(struct mc_check *c, bool *right) {
  double limit = mc_limit(c), worst = 0, worst_hidden = 0;
  uint32_t tokens[MAX_PROMPTS][MAX_GREEDY];
  double errors[MAX_PROMPTS] = {0};
  int dp = tri_replica_num_dp_ranks(&c->replica);
  float wrong;
  tri_status st;
  TRI_TRY(wait_steps(c, c->replica.p.dp_rank));
  for (int n = 0; n < c->exp.num_prompts; n++) {
    int i = prompt_of(c, n);
    TRI_TRY(mc_feed_prompt(c, i, &tokens[i][0]));
    TRI_TRY(compare_logits(c, i, &errors[i]));
    if (i == 0) TRI_TRY(mc_compare_hidden(c, &worst_hidden));
  }
  TRI_TRY(mc_decode(c, tokens));
  TRI_TRY(wait_steps(c, dp - 1 - c->replica.p.dp_rank));
  *right = judge(c, tokens, errors, &worst);
  if (!c->rounds) *right &= mc_hidden_right(c, worst_hidden);
  TRI_TRY(mc_replay(c, right));
  TRI_TRY(mc_check_reads(c, right));
  show_hot(c);
  wrong = !*right;
  if (dp > 1) TRI_TRY(tri_comm_all_reduce(c->replica.world, &wrong, 1));
  *right = wrong == 0;
  if (tri_replica_is_leader(&c->replica))
    printf("%s %s tp %d pp %d dp %d ep %d %s: worst nmse %.2e (limit %.0e), logits' bits %016llx\n",
           *right ? "RIGHT" : "WRONG", c->dir, c->a.tp, c->a.pp, c->a.dp, tri_parallel_ep(c->replica.p), c->a.backend,
           worst, limit, (unsigned long long)c->bits);
cleanup:
  return st;
}

/* A model whose sequences are shorter than the reference's is compared as far as they go: the first tokens of a prompt,
 * or all of it and the greedy ones that still fit. */
static void cut_prompts(struct mc_expected *x, int64_t most) {
  for (int i = 0; i < x->num_prompts; i++) {
    int64_t room = most - x->len[i] + 1; /* the last one is sampled and not fed */
    x->first[i] = x->len[i] < most ? x->len[i] : (int)most;
    x->compared[i] = room >= x->num_greedy ? x->num_greedy : room > 0 ? (int)room : 0;
  }
}

static tri_status set_up(struct mc_check *c, tri_pool *pool, tri_error *err) {
  tri_status st;
  tri_model_config model;
  TRI_TRY(tri_model_config_load(c->dir, (tri_config_rules){0}, &model, err));
  int64_t most = model.attention.index_topk ? model.attention.index_topk : INT_MAX;
  TRI_TRY(read_expected(c->dir, model.encoder, most, &c->exp, err));
  c->rounds = c->a.quantization && !(c->a.quantization == TRI_QUANTIZE_FP8 && tri_stored_has_fp8(&model.stored));
  TRI_TRY(mc_rounding_read(c, model.seq2seq.on, err));
  tri_backend_config bc = {
      .name = c->a.backend, .device = c->local_rank, .deterministic = c->a.deterministic, .pool = pool};
  TRI_TRY(tri_backend_create(&bc, &c->backend, err));
  if (c->a.bf16_sums) c->backend->bf16_sums_above = 1;
  cut_prompts(&c->exp, most);
  int longest = 0, all = 0;
  for (int i = 0; i < c->exp.num_prompts; i++) {
    char name[64];
    const tri_st_tensor *source;
    snprintf(name, sizeof name, "source.%d", i);
    source = tri_checkpoint_find(c->exp.file, name);
    int num_source = model.seq2seq.on && source ? (int)source->shape[0] : 0;
    longest = c->exp.first[i] > longest ? c->exp.first[i] : longest;
    longest = num_source > longest ? num_source : longest;
    all += c->exp.first[i] + num_source;
  }
  if (longest > MAX_ROWS) return tri_fail(err, TRI_TOO_LARGE, "prompt", "a prompt of %d tokens", longest);
  int len = longest + c->exp.num_greedy + 1 < most ? longest + c->exp.num_greedy + 1 : (int)most;
  int per_prompt = (len + c->a.block_size - 1) / c->a.block_size * (model.seq2seq.on ? 2 : 1);
  c->trace.hidden = tri_calloc((size_t)(model.num_layers + 1) * MAX_ROWS * widest(&model), sizeof(float));
  c->trace.logits = tri_calloc(MAX_ROWS * (size_t)model.vocab_size, sizeof(float));
  if (!c->trace.hidden || !c->trace.logits || mc_encoder_prepare(c, &model) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "modelcheck", "no memory");
  tri_engine_config ec = {.model_dir = c->dir,
                          .dtype = c->a.dtype == 3 ? TRI_DTYPE_COUNT : (tri_dtype)c->a.dtype,
                          .quantization = (tri_quantization)c->a.quantization,
                          .kv_dtype = c->a.kv_dtype == 3 ? TRI_F32 : (tri_dtype)c->a.kv_dtype,
                          .max_num_seqs = MAX_PROMPTS,
                          .max_num_batched_tokens = all > MAX_PROMPTS ? all : MAX_PROMPTS,
                          .block_size = c->a.block_size,
                          .max_model_len = len,
                          .num_kv_blocks = per_prompt * MAX_PROMPTS,
                          .encoders = true,
                          .expert_strategy = (tri_expert_strategy)c->a.expert_strategy,
                          .num_redundant_experts = c->a.num_redundant_experts,
                          .expert_location = c->a.expert_location,
                          .offload = {.tier = (tri_offload_tier)c->a.offload,
                                      .gpu_layers = c->a.gpu_layers,
                                      .ring_parts = c->a.ring_parts,
                                      .max_in_cpu = c->a.max_in_cpu,
                                      .nvme_path = c->a.nvme_path,
                                      .chunk_tokens = c->a.chunk_tokens,
                                      .host_experts = c->a.cpu_moe ? INT_MAX : c->a.n_cpu_moe,
                                      .hot_experts = c->a.hot_experts,
                                      .hot_window = 3,
                                      .hot_step_bytes = HOT_STEP_BYTES,
                                      .always_host = true,
                                      .always_pack = c->a.nvme_path != NULL,
                                      .poison = true},
                          .experts_move = c->a.move_experts,
                          .all2all = c->a.all2all,
                          .all2all_rows = c->a.all2all_rows,
                          .pooling = (tri_pooling)c->a.pooling,
                          .observer = {.ctx = &c->trace,
                                       .looks = &c->trace.looks,
                                       .hidden = c->replica.p.tp_rank == 0 ? see_hidden : NULL,
                                       .logits = see_logits,
                                       .encoder_output = mc_see_encoder_output}};
  TRI_TRY(tri_engine_create(&ec, c->backend, &c->replica, &c->engine, err));
  c->trace.e = c->engine;
  c->trace.looks = true;
  TRI_TRY(tri_plan_writer_create(&(tri_plan_sizes){.seqs = 3 * MAX_PROMPTS, .ids = MAX_ROWS, .blocks = MAX_ROWS},
                                 &c->writer));
  c->plan_cap = tri_plan_max_bytes(c->writer);
  c->plan = tri_malloc(c->plan_cap, 1);
  if (!c->plan) st = TRI_NO_MEMORY;
cleanup:
  return st;
}

static void tear_down(struct mc_check *c) {
  tri_plan_writer_destroy(c->writer);
  tri_engine_destroy(c->engine);
  tri_backend_destroy(c->backend);
  for (int i = 0; i < c->exp.num_prompts; i++) tri_free(c->exp.prompt[i]), tri_free(c->exp.greedy[i]);
  tri_checkpoint_close(c->exp.file);
  tri_free(c->rounding.close);
  tri_free(c->trace.hidden), tri_free(c->trace.logits), tri_free(c->plan);
  tri_free(c->trace.encoder_hidden), tri_free(c->trace.pooled), tri_free(c->trace.scores);
}

static tri_status check_one(const struct mc_check *common, const char *dir, tri_pool *pool, bool *right,
                            tri_error *err) {
  struct mc_check c = *common;
  tri_status st;
  c.dir = dir;
  c.bits = TRI_HASH_SEED;
  *right = false;
  TRI_TRY(set_up(&c, pool, err));
  TRI_TRY(c.engine->model.encoder      ? mc_check_encoder(&c, right)
          : c.engine->model.seq2seq.on ? mc_check_seq2seq(&c, right)
                                       : check_prompts(&c, right));
cleanup:
  tear_down(&c);
  return st;
}

int main(int argc, char **argv) {
  struct mc_check c = {0};
  const char *dir = NULL;
  int local_size;
  tri_options *opts = NULL;
  tri_error err = {0};
  bool all_right = true, mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  int code = tri_options_main(&spec, &c.a, argc, argv, &opts);
  if (code >= 0) return code;
  setvbuf(stdout, NULL, _IOLBF, 0); /* lines stay whole among those of stderr */
  if (mpi && tri_mpi_init(&argc, &argv, &err) != TRI_OK) return TRI_EXIT_FAILED;
  tri_comm_config cc = {.deterministic = c.a.deterministic, .policy = {.yield_us = 200000}, .timeout_ms = 60000};
  tri_comm *world = NULL;
  tri_pool *pool = NULL;
  tri_status st;
  TRI_TRY(mpi ? tri_comm_mpi_world(&cc, &world) : tri_comm_self_create(&cc, &world));
  if (mpi) TRI_TRY(tri_comm_mpi_local(world, &c.local_rank, &local_size));
  TRI_TRY(tri_replica_create(world, (tri_parallel){.tp = c.a.tp, .pp = c.a.pp, .dp = c.a.dp, .ep = c.a.ep}, &c.replica,
                             &err));
  c.shard = c.replica.world;
  if (c.a.dp > 1) TRI_TRY(tri_comm_split(world, c.replica.p.dp_rank, world->rank, NULL, &c.shard));
  TRI_TRY(tri_pool_create(c.a.threads, NULL, mpi ? 0 : 50, &pool));
  for (int i = 0; (dir = tri_options_arg(opts, i)); i++) {
    bool right;
    TRI_TRY(check_one(&c, dir, pool, &right, &err));
    all_right &= right;
  }
  code = !world->rank && !all_right ? TRI_EXIT_FAILED : TRI_EXIT_OK;
cleanup:
  if (st != TRI_OK) {
    tri_log(TRI_LOG_ERROR, "modelcheck", "%s%s%s", dir ? dir : "", dir ? ": " : "",
            err.status ? err.message : tri_status_text(st));
    code = TRI_EXIT_REFUSED;
    if (mpi) tri_mpi_abort(code); /* the other ranks wait for this one */
  }
  if (world && !c.replica.world) tri_comm_destroy(world); /* the group did not take it */
  if (c.shard != c.replica.world) tri_comm_destroy(c.shard);
  tri_replica_destroy(&c.replica);
  tri_pool_destroy(pool);
  tri_options_free(opts);
  if (mpi) tri_mpi_finalize();
  return code;
}
