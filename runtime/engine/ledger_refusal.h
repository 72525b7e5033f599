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

/* Adds to the refusal of tri_ledger_make what fits instead: the longest max_model_len, with weights streamed and with
 * all in memory, and the options with which what was asked for would fit. Other errors stay as they are. */
void tri_ledger_explain(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                        const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                        tri_error *err);

#endif
