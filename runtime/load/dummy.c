/* SPDX-License-Identifier: Apache-2.0 */
/* Load format `dummy`: a model of the right shape and size from nothing but its config. Elements are made where they
 * are to lie, by the backend (ops.fill_random), as functions of their place in the whole model's tensor. So nothing is
 * transferred, and every layout of one seed has the same model. */
#include <math.h>

#include "kernels/random.h"
#include "runtime/load/load_impl.h"

struct fill {
  tri_backend *be;
  const tri_model_config *c;
  const tri_shard *s;
  char *to;
  uint64_t seed;
  /* of the tensor at hand */
  const tri_weight_target *t;
  uint64_t key;
  float mean, width;
};

/* The scales of a slice's groups, which are all the same. */
static void fill_scales(struct fill *f, const tri_slice *s) {
  const tri_weight_place *p = &f->t->place;
  tri_groups g = {.rows = p->groups.rows, .cols = p->groups.cols, .skip_col = p->groups.skip_col};
  int64_t across = tri_groups_across(g, (int)f->t->k), each = g.rows > 1 ? g.rows : 1;
  tri_random_fill fill = {.to = (float *)(f->to + p->scale_offset) + s->dst_row / each * across,
                          .dtype = TRI_F32,
                          .rows = tri_groups_down(g, (int)s->rows),
                          .cols = across,
                          .ld = across,
                          .row_step = 1,
                          .mean = f->width / TRI_F8_E4M3_MAX};
  f->be->ops.fill_random(f->be, &fill);
}

/* Every number is below width, which int8 rows therefore have as the largest in every layout, without a look at them.
 */
static tri_status fill_slice(void *ctx, const tri_slice *s) {
  struct fill *f = ctx;
  const tri_weight_place *p = &f->t->place;
  size_t first = (size_t)(s->dst_row * f->t->k + s->dst_col) * tri_dtype_size(p->dtype);
  tri_random_fill fill = {.to = f->to + p->offset + first,
                          .dtype = p->dtype,
                          .rows = s->rows,
                          .cols = s->cols,
                          .ld = f->t->k,
                          .first_row = s->src_row,
                          .row_step = s->row_step,
                          .first_col = s->src_col,
                          .key = f->key,
                          .mean = f->mean,
                          .width = f->width};
  if (p->dtype == TRI_I8) fill.scales = (float *)(f->to + p->scale_offset) + s->dst_row;
  f->be->ops.fill_random(f->be, &fill);
  if (p->dtype == TRI_F8_E4M3) fill_scales(f, s);
  return TRI_OK;
}

static tri_status fill_tensor(void *ctx, const tri_weight_target *t) {
  struct fill *f = ctx;
  tri_weight_shape full = tri_rule_full_shape(f->c, &t->rule, t->layer);
  tri_weight_id id = t->rule.weight;
  tri_weight_id source = id == TRI_W_HEAD && f->c->head.tie_word_embeddings ? TRI_W_EMBED : id;
  f->t = t;
  f->mean = tri_weight_is_gain(id) ? 1 - (float)f->c->norm.weight_offset : 0;
  /* Variance 1/k keeps activations near one through any depth. */
  f->width = full.vector ? 0.02f : (float)sqrt(3.0 / (double)full.k);
  f->key =
      tri_random_mix(f->seed ^ (uint64_t)f->c->feeds_decoder ^
                     tri_random_mix((uint64_t)source << 40 | (uint64_t)t->rule.part << 32 | (uint64_t)t->layer << 16) ^
                     tri_random_mix((uint64_t)t->expert));
  return tri_shard_slices(f->c, f->s, &t->rule, t->layer, t->slot, fill_slice, f);
}

tri_status tri_dummy_fill(const tri_weights_config *config, const tri_weight_map *m, int part, char *to) {
  struct fill f = {.be = config->backend, .c = config->model, .s = config->shard, .to = to, .seed = config->seed};
  TRI_CHECK(tri_weights_each(f.c, f.s, m, part, fill_tensor, &f));
  return f.be->ops.stream_sync(f.be);
}
