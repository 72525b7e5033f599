/* Load format `dummy`: a model of the right shape and size from nothing but its config. */
#include <math.h>

#include "kernels/quantize.h"
#include "runtime/weights.h"

/* A counter-based generator (the finaliser of SplitMix64, Steele et al. 2014): no state, any order. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct fill {
  const tri_model_config *c;
  const tri_shard *s;
  tri_weights *w;
  uint64_t seed;
  /* of the tensor at hand */
  const tri_weight_target *t;
  uint64_t key;
  float mean, width;
};

/* Every number is below f->width: the scale of every row of every layout, without a look at the numbers. */
static void fill_scales(struct fill *f, const tri_slice *s) {
  tri_backend *be = f->w->backend;
  float scale = tri_quantize_scale(f->width);
  for (int64_t r = 0; r < s->rows; r++) {
    size_t at = f->t->place.scale_offset + (size_t)(s->dst_row + r) * sizeof scale;
    be->ops.upload(be, (char *)f->w->memory + at, &scale, sizeof scale, NULL);
  }
}

static tri_status fill_slice(void *ctx, const tri_slice *s) {
  struct fill *f = ctx;
  tri_backend *be = f->w->backend;
  enum { BUF = 4096 };
  uint32_t buf[BUF];
  tri_dtype type = f->t->place.dtype;
  size_t size = tri_dtype_size(type);
  float factor = tri_quantize_factor(f->width);
  if (type == TRI_I8) fill_scales(f, s);
  for (int64_t r = 0; r < s->rows; r++)
    for (int64_t c0 = 0; c0 < s->cols; c0 += BUF) {
      int64_t n = s->cols - c0 < BUF ? s->cols - c0 : BUF;
      for (int64_t i = 0; i < n; i++) {
        uint64_t h = mix(f->key ^ ((uint64_t)(s->src_row + r * s->row_step) << 32 | (uint64_t)(s->src_col + c0 + i)));
        float x = f->mean + f->width * ((float)(h >> 40) * 0x1p-23f - 1);
        if (type == TRI_I8)
          ((int8_t *)buf)[i] = tri_quantize_one(x, factor);
        else
          tri_store_f32(buf, type, (size_t)i, x);
      }
      size_t at = f->t->place.offset + (size_t)((s->dst_row + r) * f->t->k + s->dst_col + c0) * size;
      be->ops.upload(be, (char *)f->w->memory + at, buf, (size_t)n * size, NULL);
    }
  return be->ops.stream_sync(be, NULL);
}

static tri_status fill_tensor(void *ctx, const tri_weight_target *t) {
  struct fill *f = ctx;
  tri_weight_shape full = tri_rule_full_shape(f->c, &t->rule);
  tri_weight_id id = t->rule.weight;
  bool norm = id == TRI_W_NORM1 || id == TRI_W_NORM2 || id == TRI_W_FINAL_NORM || id == TRI_W_EMBED_NORM ||
              id == TRI_W_BRANCH_NORM1 || id == TRI_W_BRANCH_NORM2 || id == TRI_W_Q_NORM || id == TRI_W_K_NORM ||
              id == TRI_W_CROSS_NORM;
  tri_weight_id source = id == TRI_W_HEAD && f->c->tie_word_embeddings ? TRI_W_EMBED : id;
  f->t = t;
  f->mean = norm ? 1 - (float)f->c->norm_weight_offset : 0;
  /* Variance 1/k keeps activations near one through any depth. */
  f->width = full.vector ? 0.02f : (float)sqrt(3.0 / (double)full.k);
  f->key = mix(f->seed ^ (uint64_t)f->c->feeds_decoder ^
               mix((uint64_t)source << 40 | (uint64_t)t->rule.part << 32 | (uint64_t)t->layer << 16) ^
               mix((uint64_t)t->expert));
  return tri_shard_slices(f->c, f->s, &t->rule, t->expert, fill_slice, f);
}

tri_status tri_weights_dummy(tri_backend *be, const tri_model_config *c, const tri_shard *s, uint64_t seed,
                             tri_dtype dtype, tri_quantization quantization, tri_weights **out, tri_error *err) {
  tri_weight_map m;
  tri_status st = tri_weight_map_make(c, s, NULL, dtype, quantization, &m, err);
  if (st != TRI_OK) return st;
  struct fill f = {.c = c, .s = s, .seed = seed};
  TRI_TRY(tri_weights_alloc(be, c, s, &m, &f.w, err));
  TRI_TRY(tri_weights_each(c, s, &m, fill_tensor, &f));
  *out = f.w;
  f.w = NULL;
cleanup:
  tri_weights_destroy(f.w);
  tri_weight_map_free(&m);
  return st;
}
