/* SPDX-License-Identifier: Apache-2.0 */
/* Reads over io_uring (Axboe, "Efficient IO with io_uring", 2019): the one file that knows liburing. One thread submits
 * and waits, so neither ring takes a lock. What the kernel has not taken yet stays in the submission ring and is handed
 * over again by the next submit or wait. */
#include <errno.h>
#include <liburing.h>

#include "offload/aio.h"
#include "base/mem.h"
#include "base/wait.h"

struct uring {
  tri_aio base;
  struct io_uring ring;
};

/* Requests that the kernel has no room for now stay in the ring; wait tries again. */
static int flush(struct uring *u) {
  int n = io_uring_submit(&u->ring);
  return n >= 0 || n == -EINTR || n == -EAGAIN || n == -EBUSY ? 0 : n;
}

static int uring_submit(tri_aio *a, const tri_aio_read *r) {
  struct uring *u = (struct uring *)a;
  struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
  if (!sqe) return -EBUSY; /* more reads than was said */
  io_uring_prep_read(sqe, r->fd, r->to, (unsigned)r->bytes, r->offset);
  /* From the page cache a read is a copy: that several of the kernel's threads do it, and not this one. */
  if (!r->direct) sqe->flags |= IOSQE_ASYNC;
  sqe->user_data = (uint64_t)r->tag;
  return flush(u);
}

static int uring_wait(tri_aio *a, int timeout_ms, int *tag, int64_t *result) {
  struct uring *u = (struct uring *)a;
  struct io_uring_cqe *cqe = NULL;
  int64_t deadline = tri_deadline_after_ms(timeout_ms);
  for (;;) {
    int e = io_uring_sq_ready(&u->ring) ? flush(u) : 0;
    if (e) return e;
    /* Reads that could not be handed over yet: look again soon. */
    long slice_ns = io_uring_sq_ready(&u->ring) ? 1000000 : 100000000;
    struct __kernel_timespec slice = {.tv_nsec = slice_ns};
    e = io_uring_wait_cqe_timeout(&u->ring, &cqe, &slice);
    if (!e && cqe) break;
    if (e != -ETIME && e != -EINTR && e != -EAGAIN && e != 0) return e;
    if (tri_now_ns() > deadline) return -ETIME;
  }
  *tag = (int)cqe->user_data;
  *result = cqe->res;
  io_uring_cqe_seen(&u->ring, cqe);
  return 0;
}

static void uring_destroy(tri_aio *a) {
  struct uring *u = (struct uring *)a;
  io_uring_queue_exit(&u->ring);
  tri_free(u);
}

/* Linux 5.1 to 5.5 have rings, but not this kind of read. */
static bool knows_reads(struct io_uring *ring) {
  struct io_uring_probe *p = io_uring_get_probe_ring(ring);
  bool knows = p && io_uring_opcode_supported(p, IORING_OP_READ);
  io_uring_free_probe(p);
  return knows;
}

int tri_aio_uring_create(int depth, tri_aio **out) {
  static const tri_aio_ops ops = {uring_submit, uring_wait, uring_destroy};
  struct uring *u = tri_calloc(1, sizeof *u);
  if (!u) return -ENOMEM;
  u->base = (tri_aio){&ops, "io_uring"};
  int e = io_uring_queue_init((unsigned)depth + 1, &u->ring, 0); /* older kernels' time limits take an entry, too */
  if (e) {
    tri_free(u);
    return e;
  }
  if (!knows_reads(&u->ring)) {
    uring_destroy(&u->base);
    return -ENOSYS;
  }
  *out = &u->base;
  return 0;
}
