/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a request against the limits of a replica. The coordinator runs it before it assigns a job, with the
 * limits that the replica's leader has registered; the leader runs it again on what arrives, with all of its own. */
#ifndef TRI_COMM_WIRE_JOB_LIMITS_H
#define TRI_COMM_WIRE_JOB_LIMITS_H

#include "comm/wire/client.h"

/* How a model uses the tokens of a request. */
typedef enum tri_prompt_use {
  TRI_PROMPT_CONTINUED, /* a decoder: the answer comes after them, in the same sequence */
  TRI_PROMPT_SOURCE, /* an encoder-decoder: they are computed whole in one step, the answer is a sequence of its own */
  TRI_PROMPT_WHOLE,  /* an encoder: they are computed whole in one step, and there is no answer in tokens */
} tri_prompt_use;

typedef struct tri_job_limits {
  tri_prompt_use use;
  uint64_t max_model_len, max_num_seqs, vocab_size;
  uint64_t kv_tokens;              /* tokens that the KV cache holds */
  uint64_t max_num_batched_tokens; /* 0: not known here, and not checked */
  uint64_t num_start;              /* of a TRI_PROMPT_SOURCE: tokens that begin every answer */
  uint64_t num_types;              /* of tokens, where the model tells them apart */
  const uint32_t *eos, *bad;       /* ids that end an answer, and those that the model forbids */
  int num_eos, num_bad;
} tri_job_limits;

/* Borrowed. */
typedef struct tri_job_request {
  const uint32_t *token_ids;
  size_t num_token_ids;
  uint64_t second_start; /* number of the first token of a second text, counted from 1; 0: none */
  const tri_sampling *sampling;
} tri_job_request;

/* Checks that there are tokens, that every id that the request names is one of the vocabulary's, and that something is
 * left that may be sampled. */
tri_status tri_job_check_tokens(const tri_job_limits *l, const tri_job_request *r, tri_error *err);
/* Checks that the request fits into the replica. TRI_NO_CAPACITY with the field, the numbers and the limit: its tokens
 * never will. TRI_OUT_OF_RANGE: more sequences than the replica has. */
tri_status tri_job_check_fit(const tri_job_limits *l, const tri_job_request *r, tri_error *err);

#endif
