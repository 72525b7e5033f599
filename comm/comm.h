/* Collectives and point-to-point transfers among the ranks of a group, behind one table.
 *
 * Backends: `self` (one rank), `mpi` (host memory, shared between the ranks of one host), and on device memory `nccl`
 * and `p2p` (kernels that write to each other's memory, for sums and transfers within a host). Calls are ordered on the
 * stream they get. An error is asynchronous: the call that hits it returns it, every later call on the communicator
 * returns it at once, and query() tells it at any time, so that a step may run to its end and look once. abort() makes
 * pending and later calls fail from any thread.
 *
 * Every wait inside goes through tri_wait with the communicator's policy and time limit. */
#ifndef TRI_COMM_COMM_H
#define TRI_COMM_COMM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "runtime/base/status.h"
#include "runtime/base/wait.h"

typedef struct tri_comm tri_comm;

/* A transfer under way; storage for the backend's own request. Zero-initialised means none. */
typedef struct tri_comm_req {
  void *handle;
  bool active;
} tri_comm_req;

typedef struct tri_comm_ops {
  const char *name;
  /* buf[i] = sum over ranks of buf[i], float32, in place. Deterministic communicators add in rank order. */
  tri_status (*all_reduce)(tri_comm *c, float *buf, size_t count);
  /* recv[r * bytes ..] = rank r's send. */
  tri_status (*all_gather)(tri_comm *c, const void *send, void *recv, size_t bytes);
  tri_status (*broadcast)(tri_comm *c, void *buf, size_t bytes, int root);
  tri_status (*barrier)(tri_comm *c);
  /* Matched by (peer, tag), in order. The buffer of isend must stay until wait. */
  tri_status (*isend)(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req);
  tri_status (*wait)(tri_comm *c, tri_comm_req *req);
  tri_status (*recv)(tri_comm *c, void *buf, size_t bytes, int peer, int tag);
  /* A message of at most cap bytes if one has come: TRI_OK with *bytes, TRI_AGAIN otherwise. Host memory. */
  tri_status (*try_recv)(tri_comm *c, void *buf, size_t cap, int peer, int tag, size_t *bytes);
  /* Members with the same color form a new communicator, ordered by key. */
  tri_status (*split)(tri_comm *c, int color, int key, tri_comm **out);
  /* Looks for an error of what runs by itself on a device; never waits. NULL: nothing does. */
  tri_status (*poll)(tri_comm *c);
  void (*abort)(tri_comm *c);
  void (*destroy)(tri_comm *c);
} tri_comm_ops;

struct tri_comm {
  const tri_comm_ops *ops;
  int rank, size;
  bool deterministic, messages_only;
  tri_wait_policy policy;
  int64_t timeout_ms;        /* of one wait inside a collective */
  _Atomic int error;         /* tri_status */
  _Atomic uint64_t sequence; /* operations begun: what a stalled rank hangs in */
  float *scratch;            /* all_reduce in rank order */
  size_t scratch_count;
  void *impl;
  char about[256]; /* what was chosen when it was made, for the log; empty: nothing */
};

static inline tri_status tri_comm_query(const tri_comm *c) { return (tri_status)atomic_load(&c->error); }

/* For those who implement one. The first failure stays, and everything after it fails the same way; an operation begins
 * if there was none; what it comes to is noted. */
static inline tri_status tri_comm_fail(tri_comm *c, tri_status st) {
  int none = TRI_OK;
  atomic_compare_exchange_strong(&c->error, &none, (int)st);
  return tri_comm_query(c);
}
static inline tri_status tri_comm_begin(tri_comm *c) {
  atomic_fetch_add_explicit(&c->sequence, 1, memory_order_relaxed);
  return tri_comm_query(c);
}
static inline tri_status tri_comm_note(tri_comm *c, tri_status st) { return st == TRI_OK ? st : tri_comm_fail(c, st); }

/* Every rank learns whether all can go on, so that none goes on alone: st where it is a failure, TRI_PEER_LOST where
 * another rank has one. Host memory; all ranks call it. */
static inline tri_status tri_comm_agree(tri_comm *c, tri_status st) {
  float failed = st != TRI_OK;
  tri_status comm = c->ops->all_reduce(c, &failed, 1);
  return st != TRI_OK ? st : comm != TRI_OK ? comm : failed > 0 ? TRI_PEER_LOST : TRI_OK;
}

static inline tri_status tri_comm_poll(tri_comm *c) { return c->ops->poll ? c->ops->poll(c) : tri_comm_query(c); }

typedef struct tri_comm_config {
  bool deterministic;
  bool messages_only; /* no shared memory even among the ranks of one host */
  tri_wait_policy policy;
  int64_t timeout_ms;
} tri_comm_config;

/* The one-rank communicator. */
tri_status tri_comm_self_create(const tri_comm_config *config, tri_comm **out);

/* The only users of MPI. init once per process, before threads; world is the process's MPI_COMM_WORLD as a
 * communicator. */
tri_status tri_mpi_init(int *argc, char ***argv, tri_error *err);
tri_status tri_comm_mpi_world(const tri_comm_config *config, tri_comm **out);
/* Ranks of c that share this host's memory: this rank's number among them and how many they are. */
tri_status tri_comm_mpi_local(tri_comm *c, int *local_rank, int *local_size);
void tri_mpi_finalize(void);
void tri_mpi_abort(int code);

#endif
