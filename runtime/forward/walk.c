/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/walk.h"

#include "runtime/forward/forward_state.h"

/* ---- weights ---- */

static const tri_weight no_weights[TRI_W_COUNT];

const tri_weight *tri_walk_global(const tri_walk *w) {
  return w->f->cfg.weights ? w->f->cfg.weights->global : no_weights;
}

tri_layer tri_walk_layer(const tri_walk *w, int l) {
  const tri_forward_config *cfg = &w->f->cfg;
  int number = cfg->shard.layers.first + l;
  tri_layer y = {.number = number, .local = l, .flags = cfg->model->layer_flags[number], .w = no_weights};
  if (cfg->weights) y.w = cfg->weights->layers[l].w;
  if (cfg->kv) y.kv = cfg->kv->layers[l];
  return y;
}

/* Returns the number of a part in the stream, or TRI_PART_STAYS. */
static int streamed_part(const tri_walk *w, const tri_layer *y, int half) {
  const tri_tiers *t = w->f->cfg.tiers;
  return t && w->mode == TRI_WALK_LAUNCH ? t->number[tri_part_of(y->local, half)] : TRI_PART_STAYS;
}

void tri_walk_acquire(tri_walk *w, const tri_layer *y, int half) {
  int part = streamed_part(w, y, half);
  const tri_observer *o = tri_observer_of(w->f);
  if (part == TRI_PART_STAYS || w->st != TRI_OK) return;
  w->st = tri_weight_stream_acquire(w->f->cfg.stream, part);
  if (w->st == TRI_OK && o && o->part) o->part(o->ctx, y->local, half);
}

void tri_walk_release(tri_walk *w, const tri_layer *y, int half) {
  int part = streamed_part(w, y, half);
  if (part != TRI_PART_STAYS && w->st == TRI_OK) tri_weight_stream_release(w->f->cfg.stream, part);
}

/* ---- chunks ---- */

void tri_walk_leave_chunks(tri_walk *w) {
  if (!w->whole_b) return;
  w->b = w->whole_b;
  w->x = w->whole_x;
  w->whole_b = NULL;
  w->first_row = 0;
}

void tri_walk_enter_chunk(tri_walk *w, int chunk) {
  tri_forward *f = w->f;
  tri_walk_leave_chunks(w);
  if (f->num_chunks < 2) return;
  w->whole_b = w->b;
  w->whole_x = w->x;
  w->b = &f->chunks[chunk];
  w->first_row = chunk * tri_limits_chunk(&f->cfg.limits);
  w->x = tri_rows(tri_rows_from(w->x, w->first_row), w->b->num_tokens);
}

/* ---- the last layer's rows ---- */

/* Returns whether a layer turns the walk to fewer rows. */
static bool narrows(const tri_walk *w, const tri_layer *y) {
  const tri_forward_config *cfg = &w->f->cfg;
  bool is_last = y->local + 1 == cfg->shard.layers.count && tri_shard_narrows(cfg->model, &cfg->shard);
  bool has_others = w->mode == TRI_WALK_RECORD ? !w->all_logits : w->b->num_logits < w->b->num_tokens;
  return is_last && has_others && !tri_is_chunked(w->f) && w->mode != TRI_WALK_LIST;
}

/* ---- plans ---- */

/* Returns the class of a layer, which decides which ops it emits, with which shapes and with which types of weights:
 * its flags, whether the stream has something pending, whether products find it in their own type, whether its experts
 * are the host's, whether it narrows the walk, and the form of its weights. */
static int class_of(const tri_walk *w, const tri_layer *y) {
  enum { PENDING = 32, COPIED = 64, ON_HOST = 128, NARROWS = 256, FLAGS = PENDING - 1 };
  int class = y->flags & FLAGS;
  if (w->pending.delta.data) class |= PENDING;
  if (w->copied) class |= COPIED;
  if (tri_has_experts_on_host(w->f, y)) class |= ON_HOST;
  if (narrows(w, y)) class |= NARROWS;
  return w->f->layer_forms[y->local] * TRI_LAYER_CLASSES + class;
}
_Static_assert(TRI_LAYER_SHARED_KV < 32 && TRI_LAYER_CLASSES == 512, "the form apart, a class has nine bits");

/* A PLAN walk emits only the first layer of each class and notes where its plans begin. A LAUNCH walk emits all layers,
 * each with the plans of its class. */
bool tri_walk_enter_layer(tri_walk *w, const tri_layer *y) {
  tri_forward *f = w->f;
  if (w->mode != TRI_WALK_LAUNCH && w->mode != TRI_WALK_PLAN) return true;
  int *first = &f->class_plans[class_of(w, y)];
  if (w->mode == TRI_WALK_LAUNCH) {
    if (*first < 0) w->st = TRI_CORRUPT; /* it was not this walk that was planned */
    w->next = *first;
    return *first >= 0;
  }
  if (*first >= 0) return false;
  *first = w->next;
  return true;
}

void tri_walk_leave_layers(tri_walk *w) {
  if (w->mode == TRI_WALK_PLAN) w->f->end_plans = w->next;
  if (w->mode == TRI_WALK_LAUNCH) w->next = w->f->end_plans;
}

/* ---- what is read and written ---- */

/* Adds an event to the record. A write to the middle of a buffer leaves the rest of it as it was, so that it counts as
 * a read, too. */
static void note(tri_walk *w, const void *const *reads, size_t num_reads, const void *const *writes,
                 size_t num_writes) {
  tri_step_event e = {0};
  for (size_t i = 0; i < num_reads; i++) e.reads |= tri_step_record_find(w->record, reads[i], NULL);
  for (size_t i = 0; i < num_writes; i++) {
    bool whole;
    tri_buffer_set written = tri_step_record_find(w->record, writes[i], &whole);
    e.writes |= written;
    if (!whole) e.reads |= written; /* the rest stays */
  }
  w->st = tri_step_record_add(w->record, e);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void note_move(tri_walk *w, const void *read, const void *write) { note(w, &read, 1, &write, 1); }

/* ---- ops ---- */

static bool are_alike(const tri_attention_args *a, const tri_attention_args *b) {
  return a->window == b->window && a->chunked == b->chunked && a->causal == b->causal && a->num_heads == b->num_heads &&
         a->kv.num_kv_heads == b->kv.num_kv_heads && a->kv.head_dim == b->kv.head_dim;
}

/* Kinds of attention differ in what decides how a batch is cut (bind_batch). */
static void list_attention(tri_walk *w, const tri_attention_args *a) {
  tri_forward *f = w->f;
  for (int i = 0; i < f->num_attentions; i++)
    if (are_alike(&f->attentions[i], a)) return;
  if (f->num_attentions < TRI_FORWARD_ATTENTIONS)
    f->attentions[f->num_attentions++] = *a;
  else
    w->st = TRI_OVERFLOW;
}

/* Products are counted also without a place to put them: a first walk says how large the array has to be. */
static void list_gemm(tri_walk *w, tri_tune_gemm p) {
  if (!p.args.w.data || !p.args.x.rows) return;
  if (w->gemms) w->gemms[w->num_gemms] = p;
  w->num_gemms++;
}

static void list_mlp(tri_walk *w, const tri_gated_mlp_args *a) {
  const tri_linear_args *up = &a->gated.up, *down = &a->down;
  list_gemm(w, (tri_tune_gemm){.args = *up, .gated = true, .in_mlp = true, .glu = a->gated.glu, .other = *down});
  list_gemm(w, (tri_tune_gemm){.args = *down, .in_mlp = true, .glu = a->gated.glu, .other = *up});
}

static void list(tri_walk *w, tri_op op, const void *args) {
  const tri_gated_linear_args *gated = args;
  if (op == TRI_KERNEL_attention) list_attention(w, args);
  if (op == TRI_KERNEL_linear) list_gemm(w, (tri_tune_gemm){.args = *(const tri_linear_args *)args});
  if (op == TRI_KERNEL_gated_linear) list_gemm(w, (tri_tune_gemm){.args = gated->up, .gated = true, .glu = gated->glu});
  if (op == TRI_KERNEL_gated_mlp) list_mlp(w, args);
}

static tri_op_plan *next_plan(tri_walk *w) {
  if (w->next < w->f->max_plans) return &w->f->plans[w->next++];
  w->st = TRI_OVERFLOW;
  return NULL;
}

/* The side stream runs while the main one does, and needs a workspace of its own. */
static void plan_made(tri_walk *w, const tri_op_plan *plan) {
  if (w->on_side && plan->workspace > w->side_workspace) w->side_workspace = plan->workspace;
}

#define X(op)                                                                                                          \
  void tri_emit_##op(tri_walk *w, tri_##op##_args a) {                                                                 \
    tri_backend *be = w->f->cfg.backend;                                                                               \
    if (w->st != TRI_OK) return;                                                                                       \
    switch (w->mode) {                                                                                                 \
    case TRI_WALK_PLAN:                                                                                                \
    case TRI_WALK_LAUNCH: {                                                                                            \
      tri_op_plan *plan = next_plan(w);                                                                                \
      if (plan && w->mode == TRI_WALK_PLAN) w->st = be->ops.op##_plan(be, &a, plan);                                   \
      if (plan && w->mode == TRI_WALK_PLAN) plan_made(w, plan);                                                        \
      if (plan && w->mode == TRI_WALK_LAUNCH) be->ops.op##_launch(be, plan, &a);                                       \
      return;                                                                                                          \
    }                                                                                                                  \
    case TRI_WALK_RUN: w->st = tri_run_##op(be, &a); return;                                                           \
    case TRI_WALK_LIST: list(w, TRI_KERNEL_##op, &a); return;                                                          \
    case TRI_WALK_RECORD: {                                                                                            \
      const void *reads[] = {TRI_READS_##op(&a)}, *writes[] = {TRI_WRITES_##op(&a)};                                   \
      note(w, reads, COUNT(reads), writes, COUNT(writes));                                                             \
      return;                                                                                                          \
    }                                                                                                                  \
    }                                                                                                                  \
  }
TRI_OP_LIST(X)
#undef X

/* A record has the two parts, one after the other: what the first one alone uses may share memory with the result. */
void tri_emit_mlp(tri_walk *w, tri_gated_mlp_args a) {
  if (w->mode != TRI_WALK_RECORD) {
    tri_emit_gated_mlp(w, a);
    return;
  }
  tri_emit_gated_linear(w, a.gated);
  tri_emit_linear(w, a.down);
}

/* ---- the side stream ---- */

void tri_emit_side_begin(tri_walk *w) {
  tri_backend *be = w->f->cfg.backend;
  if (w->st != TRI_OK) return;
  w->on_side = w->has_side = true;
  if (w->mode == TRI_WALK_LAUNCH) be->ops.side_begin(be);
  if (w->mode == TRI_WALK_RECORD) w->side_start = w->record->count;
}

/* Ends what has begun also where something failed since. */
void tri_emit_side_end(tri_walk *w) {
  tri_backend *be = w->f->cfg.backend;
  if (w->on_side && w->mode == TRI_WALK_LAUNCH) be->ops.side_end(be);
  w->on_side = false;
}

/* Nothing of one side may lie where something of the other does: for the record it is all used until here. */
void tri_emit_side_join(tri_walk *w) {
  tri_backend *be = w->f->cfg.backend;
  if (w->has_side && w->mode == TRI_WALK_LAUNCH) be->ops.side_join(be);
  w->has_side = false;
  if (w->st != TRI_OK || w->mode != TRI_WALK_RECORD) return;
  tri_step_event e = {0};
  for (int i = w->side_start; i < w->record->count; i++)
    e.reads |= w->record->events[i].reads | w->record->events[i].writes;
  w->st = tri_step_record_add(w->record, e);
}

/* ---- what the host computes, and what goes between ranks ---- */

static bool runs(const tri_walk *w) {
  return w->st == TRI_OK && (w->mode == TRI_WALK_LAUNCH || w->mode == TRI_WALK_RUN);
}
static bool records(const tri_walk *w) { return w->st == TRI_OK && w->mode == TRI_WALK_RECORD; }

/* Fails a walk of any kind that would call a communicator on the side stream. The kernels of one count their rounds on
 * the device, as if they followed each other, and ranks would not keep the order of two streams. */
static void stay_on_main(tri_walk *w) {
  if (w->on_side && w->st == TRI_OK) w->st = TRI_CORRUPT;
}

void tri_emit_host_experts(tri_walk *w, const tri_layer *y, tri_moe_experts_args a) {
  if (runs(w)) tri_host_experts_launch(w->f->host_experts, y->local, &a);
  const void *reads[] = {TRI_READS_moe_experts(&a)}, *writes[] = {TRI_WRITES_moe_experts(&a)};
  if (records(w)) note(w, reads, COUNT(reads), writes, COUNT(writes));
}

void tri_emit_sum(tri_walk *w, tri_mat m) {
  tri_comm *c = w->f->cfg.tensor;
  size_t count = (size_t)m.rows * (size_t)m.cols;
  if (w->f->cfg.shard.p.tp == 1) return;
  stay_on_main(w);
  if (runs(w) && m.dtype == TRI_BF16)
    w->st = tri_comm_all_reduce_bf16(c, (uint16_t *)m.data, count);
  else if (runs(w))
    w->st = tri_comm_all_reduce(c, m.data, count);
  if (records(w)) {
    const void *p = m.data;
    note(w, &p, 1, &p, 1);
  }
}

void tri_emit_all_gather(tri_walk *w, const void *send, void *recv, size_t bytes) {
  tri_comm *c = w->f->cfg.tensor;
  stay_on_main(w);
  if (runs(w)) w->st = tri_comm_all_gather(c, send, recv, bytes);
  if (records(w)) note_move(w, send, recv);
}

/* Waits until the buffer may be used again; on a device that wait is queued, not the host's. */
void tri_emit_send(tri_walk *w, const void *buf, size_t bytes, int peer, int tag) {
  tri_comm *c = w->f->cfg.tensor;
  tri_comm_req req = {0};
  stay_on_main(w);
  if (runs(w)) w->st = tri_comm_isend(c, buf, bytes, peer, tag, &req);
  if (runs(w)) w->st = tri_comm_wait(c, &req);
  if (records(w)) note_move(w, buf, NULL);
}

void tri_emit_recv(tri_walk *w, void *buf, size_t bytes, int peer, int tag) {
  tri_comm *c = w->f->cfg.tensor;
  stay_on_main(w);
  if (runs(w)) w->st = tri_comm_recv(c, buf, bytes, peer, tag);
  if (records(w)) note_move(w, NULL, buf);
}

/* For the health report, while a part of an exchange runs. */
static void show_exchange(const tri_walk *w, tri_all2all_part part) {
  tri_progress *p = w->f->cfg.progress;
  if (p) atomic_store_explicit(&p->all2all, (uint32_t)part, memory_order_relaxed);
}

static tri_status dispatch(tri_forward *f, const void *x, int from, const tri_moe_route_args *route,
                           const tri_all2all_rows *all) {
  size_t first = (size_t)from * (size_t)f->cfg.model->moe.top_k;
  tri_all2all *e = f->cfg.all2all;
  if (route) return tri_all2all_route_and_dispatch(e, f->exchanged, x, route, all);
  return tri_all2all_dispatch(e, f->exchanged, x, (const int32_t *)f->buf.experts.data + first,
                              f->buf.expert_weights.data + first, all);
}

/* A record holds for rows that are routed on their way, too: what routing reads is there until then. */
void tri_emit_dispatch(tri_walk *w, tri_all2all_form form, bool rounds, tri_mat x, int from,
                       const tri_moe_route_args *route) {
  tri_forward *f = w->f;
  const tri_buffers *b = &f->buf;
  tri_all2all_rows all = {
      .x = b->all2all_x.data, .experts = (int32_t *)b->all2all_experts.data, .weights = b->all2all_weights.data};
  stay_on_main(w);
  if (runs(w)) {
    show_exchange(w, TRI_IN_DISPATCH);
    tri_all2all_use(f->cfg.all2all, form);
    tri_all2all_round(f->cfg.all2all, rounds);
    w->st = dispatch(f, tri_rows_from(x, from).data, from, route, &all);
    if (w->st == TRI_OK) show_exchange(w, TRI_NO_ALL2ALL);
  }
  const void *reads[] = {x.data, b->experts.data, b->expert_weights.data, b->router.data};
  const void *writes[] = {all.x, all.experts, all.weights};
  if (records(w)) note(w, reads, COUNT(reads), writes, COUNT(writes));
}

void tri_emit_combine(tri_walk *w, tri_mat out, int from, bool accumulate) {
  tri_forward *f = w->f;
  const float *y = f->buf.all2all_y.data;
  float *to = out.data ? out.data + (size_t)from * (size_t)out.ld : NULL;
  stay_on_main(w);
  if (runs(w)) {
    show_exchange(w, TRI_IN_COMBINE);
    w->st = tri_all2all_combine(f->cfg.all2all, y, to, accumulate);
    if (w->st == TRI_OK) show_exchange(w, TRI_NO_ALL2ALL);
  }
  const void *reads[] = {y, f->buf.all2all_experts.data, accumulate || from ? out.data : NULL}, *writes[] = {out.data};
  if (records(w)) note(w, reads, COUNT(reads), writes, COUNT(writes));
}

void tri_emit_copy_rows(tri_walk *w, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  tri_backend *be = w->f->cfg.backend;
  if (runs(w)) be->ops.copy_rows(be, to, to_pitch, from, from_pitch, width, rows);
  if (records(w)) note_move(w, from, to);
}

void tri_emit_result(tri_walk *w, tri_mat m) {
  if (records(w)) w->record->results |= tri_step_record_find(w->record, m.data, NULL);
}

/* ---- observers ---- */

void tri_walk_show_hidden(const tri_walk *w, int layer, tri_mat x) {
  const tri_observer *o = tri_observer_of(w->f);
  if (w->st == TRI_OK && w->mode == TRI_WALK_LAUNCH && o && o->hidden) o->hidden(o->ctx, layer, x);
}

/* ---- the rows whose logits are wanted ---- */

/* Returns a matrix as one of 32-bit words, which is what rows are copied in. */
static tri_mat as_words(tri_mat m) {
  int of_word = (int)(sizeof(float) / tri_dtype_size(m.dtype));
  return (tri_mat){m.data, m.rows, m.cols / of_word, m.ld / of_word, TRI_F32};
}

static void gather(tri_walk *w, tri_mat x, tri_mat out) {
  if (out.rows)
    tri_emit_gather_rows(w, (tri_gather_rows_args){.x = as_words(x), .rows = w->b->logit_rows, .out = as_words(out)});
}

tri_mat tri_walk_narrow(tri_walk *w, const tri_layer *y, tri_mat attended) {
  tri_forward *f = w->f;
  if (!narrows(w, y)) return attended;
  int n = w->b->num_logits;
  tri_mat narrow = tri_packed(f->buf.narrow_attn, n, attended.cols), rows = tri_packed(f->buf.rows, n, w->x.cols);
  gather(w, attended, narrow);
  gather(w, w->x, rows);
  f->narrow = *w->b;
  f->narrow.num_tokens = n;
  f->narrow.kv_slot = NULL; /* none of them is padding */
  w->b = &f->narrow;
  w->x = rows;
  w->is_narrow = true;
  return narrow;
}
