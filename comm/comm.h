/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and transfers among the ranks of a replica, behind one table.
 *
 * Backends: `self` (one rank), `mpi` (host memory, shared between the ranks of one host), and on device memory `nccl`
 * and `p2p` (kernels that write to each other's memory, within a host; what these lack goes to `nccl`).
 *
 * What holds for every slot:
 * - All buffers of a call are of the communicator's kind of memory: the host's, or that of the device's backend which
 *   it was made for. Nothing but what the slot says is asked of their alignment.
 * - On device memory a call returns when its work is on the compute stream, in the order of the calls. What is sent is
 *   queued on the send stream, after what the compute stream has at that moment. On host memory a call returns when it
 *   is done.
 * - Collectives are called by all ranks, in the same order and with the same sizes.
 * - A status other than TRI_OK, TRI_AGAIN and TRI_UNSUPPORTED is the communicator's end: every later call returns the
 *   first one at once, and tri_comm_query tells it at any time, so that a step may run to its end and look once. On
 *   device memory it may come with a later call, or with tri_comm_poll. TRI_PEER_LOST, TRI_TIMEOUT (of the
 *   configuration's limit), TRI_ABORTED (tri_comm_abort, or policy.stop), TRI_NO_MEMORY, TRI_TOO_LARGE,
 *   TRI_DEVICE_LOST can come from any slot.
 * - TRI_UNSUPPORTED says that the communicator lacks the slot; nothing has happened, and it continues as before.
 * - Every wait inside goes through tri_wait with the configuration's policy and limit. One thread at a time calls the
 *   slots; abort and query may be called by any.
 *
 * A configuration is given when a communicator is made and stays: ranks that want another one make another one. */
#ifndef TRI_COMM_COMM_H
#define TRI_COMM_COMM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "kernels/expert_rows.h"
#include "base/status.h"
#include "base/wait.h"

typedef struct tri_comm tri_comm;

typedef struct tri_comm_config {
  bool deterministic; /* sums are taken in rank order */
  bool messages_only; /* no shared memory even among the ranks of one host */
  tri_wait_policy policy;
  int64_t timeout_ms; /* of one wait inside a call */
} tri_comm_config;

/* A transfer under way; storage for the backend's own request. Zero-initialised means none. */
typedef struct tri_comm_req {
  void *handle;
  bool active;
} tri_comm_req;

/* The slots: X(name, how a call begins, parameters, the same as arguments). tri_comm_NAME(c, ...) calls one. `begin`
 * counts it as an operation, `query` does not: a rank that polls gets nowhere.
 *
 * all_reduce   buf[i] = sum over the ranks of buf[i], float32, in place. Aligned to 16 bytes on device memory.
 * all_reduce_bf16
 *              The same of bfloat16, whose bits are in buf. `nccl` alone has it, which rounds each addition, in an
 *              order of its own. Device memory only.
 * all_gather   recv[r * bytes ..] = rank r's send, for every rank r. recv has size * bytes and does not overlap send,
 *              but that send may be the rank's own part of it.
 * reduce_scatter
 *              recv[i] = sum over the ranks r, in their order, of rank r's send[c->rank * count + i], float32. send has
 *              size * count and does not overlap recv. `nccl` adds in an order of its own.
 * all_to_all   Part r of send goes to rank r, and what comes from rank r is part r of recv. Parts lie one after the
 *              other in rank order, part r of send send_bytes[r] long, part r of recv recv_bytes[r], which is what
 *              rank r sends here; 0 is fine. The rank's own part is copied. send and recv do not overlap. Host memory
 *              only.
 * dispatch     Rows to the ranks that have their experts, tables to all: see kernels/expert_rows.h. Device memory only,
 *              of a communicator that backend.comm_add_rows has made. The arrays on the host are read at once.
 * combine      What each rank has computed of the rows of the last dispatch, back to theirs. Follows every dispatch.
 * broadcast    buf of every rank = that of rank root.
 * barrier      Returns when every rank has called it. Host memory only.
 * isend        Begins to send to `peer`. buf must stay as it is until wait returns TRI_OK. Tags are 0 .. 2^14 - 1.
 * wait         Waits until isend's buffer can be used again; of device memory, makes the compute stream wait. A request
 *              that is not active is done. Afterwards it is not active.
 * recv         Receives exactly `bytes` from `peer`. Sends and receives match by (peer, tag), in the order of their
 *              calls. `nccl` ignores tags: there all transfers between two ranks match in that order. `p2p` takes
 *              whole floats alone (TRI_UNSUPPORTED), and its tags match modulo the number of ranks.
 * try_recv     A message of at most cap bytes if one has come: TRI_OK with *bytes, else TRI_AGAIN. A longer one is
 *              TRI_TOO_LARGE. Host memory only.
 * split        Members with the same color form a new communicator, ordered by key. config NULL: as c's. Host memory
 *              only. */
#define TRI_COMM_OP_LIST(X)                                                                                            \
  X(all_reduce, begin, (tri_comm * c, float *buf, size_t count), (c, buf, count))                                      \
  X(all_reduce_bf16, begin, (tri_comm * c, uint16_t * buf, size_t count), (c, buf, count))                             \
  X(all_gather, begin, (tri_comm * c, const void *send, void *recv, size_t bytes), (c, send, recv, bytes))             \
  X(reduce_scatter, begin, (tri_comm * c, const float *send, float *recv, size_t count), (c, send, recv, count))       \
  X(all_to_all, begin,                                                                                                 \
    (tri_comm * c, const void *send, const size_t *send_bytes, void *recv, const size_t *recv_bytes),                  \
    (c, send, send_bytes, recv, recv_bytes))                                                                           \
  X(dispatch, begin, (tri_comm * c, const tri_rows_dispatch *a), (c, a))                                               \
  X(combine, begin, (tri_comm * c, const tri_rows_combine *a), (c, a))                                                 \
  X(broadcast, begin, (tri_comm * c, void *buf, size_t bytes, int root), (c, buf, bytes, root))                        \
  X(barrier, begin, (tri_comm * c), (c))                                                                               \
  X(isend, begin, (tri_comm * c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req),                 \
    (c, buf, bytes, peer, tag, req))                                                                                   \
  X(wait, query, (tri_comm * c, tri_comm_req * req), (c, req))                                                         \
  X(recv, begin, (tri_comm * c, void *buf, size_t bytes, int peer, int tag), (c, buf, bytes, peer, tag))               \
  X(try_recv, query, (tri_comm * c, void *buf, size_t cap, int peer, int tag, size_t *bytes),                          \
    (c, buf, cap, peer, tag, bytes))                                                                                   \
  X(split, begin, (tri_comm * c, int color, int key, const tri_comm_config *config, tri_comm **out),                   \
    (c, color, key, config, out))

/* A backend's slots; those that it leaves NULL it lacks. */
typedef struct tri_comm_ops {
  const char *name;
#define X(name, begin, parameters, arguments) tri_status(*name) parameters;
  TRI_COMM_OP_LIST(X)
#undef X
  /* Looks for an error of what runs by itself on a device; never waits. NULL: nothing does. */
  tri_status (*poll)(tri_comm *c);
  void (*abort)(tri_comm *c); /* NULL: setting the error is enough */
  void (*destroy)(tri_comm *c);
} tri_comm_ops;

struct tri_comm {
  const tri_comm_ops *ops;
  tri_comm *fallback; /* of the same ranks: does what ops lacks; may be NULL */
  int rank, size;
  tri_comm_config cfg;
  _Atomic int error;         /* tri_status */
  _Atomic uint64_t sequence; /* operations begun: what a stalled rank hangs in */
  void *impl;
  char about[256]; /* how it works, for the log; may be empty */
};

static inline tri_status tri_comm_query(const tri_comm *c) { return (tri_status)atomic_load(&c->error); }

/* ---- for those who implement one ---- */

/* Makes the first failure the communicator's, and returns that. */
static inline tri_status tri_comm_fail(tri_comm *c, tri_status st) {
  int none = TRI_OK;
  atomic_compare_exchange_strong(&c->error, &none, (int)st);
  return tri_comm_query(c);
}
/* Begins an operation if there was no failure. */
static inline tri_status tri_comm_begin(tri_comm *c) {
  atomic_fetch_add_explicit(&c->sequence, 1, memory_order_relaxed);
  return tri_comm_query(c);
}
/* Keeps what an operation came to, where that is a failure. */
static inline tri_status tri_comm_note(tri_comm *c, tri_status st) {
  return st == TRI_OK || st == TRI_AGAIN || st == TRI_UNSUPPORTED ? st : tri_comm_fail(c, st);
}

/* ---- calls ---- */

/* A slot finds no failure before it, and what it returns is kept. */
#define X(name, begin, parameters, arguments)                                                                          \
  static inline tri_status tri_comm_##name parameters {                                                                \
    tri_comm *own = c;                                                                                                 \
    while (c && !c->ops->name) c = c->fallback;                                                                        \
    tri_status st = c ? tri_comm_##begin(own) : TRI_UNSUPPORTED;                                                       \
    if (st == TRI_OK) st = tri_comm_query(c);                                                                          \
    if (st == TRI_OK) st = tri_comm_note(c, c->ops->name arguments);                                                   \
    return tri_comm_note(own, st);                                                                                     \
  }
TRI_COMM_OP_LIST(X)
#undef X

/* Capabilities: a bit TRI_COMM_CAN_name for each slot. */
enum {
#define X(name, begin, parameters, arguments) TRI_COMM_OP_##name,
  TRI_COMM_OP_LIST(X)
#undef X
      TRI_COMM_OP_COUNT
};
enum {
#define X(name, begin, parameters, arguments) TRI_COMM_CAN_##name = 1 << TRI_COMM_OP_##name,
  TRI_COMM_OP_LIST(X)
#undef X
};
static inline uint32_t tri_comm_caps(const tri_comm *c) {
  uint32_t caps = 0;
  for (; c; c = c->fallback) {
#define X(name, begin, parameters, arguments) caps |= c->ops->name ? TRI_COMM_CAN_##name : 0u;
    TRI_COMM_OP_LIST(X)
#undef X
  }
  return caps;
}

static inline tri_status tri_comm_poll(tri_comm *c) { return c->ops->poll ? c->ops->poll(c) : tri_comm_query(c); }
/* Makes pending and later calls fail, from any thread. */
static inline void tri_comm_abort(tri_comm *c) {
  tri_comm_fail(c, TRI_ABORTED);
  if (c->ops->abort) c->ops->abort(c);
}
static inline void tri_comm_destroy(tri_comm *c) { /* NULL is fine */
  if (c) c->ops->destroy(c);
}

/* Every rank learns whether all can continue, so that none continues alone: st where it is a failure, TRI_PEER_LOST
 * where another rank has one. Host memory; all ranks call it. */
static inline tri_status tri_comm_agree(tri_comm *c, tri_status st) {
  float failed = st != TRI_OK;
  tri_status comm = tri_comm_all_reduce(c, &failed, 1);
  if (st != TRI_OK || comm != TRI_OK) return st != TRI_OK ? st : comm;
  return failed > 0 ? TRI_PEER_LOST : TRI_OK;
}

/* The one-rank communicator. */
tri_status tri_comm_self_create(const tri_comm_config *config, tri_comm **out);

/* The only users of MPI. init once per process, before threads; world is the process's MPI_COMM_WORLD as a
 * communicator. Every rank gives the same configuration: shared memory is opened by all of them or by none. */
tri_status tri_mpi_init(int *argc, char ***argv, tri_error *err);
tri_status tri_comm_mpi_world(const tri_comm_config *config, tri_comm **out);
/* Ranks of c that share this host's memory: this rank's number among them and how many they are. */
tri_status tri_comm_mpi_local(tri_comm *c, int *local_rank, int *local_size);
/* Keeps the ranks of one host to its memory: no port is opened. Before MPI starts (tri_mpi_init calls it). */
void tri_mpi_choose_transport(void);
/* Closes the ports on which MPI listens for all hosts but those of the ranks; all of them call it, right after
 * init. */
tri_status tri_mpi_confine(tri_comm *world);
void tri_mpi_finalize(void);
void tri_mpi_abort(int code);

#endif
