/* Transfers between the devices of one host, through boxes in memory that each device lets the others write to. A
 * header of C and CUDA.
 *
 * A box has places for so many letters of one sender, used in turn. The sender waits until the last letter in this
 * place has been taken, writes, and then the letter's number; the receiver waits for that number, reads, and writes it
 * back. Nothing is sent for a letter that does not come, and the receiver need not be there when it is sent, so that a
 * sender who works on a stream of its own holds up nothing. Numbers are the host's: letters cannot be recorded. */
#ifndef TRI_KERNELS_CUDA_MAIL_H
#define TRI_KERNELS_CUDA_MAIL_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRI_CUDA_MAIL_PLACES = 2 };

typedef struct tri_cuda_letter {
  void *box;         /* its place, on the receiver's device; 16-byte aligned */
  uint32_t *arrived; /* there: the last letter that has come whole; 0 at first */
  uint32_t *taken;   /* on the sender's device: the last that was read; 0 at first */
  unsigned *blocks;  /* on this device, zero between letters: those that are done */
  uint32_t number;   /* 1 for a box's first letter */
  int *error;        /* tri_status in host memory: ends every wait when set, and is set by one */
  uint64_t limit_ns; /* of a wait */
} tri_cuda_letter;

/* Waits until the letter's place is empty, with one warp: where that takes long, a send that waits by itself would keep
 * many processors from other work. */
void tri_cuda_mail_await(cudaStream_t stream, const tri_cuda_letter *letter);
/* bytes: of whole floats, from or to any address of such. */
void tri_cuda_mail_send(cudaStream_t stream, const tri_cuda_letter *letter, const void *from, size_t bytes);
void tri_cuda_mail_receive(cudaStream_t stream, const tri_cuda_letter *letter, void *to, size_t bytes);
/* Loads the kernels: a first launch would wait for those that run. */
cudaError_t tri_cuda_mail_load(void);

#ifdef __cplusplus
}
#endif

#endif
