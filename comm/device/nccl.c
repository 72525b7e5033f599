/* SPDX-License-Identifier: Apache-2.0 */
/* The only file that knows nccl.h.
 *
 * The communicator is made in NCCL's non-blocking mode: every call may say "in progress", and is then polled with the
 * host communicator's policy and time limit, so that a peer that died leaves no rank waiting without end. */
#include "comm/device/nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <string.h>

#include "comm/distinct.h"
#include "kernels/cuda/cuda.h"
#include "base/mem.h"

enum { MIN_VERSION = 21800 }; /* 2.18: non-blocking communicators with the configuration of today's headers */

/* The library is opened when a communicator is made, and not linked: one build serves hosts with and without it. */
#define FUNCTIONS(X)                                                                                                   \
  X(ncclGetVersion)                                                                                                    \
  X(ncclGetUniqueId)                                                                                                   \
  X(ncclCommInitRankConfig)                                                                                            \
  X(ncclCommGetAsyncError)                                                                                             \
  X(ncclCommAbort)                                                                                                     \
  X(ncclCommFinalize)                                                                                                  \
  X(ncclCommDestroy)                                                                                                   \
  X(ncclGetErrorString)                                                                                                \
  X(ncclAllReduce)                                                                                                     \
  X(ncclAllGather)                                                                                                     \
  X(ncclReduceScatter)                                                                                                 \
  X(ncclBroadcast)                                                                                                     \
  X(ncclSend)                                                                                                          \
  X(ncclRecv)

struct impl {
  void *library;
#define X(f) __typeof__(&(f)) f;
  FUNCTIONS(X)
#undef X
  ncclComm_t comm;
  tri_backend *be;
};

static struct impl *impl_of(const tri_comm *c) { return c->impl; }

/* Returns the stream that ops go to now, be it the side lane's: what a call takes was made there. */
static cudaStream_t stream_of(const struct impl *n) { return tri_cuda_stream(n->be); }

/* An earlier failure, of this rank's calls or of what they set going, comes first. */
static tri_status nccl_poll(tri_comm *c) {
  ncclResult_t state = ncclSuccess;
  if (tri_comm_query(c) != TRI_OK) return tri_comm_query(c);
  impl_of(c)->ncclCommGetAsyncError(impl_of(c)->comm, &state);
  return state == ncclSuccess || state == ncclInProgress ? TRI_OK : tri_comm_fail(c, TRI_PEER_LOST);
}

/* Waits until an operation that was started with r has ended. Returns its result. */
static ncclResult_t wait_for(tri_comm *c, ncclResult_t r) {
  tri_wait w = tri_wait_begin(&c->cfg.policy, tri_deadline_after_ms(c->cfg.timeout_ms));
  while (r == ncclInProgress) {
    if (tri_wait_pause(&w) != TRI_OK) return ncclRemoteError;
    if (impl_of(c)->ncclCommGetAsyncError(impl_of(c)->comm, &r) != ncclSuccess) return ncclInternalError;
  }
  return r;
}

static tri_status check(tri_comm *c, ncclResult_t r) {
  return wait_for(c, r) == ncclSuccess ? TRI_OK : tri_comm_fail(c, TRI_PEER_LOST);
}

static tri_status all_reduce_of(tri_comm *c, ncclDataType_t type, void *buf, size_t count) {
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  if (st != TRI_OK || !count) return st;
  return check(c, n->ncclAllReduce(buf, buf, count, type, ncclSum, n->comm, stream_of(n)));
}

static tri_status nccl_all_reduce(tri_comm *c, float *buf, size_t count) {
  return all_reduce_of(c, ncclFloat32, buf, count);
}

static tri_status nccl_all_reduce_bf16(tri_comm *c, uint16_t *buf, size_t count) {
  return all_reduce_of(c, ncclBfloat16, buf, count);
}

static tri_status nccl_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  if (st != TRI_OK || !bytes) return st;
  return check(c, n->ncclAllGather(send, recv, bytes, ncclInt8, n->comm, stream_of(n)));
}

static tri_status nccl_reduce_scatter(tri_comm *c, const float *send, float *recv, size_t count) {
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  if (st != TRI_OK || !count) return st;
  return check(c, n->ncclReduceScatter(send, recv, count, ncclFloat32, ncclSum, n->comm, stream_of(n)));
}

static tri_status nccl_broadcast(tri_comm *c, void *buf, size_t bytes, int root) {
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  if (st != TRI_OK || !bytes) return st;
  return check(c, n->ncclBroadcast(buf, buf, bytes, ncclInt8, root, n->comm, stream_of(n)));
}

static tri_status nccl_isend(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  (void)tag;
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  req->active = false; /* the stream keeps the order */
  return st == TRI_OK ? check(c, n->ncclSend(buf, bytes, ncclInt8, peer, n->comm, stream_of(n))) : st;
}

static tri_status nccl_wait(tri_comm *c, tri_comm_req *req) {
  (void)req;
  return tri_comm_query(c);
}

static tri_status nccl_recv(tri_comm *c, void *buf, size_t bytes, int peer, int tag) {
  (void)tag;
  struct impl *n = impl_of(c);
  tri_status st = nccl_poll(c);
  return st == TRI_OK ? check(c, n->ncclRecv(buf, bytes, ncclInt8, peer, n->comm, stream_of(n))) : st;
}

static void nccl_destroy(tri_comm *c) {
  struct impl *n = impl_of(c);
  if (n->comm) {
    /* A peer that is gone would be waited for. */
    bool sound = tri_comm_query(c) == TRI_OK && wait_for(c, n->ncclCommFinalize(n->comm)) == ncclSuccess;
    if (sound)
      n->ncclCommDestroy(n->comm);
    else
      n->ncclCommAbort(n->comm);
  }
  if (n->library) dlclose(n->library);
  tri_free(n);
  tri_free(c);
}

static const tri_comm_ops nccl_ops = {
    .name = "nccl",
    .all_reduce = nccl_all_reduce,
    .all_reduce_bf16 = nccl_all_reduce_bf16,
    .all_gather = nccl_all_gather,
    .reduce_scatter = nccl_reduce_scatter,
    .broadcast = nccl_broadcast,
    .isend = nccl_isend,
    .wait = nccl_wait,
    .recv = nccl_recv,
    .poll = nccl_poll,
    .destroy = nccl_destroy,
};

static tri_status open_library(struct impl *n, tri_error *err) {
  int version = 0;
  n->library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!n->library) return tri_fail(err, TRI_UNSUPPORTED, "nccl", "several GPUs need NCCL: %s", dlerror());
#define X(f)                                                                                                           \
  *(void **)&n->f = dlsym(n->library, #f);                                                                             \
  if (!n->f) return tri_fail(err, TRI_UNSUPPORTED, "nccl", "libnccl.so.2 has no %s: it is too old", #f);
  FUNCTIONS(X)
#undef X
  if (n->ncclGetVersion(&version) != ncclSuccess || version < MIN_VERSION)
    return tri_fail(err, TRI_UNSUPPORTED, "nccl", "NCCL %d.%d.%d is too old: 2.18 or later is needed", version / 10000,
                    version / 100 % 100, version % 100);
  return TRI_OK;
}

/* Two ranks on one device would wait for each other's kernels. */
static tri_status check_devices(const tri_backend *be, tri_comm *host, tri_error *err) {
  struct cudaDeviceProp p;
  int twins[2];
  if (cudaGetDeviceProperties(&p, tri_cuda_of(be)->device) != cudaSuccess) memset(&p, host->rank, sizeof p);
  tri_status st = tri_comm_find_twins(host, &p.uuid, sizeof p.uuid, twins);
  if (st != TRI_OK) return tri_fail(err, st, "nccl", "the ranks' GPUs cannot be compared: %s", tri_status_text(st));
  if (twins[0] < 0) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "device",
                  "ranks %d and %d of a replica are on the same GPU: each needs its own", twins[1], twins[0]);
}

/* Rank 0 makes the id, and all agree that it could before the id is broadcast: a rank that waited for it alone would
 * wait for its time limit. */
static tri_status connect(tri_comm *c, tri_comm *host, tri_error *err) {
  struct impl *n = impl_of(c);
  ncclUniqueId id = {{0}};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t r = host->rank ? ncclSuccess : n->ncclGetUniqueId(&id);
  tri_status st = tri_comm_agree(host, r == ncclSuccess ? TRI_OK : TRI_UNSUPPORTED);
  if (st == TRI_OK) st = tri_comm_broadcast(host, &id, sizeof id, 0);
  if (st != TRI_OK) return tri_fail(err, st, "nccl", "NCCL: %s", tri_status_text(st));
  config.blocking = 0;
  r = wait_for(c, n->ncclCommInitRankConfig(&n->comm, host->size, id, host->rank, &config));
  if (r == ncclSuccess) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "nccl", "NCCL cannot connect %d ranks: %s", host->size,
                  n->ncclGetErrorString(r));
}

tri_status tri_comm_nccl_create(tri_backend *be, tri_comm *host, tri_comm **out, tri_error *err) {
  tri_comm *c = tri_calloc(1, sizeof *c);
  struct impl *n = tri_calloc(1, sizeof *n);
  tri_status st = TRI_OK;
  if (!c || !n) {
    tri_free(c);
    tri_free(n);
    return tri_comm_agree(host, tri_fail(err, TRI_NO_MEMORY, "nccl", "no memory"));
  }
  c->ops = &nccl_ops;
  c->impl = n;
  c->rank = host->rank;
  c->size = host->size;
  c->cfg = host->cfg;
  n->be = be;
  TRI_TRY(tri_comm_agree(host, open_library(n, err)));
  TRI_TRY(check_devices(be, host, err));
  TRI_TRY(connect(c, host, err));
  *out = c;
  return TRI_OK;
cleanup:
  tri_comm_fail(c, st);
  nccl_destroy(c);
  return st;
}
