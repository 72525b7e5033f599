/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a step: every token is in one of them, with the keys that it saw in the whole. */
#include <check.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/step/batch.h"

Suite *suite_batch_cut(void);

enum { SEQS = 9, TOKENS = 64, BLOCK = 4 };

static int number(uint64_t *seed, int most) { return (int)(tri_splitmix64(seed) % (uint64_t)most) + 1; }

/* Sequences of some tokens behind others that the cache has. */
static void fill(tri_batch_builder *b, uint64_t *seed) {
  tri_batch *v = &b->batch;
  tri_batch_arrays *a = &b->rows;
  v->num_tokens = v->num_seqs = 0;
  for (int n; v->num_seqs < SEQS; v->num_tokens += n) {
    n = number(seed, 3) == 1 ? 1 : number(seed, 20);
    if (v->num_tokens + n > TOKENS) break;
    int before = number(seed, 30) - 1, s = v->num_seqs++;
    for (int i = 0; i < n; i++) {
      a->token_ids[v->num_tokens + i] = (uint32_t)tri_splitmix64(seed);
      a->positions[v->num_tokens + i] = before + i;
      a->kv_slot[v->num_tokens + i] = 100 * s + before + i;
    }
    a->seq_start[s + 1] = v->num_tokens + n;
    a->context_len[s] = before + n;
    a->block_start[s + 1] = a->block_start[s] + (before + n + BLOCK - 1) / BLOCK;
    for (int i = a->block_start[s]; i < a->block_start[s + 1]; i++) a->block_table[i] = 1000 * s + i;
  }
}

/* The chunk's tokens from `first` of the whole on. */
static void expect_chunk(const tri_batch *whole, const tri_batch *c, int first) {
  int query = 0, context = 0, single = 0;
  ck_assert_int_eq(c->seq_start[0], 0);
  ck_assert_int_eq(c->seq_start[c->num_seqs], c->num_tokens);
  for (int s = 0; s < c->num_seqs; s++) {
    int n = c->seq_start[s + 1] - c->seq_start[s], last = first + c->seq_start[s + 1] - 1, of = 0;
    ck_assert_int_ge(n, 1);
    while (whole->seq_start[of + 1] <= last) of++;
    ck_assert_int_le(whole->seq_start[of], first + c->seq_start[s]);
    ck_assert_int_eq(c->context_len[s], whole->positions[last] + 1);
    ck_assert_ptr_eq(tri_batch_blocks(c, s), tri_batch_blocks(whole, of));
    query = n > query ? n : query;
    context = c->context_len[s] > context ? c->context_len[s] : context;
    single += n == 1;
  }
  ck_assert(c->max_query == query && c->max_context == context && c->num_single == single && !c->num_logits);
  ck_assert(!memcmp(c->token_ids, whole->token_ids + first, (size_t)c->num_tokens * sizeof *c->token_ids));
  ck_assert(!memcmp(c->kv_slot, whole->kv_slot + first, (size_t)c->num_tokens * sizeof *c->kv_slot));
}

START_TEST(chunks_see_what_the_whole_sees) {
  tri_limits limits = {.max_num_seqs = SEQS,
                       .max_num_batched_tokens = TOKENS,
                       .max_model_len = 64,
                       .block_size = BLOCK,
                       .num_blocks = 200,
                       .vocab_size = 10};
  tri_batch_builder *b = NULL;
  uint64_t seed = 1;
  int cut = 0;
  ck_assert_int_eq(tri_batch_builder_create(&limits, &b), TRI_OK);
  for (int round = 0; round < 2000; round++) {
    tri_batch chunks[TRI_MAX_CHUNKS];
    limits.chunk_tokens = number(&seed, TOKENS + 10);
    int rows = tri_limits_chunk(&limits), first = 0;
    fill(b, &seed);
    int n = tri_batch_cut(b, &b->batch, rows, chunks);
    ck_assert_int_eq(n, tri_limits_num_chunks(&limits, b->batch.num_tokens));
    for (int i = 0; i < n; i++) {
      ck_assert_int_le(chunks[i].num_tokens, rows);
      expect_chunk(&b->batch, &chunks[i], first);
      first += chunks[i].num_tokens;
    }
    ck_assert_int_eq(first, b->batch.num_tokens);
    cut += n > 1;
  }
  ck_assert_int_gt(cut, 500);
  tri_batch_builder_destroy(b);
}
END_TEST

START_TEST(sizes_of_chunks) {
  tri_limits l = {.max_num_batched_tokens = 8192};
  ck_assert(tri_limits_chunk(&l) == 8192 && tri_limits_num_chunks(&l, 8192) == 1);
  l.chunk_tokens = 2048;
  ck_assert(tri_limits_chunk(&l) == 2048 && tri_limits_num_chunks(&l, 8192) == 4 && tri_limits_num_chunks(&l, 1) == 1);
  l.chunk_tokens = 3;
  ck_assert(tri_limits_chunk(&l) == 512 && tri_limits_num_chunks(&l, 8192) == TRI_MAX_CHUNKS);
  l.chunk_tokens = 9000;
  ck_assert_int_eq(tri_limits_chunk(&l), 8192);
}
END_TEST

Suite *suite_batch_cut(void) {
  Suite *s = suite_create("batch_cut");
  TCase *t = tcase_create("cut");
  suite_add_tcase(s, t);
  tcase_add_test(t, chunks_see_what_the_whole_sees);
  tcase_add_test(t, sizes_of_chunks);
  return s;
}
