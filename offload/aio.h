/* SPDX-License-Identifier: Apache-2.0 */
/* Reads that are under way while the caller does something else: a queue of them over io_uring, or over a few threads
 * with pread(2) where the kernel or a container refuses io_uring. Nothing but bytes and descriptors; a caller who asks
 * again after a short read is reader.c. */
#ifndef TRI_OFFLOAD_AIO_H
#define TRI_OFFLOAD_AIO_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include "base/status.h"

typedef struct tri_aio tri_aio;

typedef struct tri_aio_read {
  int fd;
  bool direct; /* the descriptor has O_DIRECT: the kernel waits for the disk by itself */
  void *to;    /* untouched by the caller until the read has ended */
  size_t bytes;
  uint64_t offset;
  int tag; /* what is returned with the result */
} tri_aio_read;

/* One thread calls these. */
typedef struct tri_aio_ops {
  /* At most `depth` reads may be under way. 0 or a negative errno, as in wait. */
  int (*submit)(tri_aio *a, const tri_aio_read *read);
  /* Waits until a read has ended, at most timeout_ms: 0 with its tag and what pread would have returned (bytes, or a
   * negative errno), -ETIME, or another negative errno where the queue itself has failed. */
  int (*wait)(tri_aio *a, int timeout_ms, int *tag, int64_t *result);
  void (*destroy)(tri_aio *a);
} tri_aio_ops;

/* The first member of every implementation; tests have their own. */
struct tri_aio {
  const tri_aio_ops *ops;
  const char *name; /* "io_uring", "threads" */
};

typedef enum tri_aio_kind { TRI_AIO_AUTO, TRI_AIO_URING, TRI_AIO_THREADS } tri_aio_kind;

/* AUTO: io_uring, or threads where there is none, which it says in the log. depth: 1 .. TRI_AIO_MAX_DEPTH. */
enum { TRI_AIO_MAX_DEPTH = 1024 };
tri_status tri_aio_create(tri_aio_kind kind, int depth, tri_aio **out, tri_error *err);

/* Frees the calling thread from the core that its maker may be bound to, which is there to compute. */
static inline void tri_aio_leave_core(void) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all); /* a wish */
}

/* The two; 0 or a negative errno. */
int tri_aio_uring_create(int depth, tri_aio **out);
int tri_aio_threads_create(int depth, tri_aio **out);

#endif
