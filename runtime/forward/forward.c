/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass, made and destroyed, and how a step is planned, run and recorded.
 *
 * A step: its batch is brought to where ops read it (bind), padded where that lets it be replayed, a PLAN walk chooses
 * kernels and workspaces, and a LAUNCH walk runs them, unless a recorded step of the same key is replayed. Whatever
 * decides between these must come out the same on all ranks that share a collective: it follows from the plan, the
 * limits and the model, never from time; what follows from a rank's memory is agreed about (agree_to_keep). */
#include "runtime/forward/forward_state.h"

#include "base/hash.h"

enum { FIRST_CHUNK = 3 }; /* number of its bound batch */
_Static_assert(FIRST_CHUNK + TRI_MAX_CHUNKS <= TRI_BOUND_BATCHES, "every chunk has a bound batch");

/* Multiplications of a product: some 20 us of an H200's tensor cores. */
static const size_t RECORDED_WORK = (size_t)8 << 30;

/* Returns the elements of a layer's product in the mean, of one rank: the same on all ranks of a tensor group. */
static size_t mean_gemm(const tri_model_config *c, int tp) {
  int64_t columns = 0;
  for (int l = 0; l < c->num_layers; l++) {
    tri_head_sizes h = tri_layer_heads(c, l);
    bool makes_keys = tri_kv_source(c, l) == l;
    columns += (2 * h.num + 2 * h.num_kv * makes_keys) * h.dim;
    columns += (c->mlp.gated ? 3 : 2) * tri_layer_units(c, l);
  }
  return (size_t)(c->hidden_size * (columns / c->num_layers) / 4 / tp) + 1;
}

/* Ranks of a tensor group that have as many heads, and devices of one kind, cut the attention of a step alike. Their
 * plans then differ from step to step alike, too: collectives must be recorded by all of them or by none. */
static bool have_equal_heads(const tri_forward_config *config) {
  const tri_shard *own = &config->shard;
  tri_shard other;
  tri_error err = {0};
  tri_parallel p = own->p;
  for (p.tp_rank = 0; p.tp_rank < p.tp; p.tp_rank++)
    if (tri_shard_make(config->model, p, &other, &err) != TRI_OK || other.q_heads.count != own->q_heads.count ||
        other.kv_heads.count != own->kv_heads.count || other.global_q_heads.count != own->global_q_heads.count ||
        other.global_kv_heads.count != own->global_kv_heads.count)
      return false;
  return true;
}

/* ---- creation ---- */

static tri_status make_hot_experts(tri_forward *f) {
  tri_hot_experts_config hc = {.backend = f->cfg.backend,
                               .model = f->cfg.model,
                               .shard = &f->cfg.shard,
                               .weights = f->cfg.weights,
                               .host_tally = f->tally,
                               .window = f->cfg.hot_window,
                               .step_bytes = f->cfg.hot_step_bytes};
  return f->cfg.shard.p.hot_experts ? tri_hot_experts_create(&hc, &f->hot) : TRI_OK;
}

static bool have_one_form(const tri_layer_weights *a, const tri_layer_weights *b) {
  for (int id = 0; id < TRI_W_COUNT; id++) {
    const tri_weight *x = &a->w[id], *y = &b->w[id];
    if (x->dtype != y->dtype || memcmp(&x->groups, &y->groups, sizeof x->groups)) return false;
  }
  return true;
}

/* Kernels and workspaces follow from the form of weights, and checkpoints leave some layers as they were before they
 * were quantized: such layers have plans of their own. */
static tri_status make_plans(tri_forward *f) {
  int layers = f->cfg.shard.layers.count, chunks;
  const tri_layer_weights *w = f->cfg.weights->layers;
  f->layer_forms = tri_calloc((size_t)layers + 1, sizeof *f->layer_forms);
  if (!f->layer_forms) return TRI_NO_MEMORY;
  for (int l = 0, other; l < layers; l++) {
    for (other = 0; other < l && !have_one_form(&w[l], &w[other]); other++) {
    }
    f->layer_forms[l] = other < l ? f->layer_forms[other] : f->num_forms++;
  }
  int forms = f->num_forms ? f->num_forms : 1;
  chunks = tri_limits_num_chunks(&f->cfg.limits, f->cfg.limits.max_num_batched_tokens);
  f->max_plans = TRI_FORWARD_PLANS * chunks * forms;
  f->plans = tri_calloc((size_t)f->max_plans, sizeof *f->plans);
  f->class_plans = tri_calloc((size_t)forms * TRI_LAYER_CLASSES, sizeof *f->class_plans);
  return f->plans && f->class_plans ? TRI_OK : TRI_NO_MEMORY;
}

tri_hot_experts *tri_forward_hot_experts(const tri_forward *f) { return f->hot; }

tri_status tri_forward_create(const tri_forward_config *config, tri_forward **out, tri_error *err) {
  const tri_shard *s = &config->shard;
  const tri_model_config *c = config->model;
  tri_backend *be = config->backend;
  tri_step_arena arena;
  tri_step_arena_config ac = {
      .model = c, .shard = s, .limits = &config->limits, .num_micro_batches = config->num_micro_batches};
  ac.gemms = tri_step_arena_type(c, be->narrow_activations, config->weights->gemms);
  TRI_CHECK(tri_step_arena_plan(&ac, &arena, err));
  tri_forward *f = tri_calloc(1, sizeof *f);
  if (!f) return tri_fail(err, TRI_NO_MEMORY, "forward", "no memory");
  f->cfg = *config;
  f->bytes = arena.bytes;
  f->sends = tri_calloc((size_t)config->num_micro_batches, sizeof *f->sends);
  tri_status st = f->sends ? make_plans(f) : TRI_NO_MEMORY;
  if (st == TRI_OK) st = tri_forward_make_tables(f);
  if (st == TRI_OK) st = be->ops.mem_alloc(be, TRI_MEM_ACTIVATIONS, f->bytes, &f->memory);
  if (st != TRI_OK) {
    tri_forward_destroy(f);
    return tri_fail(err, TRI_NO_MEMORY, "max_num_batched_tokens",
                    "no memory for %zu bytes of activations (%d tokens per step)", arena.bytes,
                    config->limits.max_num_batched_tokens);
  }
  tri_step_arena_bind(&arena, f->memory, &f->buf);
  st = make_hot_experts(f);
  if (st != TRI_OK) tri_fail(err, st, "hot_experts", "no memory for %d experts of each layer", s->p.hot_experts);
  if (st == TRI_OK && config->host) st = tri_forward_make_host_experts(f, err);
  if (st != TRI_OK) {
    tri_forward_destroy(f);
    return st;
  }
  tri_forward_gemms(f, 1, NULL);
  f->gemm = mean_gemm(c, s->p.tp);
  f->plans_alike = config->alike && have_equal_heads(config);
  *out = f;
  return TRI_OK;
}

void tri_forward_destroy(tri_forward *f) {
  if (!f) return;
  tri_backend *be = f->cfg.backend;
  be->ops.graph_drop(be);
  tri_host_experts_destroy(f->host_experts);
  tri_hot_experts_destroy(f->hot);
  if (f->memory) be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, f->memory, f->bytes);
  for (int i = 0; i < f->num_tables; i++) be->ops.mem_free(be, TRI_MEM_ACTIVATIONS, f->tables[i].p, f->tables[i].bytes);
  tri_free(f->sends);
  tri_free(f->plans);
  tri_free(f->class_plans);
  tri_free(f->layer_forms);
  tri_free(f->layer_scales);
  tri_free(f->placed);
  tri_free(f->no_rows);
  tri_free(f);
}

tri_status tri_forward_tally(const tri_forward *f, tri_expert_tally *out) {
  tri_backend *be = f->cfg.backend;
  size_t n = (size_t)f->cfg.shard.layers.count * (size_t)f->cfg.shard.slots.count;
  if (!f->tally) return TRI_UNSUPPORTED;
  be->ops.download(be, out, f->tally, n * sizeof *out);
  TRI_CHECK(be->ops.stream_sync(be));
  return f->hot ? tri_hot_experts_tally(f->hot, out) : TRI_OK;
}

/* ---- a step ---- */

/* Makes room for the largest workspace of all plans. */
static tri_status reserve(tri_forward *f, size_t of_side) {
  size_t need = f->reserved;
  for (int i = 0; i < f->num_plans; i++)
    if (f->plans[i].workspace > need) need = f->plans[i].workspace;
  if (of_side < f->side_reserved) of_side = f->side_reserved;
  if (need == f->reserved && of_side == f->side_reserved) return TRI_OK;
  TRI_CHECK(f->cfg.backend->ops.reserve(f->cfg.backend, need, of_side));
  f->reserved = need;
  f->side_reserved = of_side;
  return TRI_OK;
}

static tri_status plan(tri_forward *f, const tri_batch *b, tri_mat x) {
  tri_walk w = {.mode = TRI_WALK_PLAN, .f = f, .b = b, .x = x};
  for (int i = 0; i < f->num_forms * TRI_LAYER_CLASSES; i++) f->class_plans[i] = -1;
  tri_walk_step(&w);
  f->num_plans = w.next;
  return w.st == TRI_OK ? reserve(f, w.side_workspace) : w.st;
}

static tri_status launch(tri_forward *f, const tri_batch *b, tri_mat x) {
  tri_walk w = {.mode = TRI_WALK_LAUNCH, .f = f, .b = b, .x = x};
  const tri_observer *o = tri_observer_of(f);
  tri_walk_step(&w);
  if (w.st == TRI_OK && w.next != f->num_plans) w.st = TRI_CORRUPT; /* it was not this walk that was planned */
  tri_encoder_output e = tri_encoder_output_of(&w);
  if (w.st == TRI_OK && o && o->encoder_output && tri_is_pooling_rank(f->cfg.model, &f->cfg.shard))
    o->encoder_output(o->ctx, &e);
  return w.st;
}

void tri_forward_observe(tri_forward *f, const tri_observer *o) { f->cfg.observer = o ? *o : (tri_observer){0}; }

/* Inputs of layers follow the stream. */
static size_t bytes_of(const tri_forward *f, tri_mat x) {
  return (size_t)x.rows * (size_t)(x.cols + tri_layer_inputs_width(f->cfg.model)) * sizeof(float);
}

static tri_status receive_hidden(tri_forward *f, int micro_batch, tri_mat x) {
  const tri_replica *g = f->cfg.replica;
  tri_comm *c = f->cfg.stages;
  return tri_comm_recv(c, x.data, bytes_of(f, x), tri_replica_rank(g, g->p.pp_rank - 1, g->p.dp_rank, g->p.tp_rank),
                       TRI_TAG_HIDDEN + micro_batch);
}

static tri_status send_hidden(tri_forward *f, int micro_batch, tri_mat x) {
  const tri_replica *g = f->cfg.replica;
  tri_comm *c = f->cfg.stages;
  return tri_comm_isend(c, x.data, bytes_of(f, x), tri_replica_rank(g, g->p.pp_rank + 1, g->p.dp_rank, g->p.tp_rank),
                        TRI_TAG_HIDDEN + micro_batch, &f->sends[micro_batch]);
}

/* Returns whether a step can be recorded: no observer looks into it. */
static bool is_recordable(const tri_forward *f) {
  const tri_model_config *c = f->cfg.model;
  return f->plans_alike && !f->cfg.replica_streams && f->cfg.backend->records && !tri_observer_of(f) &&
         !c->seq2seq.on && !c->feeds_decoder;
}

/* Returns the rows that a step is padded to; 0: it is not. Steps in which every sequence has one token come in few
 * shapes then. All data-parallel ranks of a replica have as many rows as the one with the most: what their ranks record
 * must meet what the others do, so that nothing decides but what the plan tells to all. */
static int padded_rows(const tri_forward *f, const tri_batch_builder *builder, const tri_batch *b) {
  int most = b->num_tokens;
  bool single = b->max_query == 1 && b->num_logits == b->num_tokens;
  if (f->cfg.all2all) single = builder->longest > 0;
  if (!is_recordable(f) || f->cfg.model->encoder || !single) return 0;
  for (int d = 0; f->cfg.all2all && d < builder->num_dp_ranks; d++)
    if ((int)builder->dp_rank_tokens[d] > most) most = (int)builder->dp_rank_tokens[d];
  return tri_batch_padded_rows(&f->cfg.limits, most);
}

/* Returns whether other steps have padded logits: a library loads kernels for numbers of rows that it has not seen.
 * Data-parallel ranks tell each other of their last layer's rows. */
static bool pads_logits(const tri_forward *f) { return is_recordable(f) && !f->cfg.model->encoder && !f->cfg.all2all; }

/* Attention is planned for the longest context that any data-parallel rank has, in steps, so that a plan is reused. */
static void plan_for_longest(const tri_forward *f, int longest, tri_batch *b) {
  enum { LEAST = 256 };
  int planned = tri_batch_rows(longest > LEAST ? longest : LEAST), most = f->cfg.limits.max_model_len;
  b->is_even = true;
  b->max_context = planned < most ? planned : most;
}

/* A recording takes several times as long as the launches that it saves. Steps of single tokens repeat often;
 * others are recorded while a launch costs more than what it launches. The backend sees which of them repeat. With
 * several data-parallel ranks, the others do not know what one has in addition to single tokens. */
static bool is_worth_recording(const tri_forward *f, const tri_batch *b, bool is_padded) {
  bool alone = !f->cfg.all2all;
  return is_padded || (alone && is_recordable(f) && (size_t)b->num_tokens <= RECORDED_WORK / f->gemm);
}

/* Hashes everything that the ops' arguments are made from, but for the addresses, which stay, and for the lengths of
 * sequences, which only plans look at. Of several data-parallel ranks, nothing but what all ranks know: the rest
 * follows from it. */
static uint64_t key_of(const tri_forward *f, const tri_batch *b, int micro_batch) {
  const int32_t shape[] = {micro_batch, b->num_tokens, b->num_seqs, b->num_logits, b->num_single};
  const int32_t told[] = {micro_batch, b->num_tokens, b->max_context};
  if (f->cfg.all2all) return tri_hash_bytes(TRI_HASH_SEED, told, sizeof told);
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, shape, sizeof shape);
  h = tri_hash_bytes(h, &b->cuts_key, sizeof b->cuts_key);
  return tri_hash_bytes(h, f->plans, (size_t)f->num_plans * sizeof *f->plans);
}

/* A recorded collective meets recorded ones only: a step is kept by all ranks of a tensor group, of a stage with
 * several, or by none. Those have recorded the same steps, so that they come here together; seldom, and mostly before
 * anything is served. */
static tri_status agree_to_keep(tri_forward *f, bool mine, bool *all) {
  const tri_replica *g = f->cfg.replica;
  tri_comm *c = f->cfg.all2all ? g->stage : g->tensor;
  float missing = !mine;
  tri_status st = c && c->size > 1 ? tri_comm_all_reduce(c, &missing, 1) : TRI_OK;
  *all = missing == 0;
  return st;
}

/* Launches the step while the backend records it (which runs nothing), and replays it when all ranks could keep their
 * recording; else launches it as any other. */
static tri_status record(tri_forward *f, const tri_batch *b, uint64_t key, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  bool kept;
  tri_status st = launch(f, b, x), ended = be->ops.graph_end(be);
  if (st != TRI_OK) return st;
  if (ended != TRI_OK && ended != TRI_AGAIN) return ended;
  TRI_CHECK(agree_to_keep(f, ended == TRI_OK, &kept));
  if (kept) return be->ops.graph_begin(be, key) == TRI_GRAPH_REPLAY ? TRI_OK : TRI_CORRUPT;
  be->ops.graph_refuse(be);
  return launch(f, b, x);
}

static tri_status launch_recorded(tri_forward *f, const tri_batch *b, int micro_batch, tri_mat x) {
  tri_backend *be = f->cfg.backend;
  uint64_t key = key_of(f, b, micro_batch);
  switch (be->ops.graph_begin(be, key)) {
  case TRI_GRAPH_REPLAY: return TRI_OK;
  case TRI_GRAPH_RECORD: return record(f, b, key, x);
  default: return launch(f, b, x);
  }
}

/* Swapping out comes first: a block that it frees may be given to a copy or to tokens of the same step. */
void tri_forward_copy_blocks(tri_forward *f, const tri_batch_builder *b) {
  static const tri_op_plan plan;
  tri_backend *be = f->cfg.backend;
  int first = f->cfg.shard.layers.first;
  tri_kv_cache_move(f->cfg.kv, b->swaps_out, b->num_swaps_out, true);
  for (int l = 0; b->num_copies && l < f->cfg.kv->num_layers; l++) {
    if (tri_kv_source(f->cfg.model, first + l) != first + l) continue;
    tri_copy_blocks_args copy = {.kv = f->cfg.kv->layers[l], .pairs = b->copies, .num_pairs = b->num_copies};
    be->ops.copy_blocks_launch(be, &plan, &copy);
  }
  tri_kv_cache_move(f->cfg.kv, b->swaps_in, b->num_swaps_in, false);
}

/* Brings the step's arrays to where the ops read them. */
static tri_status bind(tri_forward *f, const tri_batch_builder *builder, const tri_batch *b) {
  const tri_model_config *c = f->cfg.model;
  tri_backend *be = f->cfg.backend;
  tri_status st = be->ops.bind_batch(be, c->feeds_decoder ? 2 : 0, b, f->attentions, f->num_attentions, &f->bound);
  if (st == TRI_OK && c->seq2seq.on)
    st = be->ops.bind_batch(be, 1, &builder->cross, f->attentions, f->num_attentions, &f->bound_cross);
  f->cross = c->seq2seq.on ? &f->bound_cross : NULL;
  f->num_chunks = 1;
  if (b->num_tokens > tri_limits_chunk(&f->cfg.limits))
    f->num_chunks = tri_batch_cut(builder, b, tri_limits_chunk(&f->cfg.limits), f->chunks);
  for (int i = 0; f->num_chunks > 1 && i < f->num_chunks && st == TRI_OK; i++) {
    tri_batch chunk = f->chunks[i];
    st = be->ops.bind_batch(be, FIRST_CHUNK + i, &chunk, f->attentions, f->num_attentions, &f->chunks[i]);
  }
  return st;
}

tri_status tri_forward_reserve_batch(tri_forward *f, const tri_batch_builder *builder) {
  tri_batch largest;
  tri_batch_largest(builder, &f->cfg.limits, &largest);
  tri_status st = bind(f, builder, &largest);
  return st == TRI_OK ? f->cfg.backend->ops.stream_sync(f->cfg.backend) : st;
}

/* Every data-parallel rank has a row at least, a padded one as many as all. */
static tri_status set_shards(tri_forward *f, const tri_batch_builder *builder, int padded, int tokens) {
  tri_parallel p = f->cfg.shard.p;
  int shards = tri_parallel_dp(p) > 1 ? p.dp : 0;
  if (builder->num_dp_ranks != shards) return TRI_CORRUPT;
  if (!f->cfg.all2all) return TRI_OK;
  for (int d = 0; d < p.dp; d++) {
    if (builder->dp_rank_tokens[d] > (uint32_t)f->cfg.limits.max_num_batched_tokens) return TRI_CORRUPT;
    f->shard_rows[d] = builder->dp_rank_tokens[d] ? (int32_t)builder->dp_rank_tokens[d] : 1;
    if (padded) f->shard_rows[d] = padded;
  }
  return f->shard_rows[p.dp_rank] == tokens ? TRI_OK : TRI_CORRUPT;
}

/* Other data-parallel ranks want this one's experts, or what it reads of the weights for all. */
static bool walks_idle(const tri_forward *f) {
  return f->cfg.all2all || (f->cfg.replica_streams && tri_parallel_dp(f->cfg.shard.p) > 1);
}

tri_status tri_forward_run(tri_forward *f, const tri_batch_builder *builder, int micro_batch, tri_mat *logits,
                           tri_encoder_output *encoder_output) {
  const tri_model_config *c = f->cfg.model;
  const tri_batch *b = c->feeds_decoder ? &builder->source : &builder->batch;
  tri_comm *stages = f->cfg.stages;
  int wanted = b->num_logits;
  tri_batch padded;
  tri_status st = TRI_OK;
  *logits = (tri_mat){0};
  *encoder_output = (tri_encoder_output){0};
  /* A source may be computed into a block that has just been given up, so that its copy was made before. */
  if (!c->feeds_decoder && !builder->source.num_tokens) tri_forward_copy_blocks(f, builder);
  if (!b->num_tokens && !walks_idle(f)) return TRI_OK;
  int rows = padded_rows(f, builder, b);
  if (rows)
    tri_batch_pad(builder, rows, &padded);
  else if (!b->num_tokens)
    tri_batch_idle(builder, &padded);
  else if (pads_logits(f))
    tri_batch_pad_logits(builder, &f->cfg.limits, &padded);
  if (rows && f->cfg.all2all) plan_for_longest(f, builder->longest, &padded);
  if (rows || !b->num_tokens || pads_logits(f)) b = &padded;
  TRI_CHECK(set_shards(f, builder, rows, b->num_tokens));
  tri_mat x = tri_stream_of(f, micro_batch, b->num_tokens);
  TRI_TRY(bind(f, builder, b));
  b = &f->bound;
  TRI_TRY(plan(f, b, x));
  TRI_TRY(tri_comm_wait(stages, &f->sends[micro_batch])); /* the micro-batch's last transfer out of x */
  if (!f->cfg.shard.first_stage) TRI_TRY(receive_hidden(f, micro_batch, x));
  TRI_TRY(is_worth_recording(f, b, rows) ? launch_recorded(f, b, micro_batch, x) : launch(f, b, x));
  if (c->encoder && f->cfg.shard.last_stage)
    *encoder_output = tri_encoder_output_of(&(tri_walk){.f = f, .b = b, .x = x});
  if (!f->cfg.shard.last_stage) TRI_TRY(send_hidden(f, micro_batch, x));
  *logits = tri_logits_of(f, wanted);
cleanup:
  atomic_store_explicit(&f->cfg.progress->layer, TRI_LAYER_IDLE, memory_order_relaxed);
  return st;
}
