/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/gguf_model.h"

enum { NAME_BYTES = 320 };

/* Tables that the config is made of, and no weights. */
static const char *const of_config[] = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};

static bool is_of_config(const char *name) {
  for (size_t i = 0; i < sizeof of_config / sizeof *of_config; i++)
    if (!strcmp(name, of_config[i])) return true;
  return false;
}

struct list {
  const tri_gguf *g, *first;
  const tri_gguf_arch *arch;
  tri_st_tensor *tensors;
  size_t count, name_bytes;
  char *names; /* NULL: tensors and bytes of names are counted */
  tri_error *err;
};

/* Splits blk.N.REST. *layer is -1 of a tensor that is of no layer. */
static const char *rest_of(const char *name, long *layer) {
  char *end;
  *layer = -1;
  if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9') return name;
  long n = strtol(name + 4, &end, 10);
  if (*end != '.' || n >= 1 << 16) return name;
  *layer = n;
  return end + 1;
}

/* The type of numbers; TRI_DTYPE_COUNT: the tensor has blocks. */
static tri_dtype dtype_of(const tri_gguf_block *block) {
  switch (block->id) {
  case TRI_GGUF_BLOCK_F32: return TRI_F32;
  case TRI_GGUF_BLOCK_F16: return TRI_F16;
  case TRI_GGUF_BLOCK_BF16: return TRI_BF16;
  default: return TRI_DTYPE_COUNT;
  }
}

static void put(struct list *l, const tri_st_tensor *t, const char *name) {
  size_t len = strlen(name) + 1;
  if (l->names) {
    l->tensors[l->count] = *t;
    l->tensors[l->count].name = l->names + l->name_bytes;
    memcpy(l->names + l->name_bytes, name, len);
  }
  l->count++;
  l->name_bytes += len;
}

/* Rows of a head: of queries those of all heads are the tensor's rows, of keys those of the KV heads. */
static tri_status find_paired(const struct list *l, const tri_gguf_tensor *from, bool is_key, tri_st_tensor *t) {
  char key[TRI_GGUF_MAX_NAME];
  uint64_t heads = 0;
  snprintf(key, sizeof key, "%s.attention.head_count", l->arch->name);
  if (is_key) {
    char of_keys[sizeof key + 4];
    snprintf(of_keys, sizeof of_keys, "%s_kv", key);
    const tri_gguf_value *v = tri_gguf_find(l->first, of_keys);
    if (v) tri_gguf_item_uint(v, 0, &heads);
  }
  const tri_gguf_value *v = tri_gguf_find(l->first, key);
  if (!heads && v) tri_gguf_item_uint(v, 0, &heads);
  int64_t rows = t->rank ? t->shape[0] : 0;
  if (!heads || heads > (uint64_t)rows || rows % (int64_t)heads || rows / (int64_t)heads % 2)
    return tri_fail(l->err, TRI_CORRUPT, from->name, "tensor %.80s has %lld rows, which are no pairs of %llu heads",
                    from->name, (long long)rows, (unsigned long long)heads);
  t->paired = rows / (int64_t)heads;
  return TRI_OK;
}

/* A tensor of experts becomes one of each: the last dimension of the file, the first here. */
static void put_experts(struct list *l, const tri_st_tensor *all, const char *pattern) {
  char name[NAME_BYTES];
  tri_st_tensor one = *all;
  int64_t experts = all->shape[0];
  one.rank--;
  memmove(one.shape, all->shape + 1, (size_t)one.rank * sizeof *one.shape);
  one.bytes = all->bytes / (uint64_t)experts;
  for (int64_t i = 0; i < experts; i++) {
    const char *number = strstr(pattern, "%d");
    one.offset = all->offset + (uint64_t)i * one.bytes;
    snprintf(name, sizeof name, "%.*s%lld%s", (int)(number - pattern), pattern, (long long)i, number + 2);
    put(l, &one, name);
  }
}

static tri_status add(struct list *l, const tri_gguf_tensor *from) {
  enum { MOST_EXPERTS = 4096 };
  char name[NAME_BYTES];
  long layer;
  size_t rows;
  const char *suffix, *rest = rest_of(from->name, &layer);
  tri_st_tensor t = {.dtype = dtype_of(from->block), .offset = from->offset, .bytes = from->bytes, .rank = from->rank};
  if (is_of_config(from->name)) return TRI_OK;
  const tri_gguf_name *n = tri_gguf_name_find(l->arch, rest, &suffix);
  if (!n && !l->arch->rules)
    return tri_fail(l->err, TRI_UNSUPPORTED, from->name, "tensor %.80s is not known of the architecture %s", from->name,
                    l->arch->name);
  if (t.dtype == TRI_DTYPE_COUNT) t.block = from->block;
  for (int i = 0; i < t.rank; i++) t.shape[i] = (int64_t)from->shape[t.rank - 1 - i];
  if (n && n->flat && t.rank == 3) {
    if (!tri_size_mul((size_t)t.shape[0], (size_t)t.shape[1], &rows) || rows > INT64_MAX)
      return tri_fail(l->err, TRI_OVERFLOW, from->name, "tensor %.80s has too many rows", from->name);
    t.shape[0] = (int64_t)rows;
    t.shape[1] = t.shape[2];
    t.rank = 2;
  }
  if (l->arch->rules) { /* loading looks for the file's names */
    put(l, &t, from->name);
    return TRI_OK;
  }
  if (n->row && t.rank == 1) {
    t.shape[1] = t.shape[0];
    t.shape[0] = 1;
    t.rank = 2;
  }
  if (n->paired) TRI_CHECK(find_paired(l, from, !strcmp(n->from, "attn_k"), &t));
  if (layer < 0)
    snprintf(name, sizeof name, "%s%s", n->to, suffix);
  else
    snprintf(name, sizeof name, "layers.%ld.%s%s", layer, n->to, suffix);
  if (!n->experts) {
    put(l, &t, name);
    return TRI_OK;
  }
  if (t.rank < 2 || t.shape[0] > MOST_EXPERTS)
    return tri_fail(l->err, TRI_CORRUPT, from->name, "tensor %.80s has no experts, or more than %d", from->name,
                    MOST_EXPERTS);
  put_experts(l, &t, name);
  return TRI_OK;
}

static tri_status add_all(struct list *l) {
  l->count = l->name_bytes = 0;
  for (size_t i = 0; i < l->g->num_tensors; i++) TRI_CHECK(add(l, &l->g->tensors[i]));
  return TRI_OK;
}

/* Two walks: the first counts, so that names never move. */
tri_status tri_gguf_tensors(const tri_gguf *g, const tri_gguf *first, const tri_gguf_arch *arch,
                            tri_st_tensor **tensors, size_t *count, char **names, tri_error *err) {
  struct list l = {.g = g, .first = first, .arch = arch, .err = err};
  tri_status st;
  TRI_TRY(add_all(&l));
  l.tensors = tri_calloc(l.count + 1, sizeof *l.tensors);
  l.names = tri_calloc(l.name_bytes + 1, 1);
  if (!l.tensors || !l.names) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "header", "no memory for %zu tensors", l.count));
  TRI_TRY(add_all(&l));
  *tensors = l.tensors;
  *count = l.count;
  *names = l.names;
  return TRI_OK;
cleanup:
  tri_free(l.tensors);
  tri_free(l.names);
  return st;
}
