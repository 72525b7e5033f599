/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/serve_bench/lengths.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

static const double TWO_PI = 6.283185307179586;

/* Deviations from the middle to an end: 1 of 370 draws is clipped. */
enum { DEVIATIONS = 3 };

/* ---- a file ---- */

static tri_status parse_length(const char *line, uint32_t *out) {
  char *end;
  if (line[strspn(line, " \t")] == '-') return TRI_OUT_OF_RANGE; /* strtoull would wrap it */
  errno = 0;
  unsigned long long value = strtoull(line, &end, 10);
  if (end == line || end[strspn(end, " \t\r\n")] || errno) return TRI_OUT_OF_RANGE;
  if (value < 1 || value > BENCH_MAX_LEN) return TRI_OUT_OF_RANGE;
  *out = (uint32_t)value;
  return TRI_OK;
}

tri_status bench_lengths_read(bench_lengths *l, const char *path, tri_error *err) {
  FILE *f = fopen(path, "re");
  char *line = NULL;
  size_t cap = 0, room = 0, number = 0;
  tri_status st = TRI_OK;
  if (!f) return tri_fail(err, TRI_IO, "input-len-file", "cannot open %s: %s", path, strerror(errno));
  for (ssize_t n; (n = getline(&line, &cap, f)) >= 0;) {
    uint32_t length = 0;
    number++;
    if (strspn(line, " \t\r\n") == (size_t)n) continue;
    if (strlen(line) != (size_t)n || parse_length(line, &length) != TRI_OK) {
      line[strcspn(line, "\r\n")] = 0;
      TRI_TRY(tri_fail(err, TRI_OUT_OF_RANGE, "input-len-file", "%s:%zu: \"%.40s\" is no length from 1 to %d", path,
                       number, line, BENCH_MAX_LEN));
    }
    TRI_TRY(tri_array_reserve(&l->listed, l->num_listed, &room, 1, sizeof *l->listed));
    l->listed[l->num_listed++] = length;
  }
  if (ferror(f)) TRI_TRY(tri_fail(err, TRI_IO, "input-len-file", "cannot read %s: %s", path, strerror(errno)));
  if (!l->num_listed) TRI_TRY(tri_fail(err, TRI_OUT_OF_RANGE, "input-len-file", "%s holds no lengths", path));
  l->distribution = BENCH_LISTED;
cleanup:
  free(line); /* getline's */
  fclose(f);
  return st;
}

void bench_lengths_free(bench_lengths *l) {
  tri_free(l->listed);
  l->listed = NULL;
  l->num_listed = 0;
}

/* ---- draws ---- */

/* The method of Box and Muller (1958). bench_uniform is below 1, so that the logarithm is finite. The method's second
 * number is left out: every draw then takes the same count of random numbers. */
static double draw_normal(uint64_t *random) {
  double radius = sqrt(-2 * log1p(-bench_uniform(random)));
  return radius * cos(TWO_PI * bench_uniform(random));
}

static uint32_t clip(double x, uint32_t min, uint32_t max) {
  if (x < (double)min) return min;
  if (x > (double)max) return max;
  return (uint32_t)lround(x);
}

uint32_t bench_lengths_draw(const bench_lengths *l, size_t i, uint64_t *random) {
  double range = (double)l->max - (double)l->min;
  switch (l->distribution) {
  /* bench_uniform is below 1: of range + 1 lengths the last one is max. */
  case BENCH_UNIFORM: return l->min + (uint32_t)(bench_uniform(random) * (range + 1));
  case BENCH_NORMAL: return clip(l->min + range / 2 + draw_normal(random) * range / (2 * DEVIATIONS), l->min, l->max);
  case BENCH_LISTED: return l->listed[i % l->num_listed];
  case BENCH_FIXED: break;
  }
  return l->fixed;
}

uint32_t bench_lengths_longest(const bench_lengths *l) {
  uint32_t longest = 0;
  if (l->distribution == BENCH_FIXED) return l->fixed;
  if (l->distribution != BENCH_LISTED) return l->max;
  for (size_t i = 0; i < l->num_listed; i++)
    if (l->listed[i] > longest) longest = l->listed[i];
  return longest;
}
