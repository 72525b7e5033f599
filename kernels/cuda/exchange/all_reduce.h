/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the devices of one host, through memory that each of them lets the others write to. A header of C and CUDA.
 *
 * There are no flags and no barriers: what comes says by itself that it is there (Lamport). A device's receive memory
 * is filled with a word that no sender sends; senders store their vectors of 16 bytes there, and the receiver looks at
 * each of them until all its words are others, adds, and fills the place again. A block works with the blocks of its
 * own number on the other devices alone, in a slice of the memory that has two halves, used in turn:
 *
 *   A half may be written to when its last content has been read and the place filled again. Who sends to it in round
 *   n + 2 has ended round n + 1, hence got what the receiver sent in n + 1, which the receiver does after its kernel of
 *   round n has ended. (A round of a block is a launch whose grid has it; a result of two shots needs something from
 *   every rank, so that it shows the same.)
 *
 * Relaxed accesses are enough for that. A word that is there is all that it tells: no other memory is read because of
 * it, and a vector that comes in pieces is looked at word by word. Only the stores to one place must keep their order,
 * and those meet in one cache, that of the device whose memory it is: the filling is in it when the receiver's kernel
 * of round n ends, before that of n + 1 begins (wait_for_previous), and what is sent in n + 2 leaves only after the
 * sender has seen what the latter sent.
 *
 * A block counts its rounds itself, in device memory, so that launches can be recorded and repeated. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_ALL_REDUCE_H
#define TRI_KERNELS_CUDA_EXCHANGE_ALL_REDUCE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  TRI_CUDA_REDUCE_RANKS = 8,
  TRI_CUDA_REDUCE_BLOCKS = 128,
  TRI_CUDA_REDUCE_THREADS = 512,          /* of a block, at most */
  TRI_CUDA_REDUCE_HALF_BYTES = 128 << 10, /* a block's receive memory for one round */
  TRI_CUDA_REDUCE_BYTES = 2 * TRI_CUDA_REDUCE_BLOCKS * TRI_CUDA_REDUCE_HALF_BYTES
};

/* Every byte of receive memory is this before the first round. */
enum { TRI_CUDA_REDUCE_EMPTY = 0xff };

typedef struct tri_cuda_reduce {
  char *memory[TRI_CUDA_REDUCE_RANKS]; /* by rank: its receive memory, at this process's addresses */
  uint32_t *rounds;                    /* [blocks] on this device, zero at first */
  int *error; /* tri_status in host memory: ends every wait when set, and is set by one; no sum comes out afterwards */
  uint64_t limit_ns; /* of a wait */
  int rank, size;
} tri_cuda_reduce;

/* How a sum is cut up: the same on every rank. Blocks must fit on every device at once. */
typedef struct tri_cuda_reduce_shape {
  int threads, blocks; /* at most */
  bool two_shots;      /* every rank sums a part and sends it on, instead of everything */
} tri_cuda_reduce_shape;

bool tri_cuda_reduce_fits(const tri_cuda_reduce *r, tri_cuda_reduce_shape shape, size_t count);
/* buf[i] = sum over ranks of buf[i], added in the order of ranks: both algorithms give the same bits everywhere,
 * but that a NaN of all ones loses its sign. count > 0 that fits. */
void tri_cuda_reduce_launch(cudaStream_t stream, const tri_cuda_reduce *r, tri_cuda_reduce_shape shape, float *buf,
                            size_t count);
/* Loads the kernels: a first launch would wait for those that run. */
cudaError_t tri_cuda_reduce_load(int size);

/* all_gather.cu: all[r * words ..] = own[0 .. words - 1] of rank r, bit by bit, in the same rounds. words > 0; a sum of
 * one shot of tri_cuda_gather_floats(words) fits. */
size_t tri_cuda_gather_floats(size_t words);
void tri_cuda_gather_launch(cudaStream_t stream, const tri_cuda_reduce *r, tri_cuda_reduce_shape shape,
                            const uint32_t *own, uint32_t *all, size_t words);
cudaError_t tri_cuda_gather_load(int size);

#ifdef __cplusplus
}
#endif

#endif
