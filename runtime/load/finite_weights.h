/* SPDX-License-Identifier: Apache-2.0 */
/* Looks for numbers that are not finite in a rank's weights: a token that goes through the model before it serves meets
 * one row of the embedding, one position and a few of the experts, and a damaged one elsewhere would show in answers
 * only. What stays is looked at when it has been loaded; what is streamed, part by part in the first step. */
#ifndef TRI_RUNTIME_LOAD_FINITE_WEIGHTS_H
#define TRI_RUNTIME_LOAD_FINITE_WEIGHTS_H

#include "runtime/load/weights.h"

/* Counts in what stays, on the device and on the host; layers: those of the shard. */
void tri_weights_count_resident(const tri_weights *w, int layers);
/* Counts in a streamed part (TRI_PART_ATTENTION, ..) of the shard's layer, which is in the ring until what the compute
 * stream has got so far is done. */
void tri_weights_count_part(const tri_weights *w, int layer, int half);

/* Waits for the counts. TRI_CORRUPT, with the first weight and the tensors that it comes from: something is not finite.
 * TRI_NO_MEMORY, or what the device says. */
tri_status tri_weights_check_counts(const tri_weights *w, const tri_model_config *c, const tri_shard *s,
                                    tri_error *err);

#endif
