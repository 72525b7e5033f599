/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers through mailboxes in the receiver's memory. They are sent on a stream of their own, so that the next lane's
 * step does not wait until this one's receiver is ready; what is received is queued on the compute stream, where the
 * steps that it is for stand in the order in which it comes. What is longer than a slot goes in several messages. */
#include <string.h>

#include "comm/device/p2p_impl.h"
#include "base/mem.h"

static size_t slot_bytes(const tri_comm *c) {
  size_t slots = (size_t)c->size * (size_t)c->size * TRI_CUDA_MAILBOX_SLOTS, align = 256;
  return TRI_P2P_MAILBOX_BYTES / slots / align * align;
}

/* The message's slot and numbers, where `from` sends to `to`. Each rank's memory begins with numbers,
 * TRI_P2P_NUMBER_STRIDE bytes apart: by [from][lane] of the last message that has arrived, then by [to][lane] of the
 * last one of its own that was taken; the slots follow, [from][lane][TRI_CUDA_MAILBOX_SLOTS]. A rank polls its own
 * memory alone. */
static tri_cuda_message message_of(const tri_comm *c, int from, int to, int lane, uint32_t number) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  size_t here = (size_t)(from * c->size + lane), there = (size_t)(to * c->size + lane);
  size_t slot = here * TRI_CUDA_MAILBOX_SLOTS + number % TRI_CUDA_MAILBOX_SLOTS;
  return (tri_cuda_message){
      .slot = p->memory[to] + TRI_P2P_NUMBERS_BYTES + slot * slot_bytes(c),
      .arrived = (uint32_t *)(p->memory[to] + here * TRI_P2P_NUMBER_STRIDE),
      .taken = (uint32_t *)(p->memory[from] + TRI_P2P_NUMBERS_BYTES / 2 + there * TRI_P2P_NUMBER_STRIDE),
      .blocks = p->mailboxes.blocks + (to == c->rank),
      .number = number,
      .error = p->error,
      .limit_ns = (uint64_t)c->cfg.timeout_ms * 1000000,
  };
}
_Static_assert(TRI_P2P_RANKS *TRI_P2P_RANKS *TRI_P2P_NUMBER_STRIDE <= TRI_P2P_NUMBERS_BYTES / 2, "room for numbers");

/* The size of the next message, of a transfer of which so much is left. */
static size_t message_bytes(const tri_comm *c, size_t left) {
  size_t most = slot_bytes(c);
  return left < most ? left : most;
}

tri_status tri_p2p_send(tri_comm *c, const void *buf, size_t bytes, int peer, int tag, tri_comm_req *req) {
  tri_p2p_mailboxes *m = &tri_p2p_impl_of(c)->mailboxes;
  tri_backend *be = tri_p2p_impl_of(c)->backend;
  cudaStream_t stream = tri_p2p_send_stream(c);
  int lane = tag % c->size;
  cudaEvent_t sent = m->sent[peer][lane];
  if (bytes % sizeof(float)) return TRI_UNSUPPORTED;
  be->ops.event_record(be, TRI_EVENT_SEND, TRI_STREAM_COMPUTE);
  be->ops.stream_wait(be, TRI_STREAM_SEND, TRI_EVENT_SEND);
  for (size_t at = 0, n; at < bytes; at += n) {
    tri_cuda_message message = message_of(c, c->rank, peer, lane, ++m->num_sent.of[peer][lane]);
    n = message_bytes(c, bytes - at);
    /* The first ones find their slots empty, as a rule; the others wait, for a step of the receiver's perhaps. */
    if (at >= TRI_CUDA_MAILBOX_SLOTS * slot_bytes(c)) tri_cuda_mailbox_await(stream, &message);
    tri_cuda_mailbox_send(stream, &message, (const char *)buf + at, n);
  }
  if (cudaGetLastError() != cudaSuccess || cudaEventRecord(sent, stream) != cudaSuccess) return TRI_DEVICE_LOST;
  *req = (tri_comm_req){.handle = sent, .active = true};
  return TRI_OK;
}

/* The host continues: what is launched from here on waits. */
tri_status tri_p2p_wait_sent(tri_comm *c, tri_comm_req *req) {
  if (!req->active) return TRI_OK;
  req->active = false;
  return cudaStreamWaitEvent(tri_p2p_stream(c), req->handle, 0) == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}

tri_status tri_p2p_receive(tri_comm *c, void *buf, size_t bytes, int peer, int tag) {
  tri_p2p_mailboxes *m = &tri_p2p_impl_of(c)->mailboxes;
  int lane = tag % c->size;
  if (bytes % sizeof(float)) return TRI_UNSUPPORTED;
  for (size_t at = 0, n; at < bytes; at += n) {
    tri_cuda_message message = message_of(c, peer, c->rank, lane, ++m->num_received.of[peer][lane]);
    n = message_bytes(c, bytes - at);
    tri_cuda_mailbox_receive(tri_p2p_stream(c), &message, (char *)buf + at, n);
  }
  return cudaGetLastError() == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}

/* ---- the check ---- */

enum { TRANSFERS = 4, WORDS = 100003 }; /* every other one is of whole vectors */

static uint32_t word_of(int rank, int transfer, size_t i) {
  return (uint32_t)i * 2654435761u ^ (uint32_t)(rank * 1000 + transfer);
}

/* Sends a transfer to the next rank and checks the last rank's. device: what to send, and room for what comes. */
static tri_status pass_on(tri_comm *c, uint32_t *device, uint32_t *host, int transfer, tri_error *err) {
  const size_t words = WORDS - (size_t)(transfer % 2) * 3, bytes = words * sizeof *host;
  uint32_t *in = device + WORDS + 1;
  int next = (c->rank + 1) % c->size, last = (c->rank + c->size - 1) % c->size;
  cudaStream_t stream = tri_p2p_stream(c);
  tri_comm_req req = {0};
  tri_status st = TRI_OK;
  for (size_t i = 0; i < words; i++) host[i] = word_of(c->rank, transfer, i);
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "the device", err));
  st = tri_p2p_send(c, device, bytes, next, transfer, &req);
  if (st == TRI_OK) st = tri_p2p_receive(c, in, bytes, last, transfer);
  if (st == TRI_OK) st = tri_p2p_wait_sent(c, &req);
  if (st != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "a transfer: %s", tri_status_text(st));
  TRI_CHECK(tri_p2p_need(cudaMemcpyAsync(host, in, bytes, cudaMemcpyDeviceToHost, stream), "the device", err));
  TRI_CHECK(tri_p2p_need(cudaStreamSynchronize(stream), "the device", err));
  if (tri_comm_query(c) != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "what a peer sent did not come");
  for (size_t i = 0; i < words; i++)
    if (host[i] != word_of(last, transfer, i))
      return tri_fail(err, TRI_UNSUPPORTED, "p2p", "what a peer sent came out wrong");
  return st;
}

tri_status tri_p2p_check_mailboxes(tri_comm *c, tri_error *err) {
  uint32_t *host = tri_malloc(WORDS, sizeof *host), *device = NULL;
  tri_status st = host ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "p2p", "no memory");
  if (st == TRI_OK)
    st = tri_p2p_need(cudaMalloc((void **)&device, (2 * WORDS + 1) * sizeof *host), "no device memory", err);
  for (int i = 0; st == TRI_OK && i < TRANSFERS; i++) st = pass_on(c, device, host, i, err);
  cudaFree(device);
  tri_free(host);
  return st;
}
