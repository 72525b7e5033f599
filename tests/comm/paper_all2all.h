/* SPDX-License-Identifier: Apache-2.0 */
/* Two exchanges that the product's is compared with, on host memory: the same rows in the same order, other ways there.
 *
 *   PAPER  (d, t) has the t-th part of its shard's rows. It sends them along the column to the shards that have one of
 *          their experts; an all-gather in the tensor group completes them there. The results take the way back:
 *          reduce-scatter, column, and zeros for the rows of other parts (DeepSpeed-Inference, Aminabadi et al. 2022,
 *          section V.B: O(p / L) + O(L) instead of O(p) for p ranks and tensor parallelism of L).
 *   FLAT   (d, t) sends its part of the rows to every rank of the stage that has a slice of one of their experts. */
#ifndef TRI_TESTS_COMM_PAPER_ALL2ALL_H
#define TRI_TESTS_COMM_PAPER_ALL2ALL_H

#include "comm/all2all.h"

typedef struct paper_all2all paper_all2all;

/* The configuration is one of the host's memory, and is copied with what it points to. */
paper_all2all *paper_all2all_make(const tri_all2all_config *config);
void paper_all2all_free(paper_all2all *e);
/* These do what tri_all2all_dispatch and tri_all2all_combine do; flat: that way, else the paper's. */
tri_status paper_all2all_dispatch(paper_all2all *e, bool flat, const int32_t *rows, const float *x,
                                  const int32_t *experts, const float *weights, const tri_all2all_rows *all);
tri_status paper_all2all_combine(paper_all2all *e, const float *y, float *out, bool accumulate);

#endif
