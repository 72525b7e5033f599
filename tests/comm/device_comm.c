/* SPDX-License-Identifier: Apache-2.0 */
/* All-reduces, gathers, transfers and the exchange of experts' rows over the devices of this host: kernels that write
 * to each other's memory, and NCCL behind them.
 *
 *   device_comm --fork N [--rounds R] [--bench]
 *
 * Forks N processes, rank r on device r, whose host communicator is shared memory; neither MPI nor the module is
 * needed. Every rank makes every rank's numbers itself and adds them in rank order: results must have exactly those
 * bits. Exit code 77: skipped, with the reason. */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/shm.h"
#include "tests/comm/device_comm.h"
#include "tests/comm/device_rows.h"

enum { SKIPPED = 77, LIMIT_S = 570, HOST_MS = 60000 };

static int rounds = 3000;

void dc_fail(const dc_rank *d, const char *file, int line, const char *what) {
  fprintf(stderr, "device_comm: rank %d: %s:%d: %s (communicator: %s, device: %s)\n", d->host->rank, file, line, what,
          d->comm ? tri_status_text(tri_comm_query(d->comm)) : "none", cudaGetErrorString(cudaPeekAtLastError()));
  fflush(stderr);
  _exit(1);
}

uint32_t dc_mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

void dc_sync(dc_rank *d) {
  DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(tri_comm_query(d->comm) == TRI_OK);
}

cudaGraphExec_t dc_record(dc_rank *d, void (*launch)(dc_rank *d, void *arg), void *arg) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  DC_MUST(cudaStreamBeginCapture(tri_cuda_stream(&d->be), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  launch(d, arg);
  DC_MUST(cudaStreamEndCapture(tri_cuda_stream(&d->be), &graph) == cudaSuccess);
  DC_MUST(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
  cudaGraphDestroy(graph);
  return exec;
}

/* ---- the host communicator: what set-up and tests need of one ---- */

static tri_status host_all_reduce(tri_comm *c, float *buf, size_t count) {
  return tri_shm_all_reduce(c->impl, c, buf, count);
}
static tri_status host_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  return tri_shm_all_gather(c->impl, c, send, recv, bytes);
}
static tri_status host_broadcast(tri_comm *c, void *buf, size_t bytes, int root) {
  return tri_shm_broadcast(c->impl, c, buf, bytes, root);
}
static tri_status host_barrier(tri_comm *c) { return tri_shm_barrier(c->impl, c); }

static const tri_comm_ops host_ops = {.name = "shm",
                                      .all_reduce = host_all_reduce,
                                      .all_gather = host_all_gather,
                                      .broadcast = host_broadcast,
                                      .barrier = host_barrier};

/* ---- numbers ---- */

/* Of very different sizes and both signs, so that another order of addition gives other bits. */
static float addend(int rank, uint32_t salt, size_t i) {
  uint32_t x = dc_mix((uint32_t)i * 31 + (uint32_t)rank * 7919 + salt * 104729 + 1);
  float v = ldexpf((float)(x & 0xffff) + 1, (int)(x >> 16 & 31) - 24);
  return x >> 31 ? -v : v;
}

static float from_bits(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* Zeros of both signs, numbers that are none, the kernels' own mark, infinities, subnormal and large ones. */
static float odd_one(int rank, uint32_t salt, size_t i) {
  static const uint32_t odd[] = {0x80000000, 0,          0xffffffff, 0x7fffffff, 0x7fc00000, 0xffc12345,
                                 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7fffff, 1,          0x80000001};
  uint32_t x = dc_mix((uint32_t)i * 17 + salt);
  if (x % 4 == 0) return from_bits(0x80000000); /* on all ranks: the sum is -0.0, too */
  x = dc_mix(x + (uint32_t)rank);
  return x % 3 ? from_bits(odd[x / 3 % (sizeof odd / sizeof *odd)]) : addend(rank, salt, i);
}

typedef float (*maker)(int rank, uint32_t salt, size_t i);

/* mine: this rank's addends; want: the sums. */
static void make_numbers(dc_rank *d, maker make, uint32_t salt, size_t n) {
  for (size_t i = 0; i < n; i++) {
    float sum = make(0, salt, i);
    for (int r = 1; r < d->host->size; r++) sum += make(r, salt, i);
    d->mine[i] = make(d->host->rank, salt, i);
    d->want[i] = sum;
  }
}

static bool same(float a, float b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

/* Exactly, or as closely as another order of addition can be. */
static void compare(dc_rank *d, maker make, uint32_t salt, size_t n, bool exact) {
  for (size_t i = 0; i < n; i++) {
    double sum = 0, size = 0;
    if (same(d->got[i], d->want[i])) continue;
    for (int r = 0; r < d->host->size; r++) {
      float x = make(r, salt, i);
      sum += (double)x, size += fabs((double)x);
    }
    if (!exact && fabs((double)d->got[i] - sum) <= 1e-6 * size) continue;
    fprintf(stderr, "element %zu of %zu: %.9g, not %.9g\n", i, n, (double)d->got[i], (double)d->want[i]);
    DC_MUST(!"the sum is wrong");
  }
}

static void same_everywhere(dc_rank *d, size_t n) {
  uint32_t mine = 0, all[8];
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &d->got[i], sizeof bits);
    mine = dc_mix(mine ^ bits) + (uint32_t)i;
  }
  DC_MUST(tri_comm_all_gather(d->host, &mine, all, sizeof mine) == TRI_OK);
  for (int r = 0; r < d->host->size; r++) DC_MUST(all[r] == mine);
}

static void to_device(dc_rank *d, float *at, const float *from, size_t n) {
  DC_MUST(cudaMemcpyAsync(at, from, n * sizeof *at, cudaMemcpyHostToDevice, tri_cuda_stream(&d->be)) == cudaSuccess);
}
static void to_host(dc_rank *d, float *to, const float *at, size_t n) {
  DC_MUST(cudaMemcpyAsync(to, at, n * sizeof *at, cudaMemcpyDeviceToHost, tri_cuda_stream(&d->be)) == cudaSuccess);
}

/* ---- right sums ---- */

static void sum_once(dc_rank *d, tri_p2p_algorithm algorithm, maker make, uint32_t salt, size_t n, size_t offset) {
  static const float guard[DC_SLACK];
  float around[2][DC_SLACK], *at = d->device + offset;
  make_numbers(d, make, salt, n);
  to_device(d, at - DC_SLACK, guard, DC_SLACK);
  to_device(d, at, d->mine, n);
  to_device(d, at + n, guard, DC_SLACK - 4);
  DC_MUST(tri_p2p_sum(d->comm, algorithm, at, n) == TRI_OK);
  to_host(d, d->got, at, n);
  to_host(d, around[0], at - DC_SLACK, DC_SLACK);
  to_host(d, around[1], at + n, DC_SLACK - 4);
  dc_sync(d);
  compare(d, make, salt, n, algorithm != TRI_P2P_LIBRARY);
  same_everywhere(d, n);
  DC_MUST(!memcmp(around[0], guard, sizeof guard) &&
          !memcmp(around[1], guard, (DC_SLACK - 4) * sizeof *guard)); /* nothing beside it was touched */
}

static void test_sizes(dc_rank *d) {
  static const size_t sizes[] = {1,    2,    3,     4,     5,     7,      8,      9,      15,     17,      31,     33,
                                 63,   64,   127,   128,   129,   511,    512,    513,    1000,   1023,    4096,   4099,
                                 8191, 8192, 16385, 65535, 65536, 131072, 131077, 262143, 524288, 1000001, 1048576};
  static const size_t offsets[] = {0, 1, 2, 3};
  for (int algorithm = 0; algorithm < TRI_P2P_ALGORITHMS; algorithm++)
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
      for (size_t o = 0; o < (sizes[k] < 10000 ? 4 : 2); o++)
        if (tri_p2p_fits(d->comm, (tri_p2p_algorithm)algorithm, sizes[k]))
          sum_once(d, (tri_p2p_algorithm)algorithm, addend, (uint32_t)(algorithm + 1), sizes[k], offsets[o]);
  for (int algorithm = 0; algorithm < TRI_P2P_LIBRARY; algorithm++) {
    size_t most = DC_MOST;
    while (!tri_p2p_fits(d->comm, (tri_p2p_algorithm)algorithm, most)) most--;
    sum_once(d, (tri_p2p_algorithm)algorithm, addend, 77, most, 0);
  }
}

static void test_odd_numbers(dc_rank *d) {
  for (uint32_t salt = 0; salt < 20; salt++)
    for (int algorithm = 0; algorithm < TRI_P2P_LIBRARY; algorithm++)
      sum_once(d, (tri_p2p_algorithm)algorithm, odd_one, salt, 1000 + 4099 * salt, salt % 4);
}

/* Rounds of all sizes and shapes after each other, many under way at a time, with ranks that are late now and then. */
enum { BATCH = 48, SLOT = 1 << 15 };

static size_t random_count(uint32_t x) { return 1 + dc_mix(x) % (1u << (1 + dc_mix(x + 1) % 15)); }

static void launch_random(dc_rank *d, uint32_t seed, bool library) {
  static const int threads[] = {64, 128, 256, 512};
  int usual = tri_p2p_threads(d->comm), blocks = tri_p2p_blocks(d->comm);
  for (uint32_t i = 0; i < BATCH; i++) {
    uint32_t x = dc_mix(seed * 1000 + i);
    tri_p2p_algorithm algorithm = library && x % 16 == 0 ? TRI_P2P_LIBRARY : (tri_p2p_algorithm)(x / 16 % 2);
    tri_p2p_tune(d->comm, threads[x / 32 % 4], 1 + (int)(x / 128 % (uint32_t)blocks));
    size_t n = random_count(x);
    if (!tri_p2p_fits(d->comm, algorithm, n)) tri_p2p_tune(d->comm, usual, blocks);
    DC_MUST(tri_p2p_sum(d->comm, algorithm, d->device + i * SLOT, n) == TRI_OK);
  }
  tri_p2p_tune(d->comm, usual, blocks);
}

static void check_random(dc_rank *d, uint32_t seed, uint32_t salt, bool library) {
  float *got = d->got, *want = d->want;
  for (uint32_t i = 0; i < BATCH; i++) {
    uint32_t x = dc_mix(seed * 1000 + i);
    size_t n = random_count(x);
    d->got = got + i * SLOT, d->want = want + i * SLOT;
    compare(d, addend, salt + i, n, !(library && x % 16 == 0));
  }
  d->got = got, d->want = want;
}

static void load_random(dc_rank *d, uint32_t seed, uint32_t salt) {
  float *mine = d->mine, *want = d->want;
  for (uint32_t i = 0; i < BATCH; i++) {
    d->mine = mine + i * SLOT, d->want = want + i * SLOT;
    make_numbers(d, addend, salt + i, random_count(dc_mix(seed * 1000 + i)));
  }
  d->mine = mine, d->want = want;
  to_device(d, d->device, d->mine, (size_t)BATCH * SLOT);
}

static void be_late(const dc_rank *d, uint32_t x) {
  uint32_t late = dc_mix(x + (uint32_t)d->host->rank * 99);
  if (late % 4 == 0) nanosleep(&(struct timespec){.tv_nsec = late / 4 % 2000000}, NULL);
}

static void test_rounds(dc_rank *d) {
  for (uint32_t seed = 1; seed <= (uint32_t)(rounds / BATCH); seed++) {
    load_random(d, seed, seed * 100);
    be_late(d, seed);
    launch_random(d, seed, true);
    to_host(d, d->got, d->device, (size_t)BATCH * SLOT);
    dc_sync(d);
    check_random(d, seed, seed * 100, true);
  }
}

static void launch_graph(dc_rank *d, void *arg) { launch_random(d, *(uint32_t *)arg, true); }

/* Two graphs in turn, and launches between them: the counters of rounds go on whoever launches. */
static void test_graphs(dc_rank *d) {
  uint32_t seeds[] = {12345, 54321};
  cudaGraphExec_t graphs[] = {dc_record(d, launch_graph, &seeds[0]), dc_record(d, launch_graph, &seeds[1])};
  for (uint32_t i = 0; i < 40; i++) {
    uint32_t which = dc_mix(i) % 2;
    load_random(d, seeds[which], i * 100);
    be_late(d, i);
    if (i % 5 == 4)
      launch_random(d, seeds[which], true);
    else
      DC_MUST(cudaGraphLaunch(graphs[which], tri_cuda_stream(&d->be)) == cudaSuccess);
    to_host(d, d->got, d->device, (size_t)BATCH * SLOT);
    dc_sync(d);
    check_random(d, seeds[which], i * 100, true);
  }
  cudaGraphExecDestroy(graphs[0]), cudaGraphExecDestroy(graphs[1]);
}

/* Through the table: what was chosen. */
static void test_chosen(dc_rank *d) {
  for (size_t n = 1; n <= DC_MOST; n = n * 3 + 1) {
    make_numbers(d, addend, 5, n);
    to_device(d, d->device, d->mine, n);
    DC_MUST(tri_comm_all_reduce(d->comm, d->device, n) == TRI_OK);
    to_host(d, d->got, d->device, n);
    dc_sync(d);
    compare(d, addend, 5, n, false);
    same_everywhere(d, n);
  }
  DC_MUST(tri_comm_all_reduce(d->comm, d->device, 0) == TRI_OK);
}

/* ---- who comes late, or not at all ---- */

enum { LATE_FLOATS = (1 << 20) / sizeof(float), LATE_SUMS = 500 };

static void launch_many(dc_rank *d, void *arg) {
  (void)arg;
  for (int i = 0; i < LATE_SUMS; i++) DC_MUST(tri_p2p_sum(d->comm, TRI_P2P_ONE_SHOT, d->device, LATE_FLOATS) == TRI_OK);
}

static int64_t run_late(dc_rank *d, cudaGraphExec_t graph, int64_t ms) {
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
  nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
  int64_t t = tri_now_ns();
  DC_MUST(cudaGraphLaunch(graph, tri_cuda_stream(&d->be)) == cudaSuccess);
  dc_sync(d);
  return dc_elapsed_ms(t);
}

/* Sums of microseconds stay such after a rank was late once: it must not make the others late in their turn. */
static void test_late(dc_rank *d) {
  cudaGraphExec_t graph = dc_record(d, launch_many, NULL);
  memset(d->mine, 0, LATE_FLOATS * sizeof(float));
  to_device(d, d->device, d->mine, LATE_FLOATS);
  dc_sync(d);
  run_late(d, graph, 0);
  int64_t usual = run_late(d, graph, 0);
  for (int late = 0; late < d->host->size; late++) {
    int64_t ms = run_late(d, graph, d->host->rank == late ? 40 : 0);
    if (d->host->rank != late) continue;
    printf("%d sums in %lld ms, after rank %d was late %lld\n", LATE_SUMS, (long long)usual, late, (long long)ms);
    DC_MUST(ms <= 3 * usual + 5);
  }
  cudaGraphExecDestroy(graph);
}

static void launch_some(dc_rank *d, void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) DC_MUST(tri_p2p_sum(d->comm, (tri_p2p_algorithm)(i % 2), d->device, 5000) == TRI_OK);
}

static void expect_error(dc_rank *d, tri_status want, int64_t since, int64_t least) {
  DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(dc_elapsed_ms(since) >= least);
  DC_MUST(tri_comm_query(d->comm) == want);
  DC_MUST(tri_comm_all_reduce(d->comm, d->device, 4) == want);
  DC_MUST(tri_comm_all_gather(d->comm, d->device, d->device, 4) == want);
}

/* Rank 0 stays away: the others' kernels end by themselves, one limit for all that were launched. */
static void test_timeout(dc_rank *d) {
  cudaGraphExec_t graph = dc_record(d, launch_some, NULL);
  d->comm->cfg.timeout_ms = 300;
  int64_t t = tri_now_ns();
  if (d->host->rank) {
    launch_some(d, NULL);
    DC_MUST(cudaGraphLaunch(graph, tri_cuda_stream(&d->be)) == cudaSuccess);
    expect_error(d, TRI_PEER_LOST, t, 300);
  }
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
  if (!d->host->rank) tri_comm_abort(d->comm); /* its peers must not be waited for when it goes */
  cudaGraphExecDestroy(graph);
}

static void test_abort(dc_rank *d) {
  int64_t t = tri_now_ns();
  if (d->host->rank) {
    launch_some(d, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    DC_MUST(cudaStreamQuery(tri_cuda_stream(&d->be)) == cudaErrorNotReady);
  }
  tri_comm_abort(d->comm);
  expect_error(d, TRI_ABORTED, t, d->host->rank ? 200 : 0);
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
}

/* ---- set-up ---- */

static void *allocate(dc_rank *d, size_t n) {
  void *p;
  DC_MUST(cudaMallocHost(&p, n) == cudaSuccess);
  return p;
}

static int connect(dc_rank *d, tri_comm_use use, const tri_rows_config *rows) {
  tri_error err = {0};
  tri_comm *nccl;
  int64_t start = tri_now_ns();
  tri_status st = tri_comm_nccl_create(&d->be, d->host, &nccl, &err);
  int64_t middle = tri_now_ns();
  if (st == TRI_OK) st = tri_comm_p2p_create(&d->be, d->host, nccl, use, rows, &d->comm, &err);
  if (st == TRI_OK) {
    if (!d->host->rank)
      printf("NCCL %.2f s, p2p %.2f s\n%s\n", (double)(middle - start) / 1e9, (double)(tri_now_ns() - middle) / 1e9,
             d->comm->about);
    fflush(stdout);
    return 0;
  }
  if (!d->host->rank) printf("device_comm: %s: %s\n", st == TRI_UNSUPPORTED ? "skipped" : "failed", err.message);
  return st == TRI_UNSUPPORTED ? SKIPPED : 1;
}

static void event_record(tri_backend *be, int event, tri_stream stream) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->events[event], impl->streams[stream]));
}

static void stream_wait(tri_backend *be, tri_stream stream, int event) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaStreamWaitEvent(impl->streams[stream], impl->events[event], 0));
}

static int open_device(dc_rank *d) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < d->host->size) {
    if (!d->host->rank) printf("device_comm: skipped: %d devices are needed, %d found\n", d->host->size, count);
    return SKIPPED;
  }
  d->cuda.device = d->host->rank;
  d->be.impl = &d->cuda;
  DC_MUST(cudaSetDevice(d->cuda.device) == cudaSuccess);
  d->be.ops.event_record = event_record;
  d->be.ops.stream_wait = stream_wait;
  for (int i = 0; i < TRI_STREAM_COUNT; i++)
    DC_MUST(cudaStreamCreateWithFlags(&d->cuda.streams[i], cudaStreamNonBlocking) == cudaSuccess);
  d->cuda.lanes[0].stream = d->cuda.streams[TRI_STREAM_COMPUTE]; /* of the sums */
  DC_MUST(cudaEventCreateWithFlags(&d->cuda.events[TRI_EVENT_SEND], cudaEventDisableTiming) == cudaSuccess);
  size_t bytes = DC_MOST * sizeof(float), slack = DC_SLACK * sizeof(float);
  DC_MUST(cudaMalloc((void **)&d->device, bytes + 2 * slack) == cudaSuccess);
  d->device += DC_SLACK;
  d->mine = allocate(d, bytes), d->got = allocate(d, bytes), d->want = allocate(d, bytes);
  memset(d->mine, 0, bytes);
  return 0;
}

static void run(dc_rank *d, const char *name, void (*test)(dc_rank *d)) {
  int64_t t = tri_now_ns();
  test(d);
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
  if (!d->host->rank) printf("%s: %.1f s\n", name, (double)(tri_now_ns() - t) / 1e9);
  fflush(stdout);
}

static void disconnect(dc_rank *d) {
  tri_comm_destroy(d->comm);
  d->comm = NULL;
}

static void connect_rows(dc_rank *d, const tri_rows_config *rows) { DC_MUST(!connect(d, TRI_COMM_ROWS, rows)); }
static void test_rows(dc_rank *d) { dc_test_rows(d, connect_rows, disconnect); }

static int run_rank(tri_shm *shm, int rank, int size, bool bench) {
  tri_comm host = {.ops = &host_ops,
                   .rank = rank,
                   .size = size,
                   .cfg = {.policy = {.yield_us = 200000}, .timeout_ms = HOST_MS},
                   .impl = shm};
  dc_rank rank_of = {.host = &host}, *d = &rank_of;
  alarm(LIMIT_S);
  int code = open_device(d);
  if (!code) code = connect(d, TRI_COMM_SUMS, NULL);
  if (code) return code;
  if (bench) {
    dc_bench(d);
    dc_bench_gathers(d);
    disconnect(d);
    if ((code = connect(d, TRI_COMM_TRANSFERS, NULL))) return code;
    dc_bench_transfers(d);
    disconnect(d);
    dc_bench_rows(d, connect_rows, disconnect);
    return 0;
  }
  run(d, "sizes", test_sizes);
  run(d, "odd numbers", test_odd_numbers);
  run(d, "rounds", test_rounds);
  run(d, "graphs", test_graphs);
  run(d, "chosen", test_chosen);
  run(d, "late", test_late);
  run(d, "storm", dc_test_storm);
  run(d, "gathers", dc_test_gathers);
  disconnect(d);
  if ((code = connect(d, TRI_COMM_SUMS, NULL))) return code;
  run(d, "timeout", test_timeout);
  disconnect(d);
  if ((code = connect(d, TRI_COMM_SUMS, NULL))) return code;
  run(d, "abort", test_abort);
  disconnect(d);
  if ((code = connect(d, TRI_COMM_TRANSFERS, NULL))) return code;
  run(d, "transfers", dc_test_transfers);
  run(d, "no message", dc_test_no_message);
  disconnect(d);
  run(d, "rows", test_rows);
  dc_bench_rows(d, connect_rows, disconnect);
  if (!rank) puts("device_comm: all is well");
  return 0;
}

/* One that fails ends the others. */
static int wait_for(const pid_t *pids, int n) {
  int worst = 0, status;
  for (int left = n; left; left--) {
    if (wait(&status) < 0) return 1;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    if (code && code != SKIPPED && worst != 1)
      for (int r = 0; r < n; r++) kill(pids[r], SIGKILL);
    if (code) worst = code == SKIPPED && !worst ? SKIPPED : code == SKIPPED ? worst : 1;
  }
  return worst;
}

int main(int argc, char **argv) {
  int size = 0;
  bool bench = false;
  char name[TRI_SHM_NAME_BYTES];
  tri_shm *shm[8];
  pid_t pids[8];
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--bench"))
      bench = true;
    else if (!strcmp(argv[i], "--fork") && i + 1 < argc)
      size = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = atoi(argv[++i]);
  }
  if (size < 2 || size > 8) {
    fputs("usage: device_comm --fork RANKS (2 to 8) [--rounds N] [--bench]\n", stderr);
    return 2;
  }
  if (tri_shm_create(name, size, &shm[0]) != TRI_OK) return 1;
  for (int r = 1; r < size; r++)
    if (tri_shm_open(name, r, size, &shm[r]) != TRI_OK) return 1;
  tri_shm_unlink(name);
  for (int r = 0; r < size; r++) {
    pids[r] = fork();
    if (pids[r] < 0) return 1;
    if (pids[r]) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fflush(stdout);
    int code = run_rank(shm[r], r, size, bench);
    fflush(stdout);
    _exit(code);
  }
  return wait_for(pids, size);
}
