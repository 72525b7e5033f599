/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/plan/recommend.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* The cuts between stages, by their number, which are the same whatever else a layout has. */
struct cuts {
  tri_range stages[TRI_MOST_STAGES + 1][TRI_MOST_STAGES];
  bool made[TRI_MOST_STAGES + 1];
};

/* A layout that is looked at. */
struct look {
  const tri_recommend_config *config;
  tri_recommendation *r;
  tri_cost_share *stage; /* the one whose data-parallel ranks come */
  int64_t kv_tokens;     /* of the smallest rank */
  tri_error *err;
};

/* Bytes that a rank lacks for one sequence of full length. */
static int64_t lacks(const tri_recommend_config *config, const tri_ledger *l) {
  const tri_limits *limits = &config->limits;
  int64_t blocks = (limits->max_model_len + limits->block_size - 1) / limits->block_size;
  int64_t fixed = (int64_t)(l->weights + l->activations + l->workspace + l->reserve + l->all2all);
  return fixed + blocks * (int64_t)l->block_bytes - config->ledger.memory;
}

/* The ledger of a rank without a limit: its sizes. */
static tri_status sizes(const struct look *k, const tri_shard *s, tri_ledger *l) {
  tri_ledger_config free = k->config->ledger;
  free.memory = 0;
  return tri_ledger_make(k->config->model, s, k->config->ckpt, &k->config->limits, s->p.pp, &free, l, k->err);
}

/* Looks at a rank that has no room for all of its weights. */
static tri_status take_lacking(const struct look *k, const tri_shard *s, tri_ledger *l) {
  const tri_recommend_config *config = k->config;
  tri_recommendation *r = k->r;
  tri_ledger_config streams = config->ledger;
  tri_ledger streamed;
  tri_error ignored = {0};
  TRI_CHECK(sizes(k, s, l));
  int64_t missing = lacks(config, l);
  if (missing < 1) missing = 1;
  if (missing > r->missing) r->missing = missing;
  r->fits = false;
  streams.offload = config->offload;
  tri_status st = config->offload ? tri_ledger_make(config->model, s, config->ckpt, &config->limits, s->p.pp, &streams,
                                                    &streamed, &ignored)
                                  : TRI_NO_CAPACITY;
  r->fits_streamed = r->fits_streamed && st == TRI_OK;
  if (st == TRI_OK && (int64_t)streamed.streamed > r->streamed) r->streamed = (int64_t)streamed.streamed;
  return TRI_OK;
}

/* Puts a shard into its rank's ledger and its stage's share. */
static tri_status take_shard(void *ctx, const tri_shard *s) {
  struct look *k = ctx;
  const tri_recommend_config *config = k->config;
  tri_ledger l;
  tri_error why = {0};
  tri_status st = tri_ledger_make(config->model, s, config->ckpt, &config->limits, s->p.pp, &config->ledger, &l, &why);
  if (st == TRI_NO_CAPACITY) {
    TRI_CHECK(take_lacking(k, s, &l));
    l.kv_tokens = 0;
  } else if (st != TRI_OK) {
    return tri_fail(k->err, st, why.field, "%s", why.message);
  }
  int64_t fixed = (int64_t)(l.weights + l.activations + l.workspace + l.reserve + l.all2all);
  if (fixed > k->r->memory) k->r->memory = fixed;
  if (l.kv_tokens < k->kv_tokens) k->kv_tokens = l.kv_tokens;
  /* The ledger has looked at the checkpoint's types. */
  bool stored = config->ledger.dtype == TRI_DTYPE_COUNT && config->ledger.quantization == TRI_QUANTIZE_NONE;
  return tri_cost_share_add(config->model, s, stored ? l.weight_type : config->ledger.dtype,
                            config->ledger.quantization, config->ledger.kv_dtype, k->stage, k->err);
}

/* Made once for a number of stages: many layouts have the same. */
static const tri_range *find_cuts(const tri_recommend_config *config, int pp, struct cuts *cuts) {
  tri_parallel p = {.tp = 1, .pp = pp, .quantized = config->ledger.quantization != TRI_QUANTIZE_NONE};
  for (int stage = 0; stage < pp && !cuts->made[pp]; stage++)
    cuts->stages[pp][stage] = tri_stage_layers(config->model, p, stage);
  cuts->made[pp] = true;
  return cuts->stages[pp];
}

static tri_recommend_load predict(const tri_cost_model *m, const tri_recommend_config *config, int replicas,
                                  int sequences) {
  tri_recommend_load l = {.sequences = sequences};
  l.seconds = tri_cost_decode(m, (sequences + replicas - 1) / replicas, config->context, &l.cost);
  l.tokens_per_s = sequences / l.seconds;
  return l;
}

static int at_most(int a, int64_t b) { return a < b ? a : (int)b; }

/* Loads have no more sequences than there is room for: by the KV cache at this context, and by max_num_seqs of each
 * data-parallel rank. */
static void predict_all(const tri_cost_model *m, const tri_recommend_config *config, tri_recommendation *r) {
  int replicas = r->layout.replicas;
  int64_t room = (int64_t)((double)r->kv_tokens / config->context), slots = r->layout.dp * replicas;
  slots *= config->limits.max_num_seqs;
  if (room > slots) room = slots;
  if (room < 1) room = 1;
  r->one = predict(m, config, replicas, 1);
  r->some = predict(m, config, replicas, at_most(TRI_SOME_SEQUENCES, room));
  r->many = predict(m, config, replicas, at_most(TRI_MANY_SEQUENCES, room));
  r->prompt = tri_cost_prompt(m, config->prompt);
}

/* Counts the layers of a stage that have any of some flags. */
static int flagged(const tri_model_config *c, tri_range layers, int flags) {
  int n = 0;
  for (int l = layers.first; l < layers.first + layers.count; l++) n += (c->layer_flags[l] & flags) != 0;
  return n;
}

/* Returns whether a stage between two others has all sizes of the one before it. */
static bool is_like_before(const tri_model_config *c, const tri_range *layers, int pp, int stage) {
  if (stage < 2 || stage == pp - 1 || layers[stage].count != layers[stage - 1].count) return false;
  for (int flag = TRI_LAYER_LOCAL; flag <= TRI_LAYER_SPARSE; flag *= 2)
    if (flagged(c, layers[stage], flag) != flagged(c, layers[stage - 1], flag)) return false;
  return true;
}

/* Stages with the same sizes have the same ledgers: of a deep pipeline three are made, the first, one between and the
 * last. */
static tri_status look_at(const tri_recommend_config *config, struct cuts *cuts, tri_recommendation *r,
                          tri_error *err) {
  const tri_model_config *c = config->model;
  const tri_serve_layout *y = &r->layout;
  tri_cost_share stages[TRI_MOST_STAGES] = {{0}};
  struct look k = {.config = config, .r = r, .kv_tokens = INT64_MAX, .err = err};
  tri_parallel p = {.tp = y->tp,
                    .pp = y->pp,
                    .dp = y->dp,
                    .ep = y->ep,
                    .quantized = config->ledger.quantization != TRI_QUANTIZE_NONE};
  const tri_range *layers = find_cuts(config, y->pp, cuts);
  r->fits = r->fits_streamed = true;
  for (int stage = 0; stage < y->pp; stage++) {
    k.stage = &stages[stage];
    if (is_like_before(c, layers, y->pp, stage)) {
      stages[stage] = stages[stage - 1];
      continue;
    }
    TRI_CHECK(tri_candidate_shards(c, &p, stage, layers[stage], take_shard, &k, err));
  }
  tri_cost_model m = {.machine = config->machine,
                      .p = p,
                      .hidden_size = (int)c->hidden_size,
                      .window = (int)c->attention.window,
                      .experts = (int)c->moe.num_experts,
                      .top_k = (int)c->moe.top_k,
                      .stages = stages};
  r->crosses = tri_cost_crosses(&config->machine, y->tp);
  r->kv_tokens = k.kv_tokens * y->dp * y->replicas;
  if (r->fits) predict_all(&m, config, r);
  return TRI_OK;
}

/* Layouts that fit come first, the fastest token before all; the others by what they lack. */
static int by_latency(const void *a, const void *b) {
  const tri_recommendation *x = a, *y = b;
  if (x->fits != y->fits) return y->fits - x->fits;
  if (!x->fits) return (x->missing > y->missing) - (x->missing < y->missing);
  if (x->one.seconds < y->one.seconds || x->one.seconds > y->one.seconds)
    return x->one.seconds < y->one.seconds ? -1 : 1;
  return (x->many.tokens_per_s < y->many.tokens_per_s) - (x->many.tokens_per_s > y->many.tokens_per_s);
}

static tri_status none_fits(const tri_recommend_config *config, const tri_recommendation *nearest, tri_error *err) {
  char flags[TRI_LAYOUT_FLAGS], missing[TRI_MEMORY_TEXT], memory[TRI_MEMORY_TEXT];
  return tri_fail(err, TRI_NO_CAPACITY, "memory",
                  "no layout of %d GPUs fits with %s a rank and max_model_len %d: the nearest, %s, lacks %s a rank",
                  config->devices, tri_memory_text((uint64_t)config->ledger.memory, memory),
                  config->limits.max_model_len, tri_layout_flags(&nearest->layout, flags),
                  tri_memory_text((uint64_t)nearest->missing, missing));
}

static int find_streamed(const tri_recommendations *r) {
  int best = -1;
  for (int i = r->fitting; i < r->count; i++)
    if (r->list[i].fits_streamed && (best < 0 || r->list[i].streamed < r->list[best].streamed)) best = i;
  return best;
}

tri_status tri_recommend(const tri_recommend_config *config, tri_recommendations *out, tri_error *err) {
  tri_recommendations all = {0};
  tri_serve_layout *layouts = NULL;
  int count = 0;
  struct cuts *cuts = tri_calloc(1, sizeof *cuts);
  tri_status st = cuts ? TRI_OK : TRI_NO_MEMORY;
  if (st == TRI_OK) st = tri_candidates_make(config->model, config->devices, &layouts, &count, err);
  if (st == TRI_OK && !count)
    st = tri_fail(err, TRI_UNSUPPORTED, "devices", "no layout of this model uses %d GPUs", config->devices);
  if (st != TRI_OK) goto cleanup;
  all.list = tri_calloc((size_t)count, sizeof *all.list);
  if (!all.list) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "devices", "no memory for %d layouts", count));
  for (; all.count < count; all.count++) {
    all.list[all.count].layout = layouts[all.count];
    TRI_TRY(look_at(config, cuts, &all.list[all.count], err));
  }
  qsort(all.list, (size_t)count, sizeof *all.list, by_latency);
  while (all.fitting < count && all.list[all.fitting].fits) all.fitting++;
  for (int i = 1; i < all.fitting; i++)
    if (all.list[i].many.tokens_per_s > all.list[all.best_throughput].many.tokens_per_s) all.best_throughput = i;
  *out = all;
  all.list = NULL;
  out->streamed = find_streamed(out);
  if (!out->fitting && out->streamed < 0) st = none_fits(config, &out->list[0], err);
cleanup:
  tri_free(all.list);
  tri_free(layouts);
  tri_free(cuts);
  return st;
}

void tri_recommendations_free(tri_recommendations *r) {
  tri_free(r->list);
  *r = (tri_recommendations){0};
}
