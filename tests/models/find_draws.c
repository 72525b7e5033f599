/* SPDX-License-Identifier: Apache-2.0 */
/* find_draws CHECKPOINT SEED: prints a weights.txt for a folder whose safetensors files were drawn by
 * make_checkpoints.py, or by another program that fills its parameters with torch's `normal_` from one generator with
 * this seed. Each tensor is looked for among the draws, at every offset and with each mean of MEANS; what is not there,
 * is stored as bits. Every tensor that is found has been drawn again and compared, so what draw_weights makes of the
 * output is the checkpoint's data. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "runtime/model/safetensors.h"
#include "tests/models/normal.h"

#define SPARE 100000 /* uniforms beyond those of the tensors: other parameters, shared ones, draws of inputs */
static const float MEANS[] = {0, 1, 0.25f};

typedef struct draws {
  float *u, *scaled; /* uniforms; the first value of the sixteen at each offset, with mean 0 and deviation 1 */
  size_t n;
} draws;

/* Changes of rows after they were drawn. */
typedef struct change {
  int twice;       /* this one was doubled (make_seq2seq.py); -1: none */
  int first, last; /* so many at either end were multiplied by `factor`: of tokens that shall be rare */
  float factor;
} change;

static const change changes[] = {{-1, 0, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 1},
                                 {2, 0, 0, 1},  {3, 0, 0, 1}, {-1, 3, 8, 0.1f}};

typedef struct found {
  size_t offset;
  float mean;
  char std[24];
  change change;
} found;

static void die(const char *what) {
  fprintf(stderr, "find_draws: %s\n", what);
  exit(3);
}

static void *need(void *p) {
  if (p == NULL) die("no memory");
  return p;
}

/* How far a draw may lie from a stored value that it was rounded to, and a little for float32's own rounding. */
static double half_step(double value, tri_dtype type) {
  static const int precision[] = {[TRI_F32] = 24, [TRI_F16] = 11, [TRI_BF16] = 8};
  int exponent = value == 0 ? -126 : ilogb(value);
  if (type == TRI_F16 && exponent < -14) exponent = -14; /* below, all steps are equal */
  return ldexp(1, exponent - precision[type]) + fabs(value) * 0x1p-22;
}

/* The factor of an element of a tensor whose rows have `cols` elements. */
static float factor_of(const change *c, size_t i, size_t cols, size_t count) {
  size_t row = i / cols, rows = count / cols;
  if (c->twice >= 0 && row == (size_t)c->twice) return 2;
  return row < (size_t)c->first || row + (size_t)c->last >= rows ? c->factor : 1;
}

/* Narrows [*least, *most] to the deviations that make `value` of the draw `z`. */
static bool narrow(double value, double reach, double mean, double z, double *least, double *most) {
  double a = (value - reach - mean) / z, b = (value + reach - mean) / z;
  *least = fmax(*least, fmin(a, b));
  *most = fmin(*most, fmax(a, b));
  return *least <= *most;
}

/* Draws the tensor as `f` says and compares it with its bytes. */
static bool is_so(const tri_st_tensor *t, const void *data, const found *f, const draws *d, size_t count, float *values,
                  void *drawn) {
  normal_fill(d->u + f->offset, f->mean, strtof(f->std, NULL), values, count);
  size_t cols = (size_t)t->shape[t->rank - 1];
  for (size_t i = 0; i < count; i++)
    tri_store_f32(drawn, t->dtype, i, values[i] * factor_of(&f->change, i, cols, count));
  return memcmp(drawn, data, t->bytes) == 0;
}

/* Looks for a deviation with which the draws at an offset make the tensor: the shortest decimal of those that all its
 * elements allow. */
static bool fits(const tri_st_tensor *t, const void *data, const draws *d, size_t count, float *values, void *drawn,
                 found *f) {
  double least = 0, most = HUGE_VAL;
  size_t cols = (size_t)t->shape[t->rank - 1];
  normal_fill(d->u + f->offset, 0, 1, values, count);
  for (size_t i = 0; i < count; i++) {
    double scale = 1 / (double)factor_of(&f->change, i, cols, count), value = tri_load_f32(data, t->dtype, i);
    if (!narrow(value * scale, half_step(value, t->dtype) * scale, f->mean, values[i], &least, &most)) return false;
  }
  for (int digits = 1; digits <= 10; digits++) { /* behind the point */
    double unit = pow(10, -digits), first = ceil(least / unit);
    for (int k = 0; k < 200 && (first + k) * unit <= most; k++) {
      snprintf(f->std, sizeof f->std, "%.*f", digits, (first + k) * unit);
      if (is_so(t, data, f, d, count, values, drawn)) return true;
    }
  }
  return false;
}

static bool find(const tri_st_tensor *t, const void *data, const draws *d, size_t count, found *f) {
  bool yes = false;
  float *values = need(malloc(count * sizeof *values));
  void *drawn = need(malloc(t->bytes));
  double first[8], reach[8];
  size_t known = count < 24 && count > 16 ? count - 16 : 8; /* the last 16 may be drawn twice */
  for (size_t i = 0; i < 8; i++) {
    first[i] = tri_load_f32(data, t->dtype, i);
    reach[i] = half_step(first[i], t->dtype);
  }
  for (size_t m = 0; m < sizeof MEANS / sizeof *MEANS && !yes; m++) {
    for (size_t at = 0; at + normal_taken(count) < d->n && !yes; at++) {
      double least = 0, most = HUGE_VAL;
      for (size_t i = 0; i < known && least <= most; i++)
        (void)narrow(first[i], reach[i], MEANS[m], d->scaled[at + i], &least, &most);
      if (least > most) continue;
      for (size_t k = 0; k < sizeof changes / sizeof *changes && !yes; k++) {
        *f = (found){.offset = at, .mean = MEANS[m], .change = changes[k]};
        yes = fits(t, data, d, count, values, drawn, f);
      }
    }
  }
  free(values);
  free(drawn);
  return yes;
}

static bool is_mask(const tri_st_tensor *t, const void *data, size_t count) {
  if (t->rank < 2 || t->shape[t->rank - 1] != t->shape[t->rank - 2]) return false;
  size_t side = (size_t)t->shape[t->rank - 1];
  for (size_t i = 0; i < count; i++) {
    if (tri_load_f32(data, t->dtype, i) != (i % side <= i / side % side ? 1.0f : 0.0f)) return false;
  }
  return true;
}

static void describe(const tri_st_tensor *t, const unsigned char *data, const draws *d) {
  size_t count = t->bytes / tri_dtype_size(t->dtype);
  static const char *const names[] = {[TRI_F32] = "F32", [TRI_F16] = "F16", [TRI_BF16] = "BF16"};
  printf("tensor %s ", names[t->dtype]);
  for (int i = 0; i < t->rank; i++) printf("%s%lld", i > 0 ? "," : "", (long long)t->shape[i]);
  printf(" %s ", t->name);
  found f;
  if (is_mask(t, data, count)) {
    printf("mask\n");
  } else if (count >= 16 && find(t, data, d, count, &f)) {
    printf("normal %zu %g %s", f.offset, (double)f.mean, f.std);
    if (f.change.twice >= 0) printf(" twice %d", f.change.twice);
    if (f.change.last > 0) printf(" ends %d %d %g", f.change.first, f.change.last, (double)f.change.factor);
    printf("\n");
  } else {
    printf("bits ");
    for (size_t i = 0; i < t->bytes; i++) printf("%02x", data[i]);
    printf("\n");
  }
}

static int by_place(const void *a, const void *b) {
  const tri_st_tensor *x = *(const tri_st_tensor *const *)a, *y = *(const tri_st_tensor *const *)b;
  if (x->file != y->file) return x->file - y->file;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

int main(int argc, char **argv) {
  tri_checkpoint *c;
  tri_error err = {0};
  if (argc != 3) return 2;
  if (tri_checkpoint_open(argv[1], &c, &err) != TRI_OK) die(err.message);
  size_t n = tri_checkpoint_num_tensors(c);
  const tri_st_tensor **sorted = need(calloc(n, sizeof *sorted));
  draws d = {.n = SPARE};
  for (size_t i = 0; i < n; i++) {
    sorted[i] = tri_checkpoint_tensor(c, i);
    if (sorted[i]->dtype > TRI_BF16 || sorted[i]->rank == 0)
      die("only tensors of float32, float16 and bfloat16 are understood");
    d.n += sorted[i]->bytes / tri_dtype_size(sorted[i]->dtype) + 16;
  }
  qsort(sorted, n, sizeof *sorted, by_place);
  d.u = need(malloc(d.n * sizeof *d.u));
  d.scaled = need(calloc(d.n, sizeof *d.scaled));
  normal_uniforms((uint32_t)strtoul(argv[2], NULL, 10), d.u, d.n);
  for (size_t i = 0; i + 16 <= d.n; i++) {
    float values[16];
    normal_sixteen(d.u + i, values);
    d.scaled[i] = values[0];
  }
  printf("seed %s\n", argv[2]);
  for (size_t i = 0; i < n;) {
    size_t first = i;
    uint64_t bytes = 0;
    while (i < n && sorted[i]->file == sorted[first]->file) bytes += sorted[i++]->bytes;
    unsigned char *data = need(malloc(bytes));
    if (pread(tri_checkpoint_fd(c, sorted[first]->file), data, bytes, (off_t)sorted[first]->offset) != (ssize_t)bytes)
      die("a file cannot be read");
    const char *path = tri_checkpoint_path(c, sorted[first]->file);
    printf("file %s %016llx\n", strrchr(path, '/') + 1, (unsigned long long)tri_hash_bytes(TRI_HASH_SEED, data, bytes));
    for (size_t k = first, at = 0; k < i; at += sorted[k++]->bytes) describe(sorted[k], data + at, &d);
    free(data);
  }
  free(sorted);
  free(d.u);
  free(d.scaled);
  tri_checkpoint_close(c);
  return 0;
}
