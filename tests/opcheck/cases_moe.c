/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

/* By its definition: for each expert, the choices that name it. */
void oc_moe_map(const int32_t *experts, int choices, int first, int num_experts, tri_expert_map *m) {
  int row = 0;
  for (int i = 0; i < choices; i++) m->row[i] = -1;
  for (int e = 0; e < num_experts; e++) {
    m->first[e] = row;
    for (int i = 0; i < choices; i++) {
      if (experts[i] != first + e) continue;
      m->row[i] = row;
      m->choice[row++] = i;
    }
  }
  m->first[num_experts] = row;
}

tri_expert_map oc_moe_room(oc *c, int choices, int num_experts) {
  size_t n = (size_t)choices * sizeof(int32_t), ends = ((size_t)num_experts + 1) * sizeof(int32_t);
  tri_expert_map m = {oc_host(c, ends), oc_host(c, n), oc_host(c, n)};
  memset(m.first, 0x7f, ends), memset(m.choice, 0x7f, n), memset(m.row, 0x7f, n);
  return m;
}

static tri_expert_map on_device(oc *c, const tri_expert_map *m, int choices, int num_experts) {
  size_t n = (size_t)choices * sizeof(int32_t);
  return (tri_expert_map){oc_device(c, m->first, ((size_t)num_experts + 1) * sizeof(int32_t)),
                          oc_device(c, m->choice, n), oc_device(c, m->row, n)};
}

static void compare_maps(oc *c, const char *who, const tri_expert_map *want, const tri_expert_map *got, int choices,
                         int num_experts) {
  size_t n = (size_t)choices * sizeof(int32_t), ends = ((size_t)num_experts + 1) * sizeof(int32_t);
  oc_expect(c, !memcmp(want->first, got->first, ends), "%s: other numbers of rows", who);
  oc_expect(c, !memcmp(want->row, got->row, n), "%s: other rows", who);
  oc_expect(c, !memcmp(want->choice, got->choice, (size_t)want->first[num_experts] * sizeof(int32_t)),
            "%s: other choices", who);
}

/* Both maps against one that is made by definition from the experts. */
static void check_maps(oc *c, const tri_moe_map_args *a, const tri_moe_map_args *b) {
  int choices = a->num_tokens * a->top_k, own = a->num_experts;
  size_t n = (size_t)choices * sizeof(int32_t);
  tri_expert_map want = oc_moe_room(c, choices, own), got = oc_moe_room(c, choices, own);
  if (!a->map.first) return;
  oc_moe_map(a->experts, choices, a->first_expert, own, &want);
  oc_download(c, got.first, b->map.first, ((size_t)own + 1) * sizeof(int32_t));
  oc_download(c, got.choice, b->map.choice, n);
  oc_download(c, got.row, b->map.row, n);
  compare_maps(c, "reference", &want, &a->map, choices, own);
  compare_maps(c, c->opt.backend, &want, &got, choices, own);
}

/* Each expert had 5 rows in 3 steps before. */
static tri_expert_tally *begin_tally(oc *c, int own) {
  tri_expert_tally *t = oc_host(c, (size_t)own * sizeof *t);
  for (int e = 0; e < own; e++) t[e] = (tri_expert_tally){5, 3};
  return t;
}

static void check_tally(oc *c, const char *who, const tri_expert_map *m, const tri_expert_tally *t, int own) {
  for (int e = 0; e < own; e++) {
    uint64_t rows = (uint64_t)(m->first[e + 1] - m->first[e]);
    oc_expect(c, t[e].rows == 5 + rows && t[e].steps == 3 + (rows > 0), "%s: tally of expert %d", who, e);
  }
}

static void check_tallies(oc *c, const tri_moe_map_args *a, const tri_moe_map_args *b) {
  size_t bytes = (size_t)a->num_experts * sizeof(tri_expert_tally);
  tri_expert_tally *got = oc_host(c, bytes);
  if (!a->map.first || !a->tally) return;
  oc_download(c, got, b->tally, bytes);
  check_tally(c, "reference", &a->map, a->tally, a->num_experts);
  check_tally(c, c->opt.backend, &a->map, got, a->num_experts);
}

/* Rows that pad the step, behind the others mostly; their logits may be anything. */
static void add_padding(oc *c, tri_moe_route_args *a) {
  int64_t *slots = oc_host(c, (size_t)a->logits.rows * sizeof *slots);
  int real = oc_range(c, 0, a->logits.rows);
  for (int t = 0; t < a->logits.rows; t++) {
    slots[t] = t < real && !oc_chance(c, 5) ? oc_range(c, 0, 1 << 20) : -1;
    for (int e = 0; slots[t] < 0 && e < a->logits.cols; e++)
      a->logits.data[(size_t)t * (size_t)a->logits.ld + (size_t)e] = NAN;
  }
  a->kv_slot = slots;
}

/* Equal logits, of which the lowest id wins, an expert that all choose, or tokens with some that are not finite. */
static void change_logits(oc *c, tri_moe_route_args *a, int i) {
  bool strange = oc_chance(c, 30);
  for (int t = 0; t < a->logits.rows; t++) {
    float *row = a->logits.data + (size_t)t * (size_t)a->logits.ld;
    for (int e = 0; i % 5 == 0 && e < a->logits.cols; e++) row[e] = roundf(row[e]);
    if (i % 10 == 3) row[a->logits.cols / 2] = 20;
    for (int n = strange && oc_chance(c, 30) ? oc_range(c, 1, 3) : 0; n > 0; n--) {
      float infinity = oc_chance(c, 70) ? -INFINITY : INFINITY;
      int e = oc_range(c, 0, a->logits.cols - 1);
      row[e] = oc_chance(c, 60) ? NAN : infinity;
    }
  }
}

/* most: of top_k */
static void choose_groups(oc *c, tri_moe_route_args *a, int e, int most) {
  int candidates = e;
  a->num_groups = 1;
  if (e >= 8 && oc_chance(c, 40)) {
    a->num_groups = e / oc_range(c, 1, 2) / 4, a->top_groups = oc_range(c, 1, a->num_groups);
    int size = e / a->num_groups;
    a->group_best = oc_range(c, 1, size < 3 ? size : 3);
    if (a->num_groups > 1) candidates = a->top_groups * size;
  }
  a->top_k = oc_range(c, 1, candidates < most ? candidates : most);
}

static void choose_own(oc *c, tri_moe_route_args *a, int e) {
  a->num_experts = e;
  if (e > 1 && oc_chance(c, 40)) {
    a->first_expert = oc_range(c, 0, e - 1);
    a->num_experts = oc_range(c, 1, e - a->first_expert);
  }
  a->map = oc_moe_room(c, a->logits.rows * a->top_k, a->num_experts);
}

/* Slots of up to three copies, shuffled; some of them the own shard's. Returns how many there are. */
static int choose_slots(oc *c, tri_moe_route_args *a, int e) {
  enum { MOST = 3 };
  size_t width = 1 + MOST;
  int32_t *table = oc_host(c, (size_t)e * width * sizeof *table),
          *expert_of = oc_host(c, (size_t)e * MOST * sizeof *table);
  int n = 0;
  for (int x = 0; x < e; x++)
    for (int k = oc_chance(c, 30) ? oc_range(c, 1, MOST) : 1; k > 0; k--) expert_of[n++] = x;
  for (int i = n - 1; i > 0; i--) {
    int j = oc_range(c, 0, i), id = expert_of[i];
    expert_of[i] = expert_of[j], expert_of[j] = id;
  }
  memset(table, 0, (size_t)e * width * sizeof *table);
  for (int s = 0; s < n; s++) {
    int32_t *row = table + (size_t)expert_of[s] * width;
    row[1 + row[0]++] = s;
  }
  a->slots = table, a->most_copies = MOST, a->shard = oc_range(c, 0, 5);
  a->own_first = oc_range(c, 0, n), a->own_end = oc_range(c, a->own_first, n);
  return n;
}

/* By its definition, from the experts that are chosen without slots. */
static void check_slots(oc *c, const tri_moe_route_args *a) {
  tri_moe_route_args plain = *a;
  size_t n = (size_t)a->logits.rows * (size_t)a->top_k;
  int wrong = 0;
  plain.slots = NULL, plain.map = (tri_expert_map){0}, plain.tally = NULL;
  plain.experts = oc_host(c, n * sizeof *plain.experts), plain.weights = oc_host(c, n * sizeof *plain.weights);
  if (tri_run_moe_route(c->ref, &plain) != TRI_OK) return;
  for (int t = 0; t < a->logits.rows; t++)
    for (int k = 0; k < a->top_k; k++) {
      int x = plain.experts[t * a->top_k + k], want = -1, own[8], all[8], num_own = 0, num = 0;
      const int32_t *row = x < 0 ? NULL : a->slots + (size_t)x * (size_t)(1 + a->most_copies);
      for (int i = 0; row && i < row[0]; i++) {
        all[num++] = row[1 + i];
        if (row[1 + i] >= a->own_first && row[1 + i] < a->own_end) own[num_own++] = row[1 + i];
      }
      if (num) want = num_own ? own[(t + a->shard) % num_own] : all[(t + a->shard) % num];
      wrong += a->experts[t * a->top_k + k] != want;
    }
  oc_expect(c, !wrong, "%d choices in a wrong slot", wrong);
}

void oc_case_moe_route(oc *c, int i) {
  static const int experts[] = {8, 64, 128, 256, 6, 1, 32};
  int e = experts[i % 7], tokens = i % 4 == 0 ? 1 : oc_range(c, 0, 60);
  if (i % 10 == 6) tokens = oc_range(c, 60, 140);   /* around what a cluster has warps for */
  if (i % 20 == 18) tokens = oc_range(c, 500, 700); /* around what one launch does */
  if (i == 39) e = 32, tokens = 9000;               /* and far beyond, more than 65,536 choices */
  if (i % 25 == 11) e = 320;                        /* more than a warp has in registers */
  tri_moe_route_args a = {.score = (tri_moe_score)(i % 4), .jitter = 0.2f, .scale = oc_chance(c, 50) ? 1 : 2.5f};
  choose_groups(c, &a, e, i % 6 == 5 ? 40 : 9);
  if (i == 39) a.top_k = 8, a.num_groups = 1;
  a.renormalize = oc_chance(c, 50);
  a.logits = oc_matrix(c, tokens, e, false);
  change_logits(c, &a, i);
  if (oc_chance(c, 40)) a.bias = oc_normals(c, (size_t)e, 0.3f);
  if (oc_chance(c, 30)) a.expert_scale = oc_normals(c, (size_t)e, 1);
  if (oc_chance(c, 40)) add_padding(c, &a);
  int slots = oc_chance(c, 40) ? choose_slots(c, &a, e) : e;
  if (!oc_chance(c, 10)) choose_own(c, &a, slots);
  size_t n = (size_t)tokens * (size_t)a.top_k;
  a.experts = oc_host(c, n * sizeof *a.experts), a.weights = oc_host(c, n * sizeof *a.weights);
  memset(a.experts, 0x7f, n * sizeof *a.experts);
  for (size_t j = 0; j < n; j++) a.weights[j] = -1; /* NaN may be right */
  snprintf(c->what, sizeof c->what, "moe_route score %d tokens %d experts %d+%d of %d top_k %d groups %d/%d%s%s%s%s%s",
           a.score, tokens, a.first_expert, a.num_experts, e, a.top_k, a.top_groups, a.num_groups,
           a.bias ? " bias" : "", a.renormalize ? " renormalize" : "", a.kv_slot ? " padded" : "",
           a.slots ? " in slots" : "", a.expert_scale ? " scaled" : "");
  if (a.map.first && !oc_chance(c, 20)) a.tally = begin_tally(c, a.num_experts);
  tri_moe_route_args b = a;
  b.tally = oc_device(c, a.tally, (size_t)a.num_experts * sizeof *a.tally);
  b.logits = oc_device_matrix(c, &a.logits), b.bias = oc_device(c, a.bias, (size_t)e * sizeof *a.bias);
  b.expert_scale = oc_device(c, a.expert_scale, (size_t)e * sizeof *a.expert_scale);
  b.experts = oc_device(c, a.experts, n * sizeof *a.experts), b.weights = oc_device(c, a.weights, n * sizeof(float));
  b.kv_slot = oc_device(c, a.kv_slot, (size_t)tokens * sizeof *a.kv_slot);
  b.slots = oc_device(c, a.slots, (size_t)e * (size_t)(1 + a.most_copies) * sizeof *a.slots);
  if (a.map.first) b.map = on_device(c, &a.map, (int)n, a.num_experts);
  oc_status(c, tri_run_moe_route(c->ref, &a), tri_run_moe_route(c->be, &b));
  int32_t *ids = oc_host(c, n * sizeof *ids);
  oc_download(c, ids, b.experts, n * sizeof *ids);
  oc_expect(c, !memcmp(ids, a.experts, n * sizeof *ids), "other experts");
  if (a.slots) check_slots(c, &a);
  tri_moe_map_args map = tri_moe_map_of(&a), device_map = tri_moe_map_of(&b);
  check_maps(c, &map, &device_map);
  check_tallies(c, &map, &device_map);
  oc_compare_elements(c, TRI_F32, a.weights, b.weights, n, 1e-12);
}

/* Rows that came from elsewhere: more of them than one launch takes, too, most of nobody's experts here. */
void oc_case_moe_map(oc *c, int i) {
  int tokens = i % 4 == 0 ? 1 : oc_range(c, 0, 60), top_k = oc_range(c, 1, 8), all = oc_range(c, 1, 256);
  if (i % 10 == 8) tokens = oc_range(c, 500, 5000);
  size_t n = (size_t)tokens * (size_t)top_k;
  int32_t *experts = oc_host(c, n * sizeof *experts);
  for (size_t j = 0; j < n; j++) experts[j] = oc_chance(c, 20) ? -1 : oc_range(c, 0, all - 1);
  tri_moe_map_args a = {.experts = experts, .num_tokens = tokens, .top_k = top_k};
  a.first_expert = oc_range(c, 0, all - 1);
  a.num_experts = oc_range(c, 1, all - a.first_expert);
  a.map = oc_moe_room(c, (int)n, a.num_experts);
  a.tally = begin_tally(c, a.num_experts);
  snprintf(c->what, sizeof c->what, "moe_map tokens %d top_k %d experts %d+%d of %d", tokens, top_k, a.first_expert,
           a.num_experts, all);
  tri_moe_map_args b = a;
  b.experts = oc_device(c, experts, n * sizeof *experts);
  b.map = on_device(c, &a.map, (int)n, a.num_experts);
  b.tally = oc_device(c, a.tally, (size_t)a.num_experts * sizeof *a.tally);
  oc_status(c, tri_run_moe_map(c->ref, &a), tri_run_moe_map(c->be, &b));
  check_maps(c, &a, &b);
  check_tallies(c, &a, &b);
}

/* Distinct experts for every token, some of them in front of and behind the own ones; now and then a token has none,
 * as rows that pad a step have. */
static int32_t *some_choices(oc *c, int tokens, int top_k, int experts, int first) {
  int32_t *ids = oc_host(c, (size_t)tokens * (size_t)top_k * sizeof *ids);
  int around = first ? 2 : 0, low = first - around, span = experts + 2 * around;
  for (int t = 0; t < tokens; t++) {
    bool nowhere = oc_chance(c, 5);
    for (int k = 0, at = oc_range(c, 0, span - 1); k < top_k; k++, at += oc_range(c, 1, span / top_k))
      ids[t * top_k + k] = nowhere ? -1 : low + at % span;
  }
  return ids;
}

/* One choice a token: the experts have 0, 1, 8, 17, 65 rows, or all. */
static int32_t *counted_choices(oc *c, int tokens, int experts) {
  static const int rows[] = {0, 1, 8, 17, 65};
  int32_t *ids = oc_host(c, (size_t)tokens * sizeof *ids);
  int t = 0, e = 0;
  for (; e < experts - 1; e++)
    for (int i = 0; i < rows[e % 5] && t < tokens; i++) ids[t++] = e;
  while (t < tokens) ids[t++] = e;
  for (int i = tokens - 1; i > 0; i--) {
    int j = oc_range(c, 0, i), id = ids[i];
    ids[i] = ids[j], ids[j] = id;
  }
  return ids;
}

static tri_weight moe_weight(oc *c, const oc_moe_shape *s, int n, int k) {
  tri_groups groups = {.rows = oc_chance(c, 70) ? 128 : 64, .cols = 128};
  if (oc_chance(c, 30)) groups.skip_row = 64 % groups.rows;
  return s->wide ? oc_weight_in(c, s->type, n, k, groups) : oc_weight(c, s->type, n, k);
}

void oc_moe_build(oc *c, tri_moe_experts_args *a, const oc_moe_shape *s) {
  int up_n = s->gated ? 2 * s->f : s->f;
  *a = (tri_moe_experts_args){.top_k = s->top_k, .num_experts = s->experts};
  a->act = s->act, a->gated = s->gated, a->glu_limit = oc_glu_limit(s->act);
  a->x = oc_matrix(c, s->tokens, s->h, false);
  int32_t *ids = s->counted ? counted_choices(c, s->tokens, s->experts)
                            : some_choices(c, s->tokens, s->top_k, s->experts, s->first);
  a->map = oc_moe_room(c, s->tokens * s->top_k, s->experts);
  oc_moe_map(ids, s->tokens * s->top_k, s->first, s->experts, &a->map);
  float *weights = oc_normals(c, (size_t)s->tokens * (size_t)s->top_k, 0.3f);
  a->weights = weights;
  a->up = moe_weight(c, s, s->experts * up_n, s->h), a->down = moe_weight(c, s, s->experts * s->h, s->f);
  if (s->bias) {
    a->up_bias = oc_normals(c, (size_t)s->experts * (size_t)up_n, 1);
    a->down_bias = oc_normals(c, (size_t)s->experts * (size_t)s->h, 1);
  }
  a->accumulate = s->accumulate;
  a->out = oc_matrix(c, s->tokens, s->h, !s->accumulate);
  while (s->whole && a->x.ld % 8) a->x = oc_matrix(c, s->tokens, s->h, false);
  while (s->whole && a->out.ld % 4) a->out = oc_matrix(c, s->tokens, s->h, !s->accumulate);
}

/* A hidden element next to a half may be rounded up here and down there, which shows in its row; most rows must be as
 * near as ever. Devices round hidden rows to 16 bits before, which shows in each. */
static void compare_rounded(oc *c, tri_dtype t, const tri_mat *want, const tri_mat *got_device) {
  if (c->be->narrows_inputs) { /* one in 32 of e4m3's may fall to the other side, an eighth away */
    oc_compare(c, want, got_device, t == TRI_I8 ? 2e-4 : 2e-3);
    return;
  }
  size_t ld = (size_t)want->ld, n = (size_t)want->rows * ld;
  int off = 0, allowed = 1 + want->rows / 8;
  float *got = oc_host(c, n * sizeof *got);
  oc_download(c, got, got_device->data, n * sizeof *got);
  for (int i = 0; i < want->rows; i++) {
    double error = 0, square = 0;
    for (size_t j = (size_t)i * ld; j < (size_t)i * ld + (size_t)want->cols; j++) {
      error += ((double)got[j] - want->data[j]) * ((double)got[j] - want->data[j]);
      square += (double)want->data[j] * want->data[j];
    }
    off += error > 1e-12 * square;
  }
  oc_expect(c, off <= allowed, "%d of %d rows are off, allowed are %d", off, want->rows, allowed);
  oc_compare(c, want, got_device, 1e-3);
}

/* A row of x that is not finite: what it comes to is NaN, here and there. */
static void compare_poisoned(oc *c, const tri_moe_experts_args *a, const tri_mat *got_device) {
  size_t row = (size_t)(a->x.rows - 1), at = row * (size_t)a->out.ld;
  bool local = false;
  for (size_t k = row * (size_t)a->top_k; k < (row + 1) * (size_t)a->top_k; k++) local |= a->map.row[k] >= 0;
  for (int j = 0; j < a->out.cols; j++)
    oc_expect(c, isnan(a->out.data[at + (size_t)j]) == local, "element %d of the row that is not finite", j);
  oc_compare_elements(c, TRI_F32, a->out.data + at, got_device->data + at, (size_t)a->out.cols, 1e-3);
}

/* Weights of int8 as Hopper's grouped products take them: experts with many rows, or few of each. */
static void shape_int8_prompt(oc *c, oc_moe_shape *s, int i) {
  s->type = TRI_I8;
  s->gated = s->whole = true;
  static const tri_act acts[] = {TRI_ACT_SILU, TRI_ACT_SWIGLU_OAI, TRI_ACT_GELU_TANH, TRI_ACT_QUICK_GELU,
                                 TRI_ACT_SWIGLU_CLAMPED};
  s->act = acts[i / 2 % 5];
  s->h = 16 * oc_range(c, 1, 16);
  s->f = 16 * oc_range(c, 1, 16);
  s->tokens = oc_range(c, 33, 160);
  s->experts = i % 2 ? oc_range(c, 5, 20) : oc_range(c, 1, 3);
  s->top_k = oc_range(c, 1, s->experts > 4 ? 4 : s->experts);
}

/* So many rows that tiles have room for 64, where most experts have half of that or less. */
static void shape_half_tiles(oc *c, oc_moe_shape *s) {
  s->experts = oc_range(c, 6, 8);
  s->top_k = 2;
  s->tokens = oc_range(c, 70, 160);
}

/* Many rows of each expert, in shapes whose blocks of scales are those of a device's largest tiles, or nearly. */
static void shape_many_rows(oc *c, oc_moe_shape *s, int i) {
  s->h = (oc_chance(c, 70) ? 64 : 16) * oc_range(c, 1, 9);
  s->f = (oc_chance(c, 70) ? 64 : 16) * oc_range(c, 1, 9);
  s->experts = oc_range(c, 1, 5);
  s->top_k = oc_range(c, 1, s->experts > 2 ? 3 : s->experts);
  s->tokens = oc_range(c, 40, i % 48 == 9 ? 600 : 250);
  s->wide = s->type == TRI_F8_E4M3 && s->h % 64 == 0 && s->f % 64 == 0 && oc_chance(c, 60);
}

/* Rows that become integers or FP8 on a device; those of half tiles seldom do, as other cases have them. */
static bool rounds_rows(oc *c, const oc_moe_shape *s, const tri_moe_experts_args *a, int i) {
  bool fp8 = s->type == TRI_F8_E4M3 && c->be->rounds_fp8_from && !a->up.groups.skip_col && !a->down.groups.skip_col;
  bool int8 = oc_is_int8_rows(&a->up) && oc_is_int8_rows(&a->down);
  return (int8 || fp8) && oc_chance(c, i % 24 == 15 || i % 24 == 19 ? 20 : 60);
}

static void shape_experts(oc *c, oc_moe_shape *s, int i) {
  static const int hidden[] = {64, 33, 128, 7, 256, 100}, inner[] = {32, 96, 5, 200, 64, 130};
  *s = (oc_moe_shape){.type = oc_weight_type(c, i), .h = hidden[i / 2 % 6], .f = inner[i % 6], .gated = i % 3 != 0};
  if (i % 3 == 1) s->h = 16 * oc_range(c, 1, 24), s->f = 16 * oc_range(c, 1, 24); /* as models have them */
  s->tokens = i % 4 == 1 ? 1 : i % 4 == 2 ? oc_range(c, 0, 8) : oc_range(c, 9, 70);
  s->experts = oc_range(c, 1, 9), s->top_k = oc_range(c, 1, s->experts > 6 ? 6 : s->experts);
  if (i % 20 == 19) s->tokens = 300, s->h = 40, s->f = 24, s->experts = 20, s->top_k = 16; /* more than one pass */
  if (i % 20 == 11) s->tokens = 300, s->experts = 2, s->top_k = 1;                         /* many rows of one expert */
  if (i % 20 == 16) s->tokens = 240, s->experts = i % 40 == 16 ? 11 : 1, s->top_k = 1, s->counted = true;
  if (i == 13)
    s->tokens = 8200, s->h = 16, s->f = 8, s->experts = 9, s->top_k = 8; /* more choices than a grid's y has */
  if (i % 20 == 6) s->h = 1100, s->f = 300;                              /* sums of more than one piece */
  if (!s->counted && oc_chance(c, 40)) s->first = oc_range(c, 2, 20);
  s->act = (tri_act)(i % (s->gated ? 7 : 6));
  if (s->act == TRI_ACT_TANH) /* no experts have tanh */
    s->act = i / 7 % 2 ? TRI_ACT_SWIGLU_OAI : TRI_ACT_SWIGLU_CLAMPED;
  s->bias = oc_chance(c, 50), s->accumulate = oc_chance(c, 40);
  if (i % 12 == 7) shape_int8_prompt(c, s, i / 12);
  if (i % 24 == 19) shape_half_tiles(c, s);
  if (i % 12 == 9) {
    shape_int8_prompt(c, s, i / 12);
    if (oc_takes_fp8(c) && i % 24 == 9) s->type = TRI_F8_E4M3;
    shape_many_rows(c, s, i);
  }
  if (i % 12 == 3 && oc_takes_fp8(c)) {
    shape_int8_prompt(c, s, i / 12);
    s->type = TRI_F8_E4M3;
    if (i % 24 == 3) s->tokens = oc_range(c, 1, 32);
    if (i % 24 == 15) shape_half_tiles(c, s);
    if (i % 36 == 3) s->h = s->f = 256;
  }
}

/* x and the hidden rows are rounded to the weights' type here. */
static double experts_limit(const oc *c, tri_dtype t, tri_dtype rows) {
  if (!c->be->narrows_inputs) return 1e-12;
  if (t == TRI_F8_E4M3 && rows == TRI_F16) return 5e-6; /* sums of 14 bits, three times */
  if (t == TRI_I8 || t == TRI_F8_E4M3) t = rows == TRI_F16 ? TRI_F16 : TRI_BF16;
  if (t == TRI_BF16) return 1e-4;
  return t == TRI_F16 ? 1e-6 : 1e-9;
}

void oc_case_moe_experts(oc *c, int i) {
  oc_moe_shape s;
  tri_moe_experts_args a;
  shape_experts(c, &s, i);
  oc_moe_build(c, &a, &s);
  a.rounds_rows = rounds_rows(c, &s, &a, i);
  bool poisoned = a.rounds_rows && s.tokens && oc_chance(c, 50);
  if (poisoned)
    a.x.data[(size_t)(s.tokens - 1) * (size_t)a.x.ld + (size_t)oc_range(c, 0, s.h - 1)] = i % 8 < 4 ? NAN : INFINITY;
  snprintf(c->what, sizeof c->what, "moe_experts %s tokens %d h %d f %d experts %d+%d top_k %d act %d%s%s%s%s",
           tri_dtype_name(s.type), s.tokens, s.h, s.f, s.first, s.experts, s.top_k, s.act, s.gated ? " gated" : "",
           s.bias ? " bias" : "", s.accumulate ? " accumulate" : "", a.rounds_rows ? " rounded rows" : "");
  tri_moe_experts_args b = a;
  int choices = s.tokens * s.top_k;
  tri_dtype rows = oc_narrow_type(c);
  if (rows != TRI_F32 && s.type <= TRI_BF16) rows = s.type;
  b.x = oc_device_narrow(c, &a.x, rows);
  b.out = oc_device_narrow(c, &a.out, rows == TRI_F32 || a.rounds_rows || oc_chance(c, 50) ? TRI_F32 : rows);
  b.up = oc_device_weight(c, &a.up), b.down = oc_device_weight(c, &a.down);
  b.map = on_device(c, &a.map, choices, s.experts);
  b.weights = oc_device(c, a.weights, (size_t)choices * sizeof *a.weights);
  b.up_bias = oc_device(c, a.up_bias, (size_t)a.up.n * sizeof(float));
  b.down_bias = oc_device(c, a.down_bias, (size_t)a.down.n * sizeof(float));
  oc_status(c, tri_run_moe_experts(c->ref, &a), tri_run_moe_experts(c->be, &b));
  if (poisoned) {
    compare_poisoned(c, &a, &b.out);
    a.out.rows--, b.out.rows--;
  }
  if (a.rounds_rows)
    compare_rounded(c, s.type, &a.out, &b.out);
  else
    oc_compare(c, &a.out, &b.out, oc_narrow_limit(b.out.dtype, experts_limit(c, s.type, b.x.dtype)));
}
