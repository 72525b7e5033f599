/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling over a cut vocabulary: the candidates of a part, and part by part and merged against the one-rank sampler,
 * to the bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

enum { MOST_ROWS = 300, MOST_PARTS = 32 };

typedef enum kind {
  PLAIN,   /* greedy rows alone */
  MIXED,   /* greedy ones and cuts, with biases and bans */
  TIES,    /* few different logits: the last candidates are some of many equal ones, in several parts */
  BARE,    /* few logits that are finite, or none, or none of a part; now and then NaN and an infinite one */
  EMPTIED, /* bans that leave nothing of a part, and little of the others */
  STEEP    /* one part has all that matters */
} kind;

/* Rows that are sampled in parts. bounds: [num_parts + 1] where the parts begin. */
typedef struct cut {
  int vocab, num_parts, width;
  int bounds[MOST_PARTS + 1];
} cut;

static void make_cut(oc *c, cut *k, bool large) {
  static const int vocabs[] = {5, 17, 64, 129, 1000, 4099, 32000, 128256};
  int most = oc_chance(c, 10) ? MOST_PARTS : oc_chance(c, 30) ? 8 : 4;
  k->vocab = vocabs[large ? 7 : oc_range(c, 0, oc_chance(c, 20) ? 7 : 5)];
  k->num_parts = oc_range(c, 1, k->vocab < most ? k->vocab : most);
  bool even = oc_chance(c, 50);
  for (int i = 0; i <= k->num_parts; i++) k->bounds[i] = (int)((int64_t)k->vocab * i / k->num_parts);
  for (int i = 1; i < k->num_parts && !even; i++) /* at least one id each */
    k->bounds[i] = oc_range(c, k->bounds[i - 1] + 1, k->vocab - (k->num_parts - i));
}

static void some_edits(oc *c, kind which, const cut *k, tri_sample_params *p) {
  int part = oc_range(c, 0, k->num_parts - 1), first = k->bounds[part], end = k->bounds[part + 1];
  int named = which == EMPTIED ? (end - first < 5000 ? end - first : 5000) : oc_range(c, 0, 9);
  uint32_t *banned = oc_host(c, (size_t)named * sizeof *banned);
  tri_logit_bias *bias = oc_host(c, 9 * sizeof *bias);
  /* Around where parts meet, and beyond the vocabulary. */
  for (int i = 0; i < 9; i++) {
    int at = oc_chance(c, 50) ? oc_range(c, 0, k->vocab + 2) : end + oc_range(c, -2, 1);
    bias[i] = (tri_logit_bias){(uint32_t)(at < 0 ? 0 : at), 3 * oc_normal(c)};
  }
  for (int i = 0; i < named; i++)
    banned[i] = which == EMPTIED   ? (uint32_t)(first + i)
                : oc_chance(c, 30) ? bias[i % 9].id
                                   : (uint32_t)oc_range(c, 0, k->vocab);
  p->banned = banned, p->num_banned = named;
  if (oc_chance(c, 60)) p->logit_bias = bias, p->num_logit_bias = oc_range(c, 1, 9);
}

static void some_params(oc *c, kind which, const cut *k, tri_sample_params *p) {
  *p = (tri_sample_params){.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  if (which == PLAIN) return;
  p->seed = oc_random(c);
  if (oc_chance(c, 80)) p->temperature = 0.2f + 0.1f * (float)oc_range(c, 0, 18);
  p->top_k = oc_range(c, 1, oc_chance(c, 50) ? TRI_SAMPLE_CANDIDATES : 6);
  if (oc_chance(c, 50)) p->top_p = 0.05f * (float)oc_range(c, 1, 19);
  if (oc_chance(c, 30)) p->min_p = 0.01f * (float)oc_range(c, 1, 60);
  if (which != EMPTIED && oc_chance(c, 40)) p->mask = oc_mask(c, k->vocab);
  if (which == EMPTIED || oc_chance(c, 40)) some_edits(c, which, k, p);
}

static void some_logits(oc *c, kind which, const cut *k, float *x) {
  float sigma = (float)oc_range(c, 0, 4);
  int empty = oc_range(c, 0, k->num_parts - 1), full = oc_range(c, 0, k->num_parts - 1);
  int finite = oc_range(c, 0, 20), all = oc_chance(c, 15), infinite = oc_chance(c, 5), nan = oc_chance(c, 30);
  for (int j = 0; j < k->vocab; j++) {
    x[j] = sigma * x[j];
    if (which == TIES || (which == PLAIN && k->vocab % 2)) x[j] = floorf(x[j]) * (oc_chance(c, 50) ? 1.0f : -0.0f);
    if (which == STEEP) x[j] -= j >= k->bounds[full] && j < k->bounds[full + 1] ? 0 : 30;
    if (which != BARE) continue;
    bool bare = all || (j >= k->bounds[empty] && j < k->bounds[empty + 1]) || oc_range(c, 0, k->vocab - 1) > finite;
    if (bare) x[j] = nan && oc_chance(c, 50) ? NAN : -INFINITY;
    if (infinite && oc_chance(c, 2)) x[j] = INFINITY;
  }
}

/* Rows as `sample` takes them, on the host. */
static void make_rows(oc *c, kind which, cut *k, int rows, tri_sample_args *a) {
  tri_sample_params *params = oc_host(c, MOST_ROWS * sizeof *params);
  const tri_sample_params **pointers = oc_host(c, MOST_ROWS * sizeof *pointers);
  const uint32_t **history = oc_host(c, MOST_ROWS * sizeof *history);
  int *none = oc_host(c, MOST_ROWS * sizeof *none);
  uint64_t *counter = oc_host(c, MOST_ROWS * sizeof *counter);
  *a = (tri_sample_args){.logits = oc_matrix(c, rows, k->vocab, false), .params = pointers, .history = history};
  a->num_prompt = none, a->num_history = none, a->counter = counter;
  k->width = 1;
  for (int r = 0; r < rows; r++) {
    some_logits(c, which, k, a->logits.data + (size_t)r * (size_t)a->logits.ld);
    if (r < 20)
      some_params(c, which, k, &params[r]);
    else
      params[r] = params[r % 20];
    pointers[r] = &params[r];
    counter[r] = oc_random(c) % 1000;
    int n = tri_sample_num_candidates(&params[r]);
    k->width = n > k->width ? n : k->width;
  }
  if (k->width < TRI_SAMPLE_MERGED / k->num_parts && k->width < TRI_SAMPLE_CANDIDATES) k->width += oc_range(c, 0, 1);
}

static tri_sample_part_args part_of(const tri_sample_args *a, const cut *k, int part, tri_sample_candidate *to) {
  tri_sample_part_args p = {.rows = *a, .first_id = (uint32_t)k->bounds[part], .width = k->width};
  p.rows.logits.data += k->bounds[part];
  p.rows.logits.cols = k->bounds[part + 1] - k->bounds[part];
  p.candidates = to;
  return p;
}

static int by_order(const void *pa, const void *pb) {
  const tri_sample_candidate *a = pa, *b = pb;
  if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
  return a->id < b->id ? -1 : a->id > b->id;
}

/* Returns whether a merge takes these candidates for a part of no numbers. */
static bool is_broken(const tri_sample_candidate *x, int width) {
  bool broken = false;
  for (int i = 0; i < width; i++) broken |= x[i].id == TRI_BROKEN_CANDIDATE || !(x[i].logit < INFINITY);
  return broken;
}

/* The same candidates in any order; those of minus infinity do not count. */
static void compare_candidates(oc *c, tri_sample_candidate *want, tri_sample_candidate *got, int width) {
  bool broken = is_broken(want, width);
  oc_expect(c, broken == is_broken(got, width), "broken is %d, not %d", !broken, broken);
  if (broken) return;
  qsort(want, (size_t)width, sizeof *want, by_order);
  qsort(got, (size_t)width, sizeof *got, by_order);
  for (int i = 0; i < width; i++) {
    if (want[i].logit == -INFINITY && got[i].logit == -INFINITY) continue;
    bool same = want[i].id == got[i].id && want[i].logit == got[i].logit;
    oc_expect(c, same, "candidate %d is %u with %g, not %u with %g", i, got[i].id, got[i].logit, want[i].id,
              want[i].logit);
  }
}

void oc_case_sample_part(oc *c, int i) {
  cut k;
  tri_sample_args a, b;
  kind which = (kind)(i % 6);
  make_cut(c, &k, i % 18 == 0); /* of greedy rows */
  int rows = oc_range(c, 1, 6), part = oc_range(c, 0, k.num_parts - 1);
  make_rows(c, which, &k, rows, &a);
  size_t count = (size_t)(rows * k.width), bytes = count * sizeof(tri_sample_candidate);
  tri_sample_candidate *want = oc_host(c, bytes), *got = oc_host(c, bytes);
  memset(want, 0xff, bytes);
  b = a, b.logits = oc_device_matrix(c, &a.logits);
  tri_sample_candidate *device = oc_device(c, want, bytes);
  tri_sample_part_args pa = part_of(&a, &k, part, want), pb = part_of(&b, &k, part, device);
  snprintf(c->what, sizeof c->what, "sample_part kind %d rows %d ids %u and %d, width %d", (int)which, rows,
           pa.first_id, pa.rows.logits.cols, k.width);
  oc_status(c, tri_run_sample_part(c->ref, &pa), tri_run_sample_part(c->be, &pb));
  oc_download(c, got, device, bytes);
  for (int r = 0; r < rows; r++) compare_candidates(c, want + r * k.width, got + r * k.width, k.width);
}

static tri_status run_parts(oc *c, tri_backend *be, const cut *k, const tri_sample_args *a, tri_sample_candidate *all) {
  int last = oc_range(c, 0, k->num_parts - 1); /* of which the backend may remember the rows */
  for (int i = 1; i <= k->num_parts; i++) {
    int part = (last + i) % k->num_parts;
    tri_sample_part_args p = part_of(a, k, part, all + (size_t)part * (size_t)(a->logits.rows * k->width));
    tri_status st = tri_run_sample_part(be, &p);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}

/* As the ranks of a group would: each its part, and then what all have gathered. Now and then that is the reference's,
 * from which logits of minus infinity are absent. host: the same as *a, in host memory. */
static tri_status sample_in_parts(oc *c, const cut *k, const tri_sample_args *host, const tri_sample_args *a) {
  size_t bytes = (size_t)(k->num_parts * a->logits.rows * k->width) * sizeof(tri_sample_candidate);
  tri_sample_candidate *own = oc_host(c, bytes);
  memset(own, 0x7f, bytes);
  tri_sample_candidate *all = oc_device(c, own, bytes);
  tri_sample_merge_args m = {.rows = *a, .num_parts = k->num_parts, .width = k->width, .candidates = all};
  m.rows.logits.data = NULL;
  tri_status st = run_parts(c, c->be, k, a, all);
  if (st == TRI_OK && oc_chance(c, 25)) {
    st = run_parts(c, c->ref, k, host, own);
    m.candidates = oc_device(c, own, bytes);
  }
  return st == TRI_OK ? tri_run_sample_merge(c->be, &m) : st;
}

/* A row that is broken as a whole is so in parts; the other way round, one of its parts may be. */
static void expect_same(oc *c, const tri_sample_result *want, const tri_sample_result *got, const uint32_t *sampled) {
  if (want->broken) {
    if (got) oc_expect(c, got->broken, "a row of no numbers is not told");
    return;
  }
  if (got) {
    oc_expect(c, want->token == got->token, "token %u, not %u", got->token, want->token);
    oc_expect(c, got->logprob == 0 && got->num_top == 0, "logprobs that nobody asked for");
  }
  if (sampled) oc_expect(c, want->token == *sampled, "%u for the next step, not %u", *sampled, want->token);
}

/* `want` is from the sampler of the same arithmetic: the host's backends share the reference's merge. */
void oc_case_sample_merge(oc *c, int i) {
  cut k;
  tri_sample_args a, b;
  kind which = (kind)(i % 6);
  make_cut(c, &k, false);
  int rows = i % 40 == 39 ? oc_range(c, 100, MOST_ROWS) : oc_range(c, 0, 8);
  if (rows > 8) k.vocab = k.bounds[k.num_parts = 2] = 300, k.bounds[1] = 77;
  if (i % 40 == 19) rows = 2, k.vocab = k.bounds[k.num_parts = 2] = 700000, k.bounds[1] = 350000;
  make_rows(c, which, &k, rows, &a);
  snprintf(c->what, sizeof c->what, "sample_merge kind %d vocab %d parts %d", (int)which, k.vocab, k.num_parts);
  bool host = c->be->host_memory;
  tri_sample_result *want = oc_host(c, MOST_ROWS * sizeof *want), *got = oc_host(c, MOST_ROWS * sizeof *got);
  uint32_t *again = oc_host(c, MOST_ROWS * sizeof *again);
  b = a, b.logits = oc_device_matrix(c, &a.logits);
  tri_sample_args whole = a;
  whole.logits = oc_device_matrix(c, &a.logits), whole.results = want;
  oc_status(c, TRI_OK, tri_run_sample(host ? c->ref : c->be, &whole));
  b.sampled = oc_chance(c, 60) ? oc_device(c, again, MOST_ROWS * sizeof *again) : NULL;
  b.results = b.sampled && oc_chance(c, 30) ? NULL : got;
  oc_status(c, TRI_OK, sample_in_parts(c, &k, &a, &b));
  if (b.sampled) oc_download(c, again, b.sampled, MOST_ROWS * sizeof *again);
  oc_expect(c, c->be->ops.stream_sync(c->be) == TRI_OK, "the device: %s", c->be->failure);
  for (int r = 0; r < rows; r++) {
    const tri_sample_params *p = a.params[r];
    snprintf(c->what, sizeof c->what,
             "sample_merge kind %d vocab %d parts %d temperature %g top_k %d top_p %g min_p %g", (int)which, k.vocab,
             k.num_parts, p->temperature, p->top_k, p->top_p, p->min_p);
    expect_same(c, &want[r], b.results ? &got[r] : NULL, b.sampled ? &again[r] : NULL);
  }
}
