/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/forward/kv_cache.h"

#include "base/wait.h"

tri_dtype tri_kv_dtype(const tri_model_config *c, tri_dtype asked, tri_dtype weights, bool narrows_inputs) {
  if (asked != TRI_DTYPE_COUNT) return asked;
  if (weights == TRI_DTYPE_COUNT) weights = c->dtype;
  return narrows_inputs && (weights == TRI_F16 || weights == TRI_BF16) ? weights : TRI_F32;
}

/* Returns the elements of a token that a layer makes. A latent is key and value in one, for all heads, on every tensor
 * rank. */
static size_t elements_of(const tri_model_config *c, const tri_shard *s, int layer) {
  if (c->mla.on) return (size_t)(c->mla.rank + c->mla.rope_dim);
  return 2 * (size_t)tri_shard_new_kv_heads(c, s, layer).count * (size_t)tri_layer_heads(c, layer).dim;
}

bool tri_kv_block_bytes(const tri_model_config *c, const tri_shard *s, tri_dtype dtype, int block_size, size_t *out) {
  size_t per_token = 0, b = tri_dtype_size(dtype);
  for (int l = 0; l < s->layers.count; l++)
    if (!tri_size_add(per_token, elements_of(c, s, s->layers.first + l), &per_token)) return false;
  return tri_size_mul(b, per_token, &b) && tri_size_mul(b, (size_t)block_size, out);
}

/* Sizes of the groups: their sum over layers is that of tri_kv_block_bytes, which has not overflowed. */
static void find_groups(tri_kv_cache *kv, const tri_model_config *c, const tri_shard *s, size_t element) {
  for (int l = 0; l < kv->num_layers; l++) {
    int layer = s->layers.first + l;
    if (tri_kv_source(c, layer) != layer) continue;
    tri_kv_group *g = &kv->groups[tri_layer_has_global_heads(c, layer)];
    if (!g->num_layers++) g->first = l;
    g->stride = elements_of(c, s, layer) * element * (size_t)kv->block_size * (size_t)kv->num_blocks;
  }
}

static void place_layers(tri_kv_cache *kv, const tri_model_config *c, const tri_shard *s, tri_dtype dtype) {
  const tri_kv_group *groups = kv->groups;
  size_t at[TRI_KV_GROUPS] = {0, (size_t)groups[0].num_layers * groups[0].stride};
  for (int l = 0; l < kv->num_layers; l++) {
    int layer = s->layers.first + l, group = tri_layer_has_global_heads(c, layer);
    char *keys = (char *)kv->memory + at[group];
    if (tri_kv_source(c, layer) != layer) {
      kv->layers[l] = kv->layers[tri_kv_source(c, layer) - s->layers.first];
      continue;
    }
    kv->layers[l] = (tri_kv_layer){
        .k = keys,
        .v = c->mla.on ? NULL : keys + groups[group].stride / 2,
        .dtype = dtype,
        .num_blocks = kv->num_blocks,
        .num_kv_heads = c->mla.on ? 1 : tri_shard_kv_heads(c, s, layer).count,
        .block_size = kv->block_size,
        .head_dim = (int)(c->mla.on ? c->mla.rank + c->mla.rope_dim : tri_layer_heads(c, layer).dim),
        .v_dim = (int)c->mla.rank,
    };
    at[group] += groups[group].stride;
  }
}

tri_status tri_kv_cache_create(tri_backend *be, const tri_model_config *c, const tri_shard *s, tri_dtype dtype,
                               int block_size, int num_blocks, tri_kv_cache **out, tri_error *err) {
  tri_status st = TRI_NO_MEMORY;
  size_t block;
  tri_kv_cache *kv = tri_calloc(1, sizeof *kv);
  if (!kv || !(kv->layers = tri_calloc((size_t)s->layers.count, sizeof *kv->layers)) ||
      !tri_kv_block_bytes(c, s, dtype, block_size, &block) || !tri_size_mul(block, (size_t)num_blocks, &kv->bytes))
    goto cleanup;
  kv->backend = be;
  kv->num_layers = s->layers.count;
  kv->num_blocks = num_blocks;
  kv->block_size = block_size;
  if (be->ops.mem_alloc(be, TRI_MEM_KV, kv->bytes, &kv->memory) != TRI_OK) goto cleanup;
  find_groups(kv, c, s, tri_dtype_size(dtype));
  place_layers(kv, c, s, dtype);
  *out = kv;
  return TRI_OK;
cleanup:
  if (kv) tri_free(kv->layers);
  tri_free(kv);
  return tri_fail(err, st, "kv_cache", "no memory for %d KV blocks", num_blocks);
}

/* The memory stays that of `from`: with memory NULL tri_kv_cache_destroy frees the list of layers alone. */
tri_status tri_kv_cache_borrow(const tri_kv_cache *from, int num_layers, tri_kv_cache **out) {
  tri_kv_cache *kv = tri_calloc(1, sizeof *kv);
  if (!kv || !(kv->layers = tri_calloc((size_t)num_layers, sizeof *kv->layers))) {
    tri_free(kv);
    return TRI_NO_MEMORY;
  }
  kv->num_layers = num_layers;
  kv->num_blocks = from->num_blocks;
  kv->block_size = from->block_size;
  for (int l = 0; l < num_layers; l++) kv->layers[l] = from->layers[0];
  *out = kv;
  return TRI_OK;
}

tri_status tri_kv_cache_add_pool(tri_kv_cache *kv, int num_host_blocks, tri_error *err) {
  size_t block = kv->bytes / (size_t)kv->num_blocks, bytes;
  if (!num_host_blocks) return TRI_OK;
  if (!tri_size_mul(block, (size_t)num_host_blocks, &bytes) ||
      kv->backend->ops.host_alloc(kv->backend, bytes, &kv->pool) != TRI_OK)
    return tri_fail(err, TRI_NO_CAPACITY, "kv_offloading_size",
                    "the system gives no memory for %d KV blocks of %.1f KiB: ask for less --kv-offloading-size",
                    num_host_blocks, (double)block / 0x1p10);
  kv->num_host_blocks = num_host_blocks;
  kv->pool_bytes = bytes;
  return TRI_OK;
}

/* One launch for all layers of a group: pairs name blocks, and a block's bytes of the next layer lie layer_stride
 * further. The groups' pools follow each other. */
void tri_kv_cache_move(const tri_kv_cache *kv, const int32_t *pairs, int num_pairs, bool out) {
  static const tri_op_plan plan;
  size_t at = 0;
  for (int i = 0; num_pairs && i < TRI_KV_GROUPS; i++) {
    const tri_kv_group *g = &kv->groups[i];
    if (!g->num_layers) continue;
    tri_move_blocks_args move = {.kv = kv->layers[g->first],
                                 .num_layers = g->num_layers,
                                 .layer_stride = g->stride,
                                 .host = (char *)kv->pool + at,
                                 .num_host_blocks = kv->num_host_blocks,
                                 .pairs = pairs,
                                 .num_pairs = num_pairs,
                                 .out = out,
                                 .num_turns = kv->num_turns,
                                 .turn = kv->turn};
    kv->backend->ops.move_blocks_launch(kv->backend, &plan, &move);
    at += g->stride / (size_t)kv->num_blocks * (size_t)g->num_layers * (size_t)kv->num_host_blocks;
  }
}

static int smaller(int a, int b) { return a < b ? a : b; }

/* The shortest of a few rounds, the first of which touches the pool's pages.
 *
 * Both ways are in each round; whatever else the machine does only adds to one. */
tri_status tri_kv_cache_measure(const tri_kv_cache *kv, double *block_seconds) {
  enum { BLOCKS = 64, ROUNDS = 4 };
  int32_t pairs[2 * BLOCKS];
  int n = smaller(BLOCKS, smaller(kv->num_blocks, kv->num_host_blocks));
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < n; i++) pairs[2 * i] = pairs[2 * i + 1] = i;
  for (int round = 0; round < ROUNDS; round++) {
    int64_t start = tri_now_ns();
    tri_kv_cache_move(kv, pairs, n, true);
    tri_kv_cache_move(kv, pairs, n, false);
    TRI_CHECK(kv->backend->ops.stream_sync(kv->backend));
    int64_t ns = tri_now_ns() - start;
    if (ns < shortest) shortest = ns;
  }
  *block_seconds = (double)shortest * 1e-9 / n;
  return TRI_OK;
}

void tri_kv_cache_destroy(tri_kv_cache *kv) {
  if (!kv) return;
  if (kv->pool) kv->backend->ops.host_free(kv->backend, kv->pool, kv->pool_bytes);
  if (kv->memory) kv->backend->ops.mem_free(kv->backend, TRI_MEM_KV, kv->memory, kv->bytes);
  tri_free(kv->layers);
  tri_free(kv);
}
