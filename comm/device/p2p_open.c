/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of each device that the others of its host can write to. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/device/p2p_impl.h"
#include "base/mem.h"

enum { SETUP_MS = 5000, LEAST_THREADS = 128 };

/* The others must know this of a rank. */
struct card {
  char boot[40]; /* identifies the host's kernel since it was started */
  int32_t processors;
  cudaIpcMemHandle_t handle;
};

/* ---- this rank's side ---- */

static tri_status make_sums(tri_comm *c, tri_error *err) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  size_t counters = TRI_CUDA_REDUCE_BLOCKS * sizeof *p->reduce.rounds;
  p->reduce.rank = c->rank;
  p->reduce.size = c->size;
  p->reduce.error = p->error;
  TRI_CHECK(tri_p2p_need(cudaMalloc((void **)&p->reduce.rounds, counters), "no device memory", err));
  TRI_CHECK(tri_p2p_need(cudaMemsetAsync(p->reduce.rounds, 0, counters, tri_p2p_stream(c)), "the device", err));
  TRI_CHECK(tri_p2p_need(tri_cuda_reduce_load(c->size), "its kernels", err));
  TRI_CHECK(tri_p2p_need(tri_cuda_gather_load(c->size), "its kernels", err));
  return TRI_OK;
}

static tri_status make_mailboxes(tri_comm *c, tri_error *err) {
  tri_p2p_mailboxes *m = &tri_p2p_impl_of(c)->mailboxes;
  size_t counters = 2 * sizeof *m->blocks;
  for (int r = 0; r < c->size; r++)
    for (int l = 0; l < c->size; l++)
      TRI_CHECK(tri_p2p_need(cudaEventCreateWithFlags(&m->sent[r][l], cudaEventDisableTiming), "no event", err));
  TRI_CHECK(tri_p2p_need(cudaMalloc((void **)&m->blocks, counters), "no device memory", err));
  TRI_CHECK(tri_p2p_need(cudaMemsetAsync(m->blocks, 0, counters, tri_p2p_stream(c)), "the device", err));
  TRI_CHECK(tri_p2p_need(tri_cuda_mailbox_load(), "its kernels", err));
  return TRI_OK;
}

static tri_status make_own(tri_comm *c, const tri_rows_config *rows, tri_error *err) {
  switch (tri_p2p_impl_of(c)->use) {
  case TRI_COMM_SUMS: return make_sums(c, err);
  case TRI_COMM_TRANSFERS: return make_mailboxes(c, err);
  default: return tri_p2p_make_rows(c, rows, err);
  }
}

_Static_assert((int)TRI_CUDA_ALL2ALL_EMPTY == (int)TRI_CUDA_REDUCE_EMPTY, "what waits for no number has one mark");

/* Returns the bytes of memory that others can open, and what each of them is before the first use. */
static size_t memory_of(const tri_p2p_impl *p, int *fill) {
  size_t rows = 0;
  *fill = p->use == TRI_COMM_TRANSFERS ? 0 : TRI_CUDA_REDUCE_EMPTY;
  if (p->use == TRI_COMM_SUMS) return TRI_CUDA_REDUCE_BYTES;
  if (p->use == TRI_COMM_TRANSFERS) return TRI_P2P_TRANSFER_BYTES;
  return tri_rows_bytes(&p->all2all.cfg, &rows) ? rows : SIZE_MAX;
}

/* The fill is what the kernels take for "not here yet": it must be on the device before a peer can write. */
static tri_status make_memory(tri_comm *c, struct card *card, tri_error *err) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  char **memory = &p->memory[c->rank];
  int fill;
  size_t bytes = memory_of(p, &fill);
  TRI_CHECK(tri_p2p_need(cudaMalloc((void **)memory, bytes), "no device memory", err));
  TRI_CHECK(tri_p2p_need(cudaMemsetAsync(*memory, fill, bytes, tri_p2p_stream(c)), "the device", err));
  TRI_CHECK(tri_p2p_need(cudaStreamSynchronize(tri_p2p_stream(c)), "the device", err));
  TRI_CHECK(tri_p2p_need(cudaIpcGetMemHandle(&card->handle, *memory), "device memory cannot be shared", err));
  return TRI_OK;
}

/* Identifies the host as NCCL does: by NCCL_HOSTID where that is set, as for halves of a machine that are to do without
 * each other's memory. */
static tri_status describe_host(int device, struct card *card, tri_error *err) {
  const char *named = getenv("NCCL_HOSTID");
  int fd = named ? -1 : open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  bool known = named || (fd >= 0 && read(fd, card->boot, sizeof card->boot - 1) > 0);
  if (named) snprintf(card->boot, sizeof card->boot, "NCCL_HOSTID %.26s", named);
  if (fd >= 0) close(fd);
  if (!known) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "the host has no boot_id");
  return tri_p2p_need(cudaDeviceGetAttribute(&card->processors, cudaDevAttrMultiProcessorCount, device), "the device",
                      err);
}

/* The communicator lies where the device sees its error. */
static tri_status make(tri_backend *be, tri_comm *host, tri_comm_use use, const tri_rows_config *rows, tri_comm **out,
                       struct card *card, tri_error *err) {
  tri_comm *c = NULL;
  tri_p2p_impl *p = tri_calloc(1, sizeof *p);
  tri_status st = p ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "p2p", "no memory");
  if (st == TRI_OK)
    st = tri_p2p_need(cudaHostAlloc((void **)&c, sizeof *c, cudaHostAllocMapped), "no pinned memory", err);
  if (st != TRI_OK) {
    tri_free(p);
    return st;
  }
  memset(c, 0, sizeof *c);
  *c = (tri_comm){.rank = host->rank, .size = host->size, .cfg = host->cfg, .impl = p};
  c->cfg.timeout_ms = SETUP_MS;
  p->host = host;
  p->backend = be;
  p->use = use;
  *out = c;
  TRI_CHECK(tri_p2p_need(cudaHostGetDevicePointer((void **)&p->error, (void *)&c->error, 0), "no mapped memory", err));
  TRI_CHECK(make_own(c, rows, err));
  TRI_CHECK(make_memory(c, card, err));
  TRI_CHECK(describe_host(tri_cuda_of(be)->device, card, err));
  return st;
}

/* ---- the others' ---- */

/* Every block of a sum must be on its device at once: those of the smallest device count. */
static tri_status open_peers(tri_comm *c, const struct card *mine, tri_error *err) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  struct card all[TRI_P2P_RANKS];
  tri_status st = tri_comm_all_gather(p->host, mine, all, sizeof *mine);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "the ranks cannot reach each other: %s", tri_status_text(st));
  p->threads = LEAST_THREADS;
  p->blocks = TRI_CUDA_REDUCE_BLOCKS;
  for (int r = 0; r < c->size; r++) {
    if (memcmp(all[r].boot, all[0].boot, sizeof all[r].boot)) /* the same cards everywhere, the same verdict */
      return tri_fail(err, TRI_UNSUPPORTED, "p2p", "ranks 0 and %d are on different hosts", r);
    if (all[r].processors < p->blocks) p->blocks = all[r].processors;
  }
  tri_error here = {0};
  for (int r = 0; r < c->size && here.status == TRI_OK; r++) {
    if (r == c->rank) continue;
    cudaError_t e = cudaIpcOpenMemHandle((void **)&p->memory[r], all[r].handle, cudaIpcMemLazyEnablePeerAccess);
    p->opened[r] = e == cudaSuccess;
    tri_p2p_need(e, "a peer's memory cannot be opened", &here);
  }
  memcpy(p->reduce.memory, p->memory, sizeof p->memory);
  memcpy(p->all2all.memory, p->memory, sizeof p->memory);
  return tri_p2p_agree(p->host, &here, err);
}

/* The device may still use peers' memory: both streams end before that is let go. */
void tri_p2p_close(tri_comm *c) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  cudaStreamSynchronize(tri_p2p_send_stream(c));
  cudaStreamSynchronize(tri_p2p_stream(c));
  for (int r = 0; r < c->size; r++)
    if (p->opened[r]) cudaIpcCloseMemHandle(p->memory[r]);
}

void tri_p2p_free(tri_comm *c) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  tri_p2p_mailboxes *m = &p->mailboxes;
  cudaFree(p->memory[c->rank]);
  cudaFree(p->reduce.rounds);
  cudaFree(p->all2all.rounds);
  cudaFree(m->blocks);
  for (int r = 0; r < c->size; r++)
    for (int l = 0; l < c->size; l++)
      if (m->sent[r][l]) cudaEventDestroy(m->sent[r][l]);
  cudaGetLastError(); /* nothing here is worth telling */
  tri_free(p);
  cudaFreeHost(c);
}

/* A rank whose own part has failed still takes part in the agreement: the others would wait for it otherwise. */
tri_status tri_p2p_open(tri_backend *be, tri_comm *host, tri_comm_use use, const tri_rows_config *rows, tri_comm **out,
                        tri_error *err) {
  struct card card = {0};
  tri_error here = {0};
  make(be, host, use, rows, out, &card, &here);
  TRI_CHECK(tri_p2p_agree(host, &here, err));
  return open_peers(*out, &card, err);
}
