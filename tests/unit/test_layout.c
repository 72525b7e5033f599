/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds what: every element of every weight on exactly the ranks that must have it, at the place where the executor
 * looks for it. The expectation is written per element, from what tensor parallelism means, without ranges of rows. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/arch.h"
#include "runtime/model/layout.h"
#include "runtime/load/weights.h"

Suite *suite_layout(void);

/* A model with every optional tensor, and sizes that do not divide. */
static tri_model_config make(const tri_arch *arch, int heads, int kv_heads, int ff, int vocab, int layers) {
  tri_model_config c = arch->defaults;
  c.arch = arch;
  c.hidden_size = 3;
  c.num_layers = layers;
  c.attention.num_heads = heads;
  c.attention.num_kv_heads = kv_heads;
  c.attention.head_dim = 2;
  c.mlp.intermediate_size = ff;
  c.vocab_size = vocab;
  c.max_position_embeddings = 6;
  c.attention.bias = c.attention.o_bias = c.mlp.bias = true;
  c.embed.size = arch == tri_arch_find("opt") || c.embed.projects_last ? 5 : c.hidden_size;
  c.embed.projected = c.embed.size != c.hidden_size;
  if (c.encoder) c.head.has_pooler = c.head.has_classifier = c.head.sequence_head = true, c.head.num_labels = 4;
  c.head.classifier_bias = c.head.pooler_norm = c.encoder;
  c.attention.has_qk_norm = c.attention.qk_norm != TRI_QK_NORM_NONE;
  if (c.mla.on) c.mla = (tri_mla){.on = true, .rank = 5, .q_rank = 4, .nope_dim = 3, .rope_dim = 2, .v_dim = 2};
  if (c.mla.on) c.mla.low_rank_q = true, c.attention.head_dim = 5, c.attention.num_kv_heads = heads;
  /* Every second layer has a window, and the others heads of another number and size. */
  bool kinds = c.attention.window_every || c.attention.global_head_dim || c.attention.global_kv_heads;
  if (kinds) c.attention.global_heads = heads + 1, c.attention.global_kv_heads = 1, c.attention.global_head_dim = 4;
  for (int l = 0; kinds && l < layers; l += 2) c.layer_flags[l] |= TRI_LAYER_LOCAL;
  c.attention.keys_are_values = c.attention.norm_values; /* one tensor for two parts of the others' weight */
  if (c.attention.value_dim) c.attention.value_dim = 1;
  /* The last layer reads keys and values of the third last, and has an MLP of its own size. */
  if (c.embed.layer_width) c.embed.layer_width = 2, c.embed.has_layer_inputs = true;
  c.attention.shared_kv_layers = c.embed.layer_width && layers > 2;
  if (c.attention.shared_kv_layers) c.layer_flags[layers - 1] |= TRI_LAYER_SHARED_KV, c.mlp.shared_kv_size = 2 * ff + 1;
  if (c.moe.num_experts) c.moe.has_shared = c.moe.shared_size > 0;
  if (c.moe.num_experts) c.moe.num_experts = 3, c.moe.intermediate_size = ff, c.moe.shared_size = ff + 1;
  return c;
}

/* Rank that owns item i of n when `parts` ranks share them: nearly equal, contiguous. */
static int owner(int64_t n, int parts, int64_t i) {
  for (int r = 0; r < parts; r++)
    if (i >= n * r / parts && i < n * (r + 1) / parts) return r;
  ck_abort_msg("nobody owns %lld of %lld", (long long)i, (long long)n);
  return -1;
}

/* Number of items before i that the same rank owns too. */
static int64_t local(int64_t n, int parts, int64_t i) {
  int64_t before = 0;
  for (int64_t k = 0; k < i; k++) before += owner(n, parts, k) == owner(n, parts, i);
  return before;
}

/* A rank needs a KV head when one of its query heads reads it. */
static bool needs_kv(const tri_model_config *c, tri_parallel p, int64_t kv) {
  for (int64_t q = 0; q < c->attention.num_heads; q++)
    if (owner(c->attention.num_heads, p.tp, q) == p.tp_rank &&
        q / (c->attention.num_heads / c->attention.num_kv_heads) == kv)
      return true;
  return false;
}

static int64_t count_q(const tri_model_config *c, tri_parallel p) {
  int64_t n = 0;
  for (int64_t q = 0; q < c->attention.num_heads; q++) n += owner(c->attention.num_heads, p.tp, q) == p.tp_rank;
  return n;
}

static int64_t count_kv(const tri_model_config *c, tri_parallel p, int64_t below) {
  int64_t n = 0;
  for (int64_t kv = 0; kv < below; kv++) n += needs_kv(c, p, kv);
  return n;
}

static bool place_qkv(const tri_model_config *c, tri_parallel p, tri_part part, int64_t row, int64_t *dst) {
  int64_t d = c->attention.head_dim, q_rows = c->attention.num_heads * d, kv_rows = c->attention.num_kv_heads * d,
          head = row / d;
  int which = part == TRI_PART_Q ? 0 : part == TRI_PART_K ? 1 : 2;
  int64_t v = c->attention.value_dim ? c->attention.value_dim : d;
  if (part == TRI_PART_V) head = row / v;
  if (part == TRI_PART_QKV_INTERLEAVED) {
    int64_t group = c->attention.num_heads / c->attention.num_kv_heads, kv = head / (group + 2), i = head % (group + 2);
    which = i < group ? 0 : i == group ? 1 : 2;
    head = which ? kv : kv * group + i;
  } else if (part == TRI_PART_QKV_CONCAT) {
    which = row < q_rows ? 0 : row < q_rows + kv_rows ? 1 : 2;
    head = (row - (which > 0 ? q_rows : 0) - (which > 1 ? kv_rows : 0)) / d;
  }
  int64_t in_head = row % (part == TRI_PART_V ? v : d);
  if (which == 0) {
    *dst = local(c->attention.num_heads, p.tp, head) * d + in_head;
    return owner(c->attention.num_heads, p.tp, head) == p.tp_rank;
  }
  int64_t kv_here = count_kv(c, p, c->attention.num_kv_heads);
  *dst = (count_q(c, p) + (which == 2 ? kv_here : 0)) * d + count_kv(c, p, head) * (which == 2 ? v : d) + in_head;
  return needs_kv(c, p, head);
}

static int64_t count_units(int64_t f, int parts, int part) {
  int64_t mine = 0;
  for (int64_t i = 0; i < f; i++) mine += owner(f, parts, i) == part;
  return mine;
}

/* Of an MLP of f units, or of one expert, that is cut into so many parts. */
static bool place_up(bool gated, int64_t f, int parts, int mine, tri_part part, int64_t row, int64_t *dst) {
  bool joined = part == TRI_PART_GATE_UP_CONCAT || part == TRI_PART_UP_GATE_CONCAT;
  bool gate = part == TRI_PART_GATE || (joined && (row < f) == (part == TRI_PART_GATE_UP_CONCAT)) ||
              (part == TRI_PART_GATE_UP_INTERLEAVED && row % 2 == 0);
  int64_t unit = joined && row >= f ? row - f : row;
  if (part == TRI_PART_GATE_UP_INTERLEAVED) unit = row / 2;
  *dst = local(f, parts, unit) + (gated && !gate ? count_units(f, parts, mine) : 0);
  return owner(f, parts, unit) == mine;
}

static bool place_cross(const tri_model_config *c, tri_parallel p, const tri_tensor_rule *rule, int64_t row,
                        int64_t col, int64_t *dst_row, int64_t *dst_col) {
  int64_t d = c->attention.head_dim, head = row / d;
  switch (rule->weight) {
  case TRI_W_RELATIVE_BIAS:
    *dst_col = local(c->attention.num_heads, p.tp, col);
    return owner(c->attention.num_heads, p.tp, col) == p.tp_rank;
  case TRI_W_CROSS_Q:
  case TRI_W_CROSS_Q_BIAS:
    *dst_row = local(c->attention.num_heads, p.tp, head) * d + row % d;
    return owner(c->attention.num_heads, p.tp, head) == p.tp_rank;
  case TRI_W_CROSS_KV:
  case TRI_W_CROSS_KV_BIAS:
    *dst_row = (count_kv(c, p, head) + (rule->part == TRI_PART_V ? count_kv(c, p, c->attention.num_kv_heads) : 0)) * d +
               row % d;
    return needs_kv(c, p, head);
  case TRI_W_CROSS_O:
    *dst_col = local(c->attention.num_heads, p.tp, col / d) * d + col % d;
    return owner(c->attention.num_heads, p.tp, col / d) == p.tp_rank;
  case TRI_W_CROSS_O_BIAS: return p.tp_rank == 0;
  default: return true;
  }
}

static bool place_expert(const tri_model_config *c, tri_parallel p, const tri_tensor_rule *rule, int expert,
                         int64_t row, int64_t col, int64_t *dst_row, int64_t *dst_col) {
  int64_t f = rule->weight == TRI_W_SHARED_UP || rule->weight == TRI_W_SHARED_DOWN ? c->moe.shared_size
                                                                                   : c->moe.intermediate_size;
  /* Every expert has a share of the stage's ranks to itself; of those the first has its first units. */
  int ep = p.ep ? p.ep : 1, slices = (p.dp ? p.dp : 1) * p.tp / ep, rank = p.dp_rank * p.tp + p.tp_rank;
  int64_t slots = tri_expert_slots(p.placement, c), slot = slots ? local(slots, ep, expert) : 0;
  bool mine = slots && owner(slots, ep, expert) == rank / slices, units_mine;
  switch (rule->weight) {
  case TRI_W_EXPERT_UP:
  case TRI_W_EXPERT_UP_BIAS:
    units_mine = place_up(c->mlp.gated, f, slices, rank % slices, rule->part, row, dst_row);
    *dst_row += slot * count_units(f, slices, rank % slices) * (c->mlp.gated ? 2 : 1);
    return mine && units_mine;
  case TRI_W_SHARED_UP: return place_up(c->mlp.gated, f, p.tp, p.tp_rank, rule->part, row, dst_row);
  case TRI_W_SHARED_DOWN: *dst_col = local(f, p.tp, col); return owner(f, p.tp, col) == p.tp_rank;
  case TRI_W_EXPERT_DOWN:
    *dst_row += slot * c->hidden_size;
    *dst_col = local(f, slices, col);
    return mine && owner(f, slices, col) == rank % slices;
  case TRI_W_EXPERT_DOWN_BIAS: *dst_row += slot * c->hidden_size; return mine && rank % slices == 0;
  case TRI_W_Q_B:
    *dst_row = local(c->attention.num_heads, p.tp, row / c->attention.head_dim) * c->attention.head_dim +
               row % c->attention.head_dim;
    return owner(c->attention.num_heads, p.tp, row / c->attention.head_dim) == p.tp_rank;
  case TRI_W_QKV_A: *dst_row += rule->part == TRI_PART_LATENT_KV ? c->mla.q_rank : 0; return true;
  case TRI_W_K_UP: { /* the tensor's columns are here its rows: keys of a head, then values of it */
    int64_t each = c->mla.nope_dim + c->mla.v_dim, head = col / each;
    *dst_row = local(c->attention.num_heads, p.tp, head) * c->mla.rank + row, *dst_col = col % each;
    return *dst_col < c->mla.nope_dim && owner(c->attention.num_heads, p.tp, head) == p.tp_rank;
  }
  case TRI_W_V_UP: {
    int64_t each = c->mla.nope_dim + c->mla.v_dim, head = row / each, in_head = row % each - c->mla.nope_dim;
    *dst_row = local(c->attention.num_heads, p.tp, head) * c->mla.v_dim + in_head;
    return in_head >= 0 && owner(c->attention.num_heads, p.tp, head) == p.tp_rank;
  }
  case TRI_W_SINKS:
  case TRI_W_ATTENTION_GATE:
    *dst_row = local(c->attention.num_heads, p.tp, row);
    return owner(c->attention.num_heads, p.tp, row) == p.tp_rank;
  default: return place_cross(c, p, rule, row, col, dst_row, dst_col);
  }
}

/* Must this rank hold element (row, col) of the rule's tensor, and where? */
static bool place(const tri_model_config *c, tri_parallel p, const tri_tensor_rule *rule, int expert, int64_t row,
                  int64_t col, int64_t *dst_row, int64_t *dst_col) {
  bool first = p.pp_rank == 0, last = p.pp_rank == p.pp - 1;
  *dst_row = row, *dst_col = col;
  switch (rule->weight) {
  case TRI_W_EMBED:
  case TRI_W_LAYER_EMBED:
  case TRI_W_HEAD:
  case TRI_W_HEAD_BIAS:
    *dst_row = local(c->vocab_size, p.tp, row);
    bool head = rule->weight == TRI_W_HEAD || rule->weight == TRI_W_HEAD_BIAS;
    return (head ? last : first) && owner(c->vocab_size, p.tp, row) == p.tp_rank;
  case TRI_W_LAYER_PROJECT:
  case TRI_W_LAYER_PROJECT_NORM:
  case TRI_W_EMBED_NORM:
  case TRI_W_EMBED_NORM_BIAS:
  case TRI_W_PROJECT_IN:
  case TRI_W_PROJECT_IN_BIAS: return first;
  case TRI_W_PROJECT_OUT: return last;
  case TRI_W_POSITIONS:
  case TRI_W_TYPES: return first && ((c->embed.projected && !c->embed.projects_last) || p.tp_rank == 0);
  case TRI_W_POOLER:
  case TRI_W_POOLER_BIAS:
  case TRI_W_POOLER_NORM:
  case TRI_W_CLASSIFIER:
  case TRI_W_CLASSIFIER_BIAS: return last && p.tp_rank == 0;
  case TRI_W_Q_NORM:
    *dst_row =
        c->attention.qk_norm == TRI_QK_NORM_HEAD ? row : local(c->attention.num_heads, p.tp, row / 2) * 2 + row % 2;
    return c->attention.qk_norm == TRI_QK_NORM_HEAD || owner(c->attention.num_heads, p.tp, row / 2) == p.tp_rank;
  case TRI_W_K_NORM:
    *dst_row = c->attention.qk_norm == TRI_QK_NORM_HEAD ? row : count_kv(c, p, row / 2) * 2 + row % 2;
    return c->attention.qk_norm == TRI_QK_NORM_HEAD || needs_kv(c, p, row / 2);
  case TRI_W_FINAL_NORM:
  case TRI_W_FINAL_NORM_BIAS: return last;
  case TRI_W_QKV:
  case TRI_W_QKV_BIAS: return place_qkv(c, p, rule->part, row, dst_row);
  case TRI_W_UP:
  case TRI_W_UP_BIAS:
    return place_up(c->mlp.gated, c->mlp.intermediate_size, p.tp, p.tp_rank, rule->part, row, dst_row);
  case TRI_W_O: {
    int64_t d = c->mla.on ? c->mla.v_dim : c->attention.head_dim;
    if (c->attention.value_dim) d = c->attention.value_dim;
    *dst_col = local(c->attention.num_heads, p.tp, col / d) * d + col % d;
    return owner(c->attention.num_heads, p.tp, col / d) == p.tp_rank;
  }
  case TRI_W_DOWN:
    *dst_col = local(c->mlp.intermediate_size, p.tp, col);
    return owner(c->mlp.intermediate_size, p.tp, col) == p.tp_rank;
  case TRI_W_O_BIAS:
  case TRI_W_DOWN_BIAS: return p.tp_rank == 0;                                  /* added once, after the all-reduce */
  default: return place_expert(c, p, rule, expert, row, col, dst_row, dst_col); /* norms are everywhere */
  }
}

/* Collects a rule's slices into a map from destination to source element, and how often each destination was written.
 */
struct filled {
  int64_t n, k;
  int64_t *source; /* row * full columns + col, of rule number `which` */
  int *writes, *which;
  int rule;
  tri_weight_shape full;
  const char *name;
};

static tri_status fill(void *ctx, const tri_slice *s) {
  struct filled *f = ctx;
  ck_assert_msg(s->rows > 0 && s->cols > 0, "%s: an empty slice", f->name);
  ck_assert_msg(s->src_row >= 0 && s->src_col >= 0 && s->src_row + (s->rows - 1) * s->row_step < f->full.n &&
                    s->src_col + s->cols <= f->full.k,
                "%s: a slice outside the tensor", f->name);
  ck_assert_msg(s->dst_row >= 0 && s->dst_col >= 0 && s->dst_row + s->rows <= f->n && s->dst_col + s->cols <= f->k,
                "%s: a slice outside the weight", f->name);
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t c = 0; c < s->cols; c++) {
      int64_t at = (s->dst_row + r) * f->k + s->dst_col + c;
      f->source[at] = (s->src_row + r * s->row_step) * f->full.k + s->src_col + c;
      f->which[at] = f->rule;
      f->writes[at]++;
    }
  return TRI_OK;
}

/* Sizes of heads and of the MLP are the layer's own. */
static void check_weight(const tri_model_config *model, const tri_shard *s, tri_weight_id id, int layer) {
  static tri_model_config of_layer;
  const tri_model_config *c = &of_layer;
  of_layer = *model;
  of_layer.attention.head_dim = tri_layer_heads(model, layer).dim;
  of_layer.attention.num_heads = tri_layer_heads(model, layer).num;
  of_layer.attention.num_kv_heads = tri_layer_heads(model, layer).num_kv;
  of_layer.mlp.intermediate_size = tri_layer_units(model, layer);
  tri_weight_shape mine = tri_shard_weight_shape(model, s, id, layer);
  size_t size = (size_t)(mine.n * mine.k) + 1;
  struct filled f = {.n = mine.n, .k = mine.k};
  f.source = tri_calloc(size, sizeof *f.source);
  f.writes = tri_calloc(size, sizeof *f.writes);
  f.which = tri_calloc(size, sizeof *f.which);
  int64_t held = 0;
  bool any = false;
  for (const tri_tensor_rule *r = c->arch->tensors; r->name; r++) {
    if (r->weight != id || !tri_rule_applies(model, r, layer)) continue;
    any = true;
    f.full = tri_rule_full_shape(model, r, layer);
    f.name = r->name;
    ck_assert(f.full.vector == mine.vector);
    bool many = r->flags & (TRI_TENSOR_PER_EXPERT | TRI_TENSOR_STACKED);
    int experts = many ? tri_stage_slots(c, s->p) : 1;
    for (int e = 0; e < experts; e++) {
      f.rule = (int)(r - c->arch->tensors) * 32 + e;
      ck_assert_int_eq(tri_shard_slices(model, s, r, layer, many ? e - s->slots.first : 0, fill, &f), TRI_OK);
    }
    for (int64_t at_row = 0; at_row < f.full.n * experts; at_row++)
      for (int64_t col = 0; col < f.full.k; col++) {
        int64_t to_row, to_col, row = at_row % f.full.n;
        int e = (int)(at_row / f.full.n);
        f.rule = (int)(r - c->arch->tensors) * 32 + e;
        if (!place(c, s->p, r, e, row, col, &to_row, &to_col)) continue;
        int64_t at = to_row * f.k + to_col;
        held++;
        if (to_row >= f.n || to_col >= f.k || f.writes[at] != 1 || f.which[at] != f.rule ||
            f.source[at] != row * f.full.k + col)
          ck_abort_msg(
              "%s %s, heads %d/%d ff %d vocab %d, tp %d of %d, pp %d of %d: element (%d, %d) is not at (%d, %d)",
              c->arch->model_type, r->name, (int)c->attention.num_heads, (int)c->attention.num_kv_heads,
              (int)c->mlp.intermediate_size, (int)c->vocab_size, s->p.tp_rank, s->p.tp, s->p.pp_rank, s->p.pp, (int)row,
              (int)col, (int)to_row, (int)to_col);
      }
  }
  /* Each element found at its place and as many as the weight has room for: exactly once, and nothing else. */
  if (any)
    ck_assert_msg(held == mine.n * mine.k, "%s %s, tp %d of %d: the weight has %d elements, the rank must hold %d",
                  c->arch->model_type, tri_weight_name(id), s->p.tp_rank, s->p.tp, (int)(mine.n * mine.k), (int)held);
  tri_free(f.source), tri_free(f.writes), tri_free(f.which);
}

static const struct {
  int heads, kv, ff, vocab, layers;
} sizes[] = {
    {1, 1, 1, 1, 1},   {2, 2, 5, 7, 2}, {4, 1, 8, 16, 2}, {4, 2, 9, 17, 3}, {4, 4, 16, 13, 3}, {6, 3, 11, 19, 3},
    {6, 2, 12, 10, 2}, {6, 6, 7, 9, 4}, {5, 1, 6, 8, 5},  {7, 7, 8, 31, 3}, {8, 2, 11, 9, 2},  {12, 4, 13, 14, 5},
};

static void check_all(const tri_model_config *c, int tp, int pp) {
  int layers = 0;
  for (int stage = 0; stage < pp; stage++)
    for (int rank = 0; rank < tp; rank++) {
      tri_shard s;
      tri_error err = {0};
      tri_parallel p = {.tp = tp, .pp = pp, .tp_rank = rank, .pp_rank = stage};
      tri_status st = tri_shard_make(c, p, &s, &err);
      ck_assert_msg(st == TRI_OK, "%s", err.message);
      ck_assert(s.first_stage == (stage == 0) && s.last_stage == (stage == pp - 1));
      ck_assert(s.layers.first == layers && s.layers.count >= 1); /* contiguous, in order, none left out */
      ck_assert(s.q_heads.count == count_q(c, s.p) && s.kv_heads.count == count_kv(c, s.p, c->attention.num_kv_heads));
      for (int l = s.layers.first; l < s.layers.first + s.layers.count; l++)
        for (int id = 0; id < TRI_W_COUNT && (l < s.layers.first + 2 || c->layer_flags[l] & TRI_LAYER_SHARED_KV); id++)
          check_weight(c, &s, (tri_weight_id)id, l);
      if (rank == tp - 1) layers += s.layers.count;
    }
  ck_assert_int_eq(layers, (int)c->num_layers);
}

/* Shares of experts: every expert's every unit is on one rank of a stage, whose slices are of one shard. */
static void check_shares(const tri_model_config *c, tri_parallel p) {
  /* Other weights know nothing of shares. */
  static const tri_weight_id ids[] = {TRI_W_ROUTER,      TRI_W_EXPERT_UP,        TRI_W_EXPERT_UP_BIAS,
                                      TRI_W_EXPERT_DOWN, TRI_W_EXPERT_DOWN_BIAS, TRI_W_SHARED_DOWN};
  int slices = p.dp * p.tp / p.ep;
  int64_t units = 0;
  for (int s = 0; s < p.dp * p.tp; s++) {
    tri_shard shard;
    tri_error err = {0};
    p.dp_rank = s / p.tp;
    p.tp_rank = s % p.tp;
    ck_assert_msg(tri_shard_make(c, p, &shard, &err) == TRI_OK, "%s", err.message);
    ck_assert_int_eq((s - s % slices) / p.tp, (s - s % slices + slices - 1) / p.tp);
    units += (int64_t)shard.slots.count * shard.expert_ff.count;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) check_weight(c, &shard, ids[i], 0);
  }
  ck_assert_int_eq(units, tri_stage_slots(c, p) * c->moe.intermediate_size);
}

/* With the slots of two copies besides, where there are shares for them. */
static void check_copies(const tri_model_config *c, tri_parallel p) {
  tri_expert_placement_config config = {.ep = p.ep, .num_redundant = p.ep > 1 ? 2 : 0};
  tri_expert_placement *placement;
  ck_assert_int_eq(tri_expert_placement_make(c, &config, &placement, NULL), TRI_OK);
  p.placement = placement;
  check_shares(c, p);
  int slots = 0;
  for (int d = 0; d < p.dp; d++) {
    tri_range own = tri_dp_shard_slots(c, p, d);
    ck_assert_int_eq(own.first, slots);
    slots += own.count;
  }
  ck_assert_int_eq(slots, tri_stage_slots(c, p));
  tri_expert_placement_free(placement);
}

START_TEST(experts_in_shares) {
  for (const tri_arch *const *a = tri_arch_list; *a; a++) {
    tri_model_config c = make(*a, 4, 2, 9, 16, 2);
    if (!c.moe.num_experts) continue;
    c.moe.num_experts = 7; /* shares are not equal */
    for (int l = 0; l < c.num_layers; l++) c.layer_flags[l] |= TRI_LAYER_SPARSE;
    for (int dp = 1; dp <= 3; dp++)
      for (int tp = 1; tp <= 4; tp++)
        for (int etp = 1; etp <= tp; etp++)
          if (tp % etp == 0 && dp * tp / etp <= 7) {
            tri_parallel p = {.tp = tp, .pp = 1, .dp = dp, .ep = dp * tp / etp};
            check_shares(&c, p);
            if (tp <= 2) check_copies(&c, p);
          }
  }
}
END_TEST

START_TEST(refused_shares) {
  static const struct {
    tri_parallel p;
    const char *why;
  } bad[] = {
      {{.tp = 3, .pp = 1, .ep = 2}, "expert-parallel 2 x expert slices 1 is not data-parallel 1 x tensor-parallel 3"},
      {{.tp = 2, .pp = 1, .dp = 3, .ep = 2},
       "experts in 3 slices (data-parallel 3 x tensor-parallel 2 / "
       "expert-parallel 2): the slices must divide tensor-parallel 2"},
      {{.tp = 2, .pp = 1, .dp = 2},
       "experts in 4 slices (data-parallel 2 x tensor-parallel 2 / expert-parallel 1): "
       "the slices must divide tensor-parallel 2"},
      {{.tp = 4, .pp = 1, .dp = 2, .ep = 8},
       "8 shares of 7 experts: -ep can be 7 at most, its shares then have slices of experts"},
  };
  tri_model_config c = make(tri_arch_find("mixtral"), 4, 2, 9, 16, 2);
  c.moe.num_experts = 7;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tri_error err = {0};
    ck_assert_int_eq(tri_shard_make(&c, bad[i].p, &(tri_shard){0}, &err), TRI_OUT_OF_RANGE);
    ck_assert_str_eq(err.message, bad[i].why);
    ck_assert_str_eq(err.field, "expert_parallel_size");
  }
  c = make(tri_arch_find("llama"), 4, 2, 9, 16, 2);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .ep = 2}, &(tri_shard){0}, NULL),
                   TRI_UNSUPPORTED);
}
END_TEST

START_TEST(every_element_has_its_place) {
  for (const tri_arch *const *a = tri_arch_list; *a; a++) {
    bool grouped = false; /* whether the family can have fewer KV heads than query heads */
    for (const tri_tensor_rule *r = (*a)->tensors; r->name; r++) grouped |= r->part == TRI_PART_K;
    tri_model_config c = make(*a, sizes[_i].heads, grouped ? sizes[_i].kv : sizes[_i].heads, sizes[_i].ff,
                              sizes[_i].vocab, sizes[_i].layers);
    for (int tp = 1; tp <= c.attention.num_heads && tp <= c.mlp.intermediate_size && tp <= c.vocab_size; tp++)
      for (int pp = 1; pp <= (c.seq2seq.on ? 1 : c.num_layers - 2 * c.attention.shared_kv_layers); pp++)
        if ((tp < 4 || pp < 3) && (tp < 5 || tp == c.attention.num_heads)) check_all(&c, tp, pp);
    if (!c.seq2seq.on) continue;
    tri_model_config source;
    c.seq2seq.num_layers = c.num_layers + 1, c.seq2seq.num_heads = c.attention.num_heads;
    c.seq2seq.intermediate_size = c.mlp.intermediate_size + 2;
    tri_model_config_source(&c, &source);
    for (int tp = 1; tp <= c.attention.num_heads && tp <= c.mlp.intermediate_size && tp <= c.vocab_size && tp < 4; tp++)
      check_all(&source, tp, 1);
    ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 2}, &(tri_shard){0}, NULL),
                     c.num_layers > 1 ? TRI_UNSUPPORTED : TRI_OUT_OF_RANGE);
  }
}
END_TEST

#define LLAMA(layers, hidden, ff, vocab, heads, tied)                                                                  \
  "{\"model_type\":\"llama\",\"hidden_size\":" hidden ",\"num_hidden_layers\":" layers                                 \
  ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":4,\"intermediate_size\":" ff ",\"vocab_size\":" vocab    \
  ",\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"tie_word_embeddings\":" tied "}"

/* A kind of layers has 9 query heads over 3 KV heads, the other 4 over 2; three ranks. */
START_TEST(query_heads_by_kind_of_layer) {
  tri_model_config c = make(tri_arch_find("gemma4_text"), 9, 3, 8, 8, 2);
  tri_parallel p = {.tp = 3, .pp = 1, .tp_rank = 1};
  tri_error err = {0};
  tri_shard s;
  c.attention.global_heads = 4, c.attention.global_kv_heads = 2;
  ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
  tri_range local = tri_shard_q_heads(&c, &s, 0), global = tri_shard_q_heads(&c, &s, 1);
  ck_assert(local.first == 3 && local.count == 3 && s.kv_heads.first == 1 && s.kv_heads.count == 1);
  ck_assert(global.first == 1 && global.count == 1 && s.global_kv_heads.first == 0 && s.global_kv_heads.count == 1);
  ck_assert_int_eq(tri_shard_weight_shape(&c, &s, TRI_W_O, 0).k, 3 * 2);
  ck_assert_int_eq(tri_shard_weight_shape(&c, &s, TRI_W_O, 1).k, 1 * 4);
  p.tp_rank = 2;
  ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
  global = tri_shard_q_heads(&c, &s, 1); /* the rest, which read the second KV head alone */
  ck_assert(global.first == 2 && global.count == 2 && s.global_kv_heads.first == 1 && s.global_kv_heads.count == 1);
  p.tp = 5;
  ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OUT_OF_RANGE);
  ck_assert_str_eq(err.field, "tensor_parallel_size");
  ck_assert_ptr_nonnull(strstr(err.message, "4 attention heads of layers without a window"));
}
END_TEST

/* The awkward case by hand: 6 query heads read 3 KV heads, two ranks. */
START_TEST(six_over_three_on_two) {
  tri_model_config c = make(tri_arch_find("llama"), 6, 3, 8, 8, 1);
  tri_shard a, b;
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &a, NULL), TRI_OK);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = 1, .pp_rank = 0}, &b, NULL), TRI_OK);
  ck_assert(a.q_heads.first == 0 && a.q_heads.count == 3 && a.kv_heads.first == 0 && a.kv_heads.count == 2);
  ck_assert(b.q_heads.first == 3 && b.q_heads.count == 3 && b.kv_heads.first == 1 && b.kv_heads.count == 2);
  /* KV head 1 lies on both. */
  ck_assert_int_eq(tri_shard_weight_shape(&c, &a, TRI_W_QKV, 0).n, (3 + 2 + 2) * c.attention.head_dim);
}
END_TEST

#define BERT(layers, hidden, ff, vocab, heads)                                                                         \
  "{\"model_type\":\"bert\",\"hidden_size\":" hidden ",\"num_hidden_layers\":" layers                                  \
  ",\"num_attention_heads\":" heads ",\"intermediate_size\":" ff ",\"vocab_size\":" vocab                              \
  ",\"max_position_embeddings\":512,\"type_vocab_size\":2,\"hidden_act\":\"gelu\",\"layer_norm_eps\":1e-12}"

/* Stages have nearly equal work, that is bytes that a step reads: the head counts, and so do experts beside dense
 * layers. Where that makes one much larger than it must be they have nearly equal bytes, the embedding's too. */
START_TEST(stages_by_work) {
  static const struct {
    const char *config;
    int pp;
    bool quantized;
    int counts[8];
  } cases[] = {
      /* Llama 3 8B: embedding and head weigh as much as 2.4 layers each. */
      {LLAMA("32", "4096", "14336", "128256", "32", "false"), 1, false, {32}},
      {LLAMA("32", "4096", "14336", "128256", "32", "false"), 2, false, {17, 15}},
      {LLAMA("32", "4096", "14336", "128256", "32", "false"), 4, false, {7, 9, 9, 7}},
      {LLAMA("32", "4096", "14336", "128256", "32", "false"), 8, false, {2, 5, 4, 5, 5, 4, 5, 2}},
      /* In int8 layers weigh half and the table what it did. */
      {LLAMA("32", "4096", "14336", "128256", "32", "false"), 4, true, {5, 10, 10, 7}},
      /* A small vocabulary: layers alone count. */
      {LLAMA("32", "4096", "14336", "256", "32", "false"), 4, false, {8, 8, 8, 8}},
      /* A head that weighs more than a part of the whole leaves its stage one layer. */
      {LLAMA("4", "64", "128", "128256", "4", "false"), 4, false, {1, 1, 1, 1}},
      {LLAMA("6", "64", "128", "128256", "4", "false"), 3, false, {4, 1, 1}},
      /* The embedding of an encoder is most of its bytes, and no work. */
      {BERT("12", "768", "3072", "30522", "12"), 2, false, {6, 6}},
      {BERT("24", "1024", "4096", "250002", "16"), 2, false, {12, 12}},
      {BERT("48", "1024", "4096", "900000", "16"), 2, false, {1, 47}}, /* it would be 579 MB more */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_model_config c;
    tri_error err = {0};
    int at = 0;
    ck_assert_msg(tri_model_config_parse(cases[i].config, strlen(cases[i].config), NULL, 0, (tri_config_rules){0}, &c,
                                         &err) == TRI_OK,
                  "%s", err.message);
    for (int stage = 0; stage < cases[i].pp; stage++) {
      tri_range r =
          tri_stage_layers(&c, (tri_parallel){.tp = 1, .pp = cases[i].pp, .quantized = cases[i].quantized}, stage);
      ck_assert_msg(r.first == at && r.count == cases[i].counts[stage], "case %zu, stage %d: %d layers", i, stage,
                    r.count);
      at += r.count;
    }
    ck_assert_int_eq(at, (int)c.num_layers);
  }
}
END_TEST

/* Layers 4 to 6 read keys and values of 2 and 3, so that no stage begins behind layer 2. */
START_TEST(stages_keep_shared_keys_together) {
  static const int counts[][3] = {{7}, {2, 5}, {1, 1, 5}};
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(
      tri_model_config_load(TRI_TEST_DATA "/checkpoints/gemma4_text_e_odd", (tri_config_rules){0}, &c, &err) == TRI_OK,
      "%s", err.message);
  for (int pp = 1; pp <= 3; pp++)
    for (int stage = 0, at = 0; stage < pp; stage++) {
      tri_range r = tri_stage_layers(&c, (tri_parallel){.tp = 1, .pp = pp}, stage);
      ck_assert_msg(r.first == at && r.count == counts[pp - 1][stage], "pp %d, stage %d: %d from %d", pp, stage,
                    r.count, r.first);
      at += r.count;
    }
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 1, .pp = 4}, &(tri_shard){0}, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "pipeline_parallel_size");
  ck_assert_ptr_nonnull(strstr(err.message, "num_kv_shared_layers"));
}
END_TEST

START_TEST(parts) {
  for (int n = 0; n < 40; n++)
    for (int parts = 1; parts < 12; parts++) {
      int at = 0;
      for (int r = 0; r < parts; r++) {
        tri_range part = tri_range_part(n, parts, r);
        ck_assert(part.first == at && (part.count == n / parts || part.count == n / parts + 1));
        at += part.count;
      }
      ck_assert_int_eq(at, n);
    }
}
END_TEST

/* Units of an MLP, of which kernels read eight at a time: slices that do not come out even are whole vectors all the
 * same where they are long, and about equal. */
START_TEST(slices_of_units) {
  static const char config[] =
      "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":8,"
      "\"num_key_value_heads\":8,\"intermediate_size\":%d,\"vocab_size\":64,\"max_position_embeddings\":64,"
      "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\"}";
  static const int sizes[] = {5464, 768, 11008, 14336, 1408, 37, 96, 2816};
  for (int i = 0; i < 8; i++)
    for (int tp = 1; tp <= 8; tp++) {
      char text[400];
      tri_model_config c;
      tri_shard s;
      int at = 0, n = snprintf(text, sizeof text, config, sizes[i]);
      ck_assert_int_eq(tri_model_config_parse(text, (size_t)n, NULL, 0, (tri_config_rules){0}, &c, NULL), TRI_OK);
      for (int r = 0; r < tp; r++) {
        ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = tp, .pp = 1, .tp_rank = r}, &s, NULL), TRI_OK);
        ck_assert_int_eq(s.ff.first, at);
        ck_assert(sizes[i] < 128 * tp || s.ff.first % 8 == 0);
        ck_assert(s.ff.count * tp <= sizes[i] + sizes[i] / 8 + tp && s.ff.count > 0);
        at += s.ff.count;
      }
      ck_assert_int_eq(at, sizes[i]);
    }
}
END_TEST

START_TEST(refused_layouts) {
  static const struct {
    tri_parallel p;
    const char *field;
  } bad[] = {
      {{.tp = 0, .pp = 1}, "tensor_parallel_size"},    {{.tp = -1, .pp = 1}, "tensor_parallel_size"},
      {{.tp = 7, .pp = 1}, "tensor_parallel_size"},    {{.tp = 1 << 30, .pp = 1}, "tensor_parallel_size"},
      {{.tp = 1, .pp = 0}, "pipeline_parallel_size"},  {{.tp = 1, .pp = 4}, "pipeline_parallel_size"},
      {{.tp = 1, .pp = -2}, "pipeline_parallel_size"}, {{.tp = 2, .pp = 1, .tp_rank = 2}, "rank"},
      {{.tp = 2, .pp = 1, .tp_rank = -1}, "rank"},     {{.tp = 1, .pp = 2, .pp_rank = 2}, "rank"},
      {{.tp = 1, .pp = 2, .pp_rank = -1}, "rank"},
  };
  tri_model_config c = make(tri_arch_find("llama"), 6, 3, 8, 8, 3);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    tri_shard s, untouched;
    tri_error err = {0};
    memset(&s, 0x5a, sizeof s);
    memset(&untouched, 0x5a, sizeof untouched);
    ck_assert_int_eq(tri_shard_make(&c, bad[i].p, &s, &err), TRI_OUT_OF_RANGE);
    ck_assert_str_eq(err.field, bad[i].field);
    ck_assert_mem_eq(&s, &untouched, sizeof s);
  }
  c = make(tri_arch_find("llama"), 6, 3, 4, 8, 3);
  ck_assert_int_eq(
      tri_shard_make(&c, (tri_parallel){.tp = 5, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &(tri_shard){0}, NULL),
      TRI_OUT_OF_RANGE);
  c = make(tri_arch_find("llama"), 6, 3, 8, 4, 3);
  ck_assert_int_eq(
      tri_shard_make(&c, (tri_parallel){.tp = 5, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &(tri_shard){0}, NULL),
      TRI_OUT_OF_RANGE);
}
END_TEST

static tri_status stop_at_once(void *ctx, const tri_slice *s) {
  (void)s;
  ++*(int *)ctx;
  return TRI_IO;
}

START_TEST(an_error_ends_the_slices) {
  tri_model_config c = make(tri_arch_find("gpt_neox"), 6, 6, 8, 8, 3);
  tri_shard s;
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1, .tp_rank = 0, .pp_rank = 0}, &s, NULL), TRI_OK);
  for (const tri_tensor_rule *r = c.arch->tensors; r->name; r++) {
    if (!tri_rule_applies(&c, r, 0)) continue;
    int calls = 0;
    ck_assert_int_eq(tri_shard_slices(&c, &s, r, 0, 0, stop_at_once, &calls), TRI_IO);
    ck_assert_int_eq(calls, 1);
  }
}
END_TEST

Suite *suite_layout(void) {
  Suite *s = suite_create("layout");
  TCase *c = tcase_create("layout");
  tcase_set_timeout(c, 60);
  tcase_add_loop_test(c, every_element_has_its_place, 0, sizeof sizes / sizeof *sizes);
  tcase_add_test(c, query_heads_by_kind_of_layer);
  tcase_add_test(c, six_over_three_on_two);
  tcase_add_test(c, stages_by_work);
  tcase_add_test(c, stages_keep_shared_keys_together);
  tcase_add_test(c, parts);
  tcase_add_test(c, slices_of_units);
  tcase_add_test(c, refused_layouts);
  tcase_add_test(c, experts_in_shares);
  tcase_add_test(c, refused_shares);
  tcase_add_test(c, an_error_ends_the_slices);
  suite_add_tcase(s, c);
  return s;
}
