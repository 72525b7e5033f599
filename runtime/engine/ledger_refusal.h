/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger that was refused: what would fit instead. */
#ifndef TRI_RUNTIME_ENGINE_LEDGER_REFUSAL_H
#define TRI_RUNTIME_ENGINE_LEDGER_REFUSAL_H

#include "runtime/engine/ledger.h"

/* Returns the largest max_model_len, up to `most`, for which a rank has room; 0: none. resident: with all weights in
 * memory; else as the config has it. */
int tri_ledger_longest(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                       const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config, int most,
                       bool resident);

/* Limits and options with which what was refused would fit. */
typedef struct tri_ledger_advice {
  int longest;        /* max_model_len that fits as the config has it; 0: none */
  int resident;       /* that fits with all weights in memory; 0: none */
  bool int8;          /* int8 weights fit */
  int batched_tokens; /* max_num_batched_tokens with which it fits; 0: it is no help */
  bool streaming;     /* streamed weights fit */
} tri_ledger_advice;

/* Adds it to a refusal. With the greatest numbers that still fits into a tri_error (tests/unit/test_ledger.c). */
void tri_ledger_advise(const tri_ledger_advice *a, tri_error *err);

/* Adds to the refusal of tri_ledger_make what fits instead: the longest max_model_len, with weights streamed and with
 * all in memory, and the options with which what was asked for would fit. Other errors stay as they are. */
void tri_ledger_explain(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                        const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                        tri_error *err);

#endif
