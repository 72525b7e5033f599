/* SPDX-License-Identifier: Apache-2.0 */
/* The files of the p2p communicator share this. */
#ifndef TRI_COMM_DEVICE_P2P_IMPL_H
#define TRI_COMM_DEVICE_P2P_IMPL_H

#include "comm/device/p2p.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/exchange/all2all.h"
#include "kernels/cuda/exchange/mailbox.h"
#include "kernels/cuda/exchange/all_reduce.h"

enum { TRI_P2P_RANKS = TRI_CUDA_REDUCE_RANKS };

/* The memory of a communicator for transfers: the numbers of messages, far enough apart that each has its own line,
 * then the mailboxes. There are as many lanes as ranks: pipelines have no more. */
enum {
  TRI_P2P_NUMBERS_BYTES = 64 << 10,
  TRI_P2P_NUMBER_STRIDE = 128,
  TRI_P2P_MAILBOX_BYTES = 64 << 20,
  TRI_P2P_TRANSFER_BYTES = TRI_P2P_NUMBERS_BYTES + TRI_P2P_MAILBOX_BYTES
};

/* Messages between two ranks: [peer][lane]. */
typedef struct tri_p2p_counts {
  uint32_t of[TRI_P2P_RANKS][TRI_P2P_RANKS];
} tri_p2p_counts;

typedef struct tri_p2p_mailboxes {
  cudaEvent_t sent[TRI_P2P_RANKS][TRI_P2P_RANKS]; /* [peer][lane] */
  unsigned *blocks; /* [2] on the device: of the message that is being sent, and received */
  tri_p2p_counts num_sent, num_received;
} tri_p2p_mailboxes;

typedef struct tri_p2p_impl {
  tri_comm *host;
  tri_backend *backend;
  tri_comm_use use;            /* what the memory is for */
  char *memory[TRI_P2P_RANKS]; /* by rank, at this process's addresses */
  bool opened[TRI_P2P_RANKS];
  int *error; /* the communicator's, as the device sees it */
  int threads, blocks;
  tri_cuda_reduce reduce;
  tri_p2p_figures figures;
  tri_p2p_mailboxes mailboxes;
  tri_cuda_all2all all2all;
} tri_p2p_impl;

static inline tri_p2p_impl *tri_p2p_impl_of(const tri_comm *c) { return c->impl; }
static inline cudaStream_t tri_p2p_stream(const tri_comm *c) { return tri_cuda_stream(tri_p2p_impl_of(c)->backend); }

/* Returns the stream of what is sent. */
static inline cudaStream_t tri_p2p_send_stream(const tri_comm *c) {
  return tri_cuda_of(tri_p2p_impl_of(c)->backend)->streams[TRI_STREAM_SEND];
}

/* p2p_open.c: a communicator without ops, whose memory all ranks have opened. Collective over host. TRI_UNSUPPORTED,
 * with the reason, comes to all ranks together. After a failure what there is of it may be in *out, for the caller to
 * close and free. */
tri_status tri_p2p_open(tri_backend *be, tri_comm *host, tri_comm_use use, const tri_rows_config *rows, tri_comm **out,
                        tri_error *err);
/* Ends what the device does for it, and gives up the peers' memory. */
void tri_p2p_close(tri_comm *c);
/* Frees it, and this rank's memory, which the others have closed if they are still there. */
void tri_p2p_free(tri_comm *c);
/* p2p_agree.c: all ranks learn whether all can, and why one cannot: none continues alone. TRI_UNSUPPORTED on every
 * rank, then. */
tri_status tri_p2p_agree(tri_comm *host, const tri_error *mine, tri_error *err);
tri_status tri_p2p_need(cudaError_t e, const char *what, tri_error *err);

/* p2p_measure.c: this rank's figures. `buf` holds tri_p2p_size(TRI_P2P_SIZES - 1) bytes. measure is collective over the
 * host's communicator, too: the ranks agree there before each thing that their devices do together, so that one that
 * fails ends it for all at once. */
tri_status tri_p2p_check(tri_comm *c, float *buf, tri_error *err);
tri_status tri_p2p_measure(tri_comm *c, float *buf, tri_p2p_figures *out, tri_error *err);

/* p2p_mailbox.c: transfers, of whole floats. */
tri_status tri_p2p_send(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req);
tri_status tri_p2p_receive(tri_comm *c, void *buf, size_t bytes, int peer, int tag);
tri_status tri_p2p_wait_sent(tri_comm *c, tri_comm_req *req);
/* Checks that transfers come as they were sent, around the ring of ranks. */
tri_status tri_p2p_check_mailboxes(tri_comm *c, tri_error *err);

/* p2p_rows.c: what this rank has for the exchange of rows, but for the boxes; and the exchange. */
tri_status tri_p2p_make_rows(tri_comm *c, const tri_rows_config *rows, tri_error *err);
tri_status tri_p2p_dispatch(tri_comm *c, const tri_rows_dispatch *a);
tri_status tri_p2p_combine(tri_comm *c, const tri_rows_combine *a);
/* Checks that rows and what is given back of them come as they were sent. */
tri_status tri_p2p_check_rows(tri_comm *c, tri_error *err);

#endif
