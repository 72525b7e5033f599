/* SPDX-License-Identifier: Apache-2.0 */
/* Widening: every format against its definition, over random sizes, groups and rectangles, from bytes that begin
 * somewhere inside the matrix; every code of FP8 and FP4; rounding to 16 bits. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/quantize.h"
#include "base/mem.h"
#include "runtime/load/widen.h"
#include "tests/unit/slow_widen.h"

Suite *suite_widen(void);

static uint32_t state = 1;
static int draw(int least, int most) {
  state = state * 1664525u + 1013904223u;
  return least + (int)((state >> 8) % (uint32_t)(most - least + 1));
}

static const struct {
  const tri_widen_format *fast;
  slow_format slow;
  bool zeros, order;
  int rows; /* of elements in a stored row, with codes of 4 bits */
} formats[] = {{&tri_widen_fp8, SLOW_FP8, false, false, 1},         {&tri_widen_mxfp4, SLOW_MXFP4, false, false, 1},
               {&tri_widen_packed_int, SLOW_PACKED, true, true, 1}, {&tri_widen_int8, SLOW_INT8, true, true, 1},
               {&tri_widen_gptq, SLOW_GPTQ, true, true, 8},         {&tri_widen_awq, SLOW_AWQ, true, false, 1}};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

/* A matrix, how the fast functions see it, and its memory. */
struct trial {
  int format;
  slow_matrix slow;
  tri_widen_layout layout;
  size_t pitch; /* of a stored row of codes */
  int height;   /* rows of elements in it */
  uint8_t *memory[4];
};

static uint8_t *random_bytes(size_t n) {
  uint8_t *p = tri_malloc(n + 8, 1);
  for (size_t i = 0; i < n; i++) p[i] = (uint8_t)draw(0, 255);
  return p;
}

static uint8_t *random_scales(size_t n, tri_dtype type) {
  uint8_t *p = random_bytes(n * tri_dtype_size(type));
  for (size_t i = 0; i < n && type != TRI_U8; i++)
    tri_store_f32(p, type, i, ldexpf((float)draw(-9999, 9999), draw(-25, -15)));
  return p;
}

static int up(int n, int unit) { return (n + unit - 1) / unit * unit; }

static void choose_sizes(struct trial *t) {
  slow_matrix *m = &t->slow;
  bool inputs_first = formats[t->format].fast->inputs_first;
  m->format = formats[t->format].slow;
  m->bits = m->format == SLOW_FP8 || m->format == SLOW_INT8 ? 8 : 4;
  if ((m->format == SLOW_PACKED || m->format == SLOW_GPTQ) && draw(0, 1)) m->bits = 8;
  m->out = up(draw(1, 90), inputs_first ? 8 : 1);
  m->in = up(draw(1, 400), m->format == SLOW_MXFP4 ? 32 : 1);
  if (inputs_first) m->in = up((int)m->in, 8);
  m->group_out = m->format == SLOW_FP8 ? draw(1, (int)m->out) : 1;
  m->group_in = m->format == SLOW_MXFP4 ? 32 : draw(1, (int)m->in);
  m->less_one = m->format == SLOW_GPTQ && draw(0, 1);
  m->zeros_are_bytes = m->format == SLOW_PACKED && draw(0, 1);
}

static void make_tensors(struct trial *t) {
  slow_matrix *m = &t->slow;
  bool inputs_first = formats[t->format].fast->inputs_first;
  int64_t groups_in = (m->in + m->group_in - 1) / m->group_in, groups_out = (m->out + m->group_out - 1) / m->group_out;
  if (inputs_first) groups_out = m->out;
  static const tri_dtype types[] = {TRI_F32, TRI_F16, TRI_BF16};
  m->scale_type = m->format == SLOW_MXFP4 ? TRI_U8 : types[draw(0, 2)];
  m->codes = t->memory[0] = random_bytes((size_t)up((int)m->out, 8) * (size_t)up((int)m->in, 8));
  m->scales = t->memory[1] = random_scales((size_t)(groups_in * groups_out), m->scale_type);
  t->memory[2] = random_bytes((size_t)(4 * groups_in * up((int)groups_out, 8)));
  if (formats[t->format].zeros && (inputs_first || draw(0, 1))) m->zeros = t->memory[2];
  if (formats[t->format].order && draw(0, 1)) {
    int32_t *order = tri_calloc((size_t)m->in, sizeof *order);
    for (int64_t i = 0; i < m->in; i++) order[i] = draw(0, (int)groups_in - 1);
    m->order = order;
    t->memory[3] = (uint8_t *)order;
  }
  t->layout = (tri_widen_layout){.bits = m->bits,
                                 .rows = inputs_first ? m->in : m->out,
                                 .cols = inputs_first ? m->out : m->in,
                                 .group_rows = inputs_first ? m->group_in : m->group_out,
                                 .group_cols = inputs_first ? 1 : m->group_in,
                                 .scale_rows = inputs_first ? groups_in : groups_out,
                                 .scale_cols = inputs_first ? groups_out : groups_in,
                                 .scale_type = m->format == SLOW_MXFP4 ? TRI_F8_E8M0 : m->scale_type,
                                 .zeros_less_one = m->less_one,
                                 .zeros_are_bytes = m->zeros_are_bytes};
  t->height = m->format == SLOW_GPTQ ? 32 / m->bits : 1;
  t->pitch = (size_t)(m->format == SLOW_GPTQ ? 4 * m->out : m->format == SLOW_AWQ ? m->out / 2 : m->in * m->bits / 8);
  if (m->format == SLOW_PACKED) t->pitch = (size_t)up((int)m->in * m->bits, 32) / 8;
}

static void free_trial(struct trial *t) {
  for (int i = 0; i < 4; i++) tri_free(t->memory[i]);
}

/* A view that begins at some row before the rectangle's, as a piece of the file does. */
static tri_widen_view view_of(const struct trial *t, const tri_widen_rect *r) {
  const slow_matrix *m = &t->slow;
  const tri_widen_layout *l = &t->layout;
  bool any_group = m->order && formats[t->format].fast->inputs_first;
  int64_t stored = draw(0, (int)(r->row / t->height)), scale = any_group ? 0 : draw(0, (int)(r->row / l->group_rows));
  bool bytes = m->format == SLOW_INT8 || m->zeros_are_bytes;
  int zero_height = m->format == SLOW_PACKED && !bytes ? 32 / m->bits : 1;
  int64_t word = m->format == SLOW_PACKED || m->format == SLOW_MXFP4 || m->format == SLOW_AWQ ? 8 : 1;
  int64_t first_col = draw(0, (int)(r->col / word)) * (int)word;
  size_t skip = m->format == SLOW_GPTQ ? (size_t)first_col * 4 : (size_t)(first_col * m->bits / 8);
  size_t zero_pitch = (size_t)l->scale_cols * (bytes ? 1 : 4);
  if (formats[t->format].fast->inputs_first) zero_pitch = (size_t)(m->out * m->bits / 8);
  return (tri_widen_view){.layout = l,
                          .codes = m->codes + (size_t)stored * t->pitch + skip,
                          .pitch = t->pitch,
                          .first_row = stored * t->height,
                          .first_col = first_col,
                          .scales = m->scales + (size_t)(scale * l->scale_cols) * tri_dtype_size(m->scale_type),
                          .first_scale = scale,
                          .zeros = m->zeros ? m->zeros + (size_t)(scale / zero_height) * zero_pitch : NULL,
                          .first_zero = scale / zero_height,
                          .order = m->order};
}

static bool same(float a, float b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

START_TEST(rectangles_are_as_the_formats_define) {
  enum { LD = 401, MOST = 90 };
  static float out[401 * LD];
  size_t seen = 0;
  state = 1 + (uint32_t)_i;
  for (int n = 0; n < 60; n++) {
    struct trial t = {.format = _i};
    choose_sizes(&t);
    make_tensors(&t);
    bool turned = formats[_i].fast->inputs_first;
    tri_widen_rect r = {.row = draw(0, (int)t.layout.rows - 1), .col = draw(0, (int)t.layout.cols - 1)};
    r.rows = draw(1, (int)(t.layout.rows - r.row));
    r.cols = draw(1, (int)(t.layout.cols - r.col));
    tri_widen_view v = view_of(&t, &r);
    formats[_i].fast->widen(&v, &r, out, LD);
    for (int64_t i = 0; i < r.rows; i++)
      for (int64_t j = 0; j < r.cols; j++, seen++) {
        int64_t row = r.row + i, col = r.col + j;
        float want = slow_widen(&t.slow, turned ? col : row, turned ? row : col), got = out[i * LD + j];
        if (!same(want, got))
          ck_abort_msg("%s %d bits, trial %d, %d x %d: element (%d, %d) is %g, not %g", formats[_i].fast->name,
                       t.slow.bits, n, (int)t.slow.out, (int)t.slow.in, (int)row, (int)col, got, want);
      }
    free_trial(&t);
  }
  ck_assert_uint_gt(seen, 10000);
}
END_TEST

START_TEST(every_code_of_the_small_floats) {
  uint8_t codes[256];
  float out[256], scale = 1;
  for (int i = 0; i < 256; i++) codes[i] = (uint8_t)i;
  tri_widen_layout l = {
      .bits = 8, .rows = 1, .cols = 256, .group_rows = 1, .group_cols = 256, .scale_cols = 1, .scale_type = TRI_F32};
  tri_widen_view v = {.layout = &l, .codes = codes, .pitch = 256, .scales = &scale};
  tri_widen_rect r = {.rows = 1, .cols = 256};
  tri_widen_fp8.widen(&v, &r, out, 256);
  size_t bad = 0;
  for (int i = 0; i < 256; i++) {
    slow_matrix m = {SLOW_FP8, 8, 1, 256, 1, 256, codes, (const uint8_t *)&scale, NULL, TRI_F32, NULL, false, false};
    bad += !same(out[i], slow_widen(&m, 0, i)) || !same(out[i], tri_f8_e4m3_to_f32((uint8_t)i));
  }
  ck_assert_uint_eq(bad, 0);
  ck_assert(out[0x7e] == 448 && out[1] == 0x1p-9f && out[0x88] == -0x1p-6f && isnan(out[0x7f]) && isnan(out[0xff]));
  for (int i = 0; i < 256; i++) bad += !same(tri_f8_e8m0_to_f32((uint8_t)i), i < 255 ? (float)pow(2, i - 127) : NAN);
  ck_assert_uint_eq(bad, 0);
}
END_TEST

/* Numbers that are near what 16 bits can be, and of all sizes. */
START_TEST(narrowed_as_one_by_one) {
  static const tri_dtype types[] = {TRI_F16, TRI_BF16, TRI_F32};
  enum { NUM = 77 };
  size_t bad = 0;
  for (int n = 0; n < 20000; n++) {
    float x[NUM], wide[NUM];
    uint16_t out[NUM + 3], want = 0;
    tri_dtype type = types[n % 2];
    for (int i = 0; i < NUM; i++) {
      uint32_t u = (uint32_t)draw(0, 65535) << 16 | (uint32_t)(draw(0, 2) ? draw(0, 65535) : draw(0, 2) + 0x7fff);
      if (type == TRI_F16 && draw(0, 1)) { /* halfway between two of float16's, and beside it */
        float half = tri_f16_to_f32((uint16_t)draw(0, 65535));
        memcpy(&u, &half, sizeof u);
        u += (1u << 12) + (uint32_t)draw(-1, 1);
      }
      memcpy(&x[i], &u, sizeof u);
    }
    tri_narrow(out, type, 3, x, NUM);
    for (int i = 0; i < NUM; i++) {
      tri_store_f32(&want, type, 0, x[i]);
      bad += isnan(x[i]) ? !isnan(tri_load_f32(out, type, (size_t)i + 3)) : want != out[i + 3];
    }
    tri_narrow(wide, TRI_F32, 0, x, NUM);
    bad += memcmp(wide, x, sizeof x) != 0;
  }
  ck_assert_uint_eq(bad, 0);
}
END_TEST

Suite *suite_widen(void) {
  Suite *s = suite_create("widen");
  TCase *c = tcase_create("widen");
  tcase_add_loop_test(c, rectangles_are_as_the_formats_define, 0, NUM_FORMATS);
  tcase_add_test(c, every_code_of_the_small_floats);
  tcase_add_test(c, narrowed_as_one_by_one);
  suite_add_tcase(s, c);
  return s;
}
