/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/agreement.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

/* Without them ranks would wait for each other in different operations, or compute different models. */
#define OPTIONS(X)                                                                                                     \
  X(tp, "tensor-parallel-size")                                                                                        \
  X(pp, "pipeline-parallel-size")                                                                                      \
  X(dp, "data-parallel-size")                                                                                          \
  X(ep, "expert-parallel-size")                                                                                        \
  X(enable_expert_parallel, "enable-expert-parallel")                                                                  \
  X(moe_tp, "moe-tensor-parallel-size")                                                                                \
  X(enable_eplb, "enable-eplb")                                                                                        \
  X(all2all_backend, "all2all-backend")                                                                                \
  X(dtype, "dtype")                                                                                                    \
  X(kv_cache_dtype, "kv-cache-dtype")                                                                                  \
  X(quantization, "quantization")                                                                                      \
  X(load_format, "load-format")                                                                                        \
  X(max_model_len, "max-model-len")                                                                                    \
  X(max_num_seqs, "max-num-seqs")                                                                                      \
  X(max_num_batched_tokens, "max-num-batched-tokens")                                                                  \
  X(block_size, "block-size")                                                                                          \
  X(enable_prefix_caching, "enable-prefix-caching")                                                                    \
  X(deterministic, "deterministic")                                                                                    \
  X(pooling, "pooling")

static const char *const names[] = {
#define X(member, name) name,
    OPTIONS(X)
#undef X
        "ignore-config-key",
};
enum { NUM_OPTIONS = sizeof names / sizeof *names };

/* Fails with the first option in which a rank differs from rank 0. Every rank has all values and compares in the same
 * order, so all come to the same sentence without another message. */
static tri_status compare(const int64_t *all, int ranks, tri_error *err) {
  for (int r = 1; r < ranks; r++)
    for (int i = 0; i < NUM_OPTIONS; i++) {
      long long first = all[i], other = all[(size_t)r * NUM_OPTIONS + (size_t)i];
      if (first != other)
        return tri_fail(err, TRI_INVALID_ARGUMENT, names[i],
                        "rank %d was started with another --%s than rank 0 (%lld, not %lld): all ranks of a replica "
                        "must have the same",
                        r, names[i], other, first);
    }
  return TRI_OK;
}

/* Returns a number by which lists of names differ. */
static int64_t list_hash(const tri_opt_list *list) {
  uint64_t h = TRI_HASH_SEED;
  for (size_t i = 0; i < list->count; i++) h = tri_hash_bytes(h, list->items[i], strlen(list->items[i]) + 1);
  return (int64_t)h;
}

tri_status tri_agree_on_options(const tri_serve_options *o, tri_comm *world, tri_error *err) {
  const int64_t own[] = {
#define X(member, name) (int64_t) o->member,
      OPTIONS(X)
#undef X
          list_hash(&o->ignore_config_key),
  };
  if (world->size == 1) return TRI_OK;
  int64_t *all = tri_calloc((size_t)world->size, sizeof own);
  tri_status st = tri_comm_agree(world, all ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK) st = tri_comm_all_gather(world, own, all, sizeof own);
  st = st == TRI_OK ? compare(all, world->size, err)
                    : tri_fail(err, st, "comm", "the replica's ranks cannot reach each other: %s", tri_status_text(st));
  tri_free(all);
  return st;
}

tri_status tri_agree_on_weights(uint64_t hash, tri_comm *world, tri_error *err) {
  if (world->size == 1) return TRI_OK;
  uint64_t *all = tri_calloc((size_t)world->size, sizeof *all);
  tri_status st = tri_comm_agree(world, all ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK) st = tri_comm_all_gather(world, &hash, all, sizeof hash);
  if (st != TRI_OK) tri_fail(err, st, "comm", "the replica's ranks cannot reach each other: %s", tri_status_text(st));
  for (int r = 1; st == TRI_OK && r < world->size; r++)
    if (all[r] && all[0] && all[r] != all[0])
      st = tri_fail(err, TRI_INVALID_ARGUMENT, "model",
                    "rank %d finds other weights on its host than rank 0 (hash %016llx, not %016llx): all hosts of a "
                    "replica must have copies of the same files",
                    r, (unsigned long long)all[r], (unsigned long long)all[0]);
  tri_free(all);
  return st;
}
