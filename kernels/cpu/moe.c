/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: the chosen experts' work.
 *
 * The map has the choices ordered by expert, so that each expert's weights are read once for all the tokens that want
 * it; a pass takes those of its tokens out of it. Then there are three phases, in each of which the threads take
 * items: blocks of columns of the first GEMM, whose gate and up halves meet while they are in the cache; blocks of
 * columns of the second; and, because a token's sum must not depend on who its experts' other tokens are, the sum over
 * each token's choices in their order. With int8 activations a phase of rounding goes before each GEMM. */
#include <string.h>

#include "kernels/cpu/gemm.h"
#include "kernels/quantize.h"

/* Choices that one pass takes up (at least one token's), rows of an expert that go through a block of columns at a
 * time, and columns of a token that one item sums up. */
enum { PASS_CHOICES = 4096, ROWS = 256, SUM_PIECE = 512 };

/* Everything about a launch that follows from the shapes: where the parts of the workspace begin, in bytes. */
typedef struct experts_layout {
  int pass_tokens, block_up, block_down;
  size_t ld_act, ld_down; /* floats */
  size_t act, down, rounded, scales, threads, thread_bytes, bytes;
} experts_layout;

/* A row length whose rows do not all meet in a few sets of the first-level cache. */
static size_t spread(int n) {
  size_t ld = tri_round_up((size_t)n, 16);
  return ld % 256 ? ld : ld + 16;
}

static tri_cpu_gemm_algorithm algorithm_of(const tri_backend *be, const tri_moe_experts_args *a, int m, bool up) {
  if (a->rounds_rows) return TRI_ALGORITHM_DOTS; /* of which it has the blocks */
  tri_cpu_gemm_shape s = {.m = m, .k = up ? a->x.cols : a->down.k, .deterministic = be->deterministic, .direct = true};
  s.tiles = tri_cpu_has_tiles(tri_cpu_isa_of(be), up ? &a->up : &a->down);
  s.scattered = true; /* of the second GEMM's rows it is not true, but they are too few for the library, too */
  return tri_cpu_gemm_choose(&s);
}

/* The most scratch that any number of rows up to m asks for. */
static size_t gemm_floats(const tri_backend *be, const tri_moe_experts_args *a, int m, int n) {
  const tri_cpu_isa *isa = tri_cpu_isa_of(be);
  size_t most = 0;
  if (a->rounds_rows) return (tri_int8_scratch(n) + sizeof(float) - 1) / sizeof(float);
  for (int algorithm = TRI_ALGORITHM_DOTS; algorithm <= TRI_ALGORITHM_TILES; algorithm++) {
    size_t floats = tri_cpu_gemm_scratch(isa, (tri_cpu_gemm_algorithm)algorithm, a->up.dtype, m, n, 0, true);
    if (floats > most) most = floats;
  }
  return most;
}

/* The sizes come from a model's files and from options: products are checked. The launch lays out again in place of
 * keeping what plan computed, as it depends on the shapes alone. */
static bool lay_out(const tri_backend *be, const tri_moe_experts_args *a, experts_layout *l) {
  const tri_cpu_isa *isa = tri_cpu_isa_of(be);
  int f = a->down.k, h = a->x.cols, threads = tri_pool_size(be->pool);
  l->pass_tokens = tri_min(tri_max(1, a->x.rows), tri_max(1, PASS_CHOICES / a->top_k));
  size_t choices = (size_t)l->pass_tokens * (size_t)a->top_k, act, down, rounded, lists;
  int busy = (int)(choices < (size_t)a->num_experts ? choices : (size_t)a->num_experts); /* experts, at most */
  int rows = tri_min(ROWS, (int)((choices + (size_t)busy - 1) / (size_t)busy));
  l->block_up = tri_cpu_gemm_block(isa, algorithm_of(be, a, rows, true), f, tri_max(1, threads / busy));
  l->block_down = tri_cpu_gemm_block(isa, algorithm_of(be, a, rows, false), h, tri_max(1, threads / busy));
  l->ld_act = spread(f);
  l->ld_down = spread(h);
  int m = choices < ROWS ? (int)choices : ROWS, widest = tri_max(l->block_up, l->block_down);
  size_t halves = (size_t)m * 2 * (size_t)l->block_up;
  l->thread_bytes = tri_round_up((halves + gemm_floats(be, a, m, widest)) * sizeof(float), 64);
  if (!tri_size_mul(choices * sizeof(float), l->ld_act, &act) ||
      !tri_size_mul(choices * sizeof(float), l->ld_down, &down) ||
      !tri_size_mul(l->thread_bytes, (size_t)threads, &l->bytes) ||
      !tri_size_mul(a->rounds_rows ? choices * sizeof(int16_t) : 0, tri_int8_row(tri_max(f, h)), &rounded))
    return false;
  lists = (2 * choices + 3 * (size_t)a->num_experts + 1) * sizeof(int32_t);
  l->act = tri_round_up(lists, 64);
  if (!tri_size_add(l->act, act, &l->down) || !tri_size_add(l->down, down, &l->rounded) ||
      !tri_size_add(l->rounded, tri_round_up(rounded, 64), &l->scales))
    return false;
  size_t scales = a->rounds_rows ? choices * (size_t)tri_int8_groups(tri_max(f, h)) * sizeof(float) : 0;
  scales = tri_round_up(scales, 64);
  return tri_size_add(l->scales, scales, &l->threads) && tri_size_add(l->bytes, l->threads, &l->bytes);
}

tri_status tri_cpu_moe_experts_plan(tri_backend *be, const tri_moe_experts_args *a, tri_op_plan *plan) {
  experts_layout l;
  TRI_CHECK(tri_ref_moe_experts_plan(be, a, plan));
  if (a->rounds_rows && a->up.dtype != TRI_I8) return TRI_UNSUPPORTED;
  if (a->top_k > PASS_CHOICES || !lay_out(be, a, &l)) return TRI_OUT_OF_RANGE;
  plan->workspace = l.bytes;
  return TRI_OK;
}

typedef struct experts_run {
  tri_backend *be;
  const tri_cpu_isa *isa;
  const tri_moe_experts_args *a;
  experts_layout l;
  int token, tokens; /* of this pass */
  int num_active;
  int32_t *active; /* experts that have rows */
  int32_t *first;  /* [num_experts + 1] where each expert's rows of the pass begin */
  int32_t *next;   /* [num_experts] the map's rows that no pass has taken yet */
  int32_t *source; /* row -> token */
  int32_t *place;  /* choice of the pass -> row, or -1 */
  float *act, *down;
  int16_t *rounded; /* int8 activations: the rows of the GEMM that comes next */
  float *scales;    /* of these rows, by groups */
  tri_ticket x_ticket, up_ticket, act_ticket, down_ticket, sum_ticket;
} experts_run;

/* The pass's choices: of each expert the next ones of the map, as far as they are this pass's tokens'. */
static void take_choices(experts_run *r) {
  const tri_moe_experts_args *a = r->a;
  const tri_expert_map *m = &a->map;
  int32_t begin = r->token * a->top_k, end = begin + r->tokens * a->top_k, row = 0;
  memset(r->place, 0xff, (size_t)(end - begin) * sizeof *r->place); /* -1 */
  r->num_active = 0;
  for (int e = 0; e < a->num_experts; e++) {
    r->first[e] = row;
    int32_t i = r->next[e];
    for (; i < m->first[e + 1] && m->choice[i] < end; i++) {
      r->place[m->choice[i] - begin] = row;
      r->source[row++] = m->choice[i] / a->top_k;
    }
    r->next[e] = i;
    if (row > r->first[e]) r->active[r->num_active++] = e;
  }
  r->first[a->num_experts] = row;
}

/* Each token's row, rounded once, to the places of all its choices: an expert's rows must lie side by side. */
static void round_tokens(experts_run *r) {
  const tri_moe_experts_args *a = r->a;
  size_t ld = tri_int8_row(a->x.cols), groups = (size_t)tri_int8_groups(a->x.cols);
  for (int t; (t = tri_take(&r->x_ticket)) < r->tokens;) {
    const float *x = a->x.data + (size_t)(r->token + t) * (size_t)a->x.ld;
    const int32_t *place = r->place + (size_t)t * (size_t)a->top_k;
    int32_t done = -1;
    for (int c = 0; c < a->top_k; c++) {
      if (place[c] < 0) continue;
      int16_t *row = r->rounded + (size_t)place[c] * ld;
      float *scales = r->scales + (size_t)place[c] * groups;
      if (done < 0) {
        done = place[c];
        r->isa->quantize(row, scales, x, a->x.cols, (int)ld);
        continue;
      }
      memcpy(row, r->rounded + (size_t)done * ld, ld * sizeof *row);
      memcpy(scales, r->scales + (size_t)done * groups, groups * sizeof *scales);
    }
  }
}

static void round_hidden(experts_run *r) {
  int f = r->a->down.k;
  size_t ld = tri_int8_row(f), groups = (size_t)tri_int8_groups(f);
  for (int row; (row = tri_take(&r->act_ticket)) < r->first[r->a->num_experts];)
    r->isa->quantize(r->rounded + (size_t)row * ld, r->scales + (size_t)row * groups,
                     r->act + (size_t)row * r->l.ld_act, f, (int)ld);
}

/* p for an expert's rows from `row` on, which were rounded with int8 activations; then p's x is not looked at. */
static void multiply(const experts_run *r, const tri_cpu_gemm *p, int row, float *scratch) {
  if (!r->a->rounds_rows) {
    tri_cpu_gemm_run(p, scratch);
    return;
  }
  tri_cpu_gemm_int8 q = {.isa = r->isa, .m = p->m, .w = p->w, .bias = p->bias, .act = p->act};
  q.scales = r->scales + (size_t)row * (size_t)tri_int8_groups(p->w.k);
  q.x = r->rounded + (size_t)row * tri_int8_row(p->w.k);
  q.out = p->out;
  q.ldo = p->ldo;
  tri_cpu_gemm_int8_run(&q, scratch);
}

/* Columns column .. column + n - 1 of the hidden layer, for up to ROWS of an expert's rows. */
static void up_rows(const experts_run *r, float *scratch, int expert, int row, int m, int column, int n) {
  const tri_moe_experts_args *a = r->a;
  size_t f = (size_t)a->down.k, w_row = (size_t)expert * (a->gated ? 2 * f : f) + (size_t)column;
  size_t half = (size_t)m * (size_t)n;
  float *act = r->act + (size_t)row * r->l.ld_act + column;
  tri_cpu_gemm p = {
      .isa = r->isa, .algorithm = algorithm_of(r->be, a, m, true), .x = a->x.data, .ldx = (size_t)a->x.ld, .m = m};
  p.rows = r->source + row;
  p.w = tri_weight_rows(&a->up, w_row, n);
  p.bias = a->up_bias ? a->up_bias + w_row : NULL;
  if (!a->gated) {
    p.act = a->act;
    p.out = act;
    p.ldo = r->l.ld_act;
    multiply(r, &p, row, scratch);
    return;
  }
  p.out = scratch;
  p.ldo = (size_t)n;
  multiply(r, &p, row, scratch + 2 * half);
  p.w = tri_weight_rows(&a->up, w_row + f, n);
  p.bias = a->up_bias ? a->up_bias + w_row + f : NULL;
  p.out = scratch + half;
  multiply(r, &p, row, scratch + 2 * half);
  for (int i = 0; i < m; i++) {
    const float *gate = scratch + (size_t)i * (size_t)n;
    r->isa->glu(act + (size_t)i * r->l.ld_act, gate, gate + half, n, a->act, a->glu_limit);
  }
}

static void up_item(const experts_run *r, float *scratch, int expert, int column, int n) {
  int end = r->first[expert + 1];
  for (int row = r->first[expert]; row < end; row += ROWS)
    up_rows(r, scratch, expert, row, tri_min(ROWS, end - row), column, n);
}

static void down_item(const experts_run *r, float *scratch, int expert, int column, int n) {
  const tri_moe_experts_args *a = r->a;
  size_t w_row = (size_t)expert * (size_t)a->x.cols + (size_t)column;
  for (int row = r->first[expert]; row < r->first[expert + 1]; row += ROWS) {
    int m = tri_min(ROWS, r->first[expert + 1] - row);
    tri_cpu_gemm p = {.isa = r->isa, .algorithm = algorithm_of(r->be, a, m, false), .ldx = r->l.ld_act, .m = m};
    p.x = r->act + (size_t)row * r->l.ld_act;
    p.w = tri_weight_rows(&a->down, w_row, n);
    p.bias = a->down_bias ? a->down_bias + w_row : NULL;
    p.out = r->down + (size_t)row * r->l.ld_down + column;
    p.ldo = r->l.ld_down;
    multiply(r, &p, row, scratch);
  }
}

/* Items are (active expert, block of columns), the blocks of an expert next to each other: threads that run at the same
 * time read the same rows of x. */
static void run_blocks(experts_run *r, tri_ticket *ticket, float *scratch, int columns, int step,
                       void (*item)(const experts_run *, float *, int, int, int)) {
  int64_t blocks = ((int64_t)columns + step - 1) / step, items = blocks * r->num_active;
  for (int64_t i; (i = tri_take(ticket)) < items;) {
    int column = (int)(i % blocks) * step;
    item(r, scratch, r->active[i / blocks], column, tri_min(step, columns - column));
  }
}

/* A token's choices in their order, so that the sum's bits do not depend on which experts they went to or on other
 * tokens. */
static void sum_items(experts_run *r) {
  const tri_moe_experts_args *a = r->a;
  int64_t pieces = ((int64_t)a->x.cols + SUM_PIECE - 1) / SUM_PIECE, items = pieces * r->tokens;
  for (int64_t i; (i = tri_take(&r->sum_ticket)) < items;) {
    int t = (int)(i / pieces), column = (int)(i % pieces) * SUM_PIECE, n = tri_min(SUM_PIECE, a->x.cols - column);
    float *out = a->out.data + (size_t)(r->token + t) * (size_t)a->out.ld + column;
    if (!a->accumulate) memset(out, 0, (size_t)n * sizeof *out);
    for (int c = 0; c < a->top_k; c++) {
      int32_t row = r->place[t * a->top_k + c];
      float weight = a->weights[(size_t)(r->token + t) * (size_t)a->top_k + (size_t)c];
      if (row >= 0) r->isa->blend(out, 1, r->down + (size_t)row * r->l.ld_down + column, weight, n);
    }
  }
}

static void experts_thread(void *ctx, int index, int count) {
  experts_run *r = ctx;
  float *scratch = (float *)((char *)r->be->workspace + r->l.threads + (size_t)index * r->l.thread_bytes);
  if (r->a->rounds_rows) {
    round_tokens(r);
    if (count > 1) tri_pool_barrier(r->be->pool);
  }
  run_blocks(r, &r->up_ticket, scratch, r->a->down.k, r->l.block_up, up_item);
  if (count > 1) tri_pool_barrier(r->be->pool);
  if (r->a->rounds_rows) {
    round_hidden(r);
    if (count > 1) tri_pool_barrier(r->be->pool);
  }
  run_blocks(r, &r->down_ticket, scratch, r->a->x.cols, r->l.block_down, down_item);
  if (count > 1) tri_pool_barrier(r->be->pool);
  sum_items(r);
}

void tri_cpu_moe_experts_launch(tri_backend *be, const tri_op_plan *plan, const tri_moe_experts_args *a) {
  (void)plan;
  experts_layout l;
  if (!a->x.rows || !lay_out(be, a, &l)) return; /* plan saw that it can be laid out */
  size_t choices = (size_t)l.pass_tokens * (size_t)a->top_k;
  char *base = be->workspace;
  int32_t *lists = be->workspace, *next = lists + 2 * choices + 2 * (size_t)a->num_experts + 1;
  memcpy(next, a->map.first, (size_t)a->num_experts * sizeof *next);
  for (int token = 0; token < a->x.rows; token += l.pass_tokens) {
    experts_run r = {.be = be, .isa = tri_cpu_isa_of(be), .a = a, .l = l, .token = token};
    r.tokens = tri_min(l.pass_tokens, a->x.rows - token);
    r.source = lists;
    r.place = r.source + choices;
    r.active = r.place + choices;
    r.first = r.active + a->num_experts;
    r.next = next;
    r.act = (float *)(base + l.act);
    r.down = (float *)(base + l.down);
    r.rounded = (int16_t *)(base + l.rounded);
    r.scales = (float *)(base + l.scales);
    take_choices(&r);
    double rows = r.first[a->num_experts];
    /* Gate, up and down, and a nanosecond for an element of x that is gathered and added back. */
    tri_cpu_run(be, rows * a->x.cols * (a->down.k * 3.0 / TRI_CPU_MACS_PER_NS + 1), experts_thread, &r);
  }
}
