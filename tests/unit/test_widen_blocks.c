/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of GGUF files against the numbers that the gguf package makes of them (tests/models/make_blocks.py), to the
 * bit, whole rows and parts of them. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "runtime/load/widen.h"
#include "tests/unit/gguf_file.h"

Suite *suite_widen_blocks(void);

static char *file;
static size_t file_len;
static tri_gguf *g;

static void open_file(void) {
  tri_error err = {0};
  ck_assert_int_eq(tri_file_read(TRI_TEST_DATA "/gguf/blocks.gguf", 1 << 20, &file, &file_len, &err), TRI_OK);
  ck_assert_msg(tri_gguf_parse(file, file_len, file_len, &g, &err) == TRI_OK, "%s", err.message);
}

static void close_file(void) {
  tri_gguf_close(g);
  tri_free(file);
}

static const tri_gguf_tensor *find(const char *type, const char *what) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", type, what);
  for (size_t i = 0; i < g->num_tensors; i++)
    if (!strcmp(g->tensors[i].name, name)) return &g->tensors[i];
  return NULL;
}

static const int types[] = {TRI_GGUF_BLOCK_Q4_0, TRI_GGUF_BLOCK_Q4_1, TRI_GGUF_BLOCK_Q5_0,   TRI_GGUF_BLOCK_Q5_1,
                            TRI_GGUF_BLOCK_Q8_0, TRI_GGUF_BLOCK_Q2_K, TRI_GGUF_BLOCK_Q3_K,   TRI_GGUF_BLOCK_Q4_K,
                            TRI_GGUF_BLOCK_Q5_K, TRI_GGUF_BLOCK_Q6_K, TRI_GGUF_BLOCK_IQ4_NL, TRI_GGUF_BLOCK_IQ4_XS,
                            TRI_GGUF_BLOCK_MXFP4};
enum { NUM_TYPES = sizeof types / sizeof *types, COLS = 256 };

/* Codes begin with a block that is not the row's first one, and the rectangle inside it. */
static void check(const tri_widen_layout *l, const char *codes, size_t pitch, const float *want, int64_t first,
                  const tri_widen_rect *r) {
  float out[2 * COLS];
  size_t skip = (size_t)(first / l->block->weights) * (size_t)l->block->bytes;
  tri_widen_view v = {.layout = l, .codes = codes + skip, .pitch = pitch, .first_col = first};
  tri_widen_elements(&tri_widen_blocks, &v, r, out, COLS);
  for (int64_t i = 0; i < r->rows; i++)
    ck_assert_msg(!memcmp(out + i * COLS, want + (r->row + i) * COLS + r->col, (size_t)r->cols * sizeof *out),
                  "%s: row %d, %d columns from %d on", l->block->name, (int)i, (int)r->cols, (int)r->col);
}

/* Codes times their block's scale are the numbers: of whole rows, and of parts that begin or end inside a block. */
START_TEST(test_split_q8_0) {
  const tri_gguf_tensor *b = find("Q8_0", "blocks"), *x = find("Q8_0", "numbers");
  ck_assert(b && x);
  enum { BLOCK = 32 };
  tri_widen_layout l = {.rows = 2, .cols = COLS, .block = b->block};
  size_t pitch = (size_t)(COLS / BLOCK * b->block->bytes), wrong = 0;
  float want[2 * COLS];
  memcpy(want, file + x->offset, sizeof want);
  static const int parts[][2] = {{0, COLS}, {32, 64}, {5, 20}, {5, 27}, {31, 2}, {40, 200}, {255, 1}};
  for (size_t i = 0; i < 2 * sizeof parts / sizeof *parts; i++) {
    int row = (int)i % 2, col = parts[i / 2][0], cols = parts[i / 2][1], first = col / BLOCK * BLOCK;
    int num = (col + cols - 1) / BLOCK - col / BLOCK + 1;
    int8_t codes[COLS + 1];
    float scales[COLS / BLOCK + 1];
    codes[cols] = 77;
    scales[num] = -1;
    tri_widen_view v = {.layout = &l, .codes = file + b->offset, .pitch = pitch, .first_col = first};
    v.codes = file + b->offset + first / BLOCK * b->block->bytes;
    tri_widen_rect r = {.row = row, .rows = 1, .col = col, .cols = cols};
    tri_widen_split_q8_0(&v, &r, codes, scales);
    for (int j = 0; j < cols; j++)
      wrong += (float)codes[j] * scales[(col + j) / BLOCK - col / BLOCK] != want[row * COLS + col + j];
    wrong += codes[cols] != 77 || scales[num] != -1;
  }
  ck_assert_int_eq((int)wrong, 0);
}
END_TEST

START_TEST(test_numbers) {
  const tri_gguf_block *block = tri_gguf_block_find((uint32_t)types[_i]);
  const tri_gguf_tensor *b = find(block->name, "blocks"), *x = find(block->name, "numbers");
  ck_assert(b && x && b->block == block && b->shape[0] == COLS && x->bytes == 2 * COLS * sizeof(float));
  tri_widen_layout l = {.rows = 2, .cols = COLS, .block = block};
  float want[2 * COLS];
  memcpy(want, file + x->offset, sizeof want);
  size_t pitch = (size_t)(b->bytes / 2);
  for (int64_t col = 0; col < COLS; col += 7)
    for (int64_t cols = 1; col + cols <= COLS; cols += 31) {
      check(&l, file + b->offset, pitch, want, 0, &(tri_widen_rect){0, 2, col, cols});
      check(&l, file + b->offset, pitch, want, col / block->weights * block->weights,
            &(tri_widen_rect){0, 2, col, cols});
    }
  check(&l, file + b->offset, pitch, want, 0, &(tri_widen_rect){0, 2, 0, COLS});
  check(&l, file + b->offset, pitch, want, 0, &(tri_widen_rect){1, 1, 0, COLS});
}
END_TEST

Suite *suite_widen_blocks(void) {
  Suite *s = suite_create("widen_blocks");
  TCase *c = tcase_create("widen_blocks");
  tcase_add_unchecked_fixture(c, open_file, close_file);
  tcase_add_loop_test(c, test_numbers, 0, NUM_TYPES);
  tcase_add_test(c, test_split_q8_0);
  suite_add_tcase(s, c);
  return s;
}
