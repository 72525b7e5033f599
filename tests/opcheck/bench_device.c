/* SPDX-License-Identifier: Apache-2.0 */
/* The ops of a device against its floors. One launch takes less than a call and a wait, and its inputs would lie in the
 * cache the next time: so a round is many launches, over copies of the inputs that do not fit into a cache together,
 * recorded once where the backend can record. Single rows are so small that they stay in the cache all the same, as
 * they do in a step. The floor of a round is that of as many bytes, or of as many products. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "tests/opcheck/bench_device.h"

#define MANY ((size_t)1 << 30) /* bytes that ops over many rows move */

enum { ROUNDS = 9, PATTERN = 16 << 20 };

/* ---- memory ---- */

void bench_give_up(const char *what) {
  fprintf(stderr, "opcheck: %s\n", what);
  exit(2);
}

/* Device memory until bench_release(). */
void *bench_room(bench *b, size_t bytes) {
  void *p = NULL;
  if (b->num_rooms == MAX_ROOMS || b->be->ops.mem_alloc(b->be, TRI_MEM_ACTIVATIONS, bytes, &p) != TRI_OK)
    bench_give_up("no memory on the device");
  b->rooms[b->num_rooms].p = p, b->rooms[b->num_rooms++].bytes = bytes;
  return p;
}

void bench_release(bench *b) {
  if (b->be->ops.stream_sync(b->be) != TRI_OK) bench_give_up(b->be->failure);
  while (b->num_rooms--)
    b->be->ops.mem_free(b->be, TRI_MEM_ACTIVATIONS, b->rooms[b->num_rooms].p, b->rooms[b->num_rooms].bytes);
  b->num_rooms = 0;
}

void *bench_on_device(bench *b, const void *host, size_t bytes) {
  void *p = bench_room(b, bytes);
  b->be->ops.upload(b->be, p, host, bytes);
  if (b->be->ops.stream_sync(b->be) != TRI_OK) bench_give_up(b->be->failure);
  return p;
}

void *bench_elements(bench *b, tri_dtype t, size_t n) {
  size_t size = tri_dtype_size(t), bytes = n * size, first = bytes < PATTERN ? bytes : PATTERN;
  char *host = malloc(first ? first : 1), *p = bench_room(b, bytes);
  if (!host) bench_give_up("no memory");
  for (size_t i = 0; i < first / size; i++) {
    uint64_t r = oc_random(b->c);
    if (t == TRI_I8)
      host[i] = (char)(r >> 56);
    else if (t == TRI_F8_E4M3) /* no code of a NaN */
      host[i] = (char)((r >> 40) % 0x7f | (r >> 56 & 0x80));
    else
      tri_store_f32(host, t, i, (float)(r >> 40) * 0x1p-23f - 1);
  }
  b->be->ops.upload(b->be, p, host, first);
  for (size_t at = first; at < bytes; at += first) {
    size_t part = bytes - at < first ? bytes - at : first;
    b->be->ops.copy_rows(b->be, p + at, part, p, part, part, 1);
  }
  if (b->be->ops.stream_sync(b->be) != TRI_OK) bench_give_up(b->be->failure);
  free(host);
  return p;
}

int bench_copies_of(double bytes) {
  double n = ceil((double)CACHES / bytes);
  return n < 1 ? 1 : n > MAX_COPIES ? MAX_COPIES : (int)n;
}

/* Rows of an op over many of them. */
static int many_rows(const bench *b, double row_bytes) {
  return (int)ceil((double)(b->c->opt.quick ? MANY / 8 : MANY) / row_bytes);
}

/* ---- timing ---- */

#define X(op)                                                                                                          \
  static tri_status plan_##op(tri_backend *be, const void *a, tri_op_plan *plan) {                                     \
    return be->ops.op##_plan(be, a, plan);                                                                             \
  }                                                                                                                    \
  static void launch_##op(tri_backend *be, const tri_op_plan *plan, const void *a) { be->ops.op##_launch(be, plan, a); }
TRI_OP_LIST(X)
#undef X

static const struct {
  tri_status (*plan)(tri_backend *be, const void *a, tri_op_plan *plan);
  void (*launch)(tri_backend *be, const tri_op_plan *plan, const void *a);
} ops[] = {
#define X(op) {plan_##op, launch_##op},
    TRI_OP_LIST(X)
#undef X
};

static void launch(bench *b, const work *w) {
  for (int i = 0; i < w->copies; i++) {
    ops[w->op].launch(b->be, &w->plan, (const char *)w->args + (size_t)i * w->arg_size);
    if (w->then_args) ops[w->then].launch(b->be, &w->then_plan, (const char *)w->then_args + (size_t)i * w->then_size);
  }
}

static tri_status plan(bench *b, work *w) {
  TRI_CHECK(ops[w->op].plan(b->be, w->args, &w->plan));
  if (w->then_args) TRI_CHECK(ops[w->then].plan(b->be, w->then_args, &w->then_plan));
  size_t one = w->plan.workspace, other = w->then_plan.workspace, most = one > other ? one : other;
  return most > b->be->workspace_bytes ? b->be->ops.reserve(b->be, most, 0) : TRI_OK;
}

/* Samplers wait for their results, so they cannot be recorded; steps launch what moves and copies blocks in front of
 * what they record. */
static tri_status enqueue(bench *b, const work *w) {
  bool records = b->be->records && w->op != TRI_KERNEL_sample && w->op != TRI_KERNEL_copy_blocks &&
                 w->op != TRI_KERNEL_move_blocks;
  tri_graph_mode mode = records ? b->be->ops.graph_begin(b->be, b->key) : TRI_GRAPH_LAUNCH;
  if (mode != TRI_GRAPH_REPLAY) launch(b, w);
  if (mode != TRI_GRAPH_RECORD) return TRI_OK;
  TRI_CHECK(b->be->ops.graph_end(b->be));
  return b->be->ops.graph_begin(b->be, b->key) == TRI_GRAPH_REPLAY ? TRI_OK : TRI_CORRUPT;
}

/* Seconds of all copies, `times` times over. */
static double run(bench *b, const work *w, int times) {
  tri_status st = b->be->ops.stream_sync(b->be);
  int64_t start = tri_now_ns();
  for (int i = 0; st == TRI_OK && i < times; i++) st = enqueue(b, w);
  if (st == TRI_OK) st = b->be->ops.stream_sync(b->be);
  if (st != TRI_OK) bench_give_up(b->be->failure[0] ? b->be->failure : tri_status_text(st));
  return (double)(tri_now_ns() - start) * 1e-9;
}

void bench_report(bench *b, const char *name, work w) {
  double op[ROUNDS], memory[ROUNDS], arithmetic[ROUNDS], least = b->c->opt.quick ? 2e-3 : 10e-3;
  tri_status st = plan(b, &w);
  if (st != TRI_OK) {
    printf("%-52s %s\n", name, tri_status_name(st));
    b->failed++;
    return;
  }
  if (w.type == TRI_F32 && w.gemms > 0 && !b->single &&
      b->be->ops.roofline_create(b->be, CACHES, TRI_F32, &b->single) != TRI_OK)
    bench_give_up("no memory for the floors");
  tri_roofline *floor = w.type == TRI_F32 && w.gemms > 0 ? b->single : b->narrow;
  b->key++;
  run(b, &w, 2); /* loads kernels, then records */
  double once = run(b, &w, 1);
  int times = once > least ? 1 : (int)ceil(least / once), rounds = b->c->opt.quick ? 3 : ROUNDS;
  for (int i = 0; i < rounds; i++) {
    memory[i] = tri_roofline_read(floor, w.bytes * w.copies) / w.copies;
    arithmetic[i] = w.gemms > 0 ? w.gemms * tri_roofline_gemm(floor) : 0;
    op[i] = run(b, &w, times) / times / w.copies;
  }
  double m = tri_median(memory, rounds), a = tri_median(arithmetic, rounds), t = tri_median(op, rounds);
  double best = m > a ? m : a;
  printf("%-52s %10.2f us  floor %10.2f us  ratio %.2f  ", name, t * 1e6, best * 1e6, best / t);
  if (m > a)
    printf("%.0f of %.0f GB/s (%s)\n", w.bytes / t * 1e-9, w.bytes / m * 1e-9, floor->read_name);
  else
    printf("%.1f of %.1f TFLOP/s (%s)\n", 2 * w.gemms / t * 1e-12, 2 * w.gemms / a * 1e-12, floor->gemm_name);
  fflush(stdout);
}

static bool wanted(const bench *b, const char *op) { return !b->c->opt.op || !strcmp(op, b->c->opt.op); }

/* ---- products ---- */

static void bench_linear(bench *b, tri_dtype t, bool biased, int m, int n, int k) {
  static tri_linear_args a[MAX_COPIES];
  char name[80];
  size_t count = (size_t)n * (size_t)k, in = (size_t)m * (size_t)k, out = (size_t)m * (size_t)n;
  tri_dtype xt = t == TRI_I8 ? TRI_F32 : t; /* as a step has them */
  double bytes = (double)(count * tri_dtype_size(t) + in * tri_dtype_size(xt)) + 4.0 * (double)out;
  int copies = bench_copies_of(bytes);
  char *w = bench_elements(b, t, count * (size_t)copies), *x = bench_elements(b, xt, in * (size_t)copies);
  float *y = bench_room(b, out * (size_t)copies * sizeof *y);
  const float *scale = t == TRI_I8 ? bench_elements(b, TRI_F32, (size_t)n) : NULL;
  const float *bias = biased ? bench_elements(b, TRI_F32, (size_t)n) : NULL;
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i;
    a[i] = (tri_linear_args){.bias = bias, .out = bench_matrix(y + at * out, m, n)};
    a[i].x = (tri_mat){(float *)(x + at * in * tri_dtype_size(xt)), m, k, k, xt};
    a[i].w = (tri_weight){
        .data = w + at * count * tri_dtype_size(t), .scale = t == TRI_I8 ? scale : NULL, .dtype = t, .n = n, .k = k};
  }
  NAME("linear %s%s m %d n %d k %d", tri_dtype_name(t), biased ? " bias" : "", m, n, k);
  bench_report(b, name, WORK(linear, a, copies, .bytes = bytes, .gemms = (double)m * (double)count, .type = t));
  bench_release(b);
}

static void bench_linears(bench *b) {
  static const int shapes[][2] = {{4096, 4096},  {14336, 4096}, {4096, 14336}, {6144, 4096},
                                  {28672, 4096}, {4096, 6144},  {128256, 4096}};
  static const int rows[] = {1, 2, 4, 8, 16, 24, 32, 64, 128, 256, 512, 1024, 2048};
  static const tri_dtype others[] = {TRI_F16, TRI_I8, TRI_F32};
  bool quick = b->c->opt.quick;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      if (quick && (s > 1 || (rows[i] != 1 && rows[i] != 8 && rows[i] != 512))) continue;
      if (rows[i] <= 512 || shapes[s][0] < 100000)
        bench_linear(b, TRI_BF16, false, rows[i], shapes[s][0], shapes[s][1]);
    }
  for (int t = 0; t < 3; t++)
    for (int m = 1; m <= 512 && !quick; m *= 8) bench_linear(b, others[t], false, m, 14336, 4096);
  for (int m = 8; m <= 2048; m *= 4) bench_linear(b, TRI_BF16, true, m, 6144, 4096);
}

/* The first product of an MLP with 16-bit activations, as a step has it. */
static void bench_gated(bench *b, int m, int f, int k) {
  static tri_gated_linear_args a[MAX_COPIES];
  char name[80];
  size_t count = 2 * (size_t)f * (size_t)k, in = (size_t)m * (size_t)k, out = (size_t)m * (size_t)f, size = 2;
  double bytes = (double)size * (double)(count + in + out);
  int copies = bench_copies_of(bytes);
  char *w = bench_elements(b, TRI_BF16, count * (size_t)copies), *x = bench_elements(b, TRI_BF16, in * (size_t)copies);
  char *up = bench_room(b, 2 * out * (size_t)copies * size), *y = bench_room(b, out * (size_t)copies * size);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i * size;
    a[i].up = (tri_linear_args){.w = {w + at * count, NULL, TRI_BF16, 2 * f, k}};
    a[i].up.x = (tri_mat){(float *)(x + at * in), m, k, k, TRI_BF16};
    a[i].up.out = a[i].glu.gate_up = (tri_mat){(float *)(up + at * 2 * out), m, 2 * f, 2 * f, TRI_BF16};
    a[i].glu.act = TRI_ACT_SILU, a[i].glu.out = (tri_mat){(float *)(y + at * out), m, f, f, TRI_BF16};
  }
  NAME("gated_linear bfloat16 m %d f %d k %d", m, f, k);
  bench_report(b, name,
               WORK(gated_linear, a, copies, .bytes = bytes, .gemms = (double)m * (double)count, .type = TRI_BF16));
  bench_release(b);
}

/* Weights of FP8 with 16-bit activations: a scale for each row, or for blocks. gated: with its GLU, and n the width. */
static void bench_fp8(bench *b, bool gated, tri_groups groups, int m, int n, int k) {
  static tri_linear_args plain[MAX_COPIES];
  static tri_gated_linear_args fused[MAX_COPIES];
  char name[80];
  tri_weight w = {.dtype = TRI_F8_E4M3, .n = gated ? 2 * n : n, .k = k, .groups = groups};
  size_t count = (size_t)w.n * (size_t)k, in = (size_t)m * (size_t)k, out = (size_t)m * (size_t)n, size = 2;
  w.scale = bench_elements(b, TRI_F32, (size_t)tri_groups_down(groups, w.n) * (size_t)tri_groups_across(groups, k));
  double bytes = (double)count + (double)(size * (in + out)) + 4.0 * (double)tri_weight_num_scales(&w);
  int copies = bench_copies_of(bytes);
  char *data = bench_elements(b, w.dtype, count * (size_t)copies),
       *x = bench_elements(b, TRI_BF16, in * (size_t)copies);
  char *y = bench_room(b, out * (size_t)copies * size), *up = bench_room(b, 2 * out * size);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i;
    tri_mat result = {(float *)(y + at * out * size), m, n, n, TRI_BF16};
    w.data = data + at * count;
    plain[i] = (tri_linear_args){.x = {(float *)(x + at * in * size), m, k, k, TRI_BF16}, .w = w, .out = result};
    fused[i] = (tri_gated_linear_args){.up = plain[i], .glu = {.act = TRI_ACT_SILU, .out = result}};
    fused[i].up.out = fused[i].glu.gate_up = (tri_mat){(float *)up, m, 2 * n, 2 * n, TRI_BF16};
  }
  NAME("%s float8_e4m3 %s m %d %c %d k %d", gated ? "gated_linear" : "linear", groups.cols ? "128 x 128" : "rows", m,
       gated ? 'f' : 'n', n, k);
  double gemms = (double)m * (double)count;
  bench_report(b, name,
               gated ? WORK(gated_linear, fused, copies, .bytes = bytes, .gemms = gemms, .type = TRI_BF16)
                     : WORK(linear, plain, copies, .bytes = bytes, .gemms = gemms, .type = TRI_BF16));
  bench_release(b);
}

static void bench_fp8_of_few_rows(bench *b, bool gated) {
  static const int shapes[][2] = {{4096, 4096}, {6144, 4096}, {4096, 14336}};
  static const tri_groups by_rows, blocks = {.rows = 128, .cols = 128};
  for (int m = 1; m <= 2; m++)
    for (int s = 0; s < (gated ? 1 : 3); s++) {
      int n = gated ? 14336 : shapes[s][0], k = gated ? 4096 : shapes[s][1];
      bench_fp8(b, gated, by_rows, m, n, k);
      bench_fp8(b, gated, blocks, m, n, k);
    }
}

/* A gated MLP with 16-bit activations, as a step has it, then its two ops one after the other. The bytes are those of
 * the weights. */
static void bench_mlp(bench *b, int m, int f, int k) {
  enum { ADDS_FROM = 17 }; /* rows from which a step's result adds to the residual stream */
  static tri_gated_mlp_args a[MAX_COPIES];
  char name[80];
  size_t up = 2 * (size_t)f * (size_t)k, down = (size_t)f * (size_t)k, in = (size_t)m * (size_t)k, size = 2;
  size_t hidden = (size_t)m * (size_t)f;
  double bytes = (double)size * (double)(up + down), gemms = (double)m * (double)(up + down);
  int copies = bench_copies_of(bytes);
  size_t n = (size_t)copies;
  char *w = bench_elements(b, TRI_BF16, (up + down) * n), *x = bench_elements(b, TRI_BF16, in * n);
  char *middle = bench_room(b, 3 * hidden * n * size);
  float *y = bench_room(b, in * n * sizeof *y);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i;
    char *weights = w + at * (up + down) * size, *middles = middle + at * 3 * hidden * size;
    tri_gated_linear_args *g = &a[i].gated;
    *g = (tri_gated_linear_args){.up = {.w = {weights, NULL, TRI_BF16, 2 * f, k}}};
    g->up.x = (tri_mat){(float *)(x + at * in * size), m, k, k, TRI_BF16};
    g->up.out = g->glu.gate_up = (tri_mat){(float *)middles, m, 2 * f, 2 * f, TRI_BF16};
    g->glu.act = TRI_ACT_SILU;
    g->glu.out = (tri_mat){(float *)(middles + 2 * hidden * size), m, f, f, TRI_BF16};
    a[i].down = (tri_linear_args){.x = g->glu.out, .w = {weights + up * size, NULL, TRI_BF16, k, f}};
    a[i].down.out = bench_matrix(y + at * in, m, k);
    a[i].down.accumulate = m >= ADDS_FROM;
  }
  work whole = WORK(gated_mlp, a, copies, .bytes = bytes, .gemms = gemms, .type = TRI_BF16);
  work parts = whole;
  parts.op = TRI_KERNEL_gated_linear, parts.args = &a->gated;
  parts.then = TRI_KERNEL_linear, parts.then_args = &a->down, parts.then_size = sizeof *a;
  NAME("gated_mlp bfloat16 m %d f %d k %d", m, f, k);
  bench_report(b, name, whole);
  NAME("  gated_linear, linear");
  bench_report(b, name, parts);
  bench_release(b);
}

static void bench_mlps(bench *b) {
  static const int rows[] = {1, 2, 3, 8, 16, 32, 64, 96, 128, 256};
  static const int others[][2] = {{7168, 8192}, {3584, 8192}, {12288, 4096}, {8192, 2048}}; /* units, hidden */
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) bench_mlp(b, rows[i], 14336, 4096);
  for (size_t s = 0; s < sizeof others / sizeof *others && !b->c->opt.quick; s++)
    for (int m = 8; m <= 128; m *= 4) bench_mlp(b, m, others[s][0], others[s][1]);
}

static void bench_append(bench *b, int m) {
  enum { HQ = 32, HKV = 8, D = 128, WIDTH = (HQ + 2 * HKV) * D };
  static tri_qkv_rope_append_args a[MAX_COPIES];
  char name[80];
  size_t rows = (size_t)m, kv_blocks = rows / BLOCK + 1, kv = kv_blocks * BLOCK * HKV * D;
  double bytes = 2.0 * m * D * (2 * HQ + 2 * HKV) + 4.0 * m * D * HKV;
  int copies = bench_copies_of(bytes);
  int64_t *slots = calloc(rows, sizeof *slots);
  if (!slots) bench_give_up("no memory");
  for (size_t i = 0; i < rows; i++) slots[i] = (int64_t)i;
  const int64_t *where = bench_on_device(b, slots, rows * sizeof *slots);
  uint16_t *qkv = bench_elements(b, TRI_BF16, rows * WIDTH * (size_t)copies);
  float *angles = bench_elements(b, TRI_F32, rows * D / 2);
  uint16_t *k = bench_room(b, kv * (size_t)copies * 2), *v = bench_room(b, kv * (size_t)copies * 2);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_qkv_rope_append_args){.qkv = bench_matrix((float *)(qkv + (size_t)i * rows * WIDTH), m, WIDTH),
                                      .num_heads = HQ};
    a[i].qkv.dtype = TRI_BF16;
    a[i].num_kv_heads = HKV, a[i].head_dim = D, a[i].rotary_dim = D, a[i].cos = angles, a[i].sin = angles;
    a[i].kv_slot = where;
    a[i].kv = (tri_kv_layer){k + (size_t)i * kv, v + (size_t)i * kv, TRI_BF16, (int)kv_blocks, HKV, BLOCK, D, 0};
  }
  NAME("qkv_rope_append bfloat16 %d x %d", m, WIDTH);
  bench_report(b, name, WORK(qkv_rope_append, a, copies, .bytes = bytes));
  bench_release(b);
  free(slots);
}

/* ---- rows ---- */

static void bench_norm(bench *b, tri_norm_kind kind, int m, int cols) {
  static tri_norm_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)cols;
  int copies = bench_copies_of(16.0 * (double)n);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies), *delta = bench_elements(b, TRI_F32, n * (size_t)copies);
  float *out = bench_room(b, n * (size_t)copies * sizeof *out), *weight = bench_elements(b, TRI_F32, (size_t)cols);
  for (int i = 0; i < copies; i++) {
    size_t at = (size_t)i * n;
    a[i] = (tri_norm_args){
        .x = bench_matrix(x + at, m, cols), .delta = bench_matrix(delta + at, m, cols), .delta_scale = 1};
    a[i].out = bench_matrix(out + at, m, cols), a[i].weight = weight, a[i].eps = 1e-5f, a[i].kind = kind;
    if (kind == TRI_NORM_LAYER) a[i].bias = weight;
  }
  NAME("norm %s with addition %d x %d", kind == TRI_NORM_RMS ? "rms" : "layer", m, cols);
  bench_report(b, name, WORK(norm, a, copies, .bytes = 16.0 * (double)n));
  bench_release(b);
}

static void bench_softcap(bench *b, int m, int cols) {
  static tri_softcap_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)cols;
  int copies = bench_copies_of(8.0 * (double)n);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies);
  for (int i = 0; i < copies; i++)
    a[i] = (tri_softcap_args){.x = bench_matrix(x + (size_t)i * n, m, cols), .scale = 1, .cap = 30};
  NAME("softcap %d x %d", m, cols);
  bench_report(b, name, WORK(softcap, a, copies, .bytes = 8.0 * (double)n));
  bench_release(b);
}

/* The choices of a step's tokens and the map of them. */
/* groups: 0: a softmax over all, as Qwen3 has it; else sigmoids with a bias, as DeepSeek-V3 does. */
static void bench_route(bench *b, int m, int experts, int groups) {
  enum { K = 8 };
  static tri_moe_route_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)experts, chosen = (size_t)m * K, numbers = 3 * chosen + (size_t)experts + 1;
  double bytes = 4.0 * (double)n + 16.0 * (double)chosen;
  int copies = bench_copies_of(bytes);
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies);
  float *weights = bench_room(b, chosen * (size_t)copies * sizeof *weights);
  const float *bias = groups ? bench_elements(b, TRI_F32, (size_t)experts) : NULL;
  int32_t *ids = bench_room(b, numbers * (size_t)copies * sizeof *ids);
  for (int i = 0; i < copies; i++) {
    int32_t *mine = ids + (size_t)i * numbers;
    a[i] = (tri_moe_route_args){
        .logits = bench_matrix(x + (size_t)i * n, m, experts), .score = TRI_MOE_SOFTMAX, .top_k = K};
    a[i].num_groups = groups > 1 ? groups : 1, a[i].scale = 1, a[i].num_experts = experts, a[i].renormalize = true;
    a[i].top_groups = (a[i].num_groups + 1) / 2, a[i].group_best = 2, a[i].bias = bias;
    if (groups) a[i].score = TRI_MOE_SIGMOID;
    a[i].experts = mine, a[i].weights = weights + (size_t)i * chosen;
    a[i].map = (tri_expert_map){.choice = mine + chosen, .row = mine + 2 * chosen, .first = mine + 3 * chosen};
  }
  NAME("moe_route %s %d x %d, %d groups, with its map", groups ? "sigmoid" : "softmax", m, experts, a[0].num_groups);
  bench_report(b, name, WORK(moe_route, a, copies, .bytes = bytes));
  bench_release(b);
}

static void bench_glu(bench *b, int m, int f) {
  static tri_glu_args a[MAX_COPIES];
  char name[80];
  size_t n = (size_t)m * (size_t)f;
  int copies = bench_copies_of(12.0 * (double)n);
  float *x = bench_elements(b, TRI_F32, 2 * n * (size_t)copies), *y = bench_room(b, n * (size_t)copies * sizeof *y);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_glu_args){.gate_up = bench_matrix(x + (size_t)i * 2 * n, m, 2 * f), .act = TRI_ACT_SILU};
    a[i].out = bench_matrix(y + (size_t)i * n, m, f);
  }
  NAME("glu silu %d x %d", m, f);
  bench_report(b, name, WORK(glu, a, copies, .bytes = 12.0 * (double)n));
  bench_release(b);
}

static void bench_embed(bench *b, int m) {
  enum { VOCAB = 128256, H = 4096 };
  static tri_embed_args a[MAX_COPIES];
  char name[80];
  size_t rows = (size_t)m, n = rows * H;
  int copies = bench_copies_of(6.0 * (double)n);
  uint32_t *ids = calloc(rows * (size_t)copies, sizeof *ids);
  if (!ids) bench_give_up("no memory");
  for (size_t i = 0; i < rows * (size_t)copies; i++) ids[i] = (uint32_t)(oc_random(b->c) % VOCAB);
  const uint32_t *where = bench_on_device(b, ids, rows * (size_t)copies * sizeof *ids);
  const void *table = bench_elements(b, TRI_BF16, (size_t)VOCAB * H);
  float *y = bench_room(b, n * (size_t)copies * sizeof *y);
  for (int i = 0; i < copies; i++) {
    a[i] = (tri_embed_args){.ids = where + (size_t)i * rows, .table = {table, NULL, TRI_BF16, VOCAB, H}, .scale = 1};
    a[i].out = bench_matrix(y + (size_t)i * n, m, H);
  }
  NAME("embed bfloat16 %d x %d", m, H);
  bench_report(b, name, WORK(embed, a, copies, .bytes = 6.0 * (double)n));
  bench_release(b);
  free(ids);
}

static void bench_rows(bench *b) {
  static const int few[] = {1, 8, 32};
  bool quick = b->c->opt.quick;
  for (int cols = quick ? 4096 : 1024; cols <= (quick ? 4096 : 8192); cols *= cols == 1024 ? 4 : 2) {
    if (wanted(b, "norm")) {
      bench_norm(b, TRI_NORM_RMS, many_rows(b, 16.0 * cols), cols);
      bench_norm(b, TRI_NORM_LAYER, many_rows(b, 16.0 * cols), cols);
    }
    if (wanted(b, "softcap")) bench_softcap(b, many_rows(b, 8.0 * cols), cols);
  }
  if (wanted(b, "softcap")) bench_softcap(b, 1, 256000);
  for (int i = 0; i < (quick ? 1 : 3); i++) {
    if (wanted(b, "norm")) bench_norm(b, TRI_NORM_RMS, few[i], 4096);
    if (wanted(b, "glu")) bench_glu(b, few[i], 14336);
    if (wanted(b, "qkv_rope_append")) bench_append(b, few[i]);
    if (wanted(b, "embed")) bench_embed(b, few[i]);
  }
  if (wanted(b, "glu")) bench_glu(b, many_rows(b, 12.0 * 14336), 14336);
  if (wanted(b, "qkv_rope_append")) bench_append(b, quick ? 512 : 2048);
  if (wanted(b, "qkv_rope_append") && !quick) bench_append(b, 32768);
  if (wanted(b, "embed")) bench_embed(b, many_rows(b, 6.0 * 4096));
  for (int m = 1; m <= 64 && wanted(b, "moe_route"); m *= 8) {
    bench_route(b, m, 128, 0);
    bench_route(b, m, 256, 1);
    bench_route(b, m, 256, 8);
  }
  if (wanted(b, "moe_route")) bench_route(b, many_rows(b, 4.0 * 128 + 64), 128, 0);
  if (wanted(b, "moe_route")) bench_route(b, many_rows(b, 4.0 * 256 + 64), 256, 8);
}

/* ---- sampling ---- */

static void bench_sample(bench *b, int rows, tri_sample_params p, const char *what) {
  enum { VOCAB = 128256, ROWS = 256 };
  static tri_sample_args a[MAX_COPIES];
  const tri_sample_params *params[ROWS];
  const uint32_t *history[ROWS];
  uint32_t ids[64];
  int num_prompt[ROWS], num_history[ROWS];
  uint64_t counter[ROWS];
  tri_sample_result results[ROWS];
  char name[80];
  size_t n = (size_t)rows * VOCAB;
  int copies = bench_copies_of(4.0 * (double)n);
  if (p.temperature > 0 && copies > 8) copies = 8; /* it may take milliseconds */
  for (int i = 0; i < 64; i++) ids[i] = (uint32_t)i * 100;
  for (int i = 0; i < rows; i++)
    params[i] = &p, history[i] = ids, num_prompt[i] = 10, num_history[i] = 64, counter[i] = (uint64_t)i;
  float *x = bench_elements(b, TRI_F32, n * (size_t)copies);
  uint32_t *zeros = calloc(n, sizeof *zeros), *counts = zeros ? bench_on_device(b, zeros, n * sizeof *zeros) : NULL;
  int sequence[ROWS];
  bool counted[ROWS] = {0};
  for (int i = 0; i < rows; i++) sequence[i] = i;
  if (!counts) bench_give_up("no memory");
  for (int i = 0; i < copies; i++) {
    a[i] =
        (tri_sample_args){.logits = bench_matrix(x + (size_t)i * n, rows, VOCAB), .params = params, .history = history};
    a[i].num_prompt = num_prompt, a[i].num_history = num_history, a[i].counter = counter, a[i].results = results;
    a[i].counts = counts, a[i].sequence = sequence, a[i].fresh = counted;
  }
  NAME("sample %s %d x %d", what, rows, VOCAB);
  bench_report(b, name, WORK(sample, a, copies, .bytes = 4.0 * (double)n));
  bench_release(b);
  free(zeros);
}

static void bench_samples(bench *b) {
  static const int rows[] = {1, 8, 32, 128, 256};
  for (int i = 0; i < (b->c->opt.quick ? 1 : 5); i++) {
    tri_sample_params p = {.temperature = 0, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
    bench_sample(b, rows[i], p, "greedy");
    if (rows[i] > 32) continue;
    p.temperature = 0.8f;
    bench_sample(b, rows[i], p, "plain");
    p.top_p = 0.9f;
    bench_sample(b, rows[i], p, "top_p");
    p.top_k = 50, p.repetition_penalty = 1.1f;
    bench_sample(b, rows[i], p, "top_k, top_p, penalty");
  }
}

int oc_bench_device(oc *c) {
  bench b = {.c = c, .be = c->be};
  c->rng = c->opt.seed;
  if (c->be->ops.roofline_create(c->be, CACHES, TRI_BF16, &b.narrow) != TRI_OK)
    bench_give_up("no memory for the floors");
  if (wanted(&b, "linear")) bench_linears(&b);
  for (int m = 1; m <= 32 && wanted(&b, "gated_linear"); m *= 2) bench_gated(&b, m, 14336, 4096);
  for (int m = 512; m <= 8192 && !c->opt.quick && wanted(&b, "gated_linear"); m *= 2) bench_gated(&b, m, 14336, 4096);
  for (int gated = 0; gated < 2 && oc_takes_fp8(c); gated++)
    if (wanted(&b, gated ? "gated_linear" : "linear")) bench_fp8_of_few_rows(&b, gated);
  if (wanted(&b, "gated_mlp")) bench_mlps(&b);
  if (wanted(&b, "attention")) bench_device_attention(&b);
  if (wanted(&b, "move_blocks")) bench_device_moves(&b);
  bench_rows(&b);
  bench_device_ends(&b);
  if (wanted(&b, "moe_experts")) bench_device_experts(&b);
  if (wanted(&b, "sample")) bench_samples(&b);
  if (wanted(&b, "count_not_finite")) oc_bench_finite(c, b.narrow);
  tri_roofline_destroy(b.narrow), tri_roofline_destroy(b.single);
  return b.failed;
}
