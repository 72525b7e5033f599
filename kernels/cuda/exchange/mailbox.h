/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the devices of one host, through memory that each device lets the others write to. A header of C
 * and CUDA.
 *
 * A mailbox lies in the receiver's memory and belongs to one sender and one lane. It has a few slots, used in turn, and
 * each slot holds one message: a transfer, or the next part of one that is longer than a slot. Messages of a mailbox
 * are numbered from 1. The sender waits until the last message in this slot has been taken, writes the content, and
 * then the message's number; the receiver waits for that number, reads, and writes it back. Nothing is sent for a
 * message that does not come, and the receiver need not be there when it is sent, so that a sender who works on a
 * stream of its own holds up nothing. Numbers are the host's: messages cannot be recorded. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_MAILBOX_H
#define TRI_KERNELS_CUDA_EXCHANGE_MAILBOX_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TRI_CUDA_MAILBOX_SLOTS = 2 };

typedef struct tri_cuda_message {
  void *slot;        /* on the receiver's device; 16-byte aligned */
  uint32_t *arrived; /* there: the last message that has come whole; 0 at first */
  uint32_t *taken;   /* on the sender's device: the last that was read; 0 at first */
  unsigned *blocks;  /* on this device, zero between messages: those that are done */
  uint32_t number;   /* from 1, in the order of the mailbox */
  int *error;        /* tri_status in host memory: ends every wait when set, and is set by one */
  uint64_t limit_ns; /* of a wait */
} tri_cuda_message;

/* Waits until the message's slot is empty, with one warp: where that takes long, a send that waits by itself would keep
 * many processors from other work. */
void tri_cuda_mailbox_await(cudaStream_t stream, const tri_cuda_message *message);
/* bytes: of whole floats, from or to any address of such. */
void tri_cuda_mailbox_send(cudaStream_t stream, const tri_cuda_message *message, const void *from, size_t bytes);
void tri_cuda_mailbox_receive(cudaStream_t stream, const tri_cuda_message *message, void *to, size_t bytes);
/* Loads the kernels: a first launch would wait for those that run. */
cudaError_t tri_cuda_mailbox_load(void);

#ifdef __cplusplus
}
#endif

#endif
