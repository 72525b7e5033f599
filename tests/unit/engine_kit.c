/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine_kit.h"

#include <check.h>
#include <stdio.h>

enum { TARGETS = 3 };
static const int lengths[KIT_SEQS] = {5, 1, 9};

const tri_sample_params kit_params = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};

bool make_kit(struct kit *k, const kit_config *config) {
  char dir[512];
  tri_error err = {0};
  int most = config->max_model_len ? config->max_model_len : 16;
  tri_backend_config bc = {.name = config->backend};
  tri_parallel p = config->p;
  snprintf(dir, sizeof dir, "%s/checkpoints/%s", TRI_TEST_DATA, config->checkpoint);
  int dp = tri_parallel_dp(p), stage = tri_parallel_stage_size(p), own = tri_parallel_stage_rank(p);
  *k = (struct kit){.world = {.ops = config->ops, .rank = p.pp_rank * stage + own, .size = stage * p.pp},
                    .tensor = {.ops = config->ops, .rank = p.tp_rank, .size = p.tp},
                    .column = {.ops = config->ops, .rank = p.dp_rank, .size = dp},
                    .stage = {.ops = config->ops, .rank = own, .size = stage}};
  k->replica = (tri_replica){.p = p, .world = &k->world, .tensor = &k->tensor};
  if (dp > 1) k->replica.column = &k->column;
  if (dp > 1) k->replica.stage = &k->stage;
  k->stage.cfg.deterministic = config->deterministic;
  ck_assert_int_eq(tri_backend_create(&bc, &k->be, &err), TRI_OK);
  k->be->narrow_activations = config->narrow;
  k->be->adds_in_place_from = 0; /* a record has the other way's buffers */
  if (config->prepare) config->prepare(k->be);
  tri_engine_config ec = {.model_dir = dir,
                          .load_format = TRI_LOAD_DUMMY,
                          .dtype = config->narrow ? TRI_BF16 : TRI_F32,
                          .kv_dtype = TRI_F32,
                          .max_num_seqs = KIT_SEQS,
                          .max_num_batched_tokens = 32,
                          .block_size = 16,
                          .max_model_len = most,
                          .num_kv_blocks = 4 * KIT_SEQS + most / 16,
                          .local_ranks = 1,
                          .encoders = true,
                          .quantization = config->quantization,
                          .all2all = config->all2all,
                          .all2all_rows = config->all2all_rows,
                          .pooling = config->pooling};
  tri_status st = tri_engine_create(&ec, k->be, &k->replica, &k->e, &err);
  if (st == TRI_UNSUPPORTED || st == TRI_NO_MEMORY) return false;
  ck_assert_msg(st == TRI_OK, "%s: %s", config->checkpoint, err.message);
  ck_assert_int_eq(tri_plan_writer_create(&(tri_plan_sizes){.seqs = 3 * KIT_SEQS, .ids = 64, .blocks = 32}, &k->w),
                   TRI_OK);
  return true;
}

void free_kit(struct kit *k) {
  tri_plan_writer_destroy(k->w);
  tri_engine_destroy(k->e);
  tri_backend_destroy(k->be);
}

void build_batch(struct kit *k, bool single) {
  static const uint32_t ids[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
  bool sources = k->e->source != NULL, draws = !k->e->limits.whole_sequences;
  tri_plan_view view;
  size_t bytes;
  tri_plan_begin(k->w, 0, 1);
  for (int i = 0; i < KIT_SEQS; i++) {
    int32_t block = i, own_block = KIT_SEQS + i;
    int n = sources ? TARGETS : lengths[i];
    tri_plan_seq source = {
        .slot = (uint32_t)i, .kind = TRI_SEQ_SOURCE, .num_tokens = (uint32_t)lengths[i], .num_blocks = 1};
    tri_plan_seq s = {.slot = (uint32_t)i,
                      .kind = TRI_SEQ_CHUNK,
                      .flags = (uint8_t)(TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS | (draws ? TRI_SEQ_FLAG_SAMPLE : 0)),
                      .num_tokens = single ? 1 : (uint32_t)n,
                      .num_blocks = 1};
    if (sources) tri_plan_add(k->w, &source, ids, &block, NULL, 0);
    tri_plan_add(k->w, &s, ids, &own_block, &kit_params, 0);
  }
  const void *plan = tri_plan_finish(k->w, &bytes);
  ck_assert_int_eq(tri_plan_read(plan, bytes, &view), TRI_OK);
  ck_assert_int_eq(tri_batch_build(k->e->batch, k->e->slots, &view), TRI_OK);
}
