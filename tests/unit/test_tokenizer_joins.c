/* SPDX-License-Identifier: Apache-2.0 */
/* Long words are merged in runs: the same tokens as when the lowest rank of the whole word is merged first, for random
 * vocabularies and texts. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_joins(void);

enum { LETTERS = 6, MERGES = 40, TOKENS = LETTERS + MERGES, LONGEST = 24, TEXT = 400 };

/* Tokens 0 .. LETTERS are single letters, the others results of merges in the order of their ranks. */
typedef struct vocabulary {
  char text[TOKENS][LONGEST + 1];
  int num, left[MERGES], right[MERGES], result[MERGES], num_merges;
} vocabulary;

static uint64_t below(uint64_t *seed, uint64_t n) { return tri_splitmix64(seed) % n; }

static int find(const vocabulary *v, const char *text) {
  for (int i = 0; i < v->num; i++)
    if (!strcmp(v->text[i], text)) return i;
  return -1;
}

static bool has_merge(const vocabulary *v, int left, int right) {
  for (int m = 0; m < v->num_merges; m++)
    if (v->left[m] == left && v->right[m] == right) return true;
  return false;
}

/* Two merges may have one result ("ab" "c" and "a" "bc"); some join only after others, and some never come about. */
static void make(vocabulary *v, uint64_t *seed) {
  *v = (vocabulary){.num = LETTERS};
  for (int i = 0; i < LETTERS; i++) v->text[i][0] = (char)('a' + i);
  while (v->num_merges < MERGES) {
    int left = (int)below(seed, (uint64_t)v->num), right = (int)below(seed, (uint64_t)v->num), m = v->num_merges;
    char joined[2 * LONGEST + 1];
    snprintf(joined, sizeof joined, "%s%s", v->text[left], v->text[right]);
    if (strlen(joined) > LONGEST || has_merge(v, left, right) || (left % LETTERS + 2 * right) % 3 == 0) {
      if (below(seed, 50) == 0) break;
      continue;
    }
    int id = find(v, joined);
    if (id < 0) {
      id = v->num++;
      memcpy(v->text[id], joined, strlen(joined) + 1);
    }
    v->left[m] = left;
    v->right[m] = right;
    v->result[m] = id;
    v->num_merges++;
  }
}

static tri_tokenizer *load(const vocabulary *v) {
  char *json = NULL;
  size_t len = 0;
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  FILE *f = open_memstream(&json, &len);
  fprintf(f, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
  for (int i = 0; i < v->num; i++) fprintf(f, "%s\"%s\":%d", i ? "," : "", v->text[i], i);
  fprintf(f, "},\"merges\":[");
  for (int m = 0; m < v->num_merges; m++)
    fprintf(f, "%s[\"%s\",\"%s\"]", m ? "," : "", v->text[v->left[m]], v->text[v->right[m]]);
  fprintf(f, "]}}");
  fclose(f);
  ck_assert_msg(tri_tokenizer_parse(json, len, &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  free(json);
  return t;
}

/* The plain algorithm: of all merges that two neighbours allow the lowest, of equal ones the leftmost, until none is
 * left. */
static size_t merge_plainly(const vocabulary *v, const char *text, size_t len, int *ids) {
  for (size_t i = 0; i < len; i++) ids[i] = text[i] - 'a';
  for (int m = 0; m < v->num_merges;) {
    size_t i = 0;
    while (i + 1 < len && (ids[i] != v->left[m] || ids[i + 1] != v->right[m])) i++;
    if (i + 1 >= len) {
      m++;
      continue;
    }
    ids[i] = v->result[m];
    memmove(ids + i + 1, ids + i + 2, (len - i - 2) * sizeof *ids);
    len--;
    m = 0; /* the new symbol may allow a lower merge */
  }
  return len;
}

START_TEST(runs_are_merged_as_the_whole) {
  uint64_t seed = 7 + (uint64_t)_i;
  char text[TEXT];
  int want[TEXT];
  for (int round = 0; round < 60; round++) {
    vocabulary v;
    make(&v, &seed);
    tri_tokenizer *t = load(&v);
    tri_tokenizer_scratch *s = NULL;
    ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
    for (int k = 0; k < 20; k++) {
      size_t len = 41 + below(&seed, TEXT - 41), count;
      const uint32_t *ids;
      for (size_t i = 0; i < len; i++) text[i] = (char)('a' + below(&seed, k % 2 ? LETTERS : 3));
      size_t n = merge_plainly(&v, text, len, want);
      ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
      bool same = count == n;
      for (size_t i = 0; same && i < n; i++) same = ids[i] == (uint32_t)want[i];
      if (!same) ck_abort_msg("seed %d, round %d: \"%.*s\"", _i, round, (int)len, text);
    }
    tri_tokenizer_scratch_destroy(s);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

Suite *suite_tokenizer_joins(void) {
  Suite *suite = suite_create("tokenizer_joins");
  TCase *c = tcase_create("tokenizer_joins");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, runs_are_merged_as_the_whole, 0, 8);
  suite_add_tcase(suite, c);
  return suite;
}
