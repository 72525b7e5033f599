/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between stages: what comes, in which order, and what they take. */
#include <string.h>
#include <time.h>

#include "comm/device/p2p_impl.h"
#include "tests/comm/device_comm.h"

enum { ROUNDS = 400, SLOT_WORDS = 1 << 16, REPEATS = 200 };

static size_t words_of(uint32_t round, int lane) {
  uint32_t x = dc_mix(round * 64 + (uint32_t)lane);
  return 1 + dc_mix(x) % (1u << (1 + x % 16));
}

/* As a float, which the buffers hold; every bit pattern may come. */
static float word_of(int rank, uint32_t round, int lane, size_t i) {
  uint32_t bits = dc_mix((uint32_t)i * 31 + (uint32_t)rank * 7919 + round * 104729 + (uint32_t)lane);
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

static void fill(dc_rank *d, int rank, uint32_t round, float *to) {
  for (int lane = 0; lane < d->host->size; lane++)
    for (size_t i = 0; i < words_of(round, lane); i++)
      to[(size_t)lane * SLOT_WORDS + i] = word_of(rank, round, lane, i);
}

/* Every rank sends to the next one, all lanes before it looks for what comes, from and to addresses of every kind; now
 * and then one is late. What is sent of a lane changes as soon as its transfer has been waited for. */
static void send_round(dc_rank *d, uint32_t round) {
  const int size = d->host->size, next = (d->host->rank + 1) % size, last = (d->host->rank + size - 1) % size;
  const size_t all = (size_t)size * SLOT_WORDS, odd = round % 4, bytes = all * sizeof(float);
  float *out = d->device + odd, *in = d->device + all + DC_SLACK + (round / 4) % 4;
  tri_comm_req reqs[8] = {{0}};
  fill(d, d->host->rank, round, d->mine);
  fill(d, last, round, d->want);
  DC_MUST(cudaMemcpyAsync(out, d->mine, bytes, cudaMemcpyHostToDevice, tri_cuda_stream(&d->be)) == cudaSuccess);
  if (dc_mix(round + (uint32_t)d->host->rank) % 8 == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  for (int lane = 0; lane < size; lane++)
    DC_MUST(tri_comm_isend(d->comm, out + (size_t)lane * SLOT_WORDS, words_of(round, lane) * sizeof(float), next,
                           16 + lane, &reqs[lane]) == TRI_OK);
  for (int k = size - 1; k >= 0; k--) { /* in another order than they were sent */
    int lane = round % 2 ? k : size - 1 - k;
    DC_MUST(tri_comm_recv(d->comm, in + (size_t)lane * SLOT_WORDS, words_of(round, lane) * sizeof(float), last,
                          16 + lane) == TRI_OK);
  }
  for (int lane = 0; lane < size; lane++) DC_MUST(tri_comm_wait(d->comm, &reqs[lane]) == TRI_OK);
  DC_MUST(cudaMemsetAsync(d->device, 0, bytes, tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(cudaMemcpyAsync(d->got, in, bytes, cudaMemcpyDeviceToHost, tri_cuda_stream(&d->be)) == cudaSuccess);
  dc_sync(d);
  for (int lane = 0; lane < size; lane++)
    DC_MUST(!memcmp(d->got + (size_t)lane * SLOT_WORDS, d->want + (size_t)lane * SLOT_WORDS,
                    words_of(round, lane) * sizeof(float)));
}

/* A transfer longer than a slot goes in several messages, between two that are small: its waits hold up no compute
 * stream. */
static void send_much(dc_rank *d) {
  enum { MOST = 10 << 20, FEW = 1000, LATE_MS = 50 };
  const size_t n = MOST + 5, counts[] = {FEW, n, FEW};
  tri_comm_req req = {0};
  if (d->host->rank > 1) return;
  float *host = calloc(n, sizeof *host), *got = calloc(n, sizeof *got), *device;
  DC_MUST(host && got && cudaMalloc((void **)&device, n * sizeof *device) == cudaSuccess);
  for (size_t i = 0; i < n; i++) host[i] = word_of(0, 1, 2, i);
  if (!d->host->rank) DC_MUST(cudaMemcpy(device, host, n * sizeof *host, cudaMemcpyHostToDevice) == cudaSuccess);
  if (d->host->rank) nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000}, NULL);
  int64_t t = tri_now_ns();
  for (int i = 0; i < 3; i++) {
    size_t bytes = counts[i] * sizeof *device;
    if (d->host->rank) {
      DC_MUST(cudaMemsetAsync(device, 0, n * sizeof *device, tri_cuda_stream(&d->be)) == cudaSuccess);
      DC_MUST(tri_comm_recv(d->comm, device, bytes, 0, 16) == TRI_OK);
      dc_sync(d);
      DC_MUST(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost) == cudaSuccess && !memcmp(got, host, bytes));
    } else {
      DC_MUST(tri_comm_isend(d->comm, device, bytes, 1, 16, &req) == TRI_OK);
    }
  }
  dc_sync(d);
  if (!d->host->rank) DC_MUST(dc_elapsed_ms(t) < LATE_MS);
  DC_MUST(tri_comm_wait(d->comm, &req) == TRI_OK);
  dc_sync(d);
  cudaFree(device);
  free(host), free(got);
}

void dc_test_transfers(dc_rank *d) {
  _Static_assert(2 * 8 * SLOT_WORDS + 2 * DC_SLACK <= DC_MOST, "room for all lanes, in and out");
  for (uint32_t round = 0; round < ROUNDS; round++) send_round(d, round);
  send_much(d);
}

/* A message that nobody sends ends with its limit; those that nobody takes hold up no compute stream. */
void dc_test_no_message(dc_rank *d) {
  enum { MORE = TRI_CUDA_MAILBOX_SLOTS + 1 };
  tri_comm_req reqs[MORE] = {{0}};
  d->comm->cfg.timeout_ms = 300;
  int64_t t = tri_now_ns();
  if (!d->host->rank) {
    for (int i = 0; i < MORE; i++) DC_MUST(tri_comm_isend(d->comm, d->device, 4096, 1, 16, &reqs[i]) == TRI_OK);
    DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess && dc_elapsed_ms(t) < 200);
    DC_MUST(tri_comm_wait(d->comm, &reqs[MORE - 1]) == TRI_OK);
  } else {
    DC_MUST(tri_comm_recv(d->comm, d->device, 4096, d->host->rank - 1, 17) == TRI_OK);
  }
  DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(dc_elapsed_ms(t) >= 300);
  DC_MUST(tri_comm_query(d->comm) == TRI_PEER_LOST);
  DC_MUST(tri_comm_isend(d->comm, d->device, 4, 0, 16, &reqs[0]) == TRI_PEER_LOST);
}

/* ---- times ---- */

/* To rank 1 and back, through mailboxes or through the library; half of it, in microseconds. */
static double one_way(dc_rank *d, tri_comm *c, size_t bytes) {
  int64_t start = 0;
  tri_comm_req req = {0};
  for (int i = -20; i < REPEATS; i++) {
    if (!i) {
      dc_sync(d);
      start = tri_now_ns();
    }
    if (d->host->rank) DC_MUST(tri_comm_recv(c, d->device, bytes, 0, 16) == TRI_OK);
    DC_MUST(tri_comm_isend(c, d->device, bytes, !d->host->rank, 16, &req) == TRI_OK);
    if (!d->host->rank) DC_MUST(tri_comm_recv(c, d->device, bytes, 1, 16) == TRI_OK);
    DC_MUST(tri_comm_wait(c, &req) == TRI_OK);
  }
  dc_sync(d);
  return (double)(tri_now_ns() - start) / 1000 / REPEATS / 2;
}

void dc_bench_transfers(dc_rank *d) {
  if (d->host->rank > 1) return;
  for (size_t bytes = 16 << 10; bytes <= DC_MOST * sizeof(float); bytes *= bytes < 4 << 20 ? 4 : 2) {
    double ours = one_way(d, d->comm, bytes), library = one_way(d, d->comm->fallback, bytes);
    if (!d->host->rank) printf("transfer of %5zu KiB: mailboxes %7.1f us, NCCL %7.1f us\n", bytes >> 10, ours, library);
  }
}
