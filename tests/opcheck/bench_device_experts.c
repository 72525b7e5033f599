/* SPDX-License-Identifier: Apache-2.0 */
/* Experts on a device, in the shapes of published models: what a layer's routed experts take, with activations as a
 * step has them: of 16 bits, with weights of int8 float32, with many rows and weights of FP8 rounded. Tokens choose at
 * random; the floor counts the experts that any of them chose, once, and products of 16 bits, also where int8 weights
 * need two for one or integers need half. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/bench_device.h"

enum {
  FP8_BLOCK = 128,
  ROUNDED_FROM = 33
}; /* rows and columns of a scale; rows of an expert from which a step rounds them */

typedef struct shape {
  const char *name;
  int hidden, units, experts, top_k;
} shape;

/* Makes the map of random choices, different ones for a token, on the device; `distinct` becomes how many experts they
 * name. */
static tri_expert_map sample_map(bench *b, const shape *s, int tokens, int *distinct) {
  size_t n = (size_t)tokens * (size_t)s->top_k, numbers = 3 * n + (size_t)s->experts + 1;
  int32_t *ids = malloc(numbers * sizeof *ids);
  if (!ids) bench_give_up("no memory");
  for (int t = 0; t < tokens; t++)
    for (int c = 0, e = oc_range(b->c, 0, s->experts - 1); c < s->top_k; c++) {
      ids[t * s->top_k + c] = e % s->experts;
      e += oc_range(b->c, 1, s->experts / s->top_k);
    }
  tri_expert_map map = {.choice = ids + n, .row = ids + 2 * n, .first = ids + 3 * n};
  oc_moe_map(ids, (int)n, 0, s->experts, &map);
  *distinct = 0;
  for (int e = 0; e < s->experts; e++) *distinct += map.first[e + 1] > map.first[e];
  int32_t *p = bench_on_device(b, ids, numbers * sizeof *ids);
  free(ids);
  return (tri_expert_map){.choice = p + n, .row = p + 2 * n, .first = p + 3 * n};
}

/* The scales of a matrix of whole blocks of FP8. */
static float *scales_of(bench *b, tri_dtype t, size_t n, size_t k) {
  if (t == TRI_F8_E4M3) return bench_elements(b, TRI_F32, n / FP8_BLOCK * (k / FP8_BLOCK));
  return t == TRI_I8 ? bench_elements(b, TRI_F32, n) : NULL;
}

static void bench_layer(bench *b, const shape *s, tri_dtype t, bool rounds_rows, int tokens) {
  static tri_moe_experts_args a[MAX_COPIES];
  char name[80];
  size_t size = tri_dtype_size(t), h = (size_t)s->hidden, f = (size_t)s->units, e = (size_t)s->experts;
  size_t each = 3 * h * f, chosen = (size_t)tokens * (size_t)s->top_k, in = (size_t)tokens * h;
  int distinct;
  tri_expert_map map = sample_map(b, s, tokens, &distinct);
  tri_dtype xt = t == TRI_I8 ? TRI_F32 : TRI_BF16;
  double bytes = (double)(each * (size_t)distinct * size + (tri_dtype_size(xt) + 4) * in);
  int copies = bench_copies_of(bytes);
  size_t most = ((size_t)16 << 30) / (e * each * size);
  if ((size_t)copies > most) copies = most > 0 ? (int)most : 1;
  char *w = bench_elements(b, t, e * each * (size_t)copies), *x = bench_elements(b, xt, in);
  float *weights = bench_elements(b, TRI_F32, chosen), *y = bench_room(b, in * sizeof *y);
  const float *up_scale = scales_of(b, t, 2 * e * f, h), *down_scale = scales_of(b, t, e * h, f);
  tri_groups groups = {0};
  if (t == TRI_F8_E4M3) groups = (tri_groups){.rows = FP8_BLOCK, .cols = FP8_BLOCK};
  for (int i = 0; i < copies; i++) {
    char *up = w + (size_t)i * e * each * size, *down = up + 2 * e * h * f * size;
    a[i] = (tri_moe_experts_args){.weights = weights, .top_k = s->top_k, .num_experts = s->experts, .gated = true};
    a[i].x = (tri_mat){(float *)x, tokens, s->hidden, s->hidden, xt};
    a[i].rounds_rows = rounds_rows;
    a[i].map = map;
    a[i].up = (tri_weight){.data = up, .scale = up_scale, .dtype = t, .n = 2 * s->units * s->experts, .k = s->hidden};
    a[i].down = (tri_weight){.data = down, .scale = down_scale, .dtype = t, .n = s->hidden * s->experts, .k = s->units};
    a[i].up.groups = a[i].down.groups = groups;
    a[i].act = TRI_ACT_SILU;
    a[i].out = (tri_mat){y, tokens, s->hidden, s->hidden, TRI_F32};
  }
  NAME("experts %s %s%s m %d, %d of %d", s->name, tri_dtype_name(t), rounds_rows ? " x 8 bits" : "", tokens, distinct,
       s->experts);
  bench_report(b, name, WORK(moe_experts, a, copies, .bytes = bytes, .gemms = (double)(chosen * each), .type = t));
  bench_release(b);
}

void bench_device_experts(bench *b) {
  static const shape shapes[] = {{"Mixtral-8x7B", 4096, 14336, 8, 2},
                                 {"Qwen3-30B-A3B", 2048, 768, 128, 8},
                                 {"gpt-oss-20b", 2880, 2880, 32, 4},
                                 {"DeepSeek-V2-Lite", 2048, 1408, 64, 6}};
  static const shape in_fp8[] = {{"Qwen3-30B-A3B", 2048, 768, 128, 8}, {"DeepSeek-V3", 7168, 2048, 256, 8}};
  static const int tokens[] = {1, 2, 4, 8, 16, 32, 64, 128, 512, 2048, 8192};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (size_t j = 0; j < sizeof tokens / sizeof *tokens; j++) {
      bool usual = tokens[j] == 1 || tokens[j] == 8 || tokens[j] == 32 || tokens[j] == 2048;
      if (usual || !b->c->opt.quick) bench_layer(b, &shapes[i], TRI_BF16, false, tokens[j]);
    }
  for (int m = 1; m <= 32 && !b->c->opt.quick; m = m == 1 ? 8 : m * 4) bench_layer(b, &shapes[1], TRI_I8, false, m);
  for (int m = 128; m <= 2048; m *= 16)
    for (int integers = 0; integers < 2; integers++)
      if (m == 2048 || !b->c->opt.quick) bench_layer(b, &shapes[0], TRI_I8, integers, m);
  for (size_t i = 0; i < sizeof in_fp8 / sizeof *in_fp8 && !b->c->opt.quick; i++)
    for (int m = 1; m <= 2048; m = m == 1 ? 8 : m * 4) {
      bool rounds = m * in_fp8[i].top_k >= ROUNDED_FROM * in_fp8[i].experts;
      bench_layer(b, &in_fp8[i], TRI_F8_E4M3, rounds, m);
    }
}
