/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of modelcheck share. */
#ifndef TRI_TESTS_MODELCHECK_MODELCHECK_H
#define TRI_TESTS_MODELCHECK_MODELCHECK_H

#include "runtime/engine/engine.h"

enum { MAX_PROMPTS = 16, MAX_GREEDY = 64, MAX_ROWS = 4096, MC_SEARCHES = 3 };

struct mc_args {
  int tp, pp, dp, ep, all2all, all2all_rows, threads, chunk, block_size;
  const char *backend;
  int dtype, kv_dtype, quantization, pooling, replays;
  int offload, gpu_layers, ring_parts, chunk_tokens, max_in_cpu, n_cpu_moe, hot_experts;
  const char *nvme_path;
  bool deterministic, bf16_sums, move_experts, cpu_moe;
  int expert_strategy, num_redundant_experts;
  const char *expert_location;
  double limit;
};

/* What the reference answered. */
struct mc_expected {
  tri_checkpoint *file;
  int num_prompts, num_greedy;
  int len[MAX_PROMPTS];
  int first[MAX_PROMPTS];    /* tokens of each prompt that are looked at, as far as a sequence may be long, */
  int compared[MAX_PROMPTS]; /* and greedy ones after it */
  int64_t *prompt[MAX_PROMPTS], *greedy[MAX_PROMPTS];
  double own_error; /* of the reference in float32 against itself in float64, the worst of all prompts; 0: not stored */
};

/* What rounding.json says of the type that is checked: the worst of all prompts. */
struct mc_rounding {
  bool known;
  const char *type;
  double nmse, hidden; /* the reference's errors; nmse -1: it overflowed */
  double max_abs;      /* the most that a logit moves */
  int missed;          /* beam searches that end elsewhere */
  int num_close;
  struct mc_close {
    int prompt, step;
    uint32_t token;
    double gap; /* to the greedy token's logit in float32 */
  } * close;
};

/* What a rank keeps for the comparison. */
struct mc_trace {
  const tri_engine *e;
  bool looks;
  bool on; /* prompt 0 is being fed */
  int row;
  float *hidden; /* [layers + 1][T0][H] */
  float *logits; /* [T][V] of the prompt at hand */
  int logit_row;
  float *encoder_hidden, *pooled, *scores; /* an encoder's results of the last step, MAX_ROWS rows each */
};

struct mc_check {
  struct mc_args a;
  bool rounds; /* weights are rounded: answers differ */
  const char *dir;
  int local_rank;
  tri_replica replica;
  tri_comm *shard; /* the ranks of this shard, rank 0 of which leads it; of one shard, the group's */
  tri_backend *backend;
  tri_engine *engine;
  struct mc_expected exp;
  struct mc_rounding rounding;
  struct mc_trace trace;
  tri_plan_writer *writer;
  uint64_t step, moves; /* moves: a seed */
  char *plan;
  size_t plan_cap;
  uint64_t bits;    /* a hash of all prompts' logits, */
  uint64_t sampled; /* and of what all decodes sampled */
};

/* n numbers out of the backend's memory. */
void mc_fetch(const struct mc_trace *t, float *to, const float *from, size_t n);
/* NULL where there is none; the caller frees it. */
void *mc_read_tensor(const struct mc_expected *x, const char *name, const tri_st_tensor **info);
/* Every rank runs its shard's leader's plan, which add has filled; that leader gets what was sampled. */
void mc_begin_step(struct mc_check *c);
void mc_add(struct mc_check *c, int slot, tri_seq_kind kind, int flags, int start, int n, const uint32_t *ids,
            int rope_len);
tri_status mc_run_step(struct mc_check *c, tri_step_result *result);
double mc_nmse(const float *got, const float *want, size_t n);
/* The leader needs what other ranks saw. */
tri_status mc_collect(struct mc_check *c, int from, float *data, size_t count);
tri_status mc_compare_hidden(struct mc_check *c, double *worst);

/* Feeds prompt i; *token is the first greedy one. */
tri_status mc_feed_prompt(struct mc_check *c, int i, uint32_t *token);
/* All sequences decode together, unobserved, so that a backend may record and replay the steps. tokens: the first of
 * each prompt, and afterwards the others. */
tri_status mc_decode(struct mc_check *c, uint32_t tokens[][MAX_GREEDY]);

/* replays.c: *right false where a decode step, of --replays of them, does not give the bits of the first time. Every
 * rank calls it. */
tri_status mc_replay(struct mc_check *c, bool *right);
/* encoders.c */
tri_status mc_encoder_prepare(struct mc_check *c, const tri_model_config *model);
void mc_see_encoder_output(void *ctx, const tri_encoder_output *e);
tri_status mc_check_encoder(struct mc_check *c, bool *right);
/* seq2seq.c */
tri_status mc_check_seq2seq(struct mc_check *c, bool *right);
/* reads.c: *right false where streamed weights were not read as often as they should be. Every rank calls it. */
tri_status mc_check_reads(struct mc_check *c, bool *right);
/* rounding.c */
/* Without such a file, or where something else is asked for, the limits are those by type. */
tri_status mc_rounding_read(struct mc_check *c, bool seq2seq, tri_error *err);
double mc_limit(const struct mc_check *c);
bool mc_hidden_right(const struct mc_check *c, double worst); /* of the states between layers */
/* Whether a prompt's greedy tokens may be ours, of which the first `same` are the reference's and the next is `token`;
 * says what it finds where they differ. */
bool mc_greedy_right(const struct mc_check *c, int prompt, int same, uint32_t token);
bool mc_beams_right(const struct mc_check *c, int missed);

#endif
