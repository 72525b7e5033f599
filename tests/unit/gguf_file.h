/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files by hand: keys and tensors are added to one each, and the whole is put together. */
#ifndef TRI_TESTS_UNIT_GGUF_FILE_H
#define TRI_TESTS_UNIT_GGUF_FILE_H

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/gguf.h"
#include "base/text.h"

/* Zeroed at first; gguf_file_free is due. */
typedef struct gguf_file {
  tri_buf keys, tensors, whole;
  uint64_t num_keys, num_tensors, data;
  uint32_t version; /* 0: 3 */
} gguf_file;

static inline void gguf_put(tri_buf *b, uint64_t x, int bytes) {
  char le[8];
  for (int i = 0; i < bytes; i++) le[i] = (char)(x >> 8 * i);
  tri_text_add(b, le, (size_t)bytes);
}

static inline void gguf_put_text(tri_buf *b, const char *s, size_t len) {
  gguf_put(b, len, 8);
  tri_text_add(b, s, len);
}

static inline void gguf_key(gguf_file *f, const char *name, tri_gguf_type type) {
  gguf_put_text(&f->keys, name, strlen(name));
  gguf_put(&f->keys, type, 4);
  f->num_keys++;
}

static inline void gguf_key_text(gguf_file *f, const char *name, const char *s) {
  gguf_key(f, name, TRI_GGUF_STRING);
  gguf_put_text(&f->keys, s, strlen(s));
}

static inline void gguf_key_uint(gguf_file *f, const char *name, uint32_t x) {
  gguf_key(f, name, TRI_GGUF_U32);
  gguf_put(&f->keys, x, 4);
}

static inline void gguf_key_bool(gguf_file *f, const char *name, bool x) {
  gguf_key(f, name, TRI_GGUF_BOOL);
  gguf_put(&f->keys, x, 1);
}

static inline void gguf_put_float(tri_buf *b, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  gguf_put(b, bits, 4);
}

static inline void gguf_key_float(gguf_file *f, const char *name, float x) {
  gguf_key(f, name, TRI_GGUF_F32);
  gguf_put_float(&f->keys, x);
}

/* The items follow with gguf_put and its like. */
static inline void gguf_key_array(gguf_file *f, const char *name, tri_gguf_type type, uint64_t count) {
  gguf_key(f, name, TRI_GGUF_ARRAY);
  gguf_put(&f->keys, type, 4);
  gguf_put(&f->keys, count, 8);
}

/* Its bytes are zeros. columns 0: a vector */
static inline void gguf_tensor_at(gguf_file *f, const char *name, uint64_t rows, uint64_t columns, uint32_t type,
                                  uint64_t offset) {
  gguf_put_text(&f->tensors, name, strlen(name));
  gguf_put(&f->tensors, columns ? 2 : 1, 4);
  if (columns) gguf_put(&f->tensors, columns, 8);
  gguf_put(&f->tensors, rows, 8);
  gguf_put(&f->tensors, type, 4);
  gguf_put(&f->tensors, offset, 8);
  f->num_tensors++;
}

static inline void gguf_tensor(gguf_file *f, const char *name, uint64_t rows, uint64_t columns, uint32_t type) {
  const tri_gguf_block *b = tri_gguf_block_find(type);
  gguf_tensor_at(f, name, rows, columns, type, f->data);
  f->data += (rows * (columns ? columns : 1) / (uint64_t)b->weights * (uint64_t)b->bytes + 31) / 32 * 32;
}

/* Puts the file together in f->whole. */
static inline void gguf_file_end(gguf_file *f) {
  static const char zeros[4096];
  f->whole.len = 0;
  tri_text_add(&f->whole, "GGUF", 4);
  gguf_put(&f->whole, f->version ? f->version : 3, 4);
  gguf_put(&f->whole, f->num_tensors, 8);
  gguf_put(&f->whole, f->num_keys, 8);
  if (f->keys.len) tri_text_add(&f->whole, f->keys.data, f->keys.len);
  if (f->tensors.len) tri_text_add(&f->whole, f->tensors.data, f->tensors.len);
  tri_text_add(&f->whole, zeros, (32 - f->whole.len % 32) % 32);
  for (uint64_t n, left = f->data; left; left -= n) {
    n = left < sizeof zeros ? left : sizeof zeros;
    tri_text_add(&f->whole, zeros, n);
  }
}

static inline void gguf_file_write(gguf_file *f, const char *path) {
  gguf_file_end(f);
  FILE *out = fopen(path, "wb");
  ck_assert_ptr_nonnull(out);
  ck_assert_uint_eq(fwrite(f->whole.data, 1, f->whole.len, out), f->whole.len);
  ck_assert_int_eq(fclose(out), 0);
}

static inline void gguf_file_free(gguf_file *f) {
  tri_buf_free(&f->keys);
  tri_buf_free(&f->tensors);
  tri_buf_free(&f->whole);
  *f = (gguf_file){0};
}

#endif
