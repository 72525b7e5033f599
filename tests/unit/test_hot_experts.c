/* SPDX-License-Identifier: Apache-2.0 */
/* Experts that come to a device and leave it while steps run: a device whose streams run in any order that marks allow,
 * steps that look at what tables lead to, and every row counted once. */
#include <check.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/forward/hot_experts.h"

Suite *suite_hot_experts(void);

enum { LAYERS = 3, EXPERTS = 6, SLOTS = 2, HIDDEN = 8, FF = 4, TOP_K = 2, MOST = 4096 };

/* ---- a device ---- */

/* An entry of a stream: a copy, a mark, or a step. */
struct queued {
  void *to;
  const void *from;
  size_t bytes;
  char *own; /* bytes that an upload from elsewhere than pinned memory has read */
  int event; /* -1: none */
  bool step;
};

static struct device {
  tri_backend *be;
  struct queued queue[TRI_STREAM_COUNT][MOST];
  int begun[TRI_STREAM_COUNT], count[TRI_STREAM_COUNT];
  int marks[TRI_EVENTS], reached[TRI_EVENTS];
  const char *pinned;
  size_t pinned_bytes;
  tri_hot_experts *hot;
  tri_expert_tally *host_tally;
  uint64_t wanted[LAYERS * EXPERTS]; /* rows that steps have had */
  int on_device, wrong;
  uint64_t seed;
} device;

static void run_step(void);

static void put(int stream, struct queued q) {
  ck_assert_int_lt(device.count[stream], MOST);
  device.queue[stream][device.count[stream]++] = q;
}

static void upload(tri_backend *be, void *to, const void *from, size_t bytes) {
  (void)be;
  const char *p = from;
  bool is_pinned = p >= device.pinned && p < device.pinned + device.pinned_bytes;
  char *own = is_pinned ? NULL : tri_malloc(bytes, 1);
  if (is_pinned) {
    put(TRI_STREAM_COMPUTE, (struct queued){.to = to, .from = from, .bytes = bytes, .event = -1});
    return;
  }
  memcpy(own, from, bytes);
  put(TRI_STREAM_COMPUTE, (struct queued){.to = to, .bytes = bytes, .own = own, .event = -1});
}

static void download(tri_backend *be, void *to, const void *from, size_t bytes) {
  (void)be;
  put(TRI_STREAM_COMPUTE, (struct queued){.to = to, .from = from, .bytes = bytes, .event = -1});
}

static tri_status host_alloc(tri_backend *be, size_t bytes, void **out) {
  (void)be;
  TRI_CHECK(tri_pages_alloc(bytes, out));
  device.pinned = *out;
  device.pinned_bytes = bytes;
  return TRI_OK;
}

/* In pieces, of which others may see a part. */
static void upload_rows(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  (void)be;
  (void)to_pitch;
  (void)from_pitch;
  ck_assert_uint_eq(rows, 1);
  put(TRI_STREAM_COPY, (struct queued){.to = to, .from = from, .bytes = width / 2, .event = -1});
  put(TRI_STREAM_COPY, (struct queued){.to = (char *)to + width / 2,
                                       .from = (const char *)from + width / 2,
                                       .bytes = width - width / 2,
                                       .event = -1});
}

static void event_record(tri_backend *be, int event, tri_stream stream) {
  (void)be;
  device.marks[event]++;
  put(stream, (struct queued){.event = event});
}

/* The next entry of a stream. */
static void advance(int stream) {
  struct queued *q = &device.queue[stream][device.begun[stream]++];
  if (q->bytes) memcpy(q->to, q->own ? q->own : q->from, q->bytes);
  tri_free(q->own);
  if (q->event >= 0) device.reached[q->event]++;
  if (q->step) run_step();
  if (device.begun[stream] < device.count[stream]) return;
  device.begun[stream] = device.count[stream] = 0;
}

static bool is_empty(int stream) { return device.begun[stream] == device.count[stream]; }

static void drain(void) {
  for (int s = 0; s < TRI_STREAM_COUNT; s++)
    while (!is_empty(s)) advance(s);
}

/* Some entries of either stream. */
static void work(int most) {
  for (int i = 0; i < most; i++) {
    int stream = tri_splitmix64(&device.seed) & 1 ? TRI_STREAM_COPY : TRI_STREAM_COMPUTE;
    if (!is_empty(stream)) advance(stream);
  }
}

static tri_status event_query(tri_backend *be, int event) {
  (void)be;
  return device.reached[event] == device.marks[event] ? TRI_OK : TRI_AGAIN;
}

static tri_status event_wait(tri_backend *be, int event) {
  drain();
  return event_query(be, event);
}

static tri_status stream_sync(tri_backend *be) {
  (void)be;
  while (!is_empty(TRI_STREAM_COMPUTE)) advance(TRI_STREAM_COMPUTE);
  return TRI_OK;
}

/* ---- a model: layers 0 and 2 have experts, of int8 with scales and biases ---- */

static struct bench {
  tri_model_config model;
  tri_shard shard;
  tri_weights weights;
  tri_layer_weights layers[LAYERS];
  int8_t up[LAYERS][EXPERTS * 2 * FF * HIDDEN], down[LAYERS][EXPERTS * HIDDEN * FF];
  float up_scale[LAYERS][EXPERTS * 2 * FF], down_scale[LAYERS][EXPERTS * HIDDEN], up_bias[LAYERS][EXPERTS * 2 * FF];
  tri_expert_tally tally[LAYERS * EXPERTS];
} bench;

static void fill(void *to, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) ((unsigned char *)to)[i] = (unsigned char)tri_splitmix64(&device.seed);
}

static void begin(uint64_t seed, int window, size_t step_bytes) {
  device = (struct device){.seed = seed};
  bench = (struct bench){.model = {.num_layers = LAYERS, .moe = {.num_experts = EXPERTS, .top_k = TOP_K}}};
  bench.model.layer_flags[0] = bench.model.layer_flags[2] = TRI_LAYER_SPARSE;
  bench.shard = (tri_shard){
      .p = {.tp = 1, .pp = 1, .host_experts = 2, .hot_experts = SLOTS}, .layers = {0, LAYERS}, .slots = {0, EXPERTS}};
  bench.weights.layers = bench.layers;
  for (int l = 0; l < LAYERS; l += 2) {
    tri_weight *w = bench.layers[l].w;
    fill(bench.up[l], sizeof bench.up[l]);
    fill(bench.down[l], sizeof bench.down[l]);
    fill(bench.up_scale[l], sizeof bench.up_scale[l]);
    fill(bench.down_scale[l], sizeof bench.down_scale[l]);
    fill(bench.up_bias[l], sizeof bench.up_bias[l]);
    w[TRI_W_EXPERT_UP] = (tri_weight){
        .data = bench.up[l], .scale = bench.up_scale[l], .dtype = TRI_I8, .n = EXPERTS * 2 * FF, .k = HIDDEN};
    w[TRI_W_EXPERT_DOWN] = (tri_weight){
        .data = bench.down[l], .scale = bench.down_scale[l], .dtype = TRI_I8, .n = EXPERTS * HIDDEN, .k = FF};
    w[TRI_W_EXPERT_UP_BIAS] = (tri_weight){.data = bench.up_bias[l], .dtype = TRI_F32, .n = EXPERTS * 2 * FF, .k = 1};
  }
  tri_backend_config bc = {.name = "cpu"};
  ck_assert_int_eq(tri_backend_create(&bc, &device.be, NULL), TRI_OK);
  device.be->ops.host_alloc = host_alloc;
  device.be->ops.upload = upload;
  device.be->ops.download = download;
  device.be->ops.upload_rows = upload_rows;
  device.be->ops.event_record = event_record;
  device.be->ops.event_query = event_query;
  device.be->ops.event_wait = event_wait;
  device.be->ops.stream_sync = stream_sync;
  device.host_tally = bench.tally;
  tri_hot_experts_config c = {.backend = device.be,
                              .model = &bench.model,
                              .shard = &bench.shard,
                              .weights = &bench.weights,
                              .host_tally = bench.tally,
                              .window = window,
                              .step_bytes = step_bytes};
  ck_assert_int_eq(tri_hot_experts_create(&c, &device.hot), TRI_OK);
}

static void end(void) {
  tri_hot_experts_destroy(device.hot);
  drain();
  tri_backend_destroy(device.be);
}

/* ---- a step ---- */

static bool same(const tri_weight *here, int slot, int slots, const tri_weight *there, int expert) {
  size_t rows = (size_t)(there->n / EXPERTS), row = (size_t)there->k * tri_dtype_size(there->dtype);
  if (!there->data) return !here->data;
  if (here->n != slots * (int)rows || here->k != there->k || here->dtype != there->dtype) return false;
  if (memcmp((const char *)here->data + (size_t)slot * rows * row,
             (const char *)there->data + (size_t)expert * rows * row, rows * row))
    return false;
  return !there->scale ||
         !memcmp(here->scale + (size_t)slot * rows, there->scale + (size_t)expert * rows, rows * sizeof(float));
}

/* Looks where a layer's table leads to, and counts what would be computed there. */
static void run_layer(int layer) {
  tri_hot_layer y = tri_hot_experts_layer(device.hot, layer);
  int taken[SLOTS] = {0};
  for (int e = 0; e < EXPERTS; e++) {
    const int32_t *at = y.slots + e * (1 + y.most_copies);
    int slot = at[1] - y.first_slot;
    uint64_t rows = tri_splitmix64(&device.seed) % (e == layer + 3 ? 40 : 4);
    device.wrong += at[0] != 1 || (slot < 0 ? at[1] != e : slot >= SLOTS || taken[slot]++);
    device.wanted[layer * EXPERTS + e] += rows;
    tri_expert_tally *t = slot < 0 ? &device.host_tally[layer * EXPERTS + e] : &y.tally[slot];
    t->rows += rows;
    t->steps += rows > 0;
    if (slot < 0) continue;
    device.on_device++;
    for (int id = 0; id < TRI_W_COUNT; id++)
      device.wrong += !same(&y.weights->w[id], slot, SLOTS, &bench.layers[layer].w[id], e);
  }
}

static void run_step(void) {
  run_layer(0);
  run_layer(2);
}

static void begin_step(void) {
  tri_hot_experts_step(device.hot);
  put(TRI_STREAM_COMPUTE, (struct queued){.event = -1, .step = true});
}

/* Every row that a step had is told, wherever it was computed. */
static void check_tally(void) {
  tri_expert_tally told[LAYERS * EXPERTS];
  int wrong = 0;
  stream_sync(device.be);
  memcpy(told, bench.tally, sizeof told);
  ck_assert_int_eq(tri_hot_experts_tally(device.hot, told), TRI_OK);
  for (int i = 0; i < LAYERS * EXPERTS; i++) wrong += told[i].rows != device.wanted[i];
  ck_assert_int_eq(wrong, 0);
}

/* Exchanges at random, and those that follow from the rows, with steps and pieces at any time. */
START_TEST(any_order) {
  uint64_t random = (uint64_t)_i;
  int begun = 0;
  begin((uint64_t)_i + 1, 9, _i % 2 ? 0 : 50);
  for (int i = 0; i < 400; i++) {
    uint64_t r = tri_splitmix64(&random);
    tri_hot_exchange x = {(int32_t)(r >> 8 & 1) * 2, (int32_t)(r >> 12 & 1), (int32_t)((r >> 16) % EXPERTS)};
    if (r % 4 == 0) begin_step();
    if (r % 4 == 1) tri_hot_experts_go_on(device.hot);
    if (r % 4 == 2) begun += tri_hot_experts_exchange(device.hot, &x) == TRI_OK;
    if (r % 4 == 3) work((int)(r >> 20 & 15));
    if (i % 100 == 99) check_tally();
  }
  drain();
  check_tally();
  tri_hot_stats s = tri_hot_experts_stats(device.hot);
  ck_assert_int_eq(device.wrong, 0);
  ck_assert_int_gt(device.on_device, 100);
  ck_assert_int_gt(begun, 1);
  ck_assert_uint_ge(s.exchanges + 1, (uint64_t)begun);
  ck_assert(s.hot_rows > 0 && s.hot_rows < s.rows);
  end();
}
END_TEST

/* Experts 3 of layer 0 and 5 of layer 2 have most rows: they come by themselves, and stay. */
START_TEST(finds_them) {
  begin(7, 16, 0);
  for (int i = 0; i < 400; i++) {
    begin_step();
    for (int k = 0; k < 4; k++) {
      tri_hot_experts_go_on(device.hot);
      work(20);
    }
  }
  drain();
  for (int l = 0; l < LAYERS; l += 2) {
    tri_hot_layer y = tri_hot_experts_layer(device.hot, l);
    ck_assert_int_ge(y.slots[(l + 3) * 2 + 1], EXPERTS);
  }
  tri_hot_stats s = tri_hot_experts_stats(device.hot);
  ck_assert_int_eq(device.wrong, 0);
  ck_assert(s.exchanges >= 2 && s.exchanges < 12); /* the others are alike */
  ck_assert(s.windows >= 20 && s.share > 0.7 && (double)s.hot_rows > 0.65 * (double)s.rows);
  ck_assert_uint_eq(s.bytes,
                    s.exchanges * (2 * FF * HIDDEN + HIDDEN * FF + (2 * FF + HIDDEN + 2 * FF) * sizeof(float)));
  end();
}
END_TEST

/* So many bytes for a step, however often the thread has nothing else to do. */
START_TEST(bounded) {
  enum { BYTES = 30 };
  tri_hot_exchange x = {.layer = 0, .slot = 1, .in = 4};
  begin(3, 1000, BYTES);
  ck_assert_int_eq(tri_hot_experts_exchange(device.hot, &x), TRI_OK);
  for (int i = 0; !tri_hot_experts_stats(device.hot).exchanges; i++) {
    begin_step();
    for (int k = 0; k < 20; k++) {
      drain();
      tri_hot_experts_go_on(device.hot);
    }
    ck_assert_uint_le(tri_hot_experts_stats(device.hot).bytes, (uint64_t)(i + 1) * BYTES);
    ck_assert_int_lt(i, 40);
  }
  ck_assert_int_eq(device.wrong, 0);
  end();
}
END_TEST

START_TEST(refuses) {
  static const tri_hot_exchange none[] = {{-1, 0, 3},    {LAYERS, 0, 3}, {1, 0, 3},       {0, -1, 3},
                                          {0, SLOTS, 3}, {0, 0, -1},     {0, 0, EXPERTS}, {0, 0, 1}};
  tri_hot_exchange x = {.layer = 2, .slot = 0, .in = 3};
  begin(5, 1000, 0);
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    ck_assert_int_eq(tri_hot_experts_exchange(device.hot, &none[i]), TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_hot_experts_exchange(device.hot, &x), TRI_OK);
  x.slot = 1;
  x.in = 4;
  ck_assert_int_eq(tri_hot_experts_exchange(device.hot, &x), TRI_AGAIN);
  end();
  bench.shard.p.hot_experts = EXPERTS + 1;
  tri_hot_experts_config c = {.model = &bench.model, .shard = &bench.shard, .weights = &bench.weights};
  tri_backend_config bc = {.name = "cpu"};
  ck_assert_int_eq(tri_backend_create(&bc, &c.backend, NULL), TRI_OK);
  ck_assert_int_eq(tri_hot_experts_create(&c, &device.hot), TRI_INVALID_ARGUMENT);
  tri_backend_destroy(c.backend);
}
END_TEST

Suite *suite_hot_experts(void) {
  Suite *s = suite_create("hot_experts");
  TCase *tc = tcase_create("hot_experts");
  tcase_add_loop_test(tc, any_order, 0, 60);
  tcase_add_test(tc, finds_them);
  tcase_add_test(tc, bounded);
  tcase_add_test(tc, refuses);
  suite_add_tcase(s, tc);
  return s;
}
