/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/embed_result.h"

#include <string.h>

#include "base/mem.h"

/* A result's bytes: this header, then rows * cols float32 numbers without gaps. */
struct packed_header {
  uint64_t step;
  uint32_t micro_batch, rows, cols, reserved;
};

bool tri_embed_result_max(const tri_model_config *c, const tri_limits *limits, size_t *rows, size_t *cols) {
  size_t bytes;
  *rows = (size_t)(c->head.token_head ? limits->max_num_batched_tokens : limits->max_num_seqs);
  *cols = (size_t)tri_model_config_width(c);
  return tri_size_mul(*rows, *cols, &bytes) && tri_size_mul(bytes, sizeof(float), &bytes) &&
         tri_size_add(bytes, sizeof(struct packed_header), &bytes);
}

size_t tri_embed_result_bytes(size_t rows, size_t cols) {
  return sizeof(struct packed_header) + rows * cols * sizeof(float);
}

/* Rows may lie apart in the matrix (ld) and lie without gaps in the bytes. */
size_t tri_embed_result_pack(const tri_embed_result *r, void *buf, size_t cap) {
  const tri_mat *m = &r->values;
  struct packed_header h = {
      .step = r->step, .micro_batch = r->micro_batch, .rows = (uint32_t)m->rows, .cols = (uint32_t)m->cols};
  size_t width = (size_t)m->cols * sizeof(float), bytes = tri_embed_result_bytes((size_t)m->rows, (size_t)m->cols);
  if (bytes > cap) return 0;
  char *at = (char *)buf + sizeof h;
  memcpy(buf, &h, sizeof h);
  for (int i = 0; i < m->rows; i++, at += width) memcpy(at, m->data + (size_t)i * (size_t)m->ld, width);
  return bytes;
}

tri_status tri_embed_result_unpack(void *buf, size_t len, size_t most_rows, size_t cols, tri_embed_result *out) {
  struct packed_header h;
  if (len < sizeof h) return TRI_CORRUPT;
  memcpy(&h, buf, sizeof h);
  if (h.rows > most_rows || h.cols != cols || len != tri_embed_result_bytes(h.rows, h.cols)) return TRI_CORRUPT;
  *out = (tri_embed_result){.step = h.step,
                            .micro_batch = h.micro_batch,
                            .values = {.data = (float *)(void *)((char *)buf + sizeof h),
                                       .rows = (int)h.rows,
                                       .cols = (int)h.cols,
                                       .ld = (int)h.cols}};
  return TRI_OK;
}
