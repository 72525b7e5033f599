/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of rows on a device, as an engine makes it and a step runs it, with a column whose other rank has no
 * rows and gives nothing back: which form is chosen, what it is asked for, and that both forms compute the same. */
#include <check.h>
#include <string.h>

#include "kernels/ref/ref.h"
#include "base/mem.h"
#include "runtime/engine/all2all_choice.h"
#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_all2all_peers(void);

enum { SHARDS = 2, TOKENS = 5 };

static struct column {
  tri_status can; /* what comm_add_rows comes to */
  float missing;  /* ranks of the stage whose columns cannot */
  int rank;       /* of this shard */
  tri_rows_config rows;
  int added, told, gathers, dispatches, routed, combines, routes; /* told: sums of ranks that cannot */
  tri_comm library;
  void (*moe_route_launch)(tri_backend *, const tri_op_plan *, const tri_moe_route_args *);
} column;

/* ---- the host's communicators ---- */

/* The first number that is summed behind comm_add_rows is that of the ranks that cannot. */
static tri_status all_reduce(tri_comm *c, float *buf, size_t count) {
  if (count == 1 && c->size > 1 && column.added) {
    *buf += column.missing;
    column.told++;
    column.missing = 0;
  }
  return TRI_OK;
}

static tri_status all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  for (int r = 0; r < c->size; r++) memcpy((char *)recv + (size_t)r * bytes, send, bytes);
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static void no_destroy(tri_comm *c) { (void)c; }

static const tri_comm_ops host_ops = {
    .name = "host", .all_reduce = all_reduce, .all_gather = all_gather, .wait = no_wait, .destroy = no_destroy};

/* The other rank votes as this one does. */
static tri_status double_votes(tri_comm *c, float *buf, size_t count) {
  for (size_t i = 0; i < count; i++) buf[i] *= (float)c->size;
  return TRI_OK;
}

static const tri_comm_ops sum_ops = {
    .name = "sum", .all_reduce = double_votes, .all_gather = all_gather, .wait = no_wait, .destroy = no_destroy};

/* ---- the column's, on the device ---- */

/* Gives of the other rank neither numbers nor experts. */
static tri_status gather_own(tri_comm *c, const void *send, void *recv, size_t bytes) {
  char *own = (char *)recv + (size_t)c->rank * bytes;
  column.gathers++;
  if (own != send) memcpy(own, send, bytes);
  for (int r = 0; r < c->size; r++)
    if (r != c->rank) memset((char *)recv + (size_t)r * bytes, 0xff, bytes);
  return TRI_OK;
}

static tri_status scatter_own(tri_comm *c, const float *send, float *recv, size_t count) {
  memcpy(recv, send + (size_t)c->rank * count, count * sizeof *recv);
  return TRI_OK;
}

static tri_status dispatch(tri_comm *c, const tri_rows_dispatch *a) {
  const tri_rows_config *r = &column.rows;
  size_t own = (size_t)c->rank * (size_t)a->stride, k = (size_t)r->top_k, rows = (size_t)a->rows[c->rank];
  column.dispatches++;
  column.routed += a->route != NULL;
  ck_assert(a->rows[0] <= a->stride && a->rows[1] <= a->stride && a->stride <= r->max_rows);
  memset(a->all.experts, 0xff, (size_t)(r->ranks * a->stride) * k * sizeof *a->all.experts);
  memcpy((float *)a->all.x + own * (size_t)r->hidden, a->x, rows * (size_t)r->hidden * sizeof(float));
  if (a->route) {
    tri_moe_route_args route = *a->route;
    double *scratch = tri_calloc(3 * (size_t)route.logits.cols, sizeof *scratch);
    route.experts = a->all.experts + own * k;
    route.weights = a->all.weights + own * k;
    ck_assert_int_ge(route.logits.rows, a->rows[c->rank]);
    for (int t = 0; t < a->rows[c->rank]; t++) tri_ref_moe_route_row(&route, t, scratch);
    tri_free(scratch);
  } else {
    memcpy(a->all.experts + own * k, a->experts, rows * k * sizeof *a->experts);
    memcpy(a->all.weights + own * k, a->weights, rows * k * sizeof *a->weights);
  }
  return TRI_OK;
}

static tri_status combine(tri_comm *c, const tri_rows_combine *a) {
  const tri_rows_config *r = &column.rows;
  size_t k = (size_t)r->top_k, other = (size_t)((1 - c->rank) * a->stride);
  column.combines++;
  for (size_t i = 0; i < (size_t)a->stride * k; i++) ck_assert_int_eq(a->all_experts[other * k + i], -1);
  memcpy(a->out, a->y + (size_t)c->rank * (size_t)a->stride * (size_t)r->hidden,
         (size_t)a->rows[c->rank] * (size_t)r->hidden * sizeof *a->out);
  return TRI_OK;
}

static const tri_comm_ops library_ops = {
    .name = "library", .all_gather = gather_own, .reduce_scatter = scatter_own, .destroy = no_destroy};
static void free_comm(tri_comm *c) { tri_free(c); }
static const tri_comm_ops peers_ops = {.name = "peers", .dispatch = dispatch, .combine = combine, .destroy = free_comm};

/* ---- a backend that says that it is a device ---- */

static tri_status comm_create(tri_backend *be, struct tri_comm *host, tri_comm_use use, struct tri_comm **out,
                              tri_error *err) {
  (void)be;
  (void)err;
  ck_assert_int_eq(use, TRI_COMM_ROWS);
  column.library = (tri_comm){.ops = &library_ops, .rank = host->rank, .size = host->size};
  *out = &column.library;
  return TRI_OK;
}

static tri_status comm_add_rows(tri_backend *be, struct tri_comm *host, const struct tri_rows_config *rows,
                                struct tri_comm **c, tri_error *err) {
  (void)be;
  column.added++;
  column.rows = *rows;
  if (column.can != TRI_OK) return tri_fail(err, column.can, "p2p", "no peers");
  tri_comm *peers = tri_calloc(1, sizeof *peers);
  ck_assert_ptr_nonnull(peers);
  *peers = (tri_comm){.ops = &peers_ops, .fallback = *c, .rank = host->rank, .size = host->size};
  *c = peers;
  return TRI_OK;
}

static void moe_route_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_route_args *a) {
  column.routes++;
  column.moe_route_launch(be, plan, a);
}

static void prepare(tri_backend *be) {
  be->host_memory = false;
  be->ops.comm_create = comm_create;
  be->ops.comm_add_rows = comm_add_rows;
  column.moe_route_launch = be->ops.moe_route_launch;
  be->ops.moe_route_launch = moe_route_launch;
}

/* ---- engines ---- */

/* An engine, and what it was made of. False: it was refused. */
static bool make(struct kit *k, struct column how, int form, int all2all_rows, bool deterministic) {
  column = how;
  kit_config config = {.checkpoint = "mixtral_odd",
                       .backend = "ref",
                       .p = {.tp = 1, .pp = 1, .dp = SHARDS, .ep = SHARDS, .dp_rank = how.rank},
                       .ops = &host_ops,
                       .all2all = form,
                       .all2all_rows = all2all_rows,
                       .deterministic = deterministic,
                       .prepare = prepare};
  bool made = make_kit(k, &config);
  struct column *c = &column;
  c->gathers = c->dispatches = c->routed = c->combines = c->routes = 0;
  return made;
}

static tri_all2all_form chosen(struct column how, int form, bool deterministic) {
  static struct kit k;
  ck_assert(make(&k, how, form, 0, deterministic));
  tri_all2all_form first = k.e->all2all_choice.by_size[0];
  free_kit(&k);
  return first;
}

START_TEST(a_form_is_chosen) {
  const struct column can = {0}, cannot = {.can = TRI_UNSUPPORTED}, other = {.missing = 1};
  const int fastest = TRI_ALL2ALL_FORMS;
  ck_assert_int_eq(chosen(can, TRI_ALL2ALL_COORDINATED, false), TRI_ALL2ALL_COORDINATED);
  ck_assert_int_eq(chosen(can, TRI_ALL2ALL_ALLGATHER, false), TRI_ALL2ALL_ALLGATHER);
  ck_assert_int_eq(column.added, 0); /* boxes that nobody would use */
  ck_assert_int_eq(chosen(can, fastest, true), TRI_ALL2ALL_COORDINATED);
  ck_assert_int_eq(column.dispatches, 0); /* no measurement decides */
  ck_assert_int_eq(chosen(cannot, fastest, false), TRI_ALL2ALL_ALLGATHER);
  ck_assert_int_eq(chosen(other, fastest, false), TRI_ALL2ALL_ALLGATHER);
  ck_assert_int_lt(chosen(can, fastest, false), TRI_ALL2ALL_FORMS);
}
END_TEST

/* A rank that fails in asking for boxes tells the others' columns, who wait for its word. */
START_TEST(a_failure_is_told) {
  static struct kit k;
  ck_assert(!make(&k, (struct column){.can = TRI_NO_MEMORY}, TRI_ALL2ALL_COORDINATED, 0, false));
  ck_assert_int_eq(column.added, 1);
  ck_assert_int_eq(column.told, 2); /* to the stage, and to the group */
  free_kit(&k);
}
END_TEST

START_TEST(what_cannot_be_is_refused) {
  static struct kit k;
  ck_assert(!make(&k, (struct column){.can = TRI_UNSUPPORTED}, TRI_ALL2ALL_COORDINATED, 0, false));
  free_kit(&k);
}
END_TEST

/* ---- steps ---- */

static void build(struct kit *k, int rank) {
  static const uint32_t ids[TOKENS] = {3, 1, 4, 1, 5};
  int32_t block = 0;
  uint32_t tokens[SHARDS] = {0}, longest[SHARDS] = {0};
  tri_plan_view view;
  size_t bytes;
  tokens[rank] = TOKENS;
  tri_plan_begin(k->w, 0, 1);
  tri_plan_seq s = {.kind = TRI_SEQ_CHUNK,
                    .flags = TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_SAMPLE,
                    .num_tokens = TOKENS,
                    .num_blocks = 1};
  tri_plan_add(k->w, &s, ids, &block, &kit_params, 0);
  tri_plan_set_dp_ranks(k->w, tokens, longest, SHARDS);
  const void *plan = tri_plan_finish(k->w, &bytes);
  ck_assert_int_eq(tri_plan_read(plan, bytes, &view), TRI_OK);
  ck_assert_int_eq(tri_batch_build(k->e->batch, k->e->slots, &view), TRI_OK);
}

/* Returns the logits of a step's one draw. */
static float *run(int rank, tri_all2all_form form, int all2all_rows, int *vocab) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  ck_assert(make(&k, (struct column){.rank = rank}, (int)form, all2all_rows, false));
  build(&k, rank);
  ck_assert_int_eq(tri_forward_run(k.e->forward, k.e->batch, 0, &logits, &output), TRI_OK);
  ck_assert(logits.rows == 1 && logits.data);
  *vocab = logits.cols;
  float *copy = tri_calloc((size_t)logits.cols, sizeof *copy);
  memcpy(copy, logits.data, (size_t)logits.cols * sizeof *copy);
  free_kit(&k);
  return copy;
}

/* Rows of one exchange are routed as they are sent; those of several, before. */
START_TEST(both_forms_compute_the_same) {
  for (int rank = 0; rank < SHARDS; rank++)
    for (int rows = 0; rows <= 2; rows += 2) {
      int vocab, exchanges = rows ? (TOKENS + rows - 1) / rows : 1;
      float *want = run(rank, TRI_ALL2ALL_ALLGATHER, rows, &vocab);
      int layers = column.routes;
      ck_assert(layers > 0 && column.gathers == 3 * layers * exchanges && !column.dispatches);
      float *got = run(rank, TRI_ALL2ALL_COORDINATED, rows, &vocab);
      ck_assert(column.dispatches == layers * exchanges && column.combines == column.dispatches && !column.gathers);
      ck_assert_int_eq(column.routed, rows ? 0 : layers);
      ck_assert_int_eq(column.routes, rows ? layers : 0);
      for (int i = 0; i < vocab; i++) ck_assert(want[i] - want[i] == 0 && got[i] == want[i]); /* they are numbers */
      tri_free(want);
      tri_free(got);
    }
}
END_TEST

/* An engine that lost a peer gives its communicators up first: nothing looks at them afterwards. */
START_TEST(a_lost_peer) {
  static struct kit k;
  ck_assert(make(&k, (struct column){0}, TRI_ALL2ALL_COORDINATED, 0, false));
  tri_comm_fail(k.e->device_column, TRI_PEER_LOST);
  free_kit(&k);
}
END_TEST

/* ---- rows that travel rounded ---- */

static int num_dispatched, num_rounded;

static tri_status note_dispatch(tri_comm *c, const tri_rows_dispatch *a) {
  (void)c;
  num_dispatched++;
  num_rounded += a->rounded;
  return TRI_OK;
}
static tri_status note_combine(tri_comm *c, const tri_rows_combine *a) {
  (void)c;
  (void)a;
  return TRI_OK;
}
static const tri_comm_ops noting_ops = {.name = "noting",
                                        .dispatch = note_dispatch,
                                        .combine = note_combine,
                                        .all_gather = gather_own,
                                        .destroy = no_destroy};

/* Returns whether a dispatch's rows travel rounded where that is wished for. */
static bool travels_rounded(tri_dtype type, int hidden, tri_all2all_form form) {
  static const int32_t first_rank[] = {0, 1}, rows[] = {1, 1}, slots[] = {0};
  static float x[256], all_x[2 * 256], weights[1], all_weights[2];
  int32_t all_experts[2];
  const tri_all2all_rows all = {all_x, all_experts, all_weights};
  tri_comm comm = {.ops = &noting_ops, .size = SHARDS};
  tri_all2all_config c = {.column = &comm,
                          .stage = &comm,
                          .tp = 1,
                          .dp = SHARDS,
                          .max_rows = 1,
                          .device = true,
                          .type = type,
                          .hidden = hidden,
                          .top_k = 1,
                          .num_experts = 2,
                          .etp = 1,
                          .first_rank = first_rank};
  tri_all2all *e;
  num_dispatched = num_rounded = 0;
  ck_assert_int_eq(tri_all2all_create(&c, &e, NULL), TRI_OK);
  tri_all2all_use(e, form);
  for (int wished = 0; wished < 3; wished++) { /* a wish holds until the next */
    if (wished) tri_all2all_round(e, wished == 1);
    ck_assert_int_eq(tri_all2all_dispatch(e, rows, x, slots, weights, &all), TRI_OK);
    ck_assert(wished == 1 || num_rounded <= 1);
  }
  ck_assert_int_eq(num_dispatched, form == TRI_ALL2ALL_COORDINATED ? 3 : 0);
  tri_all2all_destroy(e);
  return num_rounded == 1;
}

START_TEST(rows_travel_rounded) {
  ck_assert(travels_rounded(TRI_BF16, 256, TRI_ALL2ALL_COORDINATED));
  ck_assert(!travels_rounded(TRI_BF16, 192, TRI_ALL2ALL_COORDINATED)); /* no whole groups */
  ck_assert(!travels_rounded(TRI_F16, 256, TRI_ALL2ALL_COORDINATED));
  ck_assert(!travels_rounded(TRI_F32, 256, TRI_ALL2ALL_COORDINATED));
  ck_assert(!travels_rounded(TRI_BF16, 256, TRI_ALL2ALL_ALLGATHER));
}
END_TEST

/* ---- a step whose experts round their rows ---- */

static int num_wishes, num_rounding_wishes;

void __real_tri_all2all_round(tri_all2all *e, bool rounds);
void __wrap_tri_all2all_round(tri_all2all *e, bool rounds);
void __wrap_tri_all2all_round(tri_all2all *e, bool rounds) {
  num_wishes++;
  num_rounding_wishes += rounds;
  __real_tri_all2all_round(e, rounds);
}

#define X(op)                                                                                                          \
  static void op##_left_out(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                      \
    (void)be;                                                                                                          \
    (void)plan;                                                                                                        \
    (void)a;                                                                                                           \
  }
TRI_OP_LIST(X)
#undef X

static void prefer_fp8(tri_backend *be) {
  prepare(be);
  be->prefers_fp8 = true;
}

/* Returns for how many dispatches of a step that is wished, of all, if the backend rounds rows from so many of each
 * expert on. Nothing is computed: the host rounds no rows to FP8, and the checkpoint's blocks have other columns. */
static int rounding_wishes(int from, int *all) {
  static struct kit k;
  tri_mat logits;
  tri_encoder_output output;
  column = (struct column){0};
  kit_config config = {.checkpoint = "fp8_deepseek_v3",
                       .backend = "ref",
                       .p = {.tp = 1, .pp = 1, .dp = SHARDS, .ep = SHARDS},
                       .ops = &host_ops,
                       .all2all = TRI_ALL2ALL_COORDINATED,
                       .quantization = TRI_QUANTIZE_FP8,
                       .prepare = prefer_fp8};
  ck_assert(make_kit(&k, &config));
  tri_backend_ops ops = k.be->ops;
  for (int l = 0; l < k.e->shard.layers.count; l++)
    k.e->weights->layers[l].w[TRI_W_EXPERT_UP].groups.cols = TRI_INT8_GROUP;
  k.be->rounds_fp8_experts_from = from;
#define X(op) k.be->ops.op##_launch = op##_left_out;
  TRI_OP_LIST(X)
#undef X
  build(&k, 0);
  num_wishes = num_rounding_wishes = 0;
  ck_assert_int_eq(tri_forward_run(k.e->forward, k.e->batch, 0, &logits, &output), TRI_OK);
  k.be->ops = ops;
  free_kit(&k);
  *all = num_wishes;
  return num_rounding_wishes;
}

/* ---- the measurement ---- */

static bool has_wide_blocks; /* experts of the checkpoint */

bool __real_tri_stored_form_find(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                                 tri_weight_id id, int layer, tri_dtype dtype, tri_groups *groups);
bool __wrap_tri_stored_form_find(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                                 tri_weight_id id, int layer, tri_dtype dtype, tri_groups *groups);
bool __wrap_tri_stored_form_find(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                                 tri_weight_id id, int layer, tri_dtype dtype, tri_groups *groups) {
  bool found = __real_tri_stored_form_find(c, s, ckpt, id, layer, dtype, groups);
  if (found && has_wide_blocks && id == TRI_W_EXPERT_UP) groups->cols = TRI_INT8_GROUP;
  return found;
}

static void round_sixteen(tri_backend *be) {
  prefer_fp8(be);
  be->rounds_fp8_experts_from = 16;
}

/* 4, 16 and 32 rows of two ranks are as many for each of 6 experts with 3 choices of a row: the latter two sizes travel
 * rounded, in both forms. */
START_TEST(what_travels_rounded_is_measured_so) {
  static struct kit k;
  kit_config config = {.checkpoint = "fp8_deepseek_v3",
                       .backend = "ref",
                       .p = {.tp = 1, .pp = 1, .dp = SHARDS, .ep = SHARDS},
                       .ops = &sum_ops,
                       .all2all = TRI_ALL2ALL_FORMS,
                       .quantization = TRI_QUANTIZE_FP8,
                       .prepare = round_sixteen};
  for (int wide = 0; wide < 2; wide++) {
    column = (struct column){0};
    has_wide_blocks = wide;
    num_wishes = num_rounding_wishes = 0;
    ck_assert(make_kit(&k, &config));
    ck_assert_int_eq(num_wishes, 3 * TRI_ALL2ALL_FORMS);
    ck_assert_int_eq(num_rounding_wishes, wide ? 2 * TRI_ALL2ALL_FORMS : 0);
    free_kit(&k);
  }
  has_wide_blocks = false;
}
END_TEST

/* The rows of all ranks decide, those that only some have included: 10 of 3 choices each, of 6 experts. */
START_TEST(rows_of_a_step_travel_rounded) {
  int all;
  ck_assert_int_gt(rounding_wishes(5, &all), 0);
  ck_assert_int_eq(num_rounding_wishes, all);
  ck_assert_int_eq(rounding_wishes(6, &all), 0);
  ck_assert_int_gt(all, 0);
}
END_TEST

/* Rows may travel rounded if experts round them as they come, in groups of the same length. */
START_TEST(which_experts_round) {
  static float scale;
  tri_model_config model = {0};
  tri_forward f = {.cfg.model = &model};
  tri_walk w = {.f = &f};
  const tri_groups groups = {.rows = 128, .cols = TRI_INT8_GROUP};
  const tri_moe_experts_args rounds = {.rounds_rows = true,
                                       .up = {.scale = &scale, .dtype = TRI_F8_E4M3, .groups = groups}};
  tri_moe_experts_args a = rounds;
  ck_assert(tri_dispatch_rounds(&w, &a));
  a.rounds_rows = false; /* few rows */
  ck_assert(!tri_dispatch_rounds(&w, &a));
  a = rounds;
  a.up.groups = (tri_groups){0}; /* a scale for each row */
  ck_assert(!tri_dispatch_rounds(&w, &a));
  a = rounds;
  a.up.dtype = TRI_I8;
  ck_assert(!tri_dispatch_rounds(&w, &a));
  model.moe.scale_input = true; /* rows are multiplied before they are rounded */
  ck_assert(!tri_dispatch_rounds(&w, &rounds));
}
END_TEST

/* ---- slots and bytes ---- */

static tri_all2all_config config_of(int tp, int dp, int etp, const int32_t *first_rank, int slots) {
  return (tri_all2all_config){.tp = tp,
                              .dp = dp,
                              .max_rows = 1024,
                              .device = true,
                              .type = TRI_BF16,
                              .hidden = 4096,
                              .top_k = 2,
                              .num_experts = slots,
                              .etp = etp,
                              .first_rank = first_rank};
}

START_TEST(slots_of_a_column) {
  static const int32_t each[] = {0, 0, 1, 2, 2, 3}, sliced[] = {0, 0, 2, 2}, mixed[] = {0, 1, 0, 2};
  tri_rows_config rows;
  tri_all2all_config c = config_of(2, 2, 1, each, 6);
  c.t = 1;
  ck_assert(tri_all2all_rows_config(&c, &rows));
  ck_assert(rows.ranks == 2 && rows.first_slot[0] == 2 && rows.end_slot[0] == 3);
  ck_assert(rows.first_slot[1] == 5 && rows.end_slot[1] == 6);
  c = config_of(2, 2, 2, sliced, 4);
  c.t = 1; /* it has a slice of every expert */
  ck_assert(tri_all2all_rows_config(&c, &rows));
  ck_assert(rows.first_slot[0] == 0 && rows.end_slot[0] == 2 && rows.first_slot[1] == 2 && rows.end_slot[1] == 4);
  c = config_of(2, 2, 1, mixed, 4);
  ck_assert(!tri_all2all_rows_config(&c, &rows)); /* not neighbours */
  c = config_of(1, 9, 1, each, 6);
  ck_assert(!tri_all2all_rows_config(&c, &rows)); /* too many ranks */
}
END_TEST

START_TEST(boxes_are_counted) {
  static const int32_t each[] = {0, 1, 2, 3};
  size_t with, without, rows = 4 * 1024, box = rows * (3 * 4096 * 2 + 2 * 16);
  tri_all2all_config c = config_of(1, 4, 1, each, 4);
  ck_assert(tri_all2all_bytes(&c, &with));
  c.dp = 9; /* NCCL's alone */
  ck_assert(tri_all2all_bytes(&c, &without));
  ck_assert(with > box && with - box < 4096 + (size_t)1024 * (4096 * 4 + 8));
  ck_assert_uint_lt(without, (size_t)1024 * (4096 * 4 + 8) + 4096);
}
END_TEST

Suite *suite_all2all_peers(void) {
  Suite *s = suite_create("all2all_peers");
  TCase *tc = tcase_create("exchange_peers");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, a_form_is_chosen);
  tcase_add_test(tc, a_failure_is_told);
  tcase_add_test(tc, what_cannot_be_is_refused);
  tcase_add_test(tc, both_forms_compute_the_same);
  tcase_add_test(tc, a_lost_peer);
  tcase_add_test(tc, rows_travel_rounded);
  tcase_add_test(tc, rows_of_a_step_travel_rounded);
  tcase_add_test(tc, what_travels_rounded_is_measured_so);
  tcase_add_test(tc, which_experts_round);
  tcase_add_test(tc, slots_of_a_column);
  tcase_add_test(tc, boxes_are_counted);
  suite_add_tcase(s, tc);
  return s;
}
