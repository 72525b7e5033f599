/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/stored_form.h"

/* A form as it is found, tensor by tensor. */
struct search {
  tri_dtype type;                 /* of the codes */
  int64_t block_rows, block_cols; /* of the tensor at hand; cols 0: its rows have one scale each */
  int64_t rows, cols;             /* that blocks of the weight can have; 0: nothing was looked at yet */
  int64_t skip_col;
  bool fits;
};

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* A slice's rows begin with a block here and there. */
static tri_status add_slice(void *ctx, const tri_slice *s) {
  struct search *f = ctx;
  int64_t cols = f->block_cols, skip = cols ? s->src_col % cols : 0;
  bool first = !f->rows;
  if (!s->rows || !s->cols) return TRI_OK;
  f->rows = common_divisor(f->rows, f->block_rows);
  f->rows = common_divisor(common_divisor(f->rows, s->src_row), s->dst_row);
  f->fits = f->fits && s->row_step == 1 && !s->dst_col && (first || (cols == f->cols && skip == f->skip_col));
  f->cols = cols;
  f->skip_col = skip;
  return TRI_OK;
}

/* Finds how a tensor's elements share scales. False: they are no codes that can stay. A row whose elements have one
 * scale is a block of its own, also where other rows have the same scale: a weight has few rows. */
static bool find_blocks(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule, int layer,
                        int expert, struct search *f) {
  tri_error ignored;
  tri_packed p;
  bool found = false;
  f->block_rows = f->block_cols = 0;
  if (ckpt) {
    tri_status st = tri_packed_find(c, ckpt, rule, layer, expert, &p, &found, &ignored);
    if (st != TRI_OK || !found || !tri_packed_is_codes(&p, f->type)) return false;
    if (p.layout.group_cols < p.layout.cols) f->block_cols = p.layout.group_cols;
    f->block_rows = p.layout.group_rows;
  } else if (rule->weight != TRI_W_HEAD && !(rule->flags & TRI_TENSOR_TRANSPOSED) && c->stored.num_schemes) {
    /* Published folders leave the head as it is. */
    const tri_stored_scheme *scheme = &c->stored.schemes[0];
    if (scheme->is_float != (f->type == TRI_F8_E4M3) || scheme->bits != 8) return false;
    if (scheme->cols < tri_rule_full_shape(c, rule, layer).k) f->block_cols = scheme->cols;
    f->block_rows = scheme->rows;
  } else {
    return false;
  }
  if (!f->block_cols) f->block_rows = 1;
  return true;
}

/* The same of all tensors of a rule: experts of one layer may be stored in different ways, and move between ranks. */
static bool find_common_blocks(const tri_model_config *c, const tri_checkpoint *ckpt, const tri_tensor_rule *rule,
                               int layer, struct search *f) {
  int64_t num = ckpt && rule->flags & TRI_TENSOR_PER_EXPERT ? c->moe.num_experts : 1, rows = 0, cols = 0;
  for (int expert = 0; expert < num; expert++) {
    if (!find_blocks(c, ckpt, rule, layer, expert, f) || (expert && f->block_cols != cols)) return false;
    rows = common_divisor(rows, f->block_rows);
    cols = f->block_cols;
  }
  f->block_rows = rows;
  return true;
}

bool tri_stored_form_find(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt, tri_weight_id id,
                          int layer, tri_dtype dtype, tri_groups *groups) {
  struct search f = {.type = dtype, .fits = true};
  tri_weight_shape shape = tri_shard_weight_shape(c, s, id, layer);
  if (!tri_weight_is_quantized(c, id) || !tri_weight_in_layer(c, id, layer) || !shape.n || !shape.k) return false;
  for (const tri_tensor_rule *r = tri_rule_next(c, NULL); r; r = tri_rule_next(c, r)) {
    if (r->weight != id || !tri_rule_applies(c, r, layer)) continue;
    if (!find_common_blocks(c, ckpt, r, layer, &f)) return false;
    if (tri_shard_slices(c, s, r, layer, 0, add_slice, &f) != TRI_OK) return false;
  }
  if (!f.rows || !f.fits || f.cols > INT32_MAX) return false;
  if (f.cols && dtype == TRI_I8 && c->stored.method != TRI_STORED_GGUF) return false;
  if (tri_weight_is_of_experts(id)) f.rows = common_divisor(f.rows, shape.n / s->slots.count);
  *groups = (tri_groups){0};
  if (f.cols) *groups = (tri_groups){.rows = (int)f.rows, .cols = (int)f.cols, .skip_col = (int)f.skip_col};
  return !c->stored.wide_blocks_only || tri_groups_are_wide(*groups);
}
