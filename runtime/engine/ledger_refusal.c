/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/ledger_refusal.h"

#include <string.h>

/* The arguments of tri_ledger_make, of which trials change one. */
struct trial {
  const tri_model_config *c;
  const tri_shard *s;
  const tri_checkpoint *ckpt;
  tri_limits limits;
  int num_micro_batches;
  tri_ledger_config config;
};

/* Making a ledger takes little: what would fit is found by trying, without a second set of formulas. */
static bool fits(const struct trial *t) {
  tri_ledger l;
  tri_error ignored = {0};
  return tri_ledger_make(t->c, t->s, t->ckpt, &t->limits, t->num_micro_batches, &t->config, &l, &ignored) == TRI_OK;
}

static bool fits_with_len(const struct trial *t, int len) {
  struct trial shorter = *t;
  shorter.limits.max_model_len = len;
  return fits(&shorter);
}

/* Finds it by bisection: a shorter sequence never needs more memory. */
static int find_longest(const struct trial *t, int most) {
  int longest = 0, beyond = most;
  if (most <= 0 || fits_with_len(t, most)) return most > 0 ? most : 0;
  while (longest + 1 < beyond) {
    int at = longest + (beyond - longest) / 2;
    if (fits_with_len(t, at))
      longest = at;
    else
      beyond = at;
  }
  return longest;
}

/* Has all weights stay: sets *stays, which must live as long as the trial. */
static void keep_all(struct trial *t, tri_offload_config *stays) {
  if (!t->config.offload) return;
  *stays = *t->config.offload;
  stays->tier = TRI_OFFLOAD_NONE;
  t->config.offload = stays;
}

int tri_ledger_longest(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                       const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config, int most,
                       bool resident) {
  struct trial t = {c, s, ckpt, *limits, num_micro_batches, *config};
  tri_offload_config stays;
  if (resident) keep_all(&t, &stays);
  return find_longest(&t, most);
}

static void find_lengths(const struct trial *t, tri_ledger_advice *a) {
  struct trial resident = *t;
  tri_offload_config stays;
  int most = t->limits.max_model_len - 1;
  a->longest = find_longest(t, most);
  keep_all(&resident, &stays);
  a->resident = find_longest(&resident, most);
}

/* Tries each option alone, on top of what was asked for. */
static void find_options(const struct trial *t, tri_ledger_advice *a) {
  enum { FEW_TOKENS = 2048, FEW_HOST_TOKENS = 256 };
  tri_offload_config streams;
  int tokens = t->config.device ? FEW_TOKENS : FEW_HOST_TOKENS;
  struct trial other = *t;
  other.config.quantization = TRI_QUANTIZE_INT8;
  a->int8 = t->config.quantization == TRI_QUANTIZE_NONE && fits(&other);
  other = *t;
  other.limits.max_num_batched_tokens = tokens > t->limits.max_num_seqs ? tokens : t->limits.max_num_seqs;
  if (other.limits.max_num_batched_tokens < t->limits.max_num_batched_tokens && fits(&other))
    a->batched_tokens = other.limits.max_num_batched_tokens;
  other = *t;
  if (t->config.offload && t->config.offload->tier == TRI_OFFLOAD_NONE) {
    streams = *t->config.offload;
    streams.tier = TRI_OFFLOAD_AUTO;
    other.config.offload = &streams;
    a->streaming = fits(&other);
  }
}

static void name_lengths(const tri_ledger_advice *a, tri_error *err) {
  bool streamed_too = a->resident && a->resident < a->longest;
  int first = streamed_too ? a->resident : a->longest;
  if (!a->longest) {
    tri_error_add(err, "; no max_model_len fits: give ");
    return;
  }
  tri_error_add(err, "; the longest max_model_len that fits with %s is %d",
                a->resident ? "all weights in memory" : "weights streamed", first);
  if (streamed_too) tri_error_add(err, " (%d with weights streamed)", a->longest);
  tri_error_add(err, ": give --max-model-len %d", first);
  if (streamed_too) tri_error_add(err, " or %d", a->longest);
  tri_error_add(err, ", ");
}

void tri_ledger_advise(const tri_ledger_advice *a, tri_error *err) {
  name_lengths(a, err);
  if (a->int8) tri_error_add(err, "--quantization int8, ");
  if (a->batched_tokens) tri_error_add(err, "--max-num-batched-tokens %d, ", a->batched_tokens);
  if (a->streaming) tri_error_add(err, "--offload-weights auto (weights are streamed), ");
  tri_error_add(err, "more ranks (-tp, -pp) or more memory");
}

void tri_ledger_explain(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                        const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                        tri_error *err) {
  struct trial t = {c, s, ckpt, *limits, num_micro_batches, *config};
  if (err->status != TRI_NO_CAPACITY || strcmp(err->field, "memory")) return;
  tri_ledger_advice a = {0};
  find_lengths(&t, &a);
  find_options(&t, &a);
  tri_ledger_advise(&a, err);
}
