/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of GGUF files (version 2 and 3, little-endian): keys with values, and where tensors lie.
 *
 * The file is hostile until proven otherwise: every count and length is checked against the bytes that are there before
 * memory is taken for it, tensors lie inside the file, aligned and apart from each other, and a row of each is a whole
 * number of blocks. What cannot be read is refused by the name of its key or tensor. */
#ifndef TRI_BASE_GGUF_H
#define TRI_BASE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
  TRI_GGUF_MAX_KEYS = 1 << 16,
  TRI_GGUF_MAX_TENSORS = 1 << 20,
  TRI_GGUF_MAX_NAME = 255, /* bytes of a key's or a tensor's */
  TRI_GGUF_MAX_RANK = 4,
  TRI_GGUF_MAX_HEADER = 1 << 30 /* bytes */
};

/* Types of values, with the numbers that files have. */
typedef enum tri_gguf_type {
  TRI_GGUF_U8,
  TRI_GGUF_I8,
  TRI_GGUF_U16,
  TRI_GGUF_I16,
  TRI_GGUF_U32,
  TRI_GGUF_I32,
  TRI_GGUF_F32,
  TRI_GGUF_BOOL,
  TRI_GGUF_STRING,
  TRI_GGUF_ARRAY,
  TRI_GGUF_U64,
  TRI_GGUF_I64,
  TRI_GGUF_F64,
  TRI_GGUF_TYPES
} tri_gguf_type;

/* Types of elements, with the numbers that files have: those that Trireme reads. */
typedef enum tri_gguf_block_id {
  TRI_GGUF_BLOCK_F32 = 0,
  TRI_GGUF_BLOCK_F16 = 1,
  TRI_GGUF_BLOCK_Q4_0 = 2,
  TRI_GGUF_BLOCK_Q4_1 = 3,
  TRI_GGUF_BLOCK_Q5_0 = 6,
  TRI_GGUF_BLOCK_Q5_1 = 7,
  TRI_GGUF_BLOCK_Q8_0 = 8,
  TRI_GGUF_BLOCK_Q2_K = 10,
  TRI_GGUF_BLOCK_Q3_K = 11,
  TRI_GGUF_BLOCK_Q4_K = 12,
  TRI_GGUF_BLOCK_Q5_K = 13,
  TRI_GGUF_BLOCK_Q6_K = 14,
  TRI_GGUF_BLOCK_IQ4_NL = 20,
  TRI_GGUF_BLOCK_IQ4_XS = 23,
  TRI_GGUF_BLOCK_BF16 = 30,
  TRI_GGUF_BLOCK_MXFP4 = 39
} tri_gguf_block_id;

/* Elements that are stored together; of plain numbers, one. */
typedef struct tri_gguf_block {
  tri_gguf_block_id id;
  const char *name; /* "Q4_K" */
  int weights, bytes;
} tri_gguf_block;

/* NULL: a type that is not read. */
const tri_gguf_block *tri_gguf_block_find(uint32_t id);

/* A key, and where its value lies. */
typedef struct tri_gguf_value {
  const char *name;
  tri_gguf_type type; /* of an array: of its items, which are no arrays */
  bool is_array;
  uint64_t count; /* items of an array; 1 of what is none */
  const uint8_t *data;
  size_t bytes;
} tri_gguf_value;

/* Dimensions are in the file's order: elements that follow each other first, [in, out] of a matrix. */
typedef struct tri_gguf_tensor {
  const char *name;
  const tri_gguf_block *block;
  int rank; /* 1 to TRI_GGUF_MAX_RANK */
  uint64_t shape[TRI_GGUF_MAX_RANK];
  uint64_t offset, bytes; /* in the file */
} tri_gguf_tensor;

typedef struct tri_gguf {
  const tri_gguf_value *keys; /* sorted by name */
  size_t num_keys;
  const tri_gguf_tensor *tensors; /* by their places in the file */
  size_t num_tensors;
  uint64_t header_bytes; /* without the padding before the data */
} tri_gguf;

/* Reads the header of a file of file_bytes, of which `data` has the first len; values point into it. TRI_AGAIN: the
 * header has more bytes than these. */
tri_status tri_gguf_parse(const void *data, size_t len, uint64_t file_bytes, tri_gguf **out, tri_error *err);
/* Reads that of a file; errors name it. TRI_NOT_FOUND: there is none. */
tri_status tri_gguf_open(const char *path, tri_gguf **out, tri_error *err);
void tri_gguf_close(tri_gguf *g); /* NULL is fine */

/* Returns a key's value; NULL: there is none. */
const tri_gguf_value *tri_gguf_find(const tri_gguf *g, const char *name);
/* Item i of a value as an integer or a number. False: it is none of these, is negative (uint), or does not fit. */
bool tri_gguf_item_uint(const tri_gguf_value *v, uint64_t i, uint64_t *out);
bool tri_gguf_item_number(const tri_gguf_value *v, uint64_t i, double *out);
/* The same of a key that is no array; false also where it is not there. */
bool tri_gguf_uint(const tri_gguf *g, const char *name, uint64_t *out);
bool tri_gguf_bool(const tri_gguf *g, const char *name, bool *out);
/* A text, without a zero at its end. */
bool tri_gguf_text(const tri_gguf *g, const char *name, const char **s, size_t *len);
/* Returns whether a key is this text. */
bool tri_gguf_is(const tri_gguf *g, const char *name, const char *text);
/* Takes the next text of an array of them: *at begins as 0. */
void tri_gguf_next_text(const tri_gguf_value *v, size_t *at, const char **s, size_t *len);

#endif
