/* SPDX-License-Identifier: Apache-2.0 */
/* Tactics of products on backends that have several: what is stored, and what is measured before the first step. */
#ifndef TRI_RUNTIME_FORWARD_TUNE_H
#define TRI_RUNTIME_FORWARD_TUNE_H

#include "runtime/forward/forward.h"

/* Numbers of rows for which products are measured, in rising order; returns how many there are. They are those that
 * tri_padded_rows gives (of encoders from 16 on), up to the largest step's, and what steps of single tokens are padded
 * to at most. */
enum { TRI_TUNE_SIZES = 64 };
int tri_tune_sizes(const tri_limits *limits, bool encoder, int out[TRI_TUNE_SIZES]);

/* Fills the backend's tactics: with what rank 0 finds in its files and, with `measure`, with what tensor rank 0 of each
 * stage measures of shapes that those lack; rank 0 puts that into the user's file. Every rank of the replica gets the
 * same. Does nothing on backends without tactics. Collective, and before anything else uses the backend's products. */
tri_status tri_tune(const tri_forward_config *config, bool measure, tri_error *err);

#endif
