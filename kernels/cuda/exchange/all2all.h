/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of experts' rows over the devices of one host, through memory that each of them lets the others write
 * to; kernels/expert_rows.h says what goes where. A header of C and CUDA.
 *
 * As in exchange/all_reduce.h there are no flags and no counts: what comes says by itself that it is there. Every place
 * of a device's boxes is filled with a word that no sender sends. A row has a place of its own in them, by its
 * data-parallel rank and its number there, and so has what each rank gives back of it: nothing can be full, and nothing
 * is packed. The receiver looks at a place until all words of its vectors are others, and fills them again.
 *
 *   tables   [2][source][row]  the row's choices, slot and weight; every row's go to the whole column
 *   rows     [2][source][row]  the row itself, where one of its slots is the receiver's: it knows that from the table
 *   results  [source][row]     what `source` gives back of the receiver's own row, where it has one of its slots
 *
 * A round is a `dispatch` and a `combine`. Some blocks of `dispatch` push tables and rows, and never wait; those after
 * them await the others', or a kernel that follows does, which may have a grid of any size. Of few rows each warp of
 * `combine` sends results first and then waits for its own, so that all of its blocks must be on the device at once; of
 * many rows the first blocks send and those after them wait, as in dispatch.
 *
 * Tables and rows have two halves, used in turn. A place of a half may be written to when what it had in the last round
 * but one has been read and it is filled again:
 *
 *   Who sends to a rank in round n + 2 has ended its `dispatch` of round n + 1, hence got a table that this rank sent
 *   in n + 1, which it does in a kernel after its `dispatch` and `combine` of round n. For that every pair of ranks
 *   speaks in every round: a data-parallel rank without rows sends the table of one row, which has no experts.
 *
 * Results need one half. Who gives a result back to a rank in round n + 1 has ended its own `dispatch` of n + 1, hence
 * got that rank's table of n + 1, which was sent after its `combine` of round n: that has read the place and filled it.
 *
 * Relaxed accesses are enough, for the reasons that exchange/all_reduce.h gives.
 *
 * A row that travels as e4m3 (kernels/expert_rows.h) takes the first part of the same place. All ranks know beforehand
 * how the rows of a round travel, so that the receiver awaits, and fills again, the vectors that its sender writes and
 * no others. Codes and scales are words like all others: each of them says by itself that it is there, in whatever
 * order they come, and `sendable` keeps the empty one from being sent. The sender writes all four words of a vector of
 * scales, zeros after the last scale, and the receiver awaits all four before it fills the vector again: a word that
 * came later would stay, and be taken for one of the next round but one.
 *
 * The rounds are counted on the device: by `dispatch` when a round's rows have come, by `combine` when its results were
 * asked for. Of two kernels that follow each other neither writes the counter that it reads, so blocks need not meet. A
 * wait that fails ends all rounds to come: their kernels do nothing. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_ALL2ALL_H
#define TRI_KERNELS_CUDA_EXCHANGE_ALL2ALL_H

#include <cuda_runtime_api.h>

#include "kernels/expert_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every byte of the boxes is this before the first round. */
enum { TRI_CUDA_ALL2ALL_EMPTY = 0xff };

/* A rank's own memory on its device, zero at first. */
typedef struct tri_cuda_rounds {
  uint32_t dispatched, combined; /* rounds */
  uint32_t over;                 /* a wait failed */
} tri_cuda_rounds;

typedef struct tri_cuda_all2all {
  char *memory[TRI_ROWS_RANKS]; /* by rank: its boxes, at this process's addresses */
  tri_cuda_rounds *rounds;
  int *error; /* tri_status in host memory: ends every wait when set, and is set by one; see exchange/all_reduce.h */
  uint64_t limit_ns; /* of a wait */
  int rank;
  int row_vectors, table_vectors; /* tri_rows_vectors, tri_rows_table_vectors */
  tri_rows_config cfg;
} tri_cuda_all2all;

/* exchange/dispatch.cu; num_sms: multiprocessors of this device. */
void tri_cuda_all2all_dispatch(cudaStream_t stream, const tri_cuda_all2all *e, const tri_rows_dispatch *a, int num_sms);
bool tri_cuda_all2all_routes(const tri_moe_route_args *route);                       /* a dispatch can have it */
bool tri_cuda_all2all_rounds(const tri_cuda_all2all *e, const tri_rows_dispatch *d); /* its rows can be rounded */
/* exchange/combine.cu */
void tri_cuda_all2all_combine(cudaStream_t stream, const tri_cuda_all2all *e, const tri_rows_combine *a, int num_sms);
/* Load the kernels: a first launch would wait for those that run. */
cudaError_t tri_cuda_dispatch_load(void);
cudaError_t tri_cuda_combine_load(void);

#ifdef __cplusplus
}
#endif

#endif
