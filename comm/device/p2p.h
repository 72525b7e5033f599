/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator on device memory of one host that does some things itself, through kernels that write to each other's
 * memory, and leaves everything else to another one, NCCL's: of a tensor group the sums and gathers of small messages
 * (kernels/cuda/exchange/all_reduce.h), of a pipeline's stages the transfers (kernels/cuda/exchange/mailbox.h), of a
 * column the exchange of experts' rows (kernels/cuda/exchange/all2all.h). Part of the CUDA module. */
#ifndef TRI_COMM_DEVICE_P2P_H
#define TRI_COMM_DEVICE_P2P_H

#include "comm/comm.h"

/* Algorithms of all_reduce: everyone sends all to all; everyone sums a part and sends that on; or NCCL. */
typedef enum tri_p2p_algorithm {
  TRI_P2P_ONE_SHOT,
  TRI_P2P_TWO_SHOTS,
  TRI_P2P_LIBRARY,
  TRI_P2P_ALGORITHMS
} tri_p2p_algorithm;

/* The time of each algorithm for some sizes of a sum: the slowest rank's microseconds when one sum follows another in a
 * recorded graph; 0: the sum does not fit. */
enum { TRI_P2P_SIZES = 5 };
static inline size_t tri_p2p_size(int k) { return (size_t)32 << (10 + 2 * k); } /* bytes: 32 KiB .. 8 MiB */
typedef struct tri_p2p_figures {
  double us[TRI_P2P_SIZES][TRI_P2P_ALGORITHMS];
} tri_p2p_figures;

/* p2p_figures.c. Returns the microseconds of a sum of so many bytes: between two sizes the line between their times,
 * below the first one that one's. 0: it is larger than all of them, or the next larger one does not fit. */
double tri_p2p_us(const tri_p2p_figures *f, tri_p2p_algorithm algorithm, size_t bytes);
/* Returns the algorithm of which that is the least; NCCL's where there are no figures. */
tri_p2p_algorithm tri_p2p_fastest(const tri_p2p_figures *f, size_t bytes);

/* A communicator of the same ranks as host, which must outlive it; collective over host. Checks that all ranks can
 * reach each other's memory, and measures; some 0.2 s. Owns `rest`, a communicator of the same ranks, once it is made.
 * TRI_UNSUPPORTED with the reason: all ranks know that at least one of them cannot, and continue with rest alone.
 *
 * use: TRI_COMM_ROWS for dispatch and combine of `rows`, else NULL; TRI_COMM_SUMS for all_reduce and all_gather;
 * TRI_COMM_TRANSFERS for isend and recv, of whole floats, which then must not be recorded. What is sent uses its own
 * stream: isend's buffer is in use until wait, which makes the compute stream wait. Tags that are equal modulo the
 * ranks share a mailbox and match in their order. A mailbox has two slots, of 32 MiB / ranks^2 each (8 MiB of two
 * ranks, 2 MiB of four, 512 KiB of eight): more than these hold is sent when the receiver has taken the first part, and
 * what is sent later to the same peer goes after it.
 *
 * A peer that does not come in time, and abort(), set the communicator's error from the device or for it: the kernels
 * end, and tri_comm_query tells it once the stream is synchronised. Sums are then worthless. */
tri_status tri_comm_p2p_create(tri_backend *be, tri_comm *host, tri_comm *rest, tri_comm_use use,
                               const tri_rows_config *rows, tri_comm **out, tri_error *err);

/* The backend's comm_create: NCCL's, and before it the above where it can be had; of ROWS, NCCL's. */
tri_status tri_comm_device_create(tri_backend *be, tri_comm *host, tri_comm_use use, tri_comm **out, tri_error *err);
/* The backend's comm_add_rows. */
tri_status tri_comm_device_add_rows(tri_backend *be, tri_comm *host, const tri_rows_config *rows, tri_comm **c,
                                    tri_error *err);

/* ---- for measuring and tests; c is of tri_comm_p2p_create for sums ---- */

/* all_reduce by a given algorithm. */
bool tri_p2p_fits(const tri_comm *c, tri_p2p_algorithm algorithm, size_t count);
tri_status tri_p2p_sum(tri_comm *c, tri_p2p_algorithm algorithm, float *buf, size_t count);
tri_p2p_algorithm tri_p2p_algorithm_of(const tri_comm *c, size_t count);
/* all_gather by TRI_P2P_ONE_SHOT, of whole words, or by TRI_P2P_LIBRARY. */
bool tri_p2p_gather_fits(const tri_comm *c, const void *send, const void *recv, size_t bytes);
tri_status tri_p2p_gather(tri_comm *c, tri_p2p_algorithm algorithm, const void *send, void *recv, size_t bytes);
tri_p2p_algorithm tri_p2p_gather_algorithm_of(const tri_comm *c, const void *send, const void *recv, size_t bytes);
/* Threads of a block for small messages, and blocks: the same on every rank. */
void tri_p2p_tune(tri_comm *c, int threads, int blocks);
int tri_p2p_threads(const tri_comm *c);
int tri_p2p_blocks(const tri_comm *c);

#endif
