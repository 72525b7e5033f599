/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a replica's steps: what was asked for, what each rank has memory for, and what they agree on.
 *
 * Three rounds: each rank makes a ledger for its own memory (set_own); where weights are streamed and the step's size
 * was left open, all look for the step that hides them (enlarge_step); then the least of all ranks counts
 * (agree_limits), as plans are made for all alike. */
#include <stdio.h>

#include "base/log.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/ledger_refusal.h"
#include "runtime/step/limits.h"

/* ---- a rank's own limits ---- */

tri_dtype tri_engine_kv_dtype(const tri_engine *e, const tri_engine_config *config) {
  return tri_kv_dtype(&e->model, config->kv_dtype, config->dtype, e->backend->narrows_inputs);
}

static tri_ledger_config ledger_config(const tri_engine *e, const tri_engine_config *config) {
  tri_ledger_config lc = {.dtype = config->dtype,
                          .kv_dtype = tri_engine_kv_dtype(e, config),
                          .quantization = e->quantization,
                          .kv_bytes = config->kv_bytes,
                          .num_kv_blocks = config->num_kv_blocks,
                          .device = !e->backend->host_memory,
                          .memory = e->backend->ops.mem_available(e->backend),
                          .deterministic = e->backend->deterministic,
                          .offload = &config->offload};
  if (e->backend->host_memory && config->local_ranks) lc.memory /= config->local_ranks;
  return lc;
}

static tri_status make_limits(tri_engine *e, const tri_engine_config *config, int step_tokens, tri_error *err) {
  tri_limits_config limits = {.max_num_seqs = config->max_num_seqs,
                              .max_num_batched_tokens = step_tokens,
                              .block_size = config->block_size,
                              .max_model_len = config->max_model_len,
                              .device = !e->backend->host_memory,
                              .host_experts = e->shard.p.host_experts > 0};
  TRI_CHECK(tri_limits_make(&e->model, &limits, &e->limits, err));
  e->limits.all2all_rows = config->all2all_rows;
  e->limits.prefix_caching = config->prefix_caching && !e->limits.whole_sequences && !e->limits.has_source;
  /* An observer may ask for the logits of every token. */
  e->limits.max_num_logits = config->observer.logits ? e->limits.max_num_batched_tokens : e->limits.max_num_seqs;
  return TRI_OK;
}

static tri_status make_ledger(tri_engine *e, const tri_ledger_config *lc, tri_error *err) {
  TRI_CHECK(tri_ledger_make(&e->model, &e->shard, e->ckpt, &e->limits, e->num_micro_batches, lc, &e->ledger, err));
  e->limits.num_blocks = (int)e->ledger.num_blocks;
  e->limits.num_host_blocks = (int)e->ledger.num_host_blocks;
  e->limits.chunk_tokens = e->ledger.chunk_tokens;
  return TRI_OK;
}

static tri_status set_own(tri_engine *e, const tri_engine_config *config, const tri_ledger_config *lc, tri_error *err) {
  TRI_CHECK(make_limits(e, config, config->max_num_batched_tokens, err));
  if (tri_limits_stretch(&e->model, &e->limits) && e->replica->world->rank == 0)
    tri_log(TRI_LOG_WARN, "engine", "max_model_len %d exceeds the model's %lld positions", e->limits.max_model_len,
            (long long)e->model.max_position_embeddings);
  int sharing = config->local_ranks ? config->local_ranks : 1;
  tri_status st = make_ledger(e, lc, err);
  if (st != TRI_OK && err) tri_ledger_explain(&e->model, &e->shard, e->ckpt, &e->limits, e->num_micro_batches, lc, err);
  if (st != TRI_OK) return st;
  /* Here, while no rank of this host has taken anything. */
  if (e->ledger.host_experts) TRI_CHECK(tri_offload_check_host_experts(e->ledger.host_experts, sharing, err));
  if (!lc->device || !e->ledger.host_kv) return TRI_OK; /* it is counted, or there is none */
  return tri_offload_check_host_kv(&config->offload, sharing, err);
}

/* ---- the step of streamed weights ---- */

/* Returns the tokens of a step that hide this rank's streamed weights, 0: unknown. What is measured for them is
 * not yet known of this start, so that it goes by what was measured before or takes a moment. */
static int find_hiding(const tri_engine *e, const tri_engine_config *config) {
  int chunk = e->ledger.chunk_tokens, most = chunk ? chunk * TRI_MAX_CHUNKS : e->limits.max_num_batched_tokens;
  if (!config->hiding_tokens || !e->ledger.streams || e->shard.p.host_experts) return 0;
  return (int)config->hiding_tokens(config->hiding_ctx, e, most);
}

/* Finds the smallest and the largest of all ranks' counts. */
static tri_status compare_counts(tri_engine *e, int own, int *least, int *most, tri_error *err) {
  int32_t mine = own, *all;
  TRI_CHECK(tri_engine_gather(e->replica, &mine, sizeof mine, (void **)&all, err));
  *least = *most = own;
  for (int r = 0; r < e->replica->world->size; r++) {
    if (all[r] < *least) *least = all[r];
    if (all[r] > *most) *most = all[r];
  }
  tri_free(all);
  return TRI_OK;
}

/* Says why a step has no more tokens than usual, where its weights come whatever their number is. */
static void tell_whole(const tri_engine *e) {
  const char *why = "norms after the residual additions on a GPU";
  if (e->replica->world->rank || !e->ledger.streams || e->ledger.chunk_tokens) return;
  if (tri_dp_ranks_exchange(&e->model, e->shard.p)) why = "several data-parallel ranks";
  tri_log(TRI_LOG_INFO, "engine", "weights are streamed: steps are not split, and have up to %d tokens, because of %s",
          e->limits.max_num_batched_tokens, why);
}

/* Has a step so many tokens that products take as long as the slowest rank's pass of its weights, as far as all ranks
 * have memory for it. */
static tri_status enlarge_step(tri_engine *e, const tri_engine_config *config, const tri_ledger_config *lc,
                               tri_error *err) {
  int usual = e->limits.max_num_batched_tokens, least, wanted, step, most;
  if (config->max_num_batched_tokens) return TRI_OK;
  int hiding = find_hiding(e, config);
  int own_wanted = tri_offload_step_tokens(hiding, usual, e->ledger.chunk_tokens, e->ledger.kv_tokens);
  TRI_CHECK(compare_counts(e, hiding, &least, &e->hiding_tokens, err));
  TRI_CHECK(compare_counts(e, own_wanted, &least, &wanted, err));
  if (wanted <= usual) return TRI_OK;
  int own =
      tri_ledger_step_tokens(&e->model, &e->shard, e->ckpt, &e->limits, e->num_micro_batches, lc, &e->ledger, wanted);
  TRI_CHECK(compare_counts(e, own, &step, &most, err));
  if (e->replica->world->rank == 0)
    tri_log(TRI_LOG_INFO, "engine",
            "weights are streamed: to hide them, a step wants %d tokens; it has %d (%d are usual), as memory allows",
            wanted, step, usual);
  if (step <= usual) return TRI_OK;
  tri_status st = make_limits(e, config, step, err);
  if (st == TRI_OK) st = make_ledger(e, lc, err);
  return tri_engine_agree(e->replica, st, err);
}

/* ---- the replica's ---- */

/* Limits that each rank finds by its own memory, and all must have alike. */
struct rank_limits {
  int32_t blocks, host_blocks, chunk_tokens, streams;
  uint64_t block_bytes;
};

/* Has blocks numbered by the leader for all: the smallest counts. Where any rank streams weights, all go through the
 * layers in the smallest of its chunks, since each chunk has sums of its own, and none records steps or runs ahead.
 * first_streaming: the first rank that streams; -1: none. */
static tri_status agree_limits(tri_engine *e, int *first_streaming, tri_error *err) {
  struct rank_limits own = {e->limits.num_blocks, e->limits.num_host_blocks, e->limits.chunk_tokens, e->ledger.streams,
                            e->ledger.block_bytes},
                     *all;
  uint64_t bytes = 0;
  TRI_CHECK(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  *first_streaming = -1;
  for (int r = 0; r < e->replica->world->size; r++) {
    if (all[r].streams && *first_streaming < 0) *first_streaming = r;
    int chunk = all[r].chunk_tokens;
    if (all[r].blocks < e->limits.num_blocks) e->limits.num_blocks = all[r].blocks;
    if (all[r].host_blocks < e->limits.num_host_blocks) e->limits.num_host_blocks = all[r].host_blocks;
    bytes += all[r].block_bytes;
    if (chunk && (!e->limits.chunk_tokens || chunk < e->limits.chunk_tokens)) e->limits.chunk_tokens = chunk;
    e->replica_streams |= all[r].streams != 0;
  }
  e->shard_block_bytes = bytes / (uint64_t)tri_parallel_dp(e->shard.p);
  tri_free(all);
  return TRI_OK;
}

/* Warns where weights leave although that was not asked for: each step takes as long as they take to come. */
static void warn_streams(const tri_engine *e, const tri_ledger_config *lc) {
  char shorter[80] = "";
  int longest = tri_ledger_longest(&e->model, &e->shard, e->ckpt, &e->limits, e->num_micro_batches, lc,
                                   e->limits.max_model_len - 1, true);
  if (longest)
    snprintf(shorter, sizeof shorter, "--max-model-len %d keeps all weights of this rank in memory, ", longest);
  tri_log(TRI_LOG_WARN, "engine",
          "weights do not fit next to the KV cache of one sequence of max_model_len %d, and are streamed: this rank "
          "reads %.1f MiB in every step; %s--offload-weights none refuses such a start",
          e->limits.max_model_len, (double)e->ledger.streamed / 0x1p20, shorter);
}

tri_status tri_engine_set_limits(tri_engine *e, const tri_engine_config *config, tri_error *err) {
  tri_ledger_config lc = ledger_config(e, config);
  TRI_CHECK(tri_engine_agree(e->replica, set_own(e, config, &lc, err), err));
  TRI_CHECK(enlarge_step(e, config, &lc, err));
  tell_whole(e);
  if (e->hiding_tokens > e->limits.max_num_batched_tokens) e->hiding_tokens = e->limits.max_num_batched_tokens;
  int first_streaming;
  TRI_CHECK(agree_limits(e, &first_streaming, err));
  if (e->replica->world->rank == first_streaming && !tri_offload_is_asked(&config->offload, lc.device))
    warn_streams(e, &lc);
  return TRI_OK;
}
