/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that the host computes beside a device: a device that does nothing of its stream before it is waited for, so
 * that nothing may rest on when it does. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "kernels/host_experts.h"
#include "kernels/quantize.h"
#include "tests/unit/quantize_rows.h"
#include "base/hash.h"

Suite *suite_host_experts(void);

/* ---- a device ---- */

enum { MOST_OPS = 256 };

/* An entry of a stream: a copy, or a call. */
struct queued {
  void *to;
  const void *from;
  size_t bytes;
  tri_host_call *call;
};

static struct device {
  tri_backend *be;
  struct queued ops[MOST_OPS];
  int count;
} device;

static void copy(tri_backend *be, void *to, const void *from, size_t bytes) {
  (void)be;
  ck_assert_int_lt(device.count, MOST_OPS);
  device.ops[device.count++] = (struct queued){.to = to, .from = from, .bytes = bytes};
}

static void host_call(tri_backend *be, tri_host_call *call) {
  ck_assert_int_lt(device.count, MOST_OPS);
  call->backend = be;
  device.ops[device.count++] = (struct queued){.call = call};
}

/* Runs what is there, and keeps it: a recorded step runs again. */
static tri_status replay(void) {
  tri_status first = TRI_OK;
  for (int i = 0; i < device.count; i++) {
    const struct queued *q = &device.ops[i];
    tri_status st = q->call ? q->call->run(q->call) : TRI_OK;
    if (q->bytes) memcpy(q->to, q->from, q->bytes);
    if (first == TRI_OK) first = st;
  }
  return first;
}

static tri_status drain(void) {
  tri_status st = replay();
  device.count = 0;
  return st;
}

/* ---- a layer ---- */

enum { HIDDEN = 40, FF = 24, EXPERTS = 9, ROWS = 50 };

struct shape {
  tri_dtype weights, x, out;
  int top_k;
  bool gated, biased, accumulate, int8_activations;
  enum { ANY, ONE, SOME } choice; /* experts of any number, one for all rows, choices of which some are another's */
};

/* A layer's weights, what goes into it, and results. */
struct layer {
  tri_moe_experts_args a;
  float *wide_x;
  void *memory[16];
  int num_memory;
};

static void *take(struct layer *y, size_t bytes) {
  ck_assert_int_lt(y->num_memory, 16);
  void *p = tri_calloc(bytes ? bytes : 1, 1);
  ck_assert_ptr_nonnull(p);
  return y->memory[y->num_memory++] = p;
}

static void drop(struct layer *y) {
  for (int i = 0; i < y->num_memory; i++) tri_free(y->memory[i]);
}

static float number(uint64_t *seed) { return (float)((double)(tri_splitmix64(seed) >> 40) / (1 << 23) - 1); }

/* Numbers that a type of 16 bits has exactly. */
static void fill(void *to, tri_dtype type, size_t n, uint64_t *seed) {
  for (size_t i = 0; i < n; i++) tri_store_f32(to, type, i, tri_bf16_to_f32(tri_f32_to_bf16(number(seed))));
}

static tri_weight weight(struct layer *y, tri_dtype type, int n, int k, uint64_t *seed) {
  tri_weight w = {.dtype = type, .n = n, .k = k};
  size_t all = (size_t)n * (size_t)k;
  w.data = take(y, all * tri_dtype_size(type));
  if (type != TRI_I8) {
    fill((void *)w.data, type, all, seed);
    return w;
  }
  float *wide = take(y, all * sizeof *wide);
  w.scale = take(y, (size_t)n * sizeof(float));
  fill(wide, TRI_F32, all, seed);
  ck_assert_int_eq(quantize_rows(wide, TRI_F32, (size_t)n, (size_t)k, (void *)w.data, (float *)w.scale), TRI_OK);
  return w;
}

/* Chooses experts for each row and makes the map of them. */
static void choose(struct layer *y, const struct shape *s, uint64_t *seed) {
  tri_moe_experts_args *a = &y->a;
  int choices = ROWS * a->top_k, row = 0;
  int32_t *experts = take(y, (size_t)choices * sizeof *experts);
  float *weights = take(y, (size_t)choices * sizeof *weights);
  for (int i = 0, base = 0; i < choices; i++) {
    int c = i % a->top_k;
    if (!c) base = s->choice == ONE ? EXPERTS - 1 : (int)(tri_splitmix64(seed) % EXPERTS);
    experts[i] = s->choice == SOME && c % 3 == 1 ? -1 : (base + c) % EXPERTS;
    weights[i] = number(seed);
  }
  a->weights = weights;
  a->map.first = take(y, (EXPERTS + 1) * sizeof(int32_t));
  a->map.choice = take(y, (size_t)choices * sizeof(int32_t));
  a->map.row = take(y, (size_t)choices * sizeof(int32_t));
  memset(a->map.row, 0xff, (size_t)choices * sizeof(int32_t));
  for (int e = 0; e < EXPERTS; e++) {
    a->map.first[e] = row;
    for (int i = 0; i < choices; i++) {
      if (experts[i] != e) continue;
      a->map.row[i] = row;
      a->map.choice[row++] = i;
    }
  }
  a->map.first[EXPERTS] = row;
}

/* The map of the first rows alone. */
static void cut(struct layer *y, int rows) {
  tri_moe_experts_args *a = &y->a;
  int kept = 0;
  for (int e = 0, i = 0; e < EXPERTS; e++) {
    int end = a->map.first[e + 1];
    a->map.first[e] = kept;
    for (; i < end; i++) {
      int32_t choice = a->map.choice[i];
      if (choice >= rows * a->top_k) continue;
      a->map.row[choice] = kept;
      a->map.choice[kept++] = choice;
    }
  }
  a->map.first[EXPERTS] = kept;
  a->x.rows = a->out.rows = rows;
}

static void make(struct layer *y, const struct shape *s, uint64_t seed) {
  int up_n = s->gated ? 2 * FF : FF;
  *y = (struct layer){.a = {.top_k = s->top_k,
                            .num_experts = EXPERTS,
                            .act = TRI_ACT_SILU,
                            .gated = s->gated,
                            .accumulate = s->accumulate,
                            .rounds_rows = s->int8_activations}};
  tri_moe_experts_args *a = &y->a;
  a->x = (tri_mat){take(y, ROWS * HIDDEN * sizeof(float)), ROWS, HIDDEN, HIDDEN, s->x};
  a->out = (tri_mat){take(y, ROWS * HIDDEN * sizeof(float)), ROWS, HIDDEN, HIDDEN, s->out};
  fill(a->x.data, s->x, ROWS * HIDDEN, &seed);
  fill(a->out.data, s->out, ROWS * HIDDEN, &seed);
  a->up = weight(y, s->weights, EXPERTS * up_n, HIDDEN, &seed);
  a->down = weight(y, s->weights, EXPERTS * HIDDEN, FF, &seed);
  if (s->biased) {
    float *up = take(y, (size_t)(EXPERTS * up_n) * sizeof *up), *down = take(y, EXPERTS * HIDDEN * sizeof *down);
    fill(up, TRI_F32, (size_t)(EXPERTS * up_n), &seed);
    fill(down, TRI_F32, EXPERTS * HIDDEN, &seed);
    a->up_bias = up;
    a->down_bias = down;
  }
  choose(y, s, &seed);
}

/* ---- what is right ---- */

/* The backend's own op on float32. */
static void compute(tri_backend *be, const tri_moe_experts_args *from, float *x, float *out) {
  tri_moe_experts_args a = *from;
  size_t n = (size_t)a.x.rows * HIDDEN;
  tri_widen(x, a.x.data, a.x.dtype, 0, n);
  tri_widen(out, a.out.data, a.out.dtype, 0, n);
  a.x.data = x, a.x.dtype = TRI_F32;
  a.out.data = out, a.out.dtype = TRI_F32;
  ck_assert_int_eq(tri_run_moe_experts(be, &a), TRI_OK);
}

static void check_results(tri_backend *host, const struct layer *y, const char *before, const char *what) {
  static float x[ROWS * HIDDEN], want[ROWS * HIDDEN], by_ref[ROWS * HIDDEN];
  tri_moe_experts_args a = y->a;
  tri_backend *ref;
  size_t n = (size_t)a.x.rows * HIDDEN;
  a.out.data = (float *)before;
  compute(host, &a, x, want);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "ref"}, &ref, NULL), TRI_OK);
  compute(ref, &a, x, by_ref);
  tri_backend_destroy(ref);
  for (size_t i = 0; i < n; i++) {
    float rounded[1], got = tri_load_f32(y->a.out.data, a.out.dtype, i);
    tri_store_f32(rounded, a.out.dtype, 0, want[i]);
    ck_assert_msg(got == tri_load_f32(rounded, a.out.dtype, 0), "%s: element %zu is %g, not %g", what, i, (double)got,
                  (double)want[i]);
    ck_assert_msg(fabsf(want[i] - by_ref[i]) < (a.rounds_rows ? 0.2f : 2e-3f), "%s: %g, the reference has %g", what,
                  (double)want[i], (double)by_ref[i]);
  }
}

/* ---- the cases ---- */

static tri_backend *host;
static tri_pool *pool;

static void set_up(void) {
  ck_assert_int_eq(tri_pool_create(2, NULL, 0, &pool), TRI_OK);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu", .pool = pool}, &host, NULL), TRI_OK);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &device.be, NULL), TRI_OK);
  device.be->ops.download = copy;
  device.be->ops.upload = copy;
  device.be->ops.host_call = host_call;
  device.count = 0;
}

static void tear_down(void) {
  tri_backend_destroy(device.be);
  tri_backend_destroy(host);
  tri_pool_destroy(pool);
}

static tri_status create(const tri_moe_experts_args *layers, int n, tri_host_experts **out, tri_error *err) {
  tri_host_experts_config c = {.backend = device.be, .host = host, .layers = layers, .num_layers = n};
  return tri_host_experts_create(&c, out, err);
}

static const struct shape shapes[] = {
    {TRI_F32, TRI_F32, TRI_F32, 1, true, false, false, false, ANY},
    {TRI_F32, TRI_F32, TRI_F32, 2, false, true, true, false, ANY},
    {TRI_BF16, TRI_F32, TRI_F32, 3, true, true, true, false, SOME},
    {TRI_BF16, TRI_BF16, TRI_F32, 4, true, false, false, false, ANY},
    {TRI_F16, TRI_F16, TRI_F32, 5, false, false, true, false, SOME},
    {TRI_BF16, TRI_BF16, TRI_BF16, 6, true, true, true, false, ANY},
    {TRI_F32, TRI_F32, TRI_F16, 7, true, false, false, false, ANY},
    {TRI_I8, TRI_F32, TRI_F32, 8, true, true, false, false, ANY},
    {TRI_I8, TRI_F32, TRI_F32, 2, true, false, true, true, SOME},
    {TRI_BF16, TRI_BF16, TRI_F32, 1, true, false, false, false, ONE},
    {TRI_I8, TRI_F32, TRI_F32, 1, false, true, true, true, ONE},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Two layers of one shape, of which the second accumulates where the first one does not, and one between them whose
 * experts lie elsewhere. */
static void make_two(struct layer y[2], const struct shape *s, uint64_t seed, tri_moe_experts_args layers[3]) {
  struct shape other = *s;
  other.accumulate = !other.accumulate;
  make(&y[0], s, seed);
  make(&y[1], &other, seed + 100);
  layers[0] = y[0].a;
  layers[1] = (tri_moe_experts_args){0};
  layers[2] = y[1].a;
}

/* Nothing runs before the stream does, and a launch's arguments do not outlive it. */
static void launch_two(tri_host_experts *h, struct layer y[2]) {
  static char before[ROWS * HIDDEN * sizeof(float)];
  memcpy(before, y[0].a.out.data, sizeof before);
  for (int l = 0; l < 2; l++) {
    tri_moe_experts_args a = y[l].a;
    tri_host_experts_launch(h, 2 * l, &a);
    memset(&a, 0xff, sizeof a);
  }
  ck_assert(!memcmp(before, y[0].a.out.data, sizeof before));
}

static void check_rows(const struct shape *s, uint64_t seed, int rows) {
  static char before[2][ROWS * HIDDEN * sizeof(float)];
  tri_host_experts *h = NULL;
  tri_moe_experts_args layers[3];
  struct layer y[2];
  tri_error err = {0};
  make_two(y, s, seed, layers);
  ck_assert_msg(create(layers, 3, &h, &err) == TRI_OK, "%s", err.message);
  for (int l = 0; l < 2; l++) cut(&y[l], rows);
  launch_two(h, y);
  for (int again = 0; again < 2; again++) { /* as recorded, with other numbers at the same places */
    for (int l = 0; again && l < 2; l++) fill(y[l].a.x.data, s->x, ROWS * HIDDEN, &seed);
    for (int l = 0; l < 2; l++) memcpy(before[l], y[l].a.out.data, sizeof before[l]);
    ck_assert_int_eq(replay(), TRI_OK);
    for (int l = 0; l < 2; l++) check_results(host, &y[l], before[l], again ? "replayed" : "launched");
  }
  size_t end = (size_t)rows * HIDDEN * tri_dtype_size(s->out); /* rows of nobody stay as they are */
  for (int l = 0; l < 2; l++)
    ck_assert(!memcmp(before[l] + end, (char *)y[l].a.out.data + end, sizeof before[l] - end));
  device.count = 0;
  tri_host_experts_destroy(h);
  for (int l = 0; l < 2; l++) drop(&y[l]);
}

START_TEST(steps_have_the_hosts_results) {
  const int rows[] = {ROWS, 0, 1, 7, ROWS - 1};
  for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) check_rows(&shapes[_i], 1 + (uint64_t)_i, rows[r]);
}
END_TEST

/* Looks at what the host is asked for, and at what those see who watch the group. */
static struct {
  uint32_t layer;
  int rows[4], calls;
} seen;
static _Atomic uint32_t under_way;
static tri_status (*experts_plan)(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan);
static tri_status look(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan) {
  seen.layer = under_way;
  seen.rows[seen.calls++ % 4] = a->x.rows;
  return experts_plan(be, a, plan);
}

static void watch(void) {
  memset(&seen, 0, sizeof seen);
  experts_plan = host->ops.moe_experts_plan;
  host->ops.moe_experts_plan = look;
}

static void unwatch(void) { host->ops.moe_experts_plan = experts_plan; }

/* Steps of different sizes that are under way at once do not change each other's, and each has its own rows alone. */
START_TEST(steps_may_be_ahead) {
  static char before[2][ROWS * HIDDEN * sizeof(float)];
  struct layer small, large;
  tri_host_experts *h = NULL;
  make(&large, &shapes[0], 1);
  make(&small, &shapes[0], 2);
  small.a.up = large.a.up, small.a.down = large.a.down;
  ck_assert_int_eq(create(&large.a, 1, &h, NULL), TRI_OK);
  cut(&small, 3);
  memcpy(before[0], large.a.out.data, sizeof before[0]);
  memcpy(before[1], small.a.out.data, sizeof before[1]);
  tri_host_experts_launch(h, 0, &large.a);
  tri_host_experts_launch(h, 0, &small.a);
  watch();
  ck_assert_int_eq(drain(), TRI_OK);
  unwatch();
  ck_assert(seen.calls == 2 && seen.rows[0] == ROWS && seen.rows[1] == 3);
  check_results(host, &large, before[0], "the first step");
  check_results(host, &small, before[1], "the second step");
  tri_host_experts_destroy(h);
  drop(&small);
  drop(&large);
}
END_TEST

static void spoil_end(tri_expert_map *m) { m->first[EXPERTS] = ROWS * 2 + 1; }
static void spoil_begin(tri_expert_map *m) { m->first[0] = -1; }
static void spoil_order(tri_expert_map *m) { m->first[4] = m->first[5] + 1; }
static void spoil_choice(tri_expert_map *m) { m->choice[3] = ROWS * 2; }
static void spoil_twice(tri_expert_map *m) { m->choice[m->first[1] - 1] = m->choice[m->first[1] - 2]; }
static void spoil_below(tri_expert_map *m) { m->choice[0] = -2; }
static void (*const spoils[])(tri_expert_map *m) = {spoil_end,    spoil_begin, spoil_order,
                                                    spoil_choice, spoil_twice, spoil_below};
enum { SPOILS = sizeof spoils / sizeof *spoils };

START_TEST(a_map_that_is_none_is_an_error) {
  struct layer y;
  tri_host_experts *h = NULL;
  make(&y, &shapes[1], 1);
  ck_assert_int_eq(create(&y.a, 1, &h, NULL), TRI_OK);
  spoils[_i](&y.a.map);
  tri_host_experts_launch(h, 0, &y.a);
  ck_assert_int_eq(drain(), TRI_CORRUPT);
  tri_host_experts_destroy(h);
  drop(&y);
}
END_TEST

/* The backend's own host_call keeps what a call returns for who waits next. */
START_TEST(a_call_that_fails_is_told_by_the_next_wait) {
  tri_backend *be;
  struct layer y;
  tri_host_experts *h = NULL;
  make(&y, &shapes[1], 1);
  ck_assert_int_eq(tri_backend_create(&(tri_backend_config){.name = "cpu"}, &be, NULL), TRI_OK);
  tri_host_experts_config c = {.backend = be, .host = host, .layers = &y.a, .num_layers = 1};
  ck_assert_int_eq(tri_host_experts_create(&c, &h, NULL), TRI_OK);
  spoil_end(&y.a.map);
  tri_host_experts_launch(h, 0, &y.a);
  ck_assert_int_eq(be->ops.event_query(be, TRI_EVENT_STEP), TRI_CORRUPT);
  ck_assert_int_eq(be->ops.stream_sync(be), TRI_CORRUPT);
  ck_assert_msg(strstr(be->failure, "the host's part of a step failed") != NULL, "%s", be->failure);
  ck_assert_int_eq(be->ops.stream_sync(be), TRI_OK);
  tri_host_experts_destroy(h);
  tri_backend_destroy(be);
  drop(&y);
}
END_TEST

START_TEST(other_experts_are_refused) {
  struct layer y;
  tri_host_experts *h = NULL;
  tri_error err = {0};
  make(&y, &shapes[0], 1);
  ck_assert_int_eq(create(&y.a, 1, &h, NULL), TRI_OK);
  tri_moe_experts_args more = y.a, adds = y.a, elsewhere = y.a;
  more.x.rows = more.out.rows = ROWS + 1;
  adds.accumulate = true;
  elsewhere.up.data = y.a.down.data;
  const tri_moe_experts_args *const others[] = {&more, &adds, &elsewhere};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    tri_host_experts_launch(h, 0, others[i]);
    ck_assert_int_eq(device.count, 0);
    ck_assert_int_eq(device.be->ops.stream_sync(device.be), TRI_INVALID_ARGUMENT);
  }
  tri_host_experts_destroy(h);
  y.a.x.ld++;
  ck_assert_int_eq(create(&y.a, 1, &h, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "cpu_moe");
  y.a.x.ld--;
  y.a.up.n--;
  tri_error_clear(&err);
  ck_assert_int_eq(create(&y.a, 1, &h, &err), TRI_INVALID_ARGUMENT);
  drop(&y);
}
END_TEST

START_TEST(it_shows_the_layer_under_way) {
  struct layer y[2];
  tri_moe_experts_args layers[3];
  tri_host_experts *h = NULL;
  make_two(y, &shapes[0], 1, layers);
  tri_host_experts_config c = {.backend = device.be,
                               .host = host,
                               .layers = layers,
                               .num_layers = 3,
                               .first_layer = 5,
                               .under_way = &under_way,
                               .idle = 77};
  ck_assert_int_eq(tri_host_experts_create(&c, &h, NULL), TRI_OK);
  tri_host_experts_launch(h, 2, &y[1].a);
  watch();
  ck_assert_int_eq(drain(), TRI_OK);
  ck_assert_uint_eq(seen.layer, 7);
  ck_assert_uint_eq(under_way, 77);
  tri_host_experts_destroy(h);
  for (int l = 0; l < 2; l++) drop(&y[l]);
}
END_TEST

Suite *suite_host_experts(void) {
  Suite *s = suite_create("host_experts");
  TCase *t = tcase_create("host_experts");
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_loop_test(t, steps_have_the_hosts_results, 0, SHAPES);
  tcase_add_test(t, steps_may_be_ahead);
  tcase_add_loop_test(t, a_map_that_is_none_is_an_error, 0, SPOILS);
  tcase_add_test(t, a_call_that_fails_is_told_by_the_next_wait);
  tcase_add_test(t, other_experts_are_refused);
  tcase_add_test(t, it_shows_the_layer_under_way);
  suite_add_tcase(s, t);
  return s;
}
