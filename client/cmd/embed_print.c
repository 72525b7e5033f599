/* SPDX-License-Identifier: Apache-2.0 */
/* Answers to embed and classify as text and as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd/cmd.h"
#include "base/mem.h"

static void add_floats(tri_buf *b, const float *v, size_t n, const char *between, const char *otherwise) {
  for (size_t i = 0; i < n; i++) {
    tri_text_add(b, between, i ? strlen(between) : 0);
    tri_json_add_float(b, v[i], otherwise);
  }
}

/* ---- labels, best first ---- */

typedef struct ranked {
  float score;
  size_t label;
} ranked;

/* By score; equal ones, and what is no number, by their label. */
static int compare(const void *a, const void *b) {
  const ranked *x = a, *y = b;
  if (x->score > y->score || (isnan(y->score) && !isnan(x->score))) return -1;
  if (x->score < y->score || (isnan(x->score) && !isnan(y->score))) return 1;
  return x->label < y->label ? -1 : x->label > y->label;
}

/* The labels of a row in order; *count of them are wanted. */
static ranked *rank_row(const trireme_event *e, size_t row, int64_t top_k, size_t *count) {
  size_t n = e->scores.num_labels;
  ranked *all = tri_malloc(n, sizeof *all);
  for (size_t i = 0; all && i < n; i++) all[i] = (ranked){e->scores.values[row * n + i], i};
  if (all) qsort(all, n, sizeof *all, compare);
  *count = top_k > 0 && (size_t)top_k < n ? (size_t)top_k : n;
  return all;
}

static void print_row(tri_buf *b, const trireme_event *e, size_t row, int64_t top_k) {
  size_t n;
  ranked *r = rank_row(e, row, top_k, &n);
  b->failed |= !r;
  for (size_t i = 0; r && i < n; i++) {
    tri_text_printf(b, "%s%s\t", i ? "\t" : "", e->scores.labels[r[i].label]);
    tri_json_add_float(b, r[i].score, "nan");
  }
  tri_free(r);
}

static void json_row(tri_buf *b, const trireme_event *e, size_t row, int64_t top_k) {
  size_t n;
  ranked *r = rank_row(e, row, top_k, &n);
  b->failed |= !r;
  tri_text_add(b, "[", 1);
  for (size_t i = 0; r && i < n; i++) {
    tri_json_open(b, NULL, '{');
    tri_json_put_word(b, "label", e->scores.labels[r[i].label]);
    tri_json_add_key(b, "score");
    tri_json_add_float(b, r[i].score, "null");
    tri_text_add(b, "}", 1);
  }
  tri_text_add(b, "]", 1);
  tri_free(r);
}

/* ---- answers ---- */

/* Without --top-k a text has all labels, and each of several tokens its best one alone. */
void cmd_print_embed_reply(tri_buf *b, const trireme_event *e, int64_t top_k) {
  if (e->kind == TRIREME_EVENT_EMBEDDING) {
    add_floats(b, e->embedding.values, e->embedding.num, " ", "nan");
    tri_text_add(b, "\n", 1);
    return;
  }
  for (size_t i = 0; i < e->scores.num_rows; i++) {
    if (e->scores.tokens) tri_text_printf(b, "%s\t", e->scores.tokens[i]);
    print_row(b, e, i, e->scores.tokens && !top_k ? 1 : top_k);
    tri_text_add(b, "\n", 1);
  }
}

static void json_tokens(tri_buf *b, const trireme_event *e, int64_t top_k) {
  tri_json_open(b, "tokens", '[');
  for (size_t i = 0; i < e->scores.num_rows; i++) {
    tri_json_open(b, NULL, '{');
    tri_json_put_word(b, "token", e->scores.tokens[i]);
    tri_json_add_key(b, "scores");
    json_row(b, e, i, top_k);
    tri_text_add(b, "}", 1);
  }
  tri_text_add(b, "]", 1);
}

void cmd_json_embed_reply(tri_buf *b, const trireme_event *e, int64_t top_k) {
  bool embedding = e->kind == TRIREME_EVENT_EMBEDDING;
  if (embedding) {
    tri_json_open(b, "embedding", '[');
    add_floats(b, e->embedding.values, e->embedding.num, ",", "null");
    tri_text_add(b, "]", 1);
  } else if (e->scores.tokens) {
    json_tokens(b, e, top_k ? top_k : 1);
  } else {
    tri_json_add_key(b, "scores");
    json_row(b, e, 0, top_k);
  }
  if (!embedding) tri_json_put_word(b, "activation", e->scores.activation);
  tri_json_put_uint(b, "prompt_tokens", embedding ? e->embedding.prompt_tokens : e->scores.prompt_tokens);
  if (embedding ? e->embedding.cached : e->scores.cached) tri_text_printf(b, ",\"cached\":true");
}
