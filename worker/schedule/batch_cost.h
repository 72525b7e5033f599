/* SPDX-License-Identifier: Apache-2.0 */
/* The cost table of an encoder's batches: seconds of a step by the length of its sequences and their number, as
 * TurboTransformers' batch scheduler has it (Fang et al. 2021, section 5: cached_cost). It is measured at the start,
 * kept on disk, and refined by the steps that are served.
 *
 * Pure arithmetic: no clock, no file. */
#ifndef TRI_WORKER_SCHEDULE_BATCH_COST_H
#define TRI_WORKER_SCHEDULE_BATCH_COST_H

#include <stdbool.h>
#include <stddef.h>

enum { TRI_BATCH_LENGTHS = 20, TRI_BATCH_SIZES = 14 };

/* Cells are of batches of sizes[j] sequences with lengths[i] tokens each. Steps of more than max_tokens do not come. */
typedef struct tri_batch_cost {
  int num_lengths, num_sizes, max_tokens;
  int lengths[TRI_BATCH_LENGTHS], sizes[TRI_BATCH_SIZES]; /* ascending: powers of two, and the largest */
  double measured[TRI_BATCH_LENGTHS][TRI_BATCH_SIZES];    /* seconds; 0: not measured */
  double seconds[TRI_BATCH_LENGTHS][TRI_BATCH_SIZES];     /* with what follows for the others; never less for more */
} tri_batch_cost;

/* Makes a table without a measurement, in which a token costs a microsecond, for sequences of up to max_len tokens and
 * steps of up to so many sequences and tokens. */
void tri_batch_cost_init(tri_batch_cost *c, int max_len, int max_seqs, int max_tokens);

/* Returns whether steps of a cell can come. */
static inline bool tri_batch_cost_has(const tri_batch_cost *c, int length, int size) {
  return c->lengths[length] <= c->max_tokens / c->sizes[size];
}

/* Fills in `seconds`: what was not measured costs what the nearest smaller batch of that length costs, by its tokens,
 * or what the next shorter sequences cost, likewise. */
void tri_batch_cost_complete(tri_batch_cost *c);

/* Returns the seconds of a padded batch: so many sequences that are each as long as the longest. Between cells by
 * straight lines, beyond them by tokens. */
double tri_batch_cost_padded(const tri_batch_cost *c, double length, double size);

/* Moves the cells around a batch towards what it took, by an eighth of the difference: steps of a shared machine vary.
 * False: it was left out, as no number or more than 16 times off. */
bool tri_batch_cost_observe(tri_batch_cost *c, double length, double size, double seconds);

/* Returns the fewest tokens of a step at which a token costs at most 3% more than at best, whatever the length of the
 * sequences: larger steps make answers late and gain nothing. Never below the longest sequence. */
int tri_batch_cost_enough_tokens(const tri_batch_cost *c);

#endif
