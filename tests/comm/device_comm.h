/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of device_comm share: one of the processes, its device and its communicators. */
#ifndef TRI_TESTS_COMM_DEVICE_COMM_H
#define TRI_TESTS_COMM_DEVICE_COMM_H

#include <stdio.h>
#include <stdlib.h>

#include "comm/device/nccl.h"
#include "comm/device/p2p.h"
#include "kernels/cuda/cuda.h"

enum { DC_MOST = 2 << 20 }; /* floats of the largest message: tri_p2p_size(TRI_P2P_SIZES - 1) bytes */

typedef struct dc_rank {
  tri_comm *host; /* of all processes */
  tri_backend be; /* what communicators use of one */
  tri_cuda_impl cuda;
  tri_comm *comm; /* p2p, for sums or for transfers, and behind it NCCL */
  float *device;  /* DC_MOST floats, and DC_SLACK more on both sides */
  float *mine, *got, *want;
} dc_rank;
enum { DC_SLACK = 64 };

#define DC_MUST(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) dc_fail(d, __FILE__, __LINE__, #condition);                                                      \
  } while (0)
_Noreturn void dc_fail(const dc_rank *d, const char *file, int line, const char *what);

static inline int64_t dc_elapsed_ms(int64_t since) { return (tri_now_ns() - since) / 1000000; }
uint32_t dc_mix(uint32_t x);
void dc_sync(dc_rank *d);
/* Records what `launch` launches on the rank's stream. */
cudaGraphExec_t dc_record(dc_rank *d, void (*launch)(dc_rank *d, void *arg), void *arg);

void dc_bench(dc_rank *d);      /* device_bench.c */
void dc_test_storm(dc_rank *d); /* device_storm.c */

void dc_test_gathers(dc_rank *d); /* device_all_gather.c */
void dc_bench_gathers(dc_rank *d);

/* device_mailbox.c, with a communicator for transfers in d->comm. */
void dc_test_transfers(dc_rank *d);
void dc_test_no_message(dc_rank *d);
void dc_bench_transfers(dc_rank *d);

#endif
