/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of a layer with experts among the data-parallel ranks of a replica (DeepSpeed-Inference, Aminabadi et
 * al. 2022, section V.B): rows go to the ranks that have their experts, and their results are returned.
 *
 * The ranks of a pipeline stage are dp x tp, tensor rank fastest: stage rank s = d * tp + t. A data-parallel rank's
 * rows and their routing are the same on all of its tensor ranks. An expert lies in etp slices on the stage ranks
 * first_rank .. first_rank + etp - 1, all of one shard. A column is the ranks of equal t.
 *
 * Every form leaves the same after a dispatch: row d * stride + i is row i of data-parallel rank d, where stride is the
 * most rows that a data-parallel rank has. A rank has the tables (experts and weights) of all rows, and of the rows at
 * least those that one of its own experts is to compute. What it computes of them, weighted, it gives to combine: rows
 * without its experts are zero there. After a combine the sum of `out` over the tensor group is the layer's result,
 * whatever the form: the all-reduce that ends the branch completes it.
 *
 *   ALLGATHER    All rows go to the whole column; a reduce-scatter over it brings the results back. Nothing of it
 *                depends on what the tables say, so that libraries do it on device memory and no host waits for it.
 *   COORDINATED  (d, t) sends a row to those (d', t) alone that have one of its experts, and adds the results in the
 *                order of d'. Experts of other columns are their columns' to serve. On device memory the column's
 *                communicator does it, where that has dispatch and combine (kernels/expert_rows.h).
 *
 * Each of the tp columns moves all rows at once, O(dp) messages a rank instead of O(dp * tp), and needs none of the
 * paper's all-gather in the tensor group, whose ranks have the same rows already: tests/comm compares both, and a flat
 * all-to-all.
 *
 * Neither drops a row, nor adds in another order than that of ranks: a row's result depends on no other row. In the
 * host's memory both give the same numbers. On device memory COORDINATED rounds what each rank gives back to the type
 * of rows. */
#ifndef TRI_COMM_ALL2ALL_H
#define TRI_COMM_ALL2ALL_H

#include "comm/comm.h"

typedef enum tri_all2all_form { TRI_ALL2ALL_ALLGATHER, TRI_ALL2ALL_COORDINATED, TRI_ALL2ALL_FORMS } tri_all2all_form;

typedef struct tri_all2all_config {
  tri_comm *tensor, *column, *stage; /* of tp, dp and dp * tp ranks, ordered by t, d and d * tp + t; borrowed. Those of
                                        one rank may be NULL */
  int tp, dp, t, d;
  int max_rows;         /* of a data-parallel rank in one exchange */
  tri_backend *backend; /* in whose memory rows lie, by its compute stream; NULL: the host's */
  bool device;          /* the backend's memory is a device's, or would be: the backend may be NULL for the bytes */
  tri_dtype type;       /* of rows that are sent; results are float32. Other than float32: on device memory alone */
  int hidden;           /* elements of a row */
  int top_k;
  int num_experts, etp;      /* of experts that lie in slots, those: a row's are numbered as it names them */
  const int32_t *first_rank; /* [num_experts] stage rank of each expert's first slice; copied. A data-parallel rank has
                                all slices */
} tri_all2all_config;

typedef struct tri_all2all tri_all2all;

/* Bytes that an exchange of this configuration takes by itself, on every rank, those of the boxes in its column's
 * memory included, where there may be some: its positive numbers alone are looked at. False: they are too many to
 * count. */
bool tri_all2all_bytes(const tri_all2all_config *config, size_t *bytes);
/* Takes all of its memory here. TRI_TOO_LARGE: what a rank gives to one all-gather exceeds INT_MAX bytes. */
tri_status tri_all2all_create(const tri_all2all_config *config, tri_all2all **out, tri_error *err);
/* NULL is fine. Before its communicators; on device memory also after them, once nothing uses it there. */
void tri_all2all_destroy(tri_all2all *e);
/* Fills in what a column's communicator must have of rows to do COORDINATED on device memory. False: it has too many
 * ranks, or one of them has slots that are not neighbours. */
bool tri_all2all_rows_config(const tri_all2all_config *config, tri_rows_config *out);
/* This rank has what a form takes; the ranks of a stage must agree before they use it. */
bool tri_all2all_can(const tri_all2all *e, tri_all2all_form form);
/* Chooses the form of the exchanges that follow, which every rank of the stage can; all of them the same. COORDINATED
 * at first, in device memory ALLGATHER. */
void tri_all2all_use(tri_all2all *e, tri_all2all_form form);
/* Chooses whether rows of the dispatches that follow may travel rounded to FP8, as kernels/expert_rows.h has it; all of
 * the stage the same, at first not. For rows whose every reader rounds them so. They do by COORDINATED on device memory
 * where they are of BF16 and whole groups, and by no other way. */
void tri_all2all_round(tri_all2all *e, bool rounds);
const char *tri_all2all_form_name(tri_all2all_form form); /* "allgather", ... */

/* Rows of all data-parallel ranks in this exchange: rows[dp], the same on every rank; 0 is allowed, also of all of
 * them. x, experts, weights: this data-parallel rank's, rows[d] of them, contiguous. all: the caller's memory for the
 * rows that come together. All ranks of the stage call it. */
tri_status tri_all2all_dispatch(tri_all2all *e, const int32_t *rows, const void *x, const int32_t *experts,
                                const float *weights, const tri_all2all_rows *all);
/* The same of rows that have not been routed: `route` says how, and nothing is left in its tables. Only where
 * tri_all2all_routes says that a form can. */
bool tri_all2all_routes(const tri_all2all *e, tri_all2all_form form);
tri_status tri_all2all_route_and_dispatch(tri_all2all *e, const int32_t *rows, const void *x,
                                          const tri_moe_route_args *route, const tri_all2all_rows *all);
/* Follows the dispatch of the same rows, whose experts must be as that left them. y: [dp * stride, hidden],
 * this rank's weighted sums; out: [rows[d], hidden], added to with `accumulate` (TRI_UNSUPPORTED on device
 * memory). */
tri_status tri_all2all_combine(tri_all2all *e, const float *y, float *out, bool accumulate);

#endif
