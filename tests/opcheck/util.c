/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

uint64_t oc_random(oc *c) { /* splitmix64 (Steele, Lea and Flood, 2014) */
  uint64_t z = c->rng += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

int oc_range(oc *c, int lo, int hi) { return lo + (int)(oc_random(c) % (uint64_t)(hi - lo + 1)); }
bool oc_chance(oc *c, int percent) { return oc_range(c, 0, 99) < percent; }

float oc_normal(oc *c) { /* a sum of uniforms is near enough */
  double s = 0;
  for (int i = 0; i < 4; i++) s += (double)(oc_random(c) >> 11) * 0x1p-53;
  return (float)((s - 2) * 1.7320508);
}

static void *keep(oc *c, void *p, size_t bytes, bool device) {
  if (!p || c->num_pieces == (int)(sizeof c->pieces / sizeof *c->pieces)) {
    fprintf(stderr, "opcheck: out of memory\n");
    exit(2);
  }
  c->pieces[c->num_pieces++] = (struct oc_piece){p, bytes, device};
  return p;
}

void *oc_host(oc *c, size_t bytes) { return keep(c, calloc(1, bytes ? bytes : 1), bytes, false); }

/* Host backends get plain heap blocks of the exact size, where a sanitizer sees a step too far. */
static bool heap_will_do(const oc *c) { return !strcmp(c->be->name, "cpu") || !strcmp(c->be->name, "ref"); }

void *oc_device(oc *c, const void *host, size_t bytes) {
  if (!host) return NULL;
  void *p = NULL;
  if (heap_will_do(c))
    p = malloc(bytes ? bytes : 1);
  else if (c->be->ops.mem_alloc(c->be, TRI_MEM_ACTIVATIONS, bytes, &p) != TRI_OK)
    p = NULL;
  keep(c, p, bytes, true);
  c->be->ops.upload(c->be, p, host, bytes);
  c->be->ops.stream_sync(c->be);
  return p;
}

void oc_download(oc *c, void *host, const void *device, size_t bytes) {
  c->be->ops.download(c->be, host, device, bytes);
  c->be->ops.stream_sync(c->be);
}

void oc_release(oc *c) {
  while (c->num_pieces) {
    struct oc_piece p = c->pieces[--c->num_pieces];
    if (!p.device || heap_will_do(c))
      free(p.p);
    else
      c->be->ops.mem_free(c->be, TRI_MEM_ACTIVATIONS, p.p, p.bytes);
  }
  c->groups[0] = 0;
}

float *oc_normals(oc *c, size_t n, float sigma) {
  float *p = oc_host(c, n * sizeof *p);
  for (size_t i = 0; i < n; i++) p[i] = sigma * oc_normal(c);
  return p;
}

void *oc_elements(oc *c, tri_dtype t, size_t n, float sigma) {
  if (t == TRI_F32) return oc_normals(c, n, sigma);
  char *p = oc_host(c, n * tri_dtype_size(t));
  for (size_t i = 0; i < n; i++) {
    if (t == TRI_I8)
      p[i] = (char)oc_range(c, -127, 127);
    else if (t == TRI_F8_E4M3) /* all codes but NaN's, zeros and subnormals often */
      p[i] = (char)(oc_range(c, 0, oc_chance(c, 20) ? 9 : 0x7e) | oc_range(c, 0, 1) << 7);
    else
      tri_store_f32(p, t, i, sigma * oc_normal(c));
  }
  return p;
}

/* Blocks as checkpoints have them and others, whole or cut at either side, now and then between whole pieces of 16
 * columns; or a scale for each row. */
static tri_groups draw_groups(oc *c) {
  static const int rows[] = {1, 2, 32, 64, 128, 5, 96}, cols[] = {128, 32, 48, 7, 100, 128};
  tri_groups g = {0};
  if (oc_chance(c, 30)) return g;
  g.rows = rows[oc_range(c, 0, 6)];
  g.cols = cols[oc_range(c, 0, 5)];
  if (oc_chance(c, 50)) g.skip_row = oc_range(c, 0, g.rows - 1);
  if (oc_chance(c, 50)) g.skip_col = oc_range(c, 0, g.cols - 1);
  if (oc_chance(c, 50)) g.skip_col &= ~15;
  return g;
}

/* Groups with which the backend takes the type. */
static tri_groups some_groups(oc *c, tri_dtype t) {
  tri_groups g = draw_groups(c);
  while (!c->be->ops.takes_form(c->be, t, g)) g = draw_groups(c);
  return g;
}

/* The groups of the case's weights, for messages. */
static void name_groups(oc *c, tri_groups g) {
  size_t at = strlen(c->groups), room = sizeof c->groups - at;
  if (g.cols)
    snprintf(c->groups + at, room, " [%d x %d, skip %d %d]", g.rows, g.cols, g.skip_row, g.skip_col);
  else
    snprintf(c->groups + at, room, " [rows]");
}

/* Blocks of int8 come now and then, where the backend takes them. */
static bool has_groups(oc *c, tri_dtype t) {
  const tri_groups blocks = {.rows = 1, .cols = 32};
  return t == TRI_F8_E4M3 || (t == TRI_I8 && c->be->ops.takes_form(c->be, t, blocks) && oc_chance(c, 50));
}

tri_weight oc_weight(oc *c, tri_dtype t, int n, int k) {
  return oc_weight_in(c, t, n, k, has_groups(c, t) ? some_groups(c, t) : (tri_groups){0});
}

bool oc_is_int8_rows(const tri_weight *w) { return w->dtype == TRI_I8 && !w->groups.cols; }

tri_weight oc_weight_in(oc *c, tri_dtype t, int n, int k, tri_groups groups) {
  tri_weight w = {.dtype = t, .n = n, .k = k, .data = oc_elements(c, t, (size_t)n * (size_t)k, 0.5f)};
  if (t <= TRI_BF16) return w;
  w.groups = groups;
  if (t == TRI_F8_E4M3 || groups.cols) name_groups(c, groups);
  size_t num = (size_t)tri_groups_down(w.groups, n) * (size_t)tri_groups_across(w.groups, k);
  float *scale = oc_normals(c, num, 0.002f);
  for (size_t i = 0; i < num; i++) scale[i] = fabsf(scale[i]) + 0.001f;
  w.scale = scale;
  return w;
}

tri_weight oc_device_weight(oc *c, const tri_weight *w) {
  tri_weight d = *w;
  d.data = oc_device(c, w->data, (size_t)w->n * (size_t)w->k * tri_dtype_size(w->dtype));
  d.scale = oc_device(c, w->scale, tri_weight_num_scales(w) * sizeof *w->scale);
  return d;
}

tri_mat oc_matrix(oc *c, int rows, int cols, bool poisoned) {
  tri_mat m = {.rows = rows, .cols = cols, .ld = cols + (oc_chance(c, 40) ? oc_range(c, 1, 19) : 0)};
  m.data = oc_host(c, (size_t)rows * (size_t)m.ld * sizeof *m.data);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < m.ld; j++)
      m.data[(size_t)i * (size_t)m.ld + (size_t)j] = poisoned || j >= cols ? NAN : oc_normal(c);
  return m;
}

tri_mat oc_device_matrix(oc *c, const tri_mat *m) {
  tri_mat d = *m;
  d.data = oc_device(c, m->data, (size_t)m->rows * (size_t)m->ld * sizeof *m->data);
  return d;
}

tri_mat oc_device_narrow(oc *c, tri_mat *m, tri_dtype t) {
  size_t n = (size_t)m->rows * (size_t)m->ld;
  if (t == TRI_F32) return oc_device_matrix(c, m);
  tri_mat d = *m;
  void *narrow = oc_host(c, n * tri_dtype_size(t));
  for (size_t i = 0; i < n; i++) {
    tri_store_f32(narrow, t, i, m->data[i]);
    m->data[i] = tri_load_f32(narrow, t, i);
  }
  d.data = oc_device(c, narrow, n * tri_dtype_size(t));
  d.dtype = t;
  return d;
}

tri_dtype oc_narrow_type(oc *c) {
  if (!c->be->narrow_activations || oc_chance(c, 40)) return TRI_F32;
  return oc_chance(c, 50) ? TRI_F16 : TRI_BF16;
}

/* Half a unit in the last place, of a number that is just above a power of two. */
static double half_unit(tri_dtype t) { return t == TRI_BF16 ? 0x1p-8 : t == TRI_F16 ? 0x1p-11 : 0; }

/* Half a unit in the last place of each element at most, beside what else there is: of many elements it would be a
 * third of that, of few it may be all. */
double oc_narrow_limit(tri_dtype t, double limit) { return limit + half_unit(t) * half_unit(t); }

/* A value that lies between two of a narrow type may go either way, rarely: a whole unit of two of n elements, and of
 * one in some hundred. */
double oc_either_way_limit(tri_dtype t, size_t n, double limit) {
  double unit = 2 * half_unit(t);
  return limit + unit * unit * (n ? 2.0 / (double)n : 0) + unit * unit / 500;
}

bool oc_takes_fp8(const oc *c) { return c->be->ops.takes_form(c->be, TRI_F8_E4M3, (tri_groups){0}); }

tri_dtype oc_weight_type(oc *c, int i) {
  static const tri_dtype types[] = {TRI_F32, TRI_BF16, TRI_F16, TRI_I8};
  return i % 8 == 4 && oc_takes_fp8(c) ? TRI_F8_E4M3 : types[i % 4];
}

tri_dtype oc_kv_type(int i) {
  static const tri_dtype types[] = {TRI_F32, TRI_F16, TRI_BF16};
  return types[i % 3];
}

void oc_expect(oc *c, bool ok, const char *fmt, ...) {
  if (ok) return;
  if (c->failures++ >= 20) return;
  va_list ap;
  va_start(ap, fmt);
  printf("  FAIL %s%s: ", c->what, c->groups);
  vprintf(fmt, ap);
  printf("\n");
  va_end(ap);
}

void oc_status(oc *c, tri_status a, tri_status b) {
  oc_expect(c, a == TRI_OK && b == TRI_OK, "status %s (ref), %s", tri_status_name(a), tri_status_name(b));
}

static void judge(oc *c, double error, double square, size_t wrong, double limit) {
  double nmse = square > 0 ? error / square : error;
  oc_expect(c, wrong == 0, "%zu elements not written, NaN, or written outside the rows", wrong);
  oc_expect(c, nmse <= limit, "error %.3g, limit %.3g", nmse, limit);
  if (nmse > c->worst) c->worst = nmse;
}

void oc_compare(oc *c, const tri_mat *want, const tri_mat *got_device, double limit) {
  size_t n = (size_t)want->rows * (size_t)want->ld, wrong = 0;
  float *got = oc_host(c, n * sizeof *got);
  void *stored = oc_host(c, n * sizeof *got);
  oc_download(c, stored, got_device->data, n * tri_dtype_size(got_device->dtype));
  for (size_t i = 0; i < n; i++) got[i] = tri_load_f32(stored, got_device->dtype, i);
  double error = 0, square = 0;
  for (size_t i = 0; i < n; i++) {
    bool gap = i % (size_t)want->ld >= (size_t)want->cols;
    if (gap)
      wrong += !isnan(got[i]);
    else if (isnan(got[i]) || isnan(want->data[i]))
      wrong++;
    else if (got[i] != want->data[i])
      error += ((double)got[i] - want->data[i]) * ((double)got[i] - want->data[i]);
    if (!gap) square += (double)want->data[i] * want->data[i];
  }
  judge(c, error, square, wrong, limit);
}

void oc_compare_elements(oc *c, tri_dtype t, const void *want, const void *got_device, size_t n, double limit) {
  void *got = oc_host(c, n * tri_dtype_size(t));
  oc_download(c, got, got_device, n * tri_dtype_size(t));
  double error = 0, square = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < n; i++) {
    double a = tri_load_f32(want, t, i), b = tri_load_f32(got, t, i);
    if (isnan(a) && isnan(b)) continue; /* not this op's to write */
    if (isnan(a) || isnan(b))
      wrong++;
    else
      error += (a - b) * (a - b), square += a * a;
  }
  judge(c, error, square, wrong, limit);
}
