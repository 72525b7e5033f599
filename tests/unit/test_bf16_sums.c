/* SPDX-License-Identifier: Apache-2.0 */
/* Long sums of a tensor group in bfloat16: which sums of a step are, that the op before one writes what it sums, and
 * that the norm after it reads that. On a backend that only takes notes: none of the host computes with activations of
 * 16 bits. */
#include <check.h>
#include <string.h>

#include "runtime/forward/forward_state.h"
#include "tests/unit/engine_kit.h"

Suite *suite_bf16_sums(void);

enum { MOST = 256, PROMPTS = KIT_TOKENS };

static struct {
  tri_backend_ops original;
  size_t above;       /* the backend's */
  bool runs;          /* the step does */
  int f32, bf16;      /* sums of a step, */
  size_t f32_numbers; /* and their lengths together */
  size_t bf16_numbers;
  int deltas; /* that norms read */
  struct {
    const void *at;
    tri_dtype type;
  } written[MOST]; /* the type of what lies at a place */
  int num_written;
} notes;

/* ---- what lies where ---- */

static int find(const void *at) {
  for (int i = 0; i < notes.num_written; i++)
    if (notes.written[i].at == at) return i;
  return -1;
}

static void wrote(tri_mat m) {
  int i = find(m.data);
  if (!m.data) return;
  ck_assert_int_lt(notes.num_written, MOST);
  if (i < 0) i = notes.num_written++;
  notes.written[i].at = m.data;
  notes.written[i].type = m.dtype;
}

static void reads(const void *at, tri_dtype type) {
  int i = find(at);
  ck_assert_int_ge(i, 0);
  ck_assert_int_eq(notes.written[i].type, type);
}

static void note(tri_op op, const void *args) {
  const tri_norm_args *norm = args;
  if (op == TRI_KERNEL_embed) wrote(((const tri_embed_args *)args)->out);
  if (op == TRI_KERNEL_linear) wrote(((const tri_linear_args *)args)->out);
  if (op == TRI_KERNEL_gated_mlp) wrote(((const tri_gated_mlp_args *)args)->down.out);
  if (op == TRI_KERNEL_moe_experts) wrote(((const tri_moe_experts_args *)args)->out);
  if (op == TRI_KERNEL_gather_rows) wrote(((const tri_gather_rows_args *)args)->out);
  if (op != TRI_KERNEL_norm) return;
  ck_assert_int_eq(norm->x.dtype, TRI_F32);
  if (norm->delta.data) {
    reads(norm->delta.data, norm->delta.dtype);
    notes.deltas++;
  }
  wrote(norm->out);
}

#define X(op)                                                                                                          \
  static void op##_noted(tri_backend *be, const tri_op_plan *plan, const tri_##op##_args *a) {                         \
    (void)be;                                                                                                          \
    (void)plan;                                                                                                        \
    note(TRI_KERNEL_##op, a);                                                                                          \
  }
TRI_OP_LIST(X)
#undef X

static void take_notes(tri_backend *be) {
#define X(op) be->ops.op##_launch = op##_noted;
  TRI_OP_LIST(X)
#undef X
}

/* ---- the group ---- */

/* Before the step, ranks agree with sums of their own. */
static tri_status sum(tri_comm *c, float *buf, size_t count) {
  (void)c;
  if (!notes.runs) return TRI_OK;
  if (find(buf) >= 0) reads(buf, TRI_F32); /* also of squares, which no op above writes */
  notes.f32++;
  notes.f32_numbers += count;
  return TRI_OK;
}

static tri_status sum_bf16(tri_comm *c, uint16_t *buf, size_t count) {
  (void)c;
  reads(buf, TRI_BF16);
  notes.bf16++;
  notes.bf16_numbers += count;
  return TRI_OK;
}

static tri_status gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  for (int r = 0; r < c->size; r++) memcpy((char *)recv + (size_t)r * bytes, send, bytes);
  return TRI_OK;
}

static tri_status no_wait(tri_comm *c, tri_comm_req *req) {
  (void)c;
  (void)req;
  return TRI_OK;
}

static const tri_comm_ops both = {
    .name = "both", .all_reduce = sum, .all_reduce_bf16 = sum_bf16, .all_gather = gather, .wait = no_wait};
static const tri_comm_ops wide = {.name = "wide", .all_reduce = sum, .all_gather = gather, .wait = no_wait};

/* ---- a step ---- */

static struct kit kit;

static void prepare(tri_backend *be) { be->bf16_sums_above = notes.above; }

/* Runs a step of one rank of two, of PROMPTS rows, or with `single` of KIT_SEQS. above: of float32 numbers, for each
 * column. Returns the layers. */
static int run(const char *checkpoint, const tri_comm_ops *ops, size_t above, int rank, bool single) {
  tri_mat logits;
  tri_encoder_output output;
  kit_config config = {
      .checkpoint = checkpoint, .backend = "ref", .narrow = true, .p = {.tp = 2, .pp = 1, .tp_rank = rank}, .ops = ops};
  memset(&notes, 0, sizeof notes);
  config.prepare = prepare;
  notes.above = 1;
  ck_assert(make_kit(&kit, &config));
  kit.be->bf16_sums_above = above * (size_t)kit.e->model.hidden_size * sizeof(float);
  notes.original = kit.be->ops;
  build_batch(&kit, single);
  take_notes(kit.be);
  notes.runs = true;
  ck_assert_int_eq(tri_forward_run(kit.e->forward, kit.e->batch, 0, &logits, &output), TRI_OK);
  notes.runs = false;
  kit.be->ops = notes.original;
  int layers = kit.e->shard.layers.count;
  free_kit(&kit);
  return layers;
}

static void expect(int f32, int bf16) {
  ck_assert_int_eq(notes.f32, f32);
  ck_assert_int_eq(notes.bf16, bf16);
}

/* The embedding is always of float32. The last layer has the rows whose logits are wanted from its attention on, which
 * are fewer; all sums are short in a step of these. */
START_TEST(long_sums) {
  for (int rank = 0; rank < 2; rank++) {
    int layers = run("llama", &both, 8, rank, false);
    expect(1 + 2, 2 * (layers - 1));
    ck_assert_uint_eq(notes.bf16_numbers % PROMPTS, 0);
    ck_assert_int_ge(notes.deltas, 2 * (layers - 1));
    run("llama", &both, 8, rank, true);
    expect(1 + 2 * layers, 0);
    run("llama", &both, 1, rank, true);
    expect(1, 2 * layers);
  }
}
END_TEST

/* Tactics are measured for 16 rows, and serve 15. */
START_TEST(rows_are_padded) {
  int layers = run("llama", &both, 15, 0, false);
  expect(1 + 2, 2 * (layers - 1));
  run("llama", &both, 16, 0, false);
  expect(1 + 2 * layers, 0);
}
END_TEST

START_TEST(none_where_it_is_off_or_lacking) {
  int layers = run("llama", &both, 0, 0, false);
  expect(1 + 2 * layers, 0);
  run("llama", &wide, 8, 0, false);
  expect(1 + 2 * layers, 0);
}
END_TEST

/* Results that are normed alone, that several ops add to, or that have a bias are float32. */
START_TEST(branches) {
  static const struct {
    const char *checkpoint;
    int f32, bf16; /* of each layer */
  } cases[] = {{"llama", 0, 2},     {"qwen3_odd", 0, 2},    {"mixtral_odd", 0, 2}, {"deepseek_v3_odd", 1, 1},
               {"gpt2", 2, 0},      {"gemma2_odd", 2, 0},   {"olmo2", 2, 0},       {"falcon_new", 1, 0},
               {"qwen2_odd", 0, 2}, {"qwen2_moe_odd", 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int layers = run(cases[i].checkpoint, &both, 1, 1, true), beside = notes.f32 - cases[i].f32 * layers;
    ck_assert_msg(notes.bf16 == cases[i].bf16 * layers && beside >= 1 && beside <= 1 + layers,
                  "%s: %d sums of float32 and %d of bfloat16 in %d layers", cases[i].checkpoint, notes.f32, notes.bf16,
                  layers);
  }
}
END_TEST

/* No communicator is called between the side stream's begin and end, in no kind of walk. */
START_TEST(no_sum_on_the_side) {
  static float x[4];
  tri_model_config model = {0};
  tri_comm comm = {.ops = &both, .size = 2};
  tri_forward f = {.cfg = {.model = &model, .tensor = &comm, .shard.p.tp = 2}};
  const tri_mat m = {x, 1, 4, 4, TRI_F32};
  memset(&notes, 0, sizeof notes);
  notes.runs = true;
  for (int side = 0; side < 2; side++)
    for (int plans = 0; plans < 2; plans++) {
      tri_walk w = {.mode = plans ? TRI_WALK_PLAN : TRI_WALK_RUN, .f = &f, .on_side = side};
      tri_emit_sum(&w, m);
      ck_assert_int_eq(w.st, side ? TRI_CORRUPT : TRI_OK);
    }
  ck_assert_int_eq(notes.f32, 1);
  notes.runs = false;
}
END_TEST

Suite *suite_bf16_sums(void) {
  Suite *s = suite_create("bf16_sums");
  TCase *tc = tcase_create("steps");
  tcase_set_timeout(tc, 60);
  tcase_add_test(tc, long_sums);
  tcase_add_test(tc, rows_are_padded);
  tcase_add_test(tc, no_sum_on_the_side);
  tcase_add_test(tc, none_where_it_is_off_or_lacking);
  tcase_add_test(tc, branches);
  suite_add_tcase(s, tc);
  return s;
}
