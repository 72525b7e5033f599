/* SPDX-License-Identifier: Apache-2.0 */
/* draw_weights CHECKPOINT...: writes the safetensors files of random checkpoints, as the weights.txt of each folder
 * describes them (tests/data/checkpoints/README.md has the format; find_draws writes such files). Exit code 1 where a
 * file's bytes are not those that its recipe was made for. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/hash.h"
#include "tests/models/normal.h"

enum { MOST_TENSORS = 4096, MOST_ELEMENTS = 1 << 26 };

typedef struct tensor {
  char dtype[8], shape[64], name[256], how[16];
  const char *rest; /* the words behind `how`, in the recipe's text */
  size_t count, size;
  size_t offset; /* of the first uniform, where `how` takes any */
  float mean, std;
  int least, most, unit; /* of "bytes" and "integers" */
  int group;             /* of "order" */
  int twice;             /* the row that is doubled; -1: none */
  int first, last;       /* rows at either end that are multiplied by `factor` */
  float factor;
} tensor;

typedef struct recipe {
  const char *path;
  unsigned seed;
  float *uniforms;
  size_t have;
} recipe;

static void die(const char *path, const char *why, const char *what) {
  fprintf(stderr, "%s: %s: %s\n", path, why, what);
  exit(1);
}

static void *need(void *p) {
  if (p == NULL) die("draw_weights", "memory", "none left");
  return p;
}

static size_t elements(const char *shape) {
  size_t n = 1;
  for (const char *at = shape; at != NULL; at = strchr(at, ',')) {
    if (*at == ',') at++;
    n *= strtoul(at, NULL, 10);
    if (n == 0 || n > MOST_ELEMENTS) return 0;
  }
  return n;
}

static bool read_tensor(const char *line, tensor *t) {
  int used = 0;
  if (sscanf(line, "tensor %7s %63s %255s %15s%n", t->dtype, t->shape, t->name, t->how, &used) != 4) return false;
  t->rest = line + used;
  t->count = elements(t->shape);
  t->twice = -1;
  t->first = t->last = 0;
  tri_dtype type;
  if (t->count == 0 || !tri_dtype_from_safetensors(t->dtype, &type)) return false;
  t->size = tri_dtype_size(type);
  if (strcmp(t->how, "bytes") == 0) return sscanf(t->rest, "%zu %d %d", &t->offset, &t->least, &t->most) == 3;
  if (strcmp(t->how, "integers") == 0)
    return sscanf(t->rest, "%zu %d %d %d", &t->offset, &t->least, &t->most, &t->unit) == 4;
  if (strcmp(t->how, "order") == 0)
    return sscanf(t->rest, "%zu %d", &t->offset, &t->group) == 2 && t->group > 0 && type == TRI_I32;
  if (strcmp(t->how, "normal") != 0) return true;
  int words = sscanf(t->rest, "%zu %g %g twice %d", &t->offset, &t->mean, &t->std, &t->twice);
  int ends = sscanf(t->rest, "%zu %g %g ends %d %d %g", &t->offset, &t->mean, &t->std, &t->first, &t->last, &t->factor);
  if (ends != 3 && (ends != 6 || t->first < 0 || t->last < 0)) return false;
  return (words == 3 || words == 4) && t->count >= 16 && t->offset <= MOST_ELEMENTS;
}

/* The elements' bytes as hexadecimal digits. */
static bool fill_bits(const tensor *t, unsigned char *out) {
  const char *at = t->rest + strspn(t->rest, " ");
  for (size_t i = 0; i < t->count * t->size; i++, at += 2) {
    unsigned byte;
    if (sscanf(at, "%2x", &byte) != 1) return false;
    out[i] = (unsigned char)byte;
  }
  return true;
}

/* A causal mask: ones up to the diagonal. */
static void fill_mask(const tensor *t, tri_dtype type, unsigned char *out) {
  size_t side = strtoul(strrchr(t->shape, ',') + 1, NULL, 10);
  for (size_t i = 0; i < t->count; i++) tri_store_f32(out, type, i, i % side <= i / side % side ? 1.0f : 0.0f);
}

/* The nearest code of FP8 e4m3, an even one on a tie. */
static uint8_t to_f8(float x) {
  uint8_t best = 0;
  float size = fabsf(x);
  for (uint8_t code = 1; code < 0x7f; code++) {
    float nearer = fabsf(tri_f8_e4m3_to_f32(code) - size), least = fabsf(tri_f8_e4m3_to_f32(best) - size);
    if (nearer < least || (nearer == least && code % 2 == 0)) best = code;
  }
  return (uint8_t)(signbit(x) ? best | 0x80 : best);
}

static void store(unsigned char *out, tri_dtype type, size_t i, float x) {
  if (type == TRI_F8_E4M3) {
    out[i] = to_f8(x);
  } else if (type == TRI_U8 || type == TRI_I8) {
    out[i] = (unsigned char)(int)x;
  } else {
    tri_store_f32(out, type, i, x);
  }
}

/* Returns a number of least .. most. */
static int draw_one(const tensor *t, float uniform) {
  return t->least + (int)(uniform * (float)(t->most - t->least + 1));
}

static void fill_bytes(const tensor *t, const recipe *r, unsigned char *out) {
  for (size_t i = 0; i < t->count * t->size; i++) out[i] = (unsigned char)draw_one(t, r->uniforms[t->offset + i]);
}

static void fill_integers(const tensor *t, const recipe *r, tri_dtype type, unsigned char *out) {
  for (size_t i = 0; i < t->count; i++)
    store(out, type, i, ldexpf((float)draw_one(t, r->uniforms[t->offset + i]), t->unit));
}

/* The groups of inputs that were sorted by something: each has its place among them, counted in groups. */
static void fill_order(const tensor *t, const recipe *r, unsigned char *out) {
  const float *u = r->uniforms + t->offset;
  for (size_t i = 0; i < t->count; i++) {
    int32_t place = 0;
    for (size_t k = 0; k < t->count; k++) place += u[k] < u[i] || (u[k] == u[i] && k < i);
    ((int32_t *)(void *)out)[i] = place / t->group;
  }
}

/* Uniforms that a tensor takes. */
static size_t taken(const tensor *t) {
  if (strcmp(t->how, "normal") == 0) return normal_taken(t->count);
  if (strcmp(t->how, "bytes") == 0) return t->count * t->size;
  return strcmp(t->how, "integers") == 0 || strcmp(t->how, "order") == 0 ? t->count : 0;
}

static void fill_normal(const tensor *t, const recipe *r, tri_dtype type, unsigned char *out) {
  float *values = need(malloc(t->count * sizeof *values));
  normal_fill(r->uniforms + t->offset, t->mean, t->std, values, t->count);
  const char *last = strrchr(t->shape, ',');
  size_t cols = last == NULL ? t->count : strtoul(last + 1, NULL, 10), rows = t->count / cols;
  for (size_t i = 0; i < t->count; i++) {
    size_t row = i / cols;
    float factor = t->twice >= 0 && row == (size_t)t->twice ? 2.0f : 1.0f;
    if (row < (size_t)t->first || row + (size_t)t->last >= rows) factor = t->factor;
    store(out, type, i, values[i] * factor);
  }
  free(values);
}

static bool fill(const tensor *t, const recipe *r, unsigned char *out) {
  tri_dtype type = TRI_F32;
  (void)tri_dtype_from_safetensors(t->dtype, &type);
  if (strcmp(t->how, "bits") == 0) return fill_bits(t, out);
  if (strcmp(t->how, "mask") == 0) {
    fill_mask(t, type, out);
  } else if (strcmp(t->how, "normal") == 0) {
    fill_normal(t, r, type, out);
  } else if (strcmp(t->how, "bytes") == 0) {
    fill_bytes(t, r, out);
  } else if (strcmp(t->how, "integers") == 0) {
    fill_integers(t, r, type, out);
  } else if (strcmp(t->how, "order") == 0) {
    fill_order(t, r, out);
  } else {
    return false;
  }
  return true;
}

/* Writes a safetensors file of these tensors, in this order. */
static void write_file(const recipe *r, const char *name, const char *hash, const tensor *tensors, size_t n) {
  char *header = NULL, path[4096];
  size_t len = 0, bytes = 0;
  FILE *text = need(open_memstream(&header, &len));
  fprintf(text, "{\"__metadata__\":{\"format\":\"pt\"}");
  for (size_t i = 0; i < n; i++) {
    const tensor *t = &tensors[i];
    fprintf(text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", t->name, t->dtype, t->shape,
            bytes, bytes + t->count * t->size);
    bytes += t->count * t->size;
  }
  fprintf(text, "}");
  while (ftell(text) % 8 != 0) fputc(' ', text);
  fclose(text);
  unsigned char *data = need(malloc(bytes));
  for (size_t i = 0, at = 0; i < n; at += tensors[i].count * tensors[i].size, i++) {
    if (!fill(&tensors[i], r, data + at)) die(r->path, "cannot be drawn", tensors[i].name);
  }
  uint64_t is = tri_hash_bytes(TRI_HASH_SEED, data, bytes);
  if (is != strtoull(hash, NULL, 16)) {
    fprintf(stderr, "%s: %s has the hash %016llx, not %s\n", r->path, name, (unsigned long long)is, hash);
    exit(1);
  }
  snprintf(path, sizeof path, "%s/%s", r->path, name);
  FILE *f = fopen(path, "wb");
  uint64_t length = len;
  if (f == NULL || fwrite(&length, sizeof length, 1, f) != 1 || fwrite(header, 1, len, f) != len ||
      fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0)
    die(path, "cannot be written", strerror(errno));
  free(data);
  free(header);
}

/* The whole of weights.txt, with zeros for the ends of its lines; *end is behind the last one. */
static char *read_recipe(const char *folder, char **end) {
  char path[4096];
  snprintf(path, sizeof path, "%s/weights.txt", folder);
  FILE *f = fopen(path, "r");
  if (f == NULL) die(path, "cannot be opened", strerror(errno));
  fseek(f, 0, SEEK_END);
  size_t size = (size_t)ftell(f);
  rewind(f);
  char *text = need(calloc(size + 1, 1));
  if (fread(text, 1, size, f) != size) die(path, "cannot be read", strerror(errno));
  fclose(f);
  *end = text + size;
  for (char *at = text; at < *end; at++) {
    if (*at == '\n') *at = 0;
  }
  return text;
}

/* Makes sure of enough uniforms for the tensors. */
static void draw_uniforms(recipe *r, const tensor *tensors, size_t n) {
  size_t want = 0;
  for (size_t i = 0; i < n; i++) {
    size_t end = tensors[i].offset + taken(&tensors[i]);
    if (taken(&tensors[i]) > 0 && end > want) want = end;
  }
  if (want <= r->have) return;
  free(r->uniforms);
  r->uniforms = need(malloc(want * sizeof *r->uniforms));
  r->have = want;
  normal_uniforms(r->seed, r->uniforms, want);
}

static void draw(const char *folder, tensor *tensors) {
  char *end, *text = read_recipe(folder, &end), file[256] = "", hash[32] = "";
  recipe r = {.path = folder};
  size_t n = 0;
  for (char *line = text; line <= end; line += strlen(line) + 1) {
    bool last = line >= end;
    if (last || strncmp(line, "file ", 5) == 0) {
      draw_uniforms(&r, tensors, n);
      if (n > 0) write_file(&r, file, hash, tensors, n);
      n = 0;
      if (!last && sscanf(line, "file %255s %31s", file, hash) != 2) die(folder, "not understood", line);
    } else if (strncmp(line, "seed ", 5) == 0) {
      r.seed = (unsigned)strtoul(line + 5, NULL, 10);
    } else if (n == MOST_TENSORS || !read_tensor(line, &tensors[n++])) {
      die(folder, "not understood", line);
    }
  }
  free(r.uniforms);
  free(text);
}

int main(int argc, char **argv) {
  tensor *tensors = need(calloc(MOST_TENSORS, sizeof *tensors));
  for (int i = 1; i < argc; i++) draw(argv[i], tensors);
  free(tensors);
  return argc < 2 ? 2 : 0;
}
