/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over MPI on host memory. The only file that knows mpi.h. Ranks that are all of one host use its shared
 * memory instead (comm/shm.h), where it can be had; MPI then carries the messages between two ranks.
 *
 * Blocking MPI calls spin without end, notice no dead peer and know no deadline, so every operation is started with its
 * non-blocking form and waited for through tri_wait. */
#include <limits.h>
#include <mpi.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/shm.h"
#include "base/mem.h"

enum {
  MAX_RANKS_DIRECT = 16,
  DIRECT_BYTES = 64 << 10, /* up to here every rank sends its addend to every other: one latency instead of log(p) */
  TAG_DIRECT = 1 << 14,    /* above every tag of the callers */
  TAG_NONE,                /* nothing comes with it */
  PIECE_BYTES = 1 << 20,   /* of a message between two ranks in a collective, as MPI counts in int */
};

struct impl {
  MPI_Comm comm;
  tri_shm *shm;   /* NULL: more than one host, or none to be had */
  float *scratch; /* sums in rank order */
  size_t scratch_count;
  MPI_Request *requests; /* [2 * size]: what comes from each rank, then what goes there */
};

static struct impl *impl_of(const tri_comm *c) { return c->impl; }
static MPI_Comm handle_of(const tri_comm *c) { return impl_of(c)->comm; }
static tri_shm *shm_of(const tri_comm *c) { return impl_of(c)->shm; }

/* Waits for all of n requests, with the communicator's one limit for them together. A communicator that has failed
 * meanwhile, as by an abort, ends the wait before that. */
static tri_status complete(tri_comm *c, MPI_Request *reqs, int n) {
  tri_wait w = tri_wait_begin(&c->cfg.policy, tri_deadline_after_ms(c->cfg.timeout_ms));
  for (;;) {
    int done = 0;
    if (MPI_Testall(n, reqs, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return TRI_PEER_LOST;
    if (done) return TRI_OK;
    TRI_CHECK(tri_wait_pause(&w));
    TRI_CHECK(tri_comm_query(c));
  }
}

/* Takes back what waits for a message: one that comes late would be written to memory that has another use by then.
 */
static void take_back(MPI_Request *received, int n) {
  for (int i = 0; i < n; i++) {
    if (received[i] == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&received[i]);
    MPI_Request_free(&received[i]);
  }
}

static tri_status check(tri_comm *c, int rc, MPI_Request *req) {
  return rc == MPI_SUCCESS ? complete(c, req, 1) : TRI_PEER_LOST;
}

/* Grows with the largest sum so far: steps of a size that has been there allocate nothing. */
static tri_status grow_scratch(tri_comm *c, size_t count) {
  struct impl *impl = c->impl;
  if (count <= impl->scratch_count) return TRI_OK;
  float *p = tri_malloc(count, sizeof *p);
  if (!p) return TRI_NO_MEMORY;
  tri_free(impl->scratch);
  impl->scratch = p;
  impl->scratch_count = count;
  return TRI_OK;
}

/* The ranks' addends lie one after the other in the scratch. */
static void sum_in_rank_order(tri_comm *c, float *buf, size_t count) {
  const float *parts = impl_of(c)->scratch;
  for (size_t i = 0; i < count; i++) {
    float s = parts[i];
    for (int r = 1; r < c->size; r++) s += parts[(size_t)r * count + i];
    buf[i] = s;
  }
}

/* MPI_REQUEST_NULL counts as complete: the requests of ranks with which nothing is exchanged need no case of their own.
 */
static void begin_exchanges(tri_comm *c) {
  for (int i = 0; i < 2 * c->size; i++) impl_of(c)->requests[i] = MPI_REQUEST_NULL;
}

/* Begins to receive in_bytes from a rank and to send it out_bytes; none of no bytes. Both fit into an int. */
static tri_status begin_exchange(tri_comm *c, int r, void *in, size_t in_bytes, const void *out, size_t out_bytes) {
  MPI_Request *reqs = impl_of(c)->requests;
  int rc = MPI_SUCCESS;
  if (in_bytes) rc = MPI_Irecv(in, (int)in_bytes, MPI_BYTE, r, TAG_DIRECT, handle_of(c), &reqs[r]);
  if (rc == MPI_SUCCESS && out_bytes)
    rc = MPI_Isend(out, (int)out_bytes, MPI_BYTE, r, TAG_DIRECT, handle_of(c), &reqs[c->size + r]);
  return rc == MPI_SUCCESS ? TRI_OK : TRI_PEER_LOST;
}

static tri_status end_exchanges(tri_comm *c, tri_status begun) {
  tri_status st = begun == TRI_OK ? complete(c, impl_of(c)->requests, 2 * c->size) : begun;
  if (st != TRI_OK) take_back(impl_of(c)->requests, c->size);
  return st;
}

/* Gathers every rank's addends for this one in the scratch. Those for rank r are n floats at send + r * stride. */
static tri_status gather_addends(tri_comm *c, const float *send, size_t stride, size_t n) {
  tri_status st = TRI_OK;
  TRI_CHECK(grow_scratch(c, n * (size_t)c->size));
  begin_exchanges(c);
  for (int r = 0; st == TRI_OK && r < c->size; r++) {
    float *slot = impl_of(c)->scratch + (size_t)r * n;
    const float *addend = send + (size_t)r * stride;
    if (r == c->rank)
      memcpy(slot, addend, n * sizeof *slot);
    else
      st = begin_exchange(c, r, slot, n * sizeof *slot, addend, n * sizeof *slot);
  }
  return end_exchanges(c, st);
}

/* Stride 0 sends the same addends to every rank. Each adds all of them in rank order, so all get the same bits. */
static tri_status reduce_direct(tri_comm *c, float *buf, size_t count) {
  TRI_CHECK(gather_addends(c, buf, 0, count)); /* the same addends for all */
  sum_in_rank_order(c, buf, count);
  return TRI_OK;
}

/* Everybody's addends come to everybody and are added in rank order, a part at a time. */
static tri_status reduce_in_order(tri_comm *c, float *buf, size_t count) {
  size_t part = (size_t)1 << 18;
  for (size_t at = 0; at < count; at += part) {
    size_t n = count - at < part ? count - at : part;
    MPI_Request req;
    TRI_CHECK(grow_scratch(c, n * (size_t)c->size));
    int rc = MPI_Iallgather(buf + at, (int)n, MPI_FLOAT, impl_of(c)->scratch, (int)n, MPI_FLOAT, handle_of(c), &req);
    TRI_CHECK(check(c, rc, &req));
    sum_in_rank_order(c, buf + at, n);
  }
  return TRI_OK;
}

/* By the ranks' places and the size: shared memory on one host; small sums as one exchange of everybody with everybody;
 * large ones by MPI's own algorithm, or in rank order where bits must not depend on it. */
static tri_status mpi_all_reduce(tri_comm *c, float *buf, size_t count) {
  if (c->size == 1 || !count) return TRI_OK;
  if (shm_of(c)) return tri_shm_all_reduce(shm_of(c), c, buf, count);
  if (c->size <= MAX_RANKS_DIRECT && count * sizeof *buf <= DIRECT_BYTES) return reduce_direct(c, buf, count);
  if (c->cfg.deterministic) return reduce_in_order(c, buf, count);
  size_t part = (size_t)1 << 28;
  for (size_t at = 0; at < count; at += part) {
    MPI_Request req;
    size_t n = count - at < part ? count - at : part;
    TRI_CHECK(check(c, MPI_Iallreduce(MPI_IN_PLACE, buf + at, (int)n, MPI_FLOAT, MPI_SUM, handle_of(c), &req), &req));
  }
  return TRI_OK;
}

/* MPI forbids that the two buffers overlap: of an own part that is in its place already it must learn by MPI_IN_PLACE.
 */
static tri_status mpi_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  MPI_Request req;
  if (bytes > INT_MAX) return TRI_TOO_LARGE;
  if (shm_of(c)) return tri_shm_all_gather(shm_of(c), c, send, recv, bytes);
  bool in_place = send == (const char *)recv + (size_t)c->rank * bytes;
  const void *from = in_place ? MPI_IN_PLACE : send;
  return check(c, MPI_Iallgather(from, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, handle_of(c), &req), &req);
}

static tri_status mpi_reduce_scatter(tri_comm *c, const float *send, float *recv, size_t count) {
  const size_t part = PIECE_BYTES / sizeof *send;
  if (shm_of(c)) return tri_shm_reduce_scatter(shm_of(c), c, send, recv, count);
  for (size_t at = 0; at < count; at += part) {
    size_t n = count - at < part ? count - at : part;
    TRI_CHECK(gather_addends(c, send + at, count, n));
    sum_in_rank_order(c, recv + at, n);
  }
  return TRI_OK;
}

static size_t piece_at(size_t bytes, size_t at) {
  if (bytes <= at) return 0;
  return bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
}

/* Two ranks agree about the pieces between them, whatever they exchange with others. Pieces are as MPI counts bytes, in
 * int. Each pair of ranks sends and receives as many pieces as it has bytes, and the loop ends with this rank's longest
 * part. */
static tri_status mpi_all_to_all(tri_comm *c, const void *send, const size_t *send_bytes, void *recv,
                                 const size_t *recv_bytes) {
  if (shm_of(c)) return tri_shm_all_to_all(shm_of(c), c, send, send_bytes, recv, recv_bytes);
  if (send_bytes[c->rank] != recv_bytes[c->rank]) return TRI_INVALID_ARGUMENT;
  for (size_t at = 0, end = 1; at < end; at += PIECE_BYTES) {
    const char *out = send;
    char *in = recv;
    tri_status st = TRI_OK;
    begin_exchanges(c);
    for (int r = 0; st == TRI_OK && r < c->size; r++) {
      size_t out_bytes = piece_at(send_bytes[r], at), in_bytes = piece_at(recv_bytes[r], at);
      if (r == c->rank)
        memcpy(in + at, out + at, in_bytes);
      else
        st = begin_exchange(c, r, in + at, in_bytes, out + at, out_bytes);
      end = end < send_bytes[r] ? send_bytes[r] : end;
      end = end < recv_bytes[r] ? recv_bytes[r] : end;
      out += send_bytes[r];
      in += recv_bytes[r];
    }
    TRI_CHECK(end_exchanges(c, st));
  }
  return TRI_OK;
}

static tri_status mpi_broadcast(tri_comm *c, void *buf, size_t bytes, int root) {
  MPI_Request req;
  if (bytes > INT_MAX) return TRI_TOO_LARGE;
  if (shm_of(c)) return tri_shm_broadcast(shm_of(c), c, buf, bytes, root);
  return check(c, MPI_Ibcast(buf, (int)bytes, MPI_BYTE, root, handle_of(c), &req), &req);
}

static tri_status mpi_barrier(tri_comm *c) {
  MPI_Request req;
  if (shm_of(c)) return tri_shm_barrier(shm_of(c), c);
  return check(c, MPI_Ibarrier(handle_of(c), &req), &req);
}

/* The request lies in the handle itself: Open MPI's is a pointer, MPICH's an int. */
static tri_status mpi_isend(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  if (bytes > INT_MAX) return TRI_TOO_LARGE;
  MPI_Request r;
  if (MPI_Isend(buf, (int)bytes, MPI_BYTE, peer, tag, handle_of(c), &r) != MPI_SUCCESS) return TRI_PEER_LOST;
  _Static_assert(sizeof r <= sizeof req->handle, "an MPI request fits into a handle");
  memcpy(&req->handle, &r, sizeof r);
  req->active = true;
  return TRI_OK;
}

/* A request whose wait has failed is not waited for again: the communicator is at its end then. */
static tri_status mpi_wait(tri_comm *c, tri_comm_req *req) {
  if (!req->active) return TRI_OK;
  MPI_Request r;
  memcpy(&r, &req->handle, sizeof r);
  tri_status st = complete(c, &r, 1);
  req->active = false;
  return st;
}

static tri_status mpi_recv(tri_comm *c, void *buf, size_t bytes, int peer, int tag) {
  MPI_Request r;
  if (bytes > INT_MAX) return TRI_TOO_LARGE;
  if (MPI_Irecv(buf, (int)bytes, MPI_BYTE, peer, tag, handle_of(c), &r) != MPI_SUCCESS) return TRI_PEER_LOST;
  tri_status st = complete(c, &r, 1);
  if (st != TRI_OK) take_back(&r, 1);
  return st;
}

/* One thread at a time calls a communicator, so the message that the probe has found is the one that the receive gets.
 */
static tri_status mpi_try_recv(tri_comm *c, void *buf, size_t cap, int peer, int tag, size_t *bytes) {
  int there = 0, n = 0;
  MPI_Status status;
  if (MPI_Iprobe(peer, tag, handle_of(c), &there, &status) != MPI_SUCCESS) return TRI_PEER_LOST;
  if (!there) return TRI_AGAIN;
  MPI_Get_count(&status, MPI_BYTE, &n);
  if ((size_t)n > cap) return TRI_TOO_LARGE;
  TRI_CHECK(tri_comm_recv(c, buf, (size_t)n, peer, tag));
  *bytes = (size_t)n;
  return TRI_OK;
}

static void mpi_destroy(tri_comm *c) {
  struct impl *impl = c->impl;
  bool failed = tri_comm_query(c) != TRI_OK;
  /* A communicator in error has operations that never end: freeing it could wait for them, and a message that comes
   * late is still written to the scratch. */
  if (impl->comm != MPI_COMM_WORLD && !failed) MPI_Comm_free(&impl->comm);
  tri_shm_close(impl->shm);
  if (!failed) tri_free(impl->scratch);
  tri_free(impl->requests);
  tri_free(impl);
  tri_free(c);
}

static tri_status wrap(MPI_Comm comm, const tri_comm_config *config, tri_comm **out);

static tri_status mpi_split(tri_comm *c, int color, int key, const tri_comm_config *config, tri_comm **out) {
  MPI_Comm comm;
  if (MPI_Comm_split(handle_of(c), color, key, &comm) != MPI_SUCCESS) return TRI_PEER_LOST; /* it has no deadline */
  return wrap(comm, config ? config : &c->cfg, out);
}

static const tri_comm_ops mpi_ops = {
    .name = "mpi",
    .all_reduce = mpi_all_reduce,
    .all_gather = mpi_all_gather,
    .reduce_scatter = mpi_reduce_scatter,
    .all_to_all = mpi_all_to_all,
    .broadcast = mpi_broadcast,
    .barrier = mpi_barrier,
    .isend = mpi_isend,
    .wait = mpi_wait,
    .recv = mpi_recv,
    .try_recv = mpi_try_recv,
    .split = mpi_split,
    .destroy = mpi_destroy,
};

/* Probing for nothing lets MPI move what is under way. */
static void progress(void *comm) {
  int there;
  MPI_Iprobe(MPI_ANY_SOURCE, TAG_NONE, *(MPI_Comm *)comm, &there, MPI_STATUS_IGNORE);
}

/* Shared memory for all of comm's ranks, or none for any of them. Blocking calls, as in MPI_Comm_split before it. */
static tri_status open_shm(MPI_Comm comm, int rank, int size, tri_shm **out) {
  MPI_Comm local;
  int local_size, opened, all = 0;
  char name[TRI_SHM_NAME_BYTES] = "";
  if (size < 2 || size > TRI_SHM_MAX_RANKS) return TRI_OK;
  if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local) != MPI_SUCCESS) return TRI_PEER_LOST;
  MPI_Comm_size(local, &local_size);
  MPI_Comm_free(&local);
  /* The name stays empty where this fails or is not tried, and all ranks learn by that that there is none to open. */
  if (rank == 0 && local_size == size) tri_shm_create(name, size, out);
  if (MPI_Bcast(name, sizeof name, MPI_CHAR, 0, comm) != MPI_SUCCESS) return TRI_PEER_LOST;
  if (rank && local_size == size && *name) tri_shm_open(name, rank, size, out);
  opened = *out != NULL;
  int rc = MPI_Allreduce(&opened, &all, 1, MPI_INT, MPI_MIN, comm);
  /* Every rank has it open by now, or has failed to: without a name the memory ends with the last rank, however that
   * ends. */
  if (rank == 0 && *name) tri_shm_unlink(name);
  if (rc == MPI_SUCCESS && all) return TRI_OK;
  tri_shm_close(*out);
  *out = NULL;
  return rc == MPI_SUCCESS ? TRI_OK : TRI_PEER_LOST;
}

/* Collective over comm, as open_shm is; owns comm then, but for MPI_COMM_WORLD. */
static tri_status wrap(MPI_Comm comm, const tri_comm_config *config, tri_comm **out) {
  tri_comm *c = tri_calloc(1, sizeof *c);
  struct impl *impl = tri_calloc(1, sizeof *impl);
  if (!c || !impl) {
    tri_free(c);
    tri_free(impl);
    return TRI_NO_MEMORY;
  }
  impl->comm = comm;
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  c->ops = &mpi_ops;
  c->impl = impl;
  MPI_Comm_rank(comm, &c->rank);
  MPI_Comm_size(comm, &c->size);
  c->cfg = *config;
  impl->requests = tri_calloc(2 * (size_t)c->size, sizeof(MPI_Request));
  tri_status st = impl->requests ? TRI_OK : TRI_NO_MEMORY;
  if (st == TRI_OK && !config->messages_only) st = open_shm(comm, c->rank, c->size, &impl->shm);
  if (st != TRI_OK) {
    mpi_destroy(c);
    return st;
  }
  if (impl->shm) tri_shm_set_progress(impl->shm, progress, &impl->comm);
  *out = c;
  return TRI_OK;
}

tri_status tri_mpi_init(int *argc, char ***argv, tri_error *err) {
  int provided;
  tri_mpi_choose_transport();
  /* Only the step thread calls MPI once the others run. */
  if (MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_SERIALIZED)
    return tri_fail(err, TRI_UNSUPPORTED, "mpi", "this MPI gives no MPI_THREAD_SERIALIZED");
  return TRI_OK;
}

tri_status tri_comm_mpi_world(const tri_comm_config *config, tri_comm **out) {
  return wrap(MPI_COMM_WORLD, config, out);
}

tri_status tri_comm_mpi_local(tri_comm *c, int *local_rank, int *local_size) {
  MPI_Comm local;
  if (MPI_Comm_split_type(handle_of(c), MPI_COMM_TYPE_SHARED, c->rank, MPI_INFO_NULL, &local) != MPI_SUCCESS)
    return tri_comm_fail(c, TRI_PEER_LOST);
  MPI_Comm_rank(local, local_rank);
  MPI_Comm_size(local, local_size);
  MPI_Comm_free(&local);
  return TRI_OK;
}

void tri_mpi_finalize(void) { MPI_Finalize(); }
void tri_mpi_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }
