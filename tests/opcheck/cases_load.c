/* SPDX-License-Identifier: Apache-2.0 */
/* Weights are filled and looked at: uploads of rows beside the stream, made-up numbers, which are the reference's bit
 * for bit, and the count of elements that are not finite. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/random.h"
#include "tests/opcheck/opcheck.h"

static void expect_same(oc *c, const char *want, const char *got, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (want[i] != got[i]) {
      printf("FAIL %s: byte %zu of %zu is %d, not %d\n", c->what, i, bytes, got[i], want[i]);
      c->failures++;
      return;
    }
}

/* Several at once, as many as there are tickets, out of one pinned block. */
void oc_case_upload_rows(oc *c, int i) {
  enum { MOST = TRI_UPLOAD_EVENTS };
  size_t width = (size_t)oc_range(c, 1, i % 7 ? 300 : 40000), rows = (size_t)oc_range(c, 1, i % 5 ? 40 : 700);
  size_t from_pitch = width + (size_t)(oc_chance(c, 60) ? oc_range(c, 0, 70) : 0);
  size_t to_pitch = width + (size_t)(oc_chance(c, 60) ? oc_range(c, 0, 70) : 0);
  size_t from_bytes = from_pitch * rows, to_bytes = to_pitch * rows;
  char *host, *want = oc_host(c, to_bytes), *got = oc_host(c, to_bytes), *to[MOST];
  snprintf(c->what, sizeof c->what, "upload_rows %zu x %zu bytes, pitches %zu and %zu", rows, width, from_pitch,
           to_pitch);
  if (c->be->ops.host_alloc(c->be, from_bytes + MOST, (void **)&host) != TRI_OK) {
    oc_status(c, TRI_OK, TRI_NO_MEMORY);
    return;
  }
  for (size_t k = 0; k < from_bytes + MOST; k++) host[k] = (char)(oc_range(c, 0, 255));
  for (int t = 0; t < MOST; t++) {
    to[t] = oc_device(c, want, to_bytes); /* zeros: copied before anything else begins */
    c->be->ops.stream_sync(c->be);
    c->be->ops.upload_rows(c->be, to[t], to_pitch, host + t, from_pitch, width, rows);
    c->be->ops.event_record(c->be, TRI_EVENT_UPLOAD + t, TRI_STREAM_COPY);
  }
  for (int t = 0; t < MOST; t++) {
    oc_status(c, TRI_OK, c->be->ops.event_wait(c->be, TRI_EVENT_UPLOAD + t));
    memset(want, 0, to_bytes);
    for (size_t r = 0; r < rows; r++) memcpy(want + r * to_pitch, host + t + r * from_pitch, width);
    oc_download(c, got, to[t], to_bytes);
    expect_same(c, want, got, to_bytes);
  }
  c->be->ops.host_free(c->be, host, from_bytes + MOST);
}

void oc_case_fill_random(oc *c, int i) {
  static const tri_dtype types[] = {TRI_F32, TRI_F16, TRI_BF16, TRI_I8};
  tri_random_fill a = {.dtype = types[i % 4],
                       .rows = oc_range(c, 1, i % 9 ? 60 : 3000),
                       .cols = oc_range(c, 1, i % 5 ? 90 : 1000),
                       .first_row = oc_range(c, 0, 1000),
                       .row_step = oc_range(c, 1, 2),
                       .first_col = oc_range(c, 0, 100000),
                       .key = tri_random_mix((uint64_t)i),
                       .width = 1 / (float)oc_range(c, 1, 100)};
  a.ld = a.cols + oc_range(c, 0, 9);
  if (a.dtype != TRI_I8 && oc_chance(c, 30)) a.mean = 1;
  size_t bytes = (size_t)(a.rows * a.ld) * tri_dtype_size(a.dtype), scale_bytes = (size_t)a.rows * sizeof(float);
  char *want = oc_host(c, bytes), *got = oc_host(c, bytes);
  float *scales = oc_host(c, scale_bytes), *got_scales = oc_host(c, scale_bytes);
  snprintf(c->what, sizeof c->what, "fill_random %s %lld x %lld", tri_dtype_name(a.dtype), (long long)a.rows,
           (long long)a.cols);
  tri_random_fill b = a;
  b.to = oc_device(c, want, bytes), b.scales = oc_device(c, scales, scale_bytes);
  a.to = want, a.scales = scales;
  c->ref->ops.fill_random(c->ref, &a);
  c->be->ops.fill_random(c->be, &b);
  oc_download(c, got, b.to, bytes);
  oc_download(c, got_scales, b.scales, scale_bytes);
  expect_same(c, want, got, bytes);
  expect_same(c, (char *)scales, (char *)got_scales, scale_bytes);
}

/* Some of the elements are infinite or NaN, of every pattern that is; the largest finite ones count for nothing. */
void oc_case_count_not_finite(oc *c, int i) {
  static const tri_dtype types[] = {TRI_F32, TRI_F16, TRI_BF16, TRI_I8, TRI_F8_E4M3};
  static const uint32_t exponents[] = {0x7f800000, 0x7c00, 0x7f80, 0, 0x7f};
  enum { EARLIER = 5 };
  tri_dtype type = types[i % 5];
  size_t n = (size_t)oc_range(c, i % 3 ? 0 : 1, i % 7 ? 3000 : 3000000), size = tri_dtype_size(type), bytes = n * size;
  char *x = oc_host(c, bytes);
  uint64_t want = EARLIER, got, earlier = EARLIER;
  bool some = oc_chance(c, 70);
  for (size_t at = 0; at < n; at++) {
    uint32_t bits = (uint32_t)oc_random(c);
    float back;
    if (some && oc_chance(c, 3)) bits |= exponents[i % 5];
    memcpy(x + at * size, &bits, size);
    back = type == TRI_I8 ? 0 : tri_load_f32(x, type, at);
    if (!some && !isfinite(back)) memset(x + at * size, 0, size);
    want += some && !isfinite(back);
  }
  snprintf(c->what, sizeof c->what, "count_not_finite %s %zu", tri_dtype_name(type), n);
  uint64_t *count = oc_device(c, &earlier, sizeof earlier);
  c->be->ops.count_not_finite(c->be, oc_device(c, x, bytes), type, n, count);
  oc_download(c, &got, count, sizeof got);
  oc_expect(c, got == want, "%llu, not %llu", (unsigned long long)got, (unsigned long long)want);
}
