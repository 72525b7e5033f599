/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: run alone it tests `self`, under mpirun `mpi` with as many ranks as there are.
 *
 * Every rank makes every rank's numbers itself and so knows what must come out. The first failure ends all ranks. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "base/mem.h"

static bool mpi;
static int my_rank;

#define MUST(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) fail(__LINE__, #condition);                                                                      \
  } while (0)

static void fail(int line, const char *what) {
  fprintf(stderr, "comm_test: rank %d: line %d: %s\n", my_rank, line, what);
  fflush(stderr);
  if (mpi) tri_mpi_abort(1);
  exit(1);
}

static uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/* Of very different sizes and both signs, so that another order of addition gives other bits. */
static float addend(int rank, size_t i) {
  uint32_t x = mix((uint32_t)i * 31 + (uint32_t)rank * 7919 + 1);
  float v = ldexpf((float)(x & 0xffff) + 1, (int)(x >> 16 & 31) - 24);
  return x >> 31 ? -v : v;
}

static void *allocate(size_t n) {
  void *p = calloc(n ? n : 1, 1);
  MUST(p != NULL);
  return p;
}

static tri_comm *make(const tri_comm_config *config) {
  tri_comm *world, *c;
  MUST((mpi ? tri_comm_mpi_world(config, &world) : tri_comm_self_create(config, &world)) == TRI_OK);
  my_rank = world->rank;
  /* One of its own for each test, so that errors and stray messages stay in it. */
  MUST(tri_comm_split(world, 0, world->rank, NULL, &c) == TRI_OK);
  MUST(c->rank == world->rank && c->size == world->size);
  tri_comm_destroy(world);
  return c;
}

static tri_comm_config usual = {.policy = {.yield_us = 100000}, .timeout_ms = 30000};

/* ---- collectives ---- */

static void check_same_everywhere(tri_comm *c, const float *buf, size_t n) {
  uint32_t mine = 0, all[64];
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &buf[i], sizeof bits);
    mine = mix(mine ^ bits) + (uint32_t)i;
  }
  MUST(tri_comm_all_gather(c, &mine, all, sizeof mine) == TRI_OK);
  for (int r = 0; r < c->size; r++) MUST(all[r] == mine);
}

static void reduce(tri_comm *c, size_t n, bool exact) {
  float *buf = allocate(n * sizeof *buf), *again = allocate(n * sizeof *again);
  for (size_t i = 0; i < n; i++) buf[i] = again[i] = addend(c->rank, i);
  MUST(tri_comm_all_reduce(c, buf, n) == TRI_OK);
  for (size_t i = 0; i < n; i++) {
    float want = addend(0, i), size = fabsf(want);
    for (int r = 1; r < c->size; r++) want += addend(r, i), size += fabsf(addend(r, i));
    MUST(exact ? buf[i] == want : fabsf(buf[i] - want) <= 1e-6f * size);
  }
  check_same_everywhere(c, buf, n);
  MUST(tri_comm_all_reduce(c, again, n) == TRI_OK);
  MUST(!memcmp(buf, again, n * sizeof *buf)); /* the same schedule gives the same bits */
  free(buf), free(again);
}

static void test_all_reduce(bool deterministic) {
  /* 16384 floats: the last that every rank sends to every other; 262144: the part that is gathered at once. */
  static const size_t sizes[] = {0, 1, 2, 3, 17, 1000, 16383, 16384, 16385, 65537, 262143, 262144, 262145, 300000};
  tri_comm_config config = usual;
  config.deterministic = deterministic;
  tri_comm *c = make(&config);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) reduce(c, sizes[i], deterministic || sizes[i] <= 16384);
  for (size_t n = 1; n < 200; n++) reduce(c, n, true); /* close after each other: no message may be taken for another */
  MUST(tri_comm_query(c) == TRI_OK);
  tri_comm_destroy(c);
}

static void test_all_gather(void) {
  static const size_t sizes[] = {1, 4, 5, 1000, 70000, 300001};
  tri_comm *c = make(&usual);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    size_t n = sizes[k];
    uint8_t *send = allocate(n), *recv = allocate(n * (size_t)c->size);
    for (size_t i = 0; i < n; i++) send[i] = (uint8_t)mix((uint32_t)i + (uint32_t)c->rank * 99);
    MUST(tri_comm_all_gather(c, send, recv, n) == TRI_OK);
    for (size_t i = 0; i < n * (size_t)c->size; i++)
      MUST(recv[i] == (uint8_t)mix((uint32_t)(i % n) + (uint32_t)(i / n) * 99));
    free(send), free(recv);
  }
  tri_comm_destroy(c);
}

static void scatter(tri_comm *c, size_t n) {
  size_t all = n * (size_t)c->size, first = n * (size_t)c->rank;
  float *send = allocate(all * sizeof *send), *recv = allocate((n + 1) * sizeof *recv);
  for (size_t i = 0; i < all; i++) send[i] = addend(c->rank, i);
  for (size_t i = 0; i < n; i++) recv[i] = NAN;
  recv[n] = 5;
  MUST(tri_comm_reduce_scatter(c, send, recv, n) == TRI_OK && recv[n] == 5);
  for (size_t i = 0; i < n; i++) {
    float want = addend(0, first + i);
    for (int r = 1; r < c->size; r++) want += addend(r, first + i);
    MUST(recv[i] == want);
  }
  for (size_t i = 0; i < all; i++) MUST(send[i] == addend(c->rank, i));
  free(send);
  free(recv);
}

static void test_reduce_scatter(void) {
  /* 65536 floats: a slot of shared memory, which 2 to 4 ranks divide; 262144: a message's piece. */
  static const size_t sizes[] = {0,     1,     3,     1000,  16384,  16385,  21845,  21846,
                                 32768, 32769, 65536, 65537, 262144, 262145, 530000, 2};
  tri_comm *c = make(&usual);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) scatter(c, sizes[i]);
  for (size_t n = 1; n < 200; n++) scatter(c, n);
  tri_comm_destroy(c);
}

/* Returns how many bytes `from` sends to `to` in a round: often none, at times just below, at or above the most that
 * goes at once. */
static size_t part_bytes(int round, int from, int to) {
  static const size_t sizes[] = {0, 1, 0, 5, 300, 0, 4096, 70001, 262144, 261887, 0, 262145, 1048576, 1048577, 2500000};
  const int small = 8, all = sizeof sizes / sizeof *sizes;
  uint32_t x = mix((uint32_t)(round * 64 + from) * 64 + (uint32_t)to);
  if (round % 16 == 0) return 0; /* nobody sends anything */
  return sizes[x % (uint32_t)(round % 8 == 3 ? all : small)];
}

static uint8_t part_byte(int round, int from, int to, size_t i) {
  return (uint8_t)mix((uint32_t)i + (uint32_t)(round * 64 + from) * 977 + (uint32_t)to * 131071);
}

static void all_to_all(tri_comm *c, int round) {
  size_t out[64], in[64], sends = 0, receives = 0;
  for (int r = 0; r < c->size; r++) {
    out[r] = part_bytes(round, c->rank, r);
    in[r] = part_bytes(round, r, c->rank);
    sends += out[r];
    receives += in[r];
  }
  uint8_t *send = allocate(sends), *recv = allocate(receives + 1), *at = send;
  for (int r = 0; r < c->size; at += out[r++])
    for (size_t i = 0; i < out[r]; i++) at[i] = part_byte(round, c->rank, r, i);
  recv[receives] = 77;
  MUST(tri_comm_all_to_all(c, send, out, recv, in) == TRI_OK && recv[receives] == 77);
  at = recv;
  for (int r = 0; r < c->size; at += in[r++])
    for (size_t i = 0; i < in[r]; i++) MUST(at[i] == part_byte(round, r, c->rank, i));
  free(send);
  free(recv);
}

static void test_all_to_all(void) {
  tri_comm *c = make(&usual);
  for (int round = 0; round < 120; round++) all_to_all(c, round);
  MUST(tri_comm_barrier(c) == TRI_OK);
  tri_comm_destroy(c);
}

/* A rank's own part, and with shared memory every part, is of the size that both sides know. */
static void test_all_to_all_of_other_sizes(void) {
  tri_comm *c = make(&usual);
  size_t out[64] = {0}, in[64] = {0};
  char send[8] = {0}, recv[8] = {0};
  out[c->rank] = 4;
  in[c->rank] = 3;
  MUST(tri_comm_all_to_all(c, send, out, recv, in) == TRI_INVALID_ARGUMENT);
  MUST(tri_comm_barrier(c) == TRI_INVALID_ARGUMENT);
  tri_comm_destroy(c);
  if (usual.messages_only) return;
  c = make(&usual);
  in[c->rank] = 4;
  in[(c->rank + 1) % c->size] += c->size > 1;
  MUST(tri_comm_all_to_all(c, send, out, recv, in) == (c->size > 1 ? TRI_INVALID_ARGUMENT : TRI_OK));
  tri_comm_destroy(c);
}

static void test_broadcast(void) {
  static const size_t sizes[] = {0, 1, 7, 5000, 300000};
  tri_comm *c = make(&usual);
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
    for (int root = 0; root < c->size; root++) {
      size_t n = sizes[k];
      uint8_t *buf = allocate(n);
      for (size_t i = 0; i < n; i++) buf[i] = c->rank == root ? (uint8_t)mix((uint32_t)i + (uint32_t)root) : 0;
      MUST(tri_comm_broadcast(c, buf, n, root) == TRI_OK);
      for (size_t i = 0; i < n; i++) MUST(buf[i] == (uint8_t)mix((uint32_t)i + (uint32_t)root));
      MUST(tri_comm_barrier(c) == TRI_OK);
      free(buf);
    }
  tri_comm_destroy(c);
}

/* Even and odd ranks apart, in reverse order; both communicators and the common one are used in turn. */
static void test_split(void) {
  tri_comm *c = make(&usual), *half;
  int color = c->rank % 2, members = (c->size + 1 - color) / 2;
  MUST(tri_comm_split(c, color, -c->rank, NULL, &half) == TRI_OK);
  MUST(half->size == members && half->rank == members - 1 - c->rank / 2);
  MUST(half->cfg.timeout_ms == c->cfg.timeout_ms && half->cfg.deterministic == c->cfg.deterministic);
  for (int i = 0; i < 20; i++) {
    float mine = (float)(1 << c->rank), all = mine;
    MUST(tri_comm_all_reduce(half, &mine, 1) == TRI_OK);
    MUST(tri_comm_all_reduce(c, &all, 1) == TRI_OK);
    float want = 0;
    for (int r = color; r < c->size; r += 2) want += (float)(1 << r);
    MUST(mine == want && all == (float)((1 << c->size) - 1));
  }
  tri_comm_abort(half); /* an error stays in its communicator */
  MUST(tri_comm_query(half) == TRI_ABORTED && tri_comm_query(c) == TRI_OK);
  MUST(tri_comm_barrier(c) == TRI_OK);
  tri_comm_destroy(half);
  tri_comm_destroy(c);
}

/* ---- transfers ---- */

enum { MESSAGES = 8, BIG = 200000 };

struct message {
  int from, tag, number;
};

static size_t message_bytes(int number) { return number == 5 ? BIG : sizeof(struct message); }

static void send_all(tri_comm *c, char *buffers, tri_comm_req *reqs) {
  size_t n = 0;
  for (int number = 0; number < MESSAGES; number++)
    for (int peer = 0; peer < c->size; peer++)
      for (int tag = 3; peer != c->rank && tag < 5; tag++) {
        char *p = buffers + n * BIG;
        struct message m = {c->rank, tag, number};
        memcpy(p, &m, sizeof m);
        MUST(tri_comm_isend(c, p, message_bytes(number), peer, tag, &reqs[n++]) == TRI_OK);
      }
}

/* The later tag first: messages of another tag, and of other peers, stay where they are; those of one tag keep order.
 */
static void receive_all(tri_comm *c) {
  char *buf = allocate(BIG);
  struct message m;
  for (int tag = 4; tag > 2; tag--)
    for (int peer = c->size - 1; peer >= 0; peer--)
      for (int number = 0; peer != c->rank && number < MESSAGES; number++) {
        size_t bytes = message_bytes(number), got = bytes;
        tri_status st = TRI_AGAIN;
        if ((number + peer) % 2)
          st = tri_comm_recv(c, buf, bytes, peer, tag);
        else
          while ((st = tri_comm_try_recv(c, buf, BIG, peer, tag, &got)) == TRI_AGAIN) sched_yield();
        MUST(st == TRI_OK && got == bytes);
        memcpy(&m, buf, sizeof m);
        MUST(m.from == peer && m.tag == tag && m.number == number);
      }
  free(buf);
}

static void test_transfers(void) {
  tri_comm *c = make(&usual);
  size_t most = (size_t)MESSAGES * 2 * (size_t)c->size, got;
  char *buffers = allocate(most * BIG), byte;
  tri_comm_req *reqs = allocate(most * sizeof *reqs);
  MUST(tri_comm_try_recv(c, &byte, 1, 0, 9, &got) == TRI_AGAIN);
  MUST(tri_comm_wait(c, &reqs[0]) == TRI_OK); /* none under way */
  send_all(c, buffers, reqs);
  receive_all(c);
  for (size_t i = 0; i < most; i++) {
    MUST(tri_comm_wait(c, &reqs[i]) == TRI_OK);
    MUST(!reqs[i].active);
  }
  MUST(tri_comm_barrier(c) == TRI_OK);
  MUST(tri_comm_try_recv(c, &byte, 1, 0, 3, &got) == TRI_AGAIN);
  free(buffers), free(reqs);
  tri_comm_destroy(c);
}

static void test_too_large(void) {
  tri_comm *c = make(&usual);
  char buf[100] = {0};
  size_t got = 12345;
  if (c->size > 1 && c->rank == 1) {
    tri_comm_req req = {0};
    MUST(tri_comm_isend(c, buf, sizeof buf, 0, 3, &req) == TRI_OK);
    MUST(tri_comm_wait(c, &req) == TRI_OK);
  }
  if (c->size > 1 && c->rank == 0) {
    tri_status st;
    while ((st = tri_comm_try_recv(c, buf, 99, 1, 3, &got)) == TRI_AGAIN) sched_yield();
    MUST(st == TRI_TOO_LARGE && got == 12345);
    MUST(tri_comm_query(c) == TRI_TOO_LARGE);
    MUST(tri_comm_recv(c, buf, 100, 1, 3) == TRI_TOO_LARGE); /* the first error stays */
  }
  tri_comm_destroy(c);
}

/* A rank waits in a collective while what it has sent before still needs it: the receiver comes to the collective only
 * with the message. */
static void test_message_before_collective(void) {
  tri_comm *c = make(&usual);
  for (size_t n = 1; n <= (size_t)1 << 22; n *= 8) {
    uint8_t *buf = allocate(n);
    tri_comm_req req = {0};
    if (c->rank == 0 && c->size > 1) MUST(tri_comm_isend(c, buf, n, 1, 5, &req) == TRI_OK);
    if (c->rank == 1) MUST(tri_comm_recv(c, buf, n, 0, 5) == TRI_OK);
    MUST(tri_comm_barrier(c) == TRI_OK);
    MUST(tri_comm_wait(c, &req) == TRI_OK);
    free(buf);
  }
  tri_comm_destroy(c);
}

/* ---- what does not come ---- */

static int64_t elapsed_ms(int64_t since) { return (tri_now_ns() - since) / 1000000; }

static void *abort_soon(void *comm) {
  tri_comm *c = comm;
  nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  tri_comm_abort(c);
  return NULL;
}

static void all_calls_fail(tri_comm *c, tri_status want) {
  float f = 0;
  size_t got;
  char buf[64];
  tri_comm_req req = {0};
  tri_comm *other;
  MUST(tri_comm_query(c) == want);
  MUST(tri_comm_all_reduce(c, &f, 1) == want && tri_comm_barrier(c) == want);
  MUST(tri_comm_all_gather(c, &f, buf, 1) == want && tri_comm_broadcast(c, buf, 1, 0) == want);
  MUST(tri_comm_reduce_scatter(c, &f, &f, 1) == want);
  MUST(tri_comm_all_to_all(c, &f, &(size_t){1}, buf, &(size_t){1}) == want);
  MUST(tri_comm_try_recv(c, buf, 1, 0, 3, &got) == want);
  MUST(tri_comm_wait(c, &req) == want);
  if (mpi) MUST(tri_comm_recv(c, buf, 1, 0, 3) == want && tri_comm_isend(c, buf, 1, 0, 3, &req) == want);
  if (mpi) MUST(tri_comm_split(c, 0, 0, NULL, &other) == want);
}

/* recv waits for what nobody sends. */
static void test_abort(void) {
  tri_comm *c = make(&usual);
  static char never[8]; /* of a transfer that is never finished: not on the stack */
  pthread_t thread;
  int64_t t = tri_now_ns();
  MUST(!pthread_create(&thread, NULL, abort_soon, c));
  if (mpi) {
    MUST(tri_comm_recv(c, never, sizeof never, (c->rank + 1) % c->size, 7) == TRI_ABORTED);
    MUST(elapsed_ms(t) >= 90);
  }
  pthread_join(thread, NULL);
  all_calls_fail(c, TRI_ABORTED);
  tri_comm_destroy(c);
}

/* The flag that all waits of a process look at. */
static void test_stop(void) {
  static char never[8];
  atomic_bool stop = true;
  tri_comm_config config = usual;
  config.policy.stop = &stop;
  stop = false;
  tri_comm *c = make(&config);
  stop = true;
  if (mpi) MUST(tri_comm_recv(c, never, sizeof never, (c->rank + 1) % c->size, 7) == TRI_ABORTED);
  tri_comm_destroy(c);
}

/* A slot that is not there says so and does no harm; with another communicator behind it that one does the work. */
static void test_missing_slots(void) {
  tri_comm *c = make(&usual), *behind = make(&usual);
  const tri_comm_ops *own = c->ops;
  tri_comm_ops fewer = *own;
  int mine = c->rank + 1, sum = 0, all[64] = {0};
  fewer.all_gather = NULL;
  fewer.barrier = NULL;
  c->ops = &fewer;
  MUST(tri_comm_all_gather(c, &mine, all, sizeof mine) == TRI_UNSUPPORTED && tri_comm_barrier(c) == TRI_UNSUPPORTED);
  MUST(tri_comm_query(c) == TRI_OK && tri_comm_broadcast(c, &mine, sizeof mine, 0) == TRI_OK && mine == 1);
  MUST(!(tri_comm_caps(c) & (TRI_COMM_CAN_all_gather | TRI_COMM_CAN_barrier)));
  MUST(tri_comm_caps(c) & TRI_COMM_CAN_broadcast);
  c->fallback = behind;
  mine = c->rank + 1;
  MUST(tri_comm_all_gather(c, &mine, all, sizeof mine) == TRI_OK && tri_comm_barrier(c) == TRI_OK);
  for (int r = 0; r < c->size; r++) sum += all[r];
  MUST(sum == c->size * (c->size + 1) / 2 && tri_comm_caps(c) & TRI_COMM_CAN_all_gather);
  tri_comm_abort(behind); /* its end is the end of both, as soon as it is asked */
  MUST(tri_comm_query(c) == TRI_OK && tri_comm_barrier(c) == TRI_ABORTED && tri_comm_query(c) == TRI_ABORTED);
  c->ops = own;
  tri_comm_destroy(c);
  tri_comm_destroy(behind);
}

static tri_status meet_all(tri_comm *c) {
  static float never[4];
  return tri_comm_all_reduce(c, never, 4);
}
static tri_status scatter_all(tri_comm *c) {
  static float send[64], recv[1];
  return tri_comm_reduce_scatter(c, send, recv, 1);
}
/* Rank 0 alone sends something. */
static tri_status send_from_first(tri_comm *c) {
  static size_t out[64], in[64] = {4};
  static char send[64 * 4], recv[4];
  return tri_comm_all_to_all(c, send, out, recv, in);
}

/* Rank 0 stays away from a collective: the others notice by themselves. */
static void test_timeout(tri_status (*collective)(tri_comm *c)) {
  tri_comm_config config = usual;
  config.timeout_ms = 300;
  tri_comm *c = make(&usual), *brief = make(&config);
  if (c->rank && c->size > 1) {
    int64_t t = tri_now_ns();
    MUST(collective(brief) == TRI_TIMEOUT);
    MUST(elapsed_ms(t) >= 300);
    all_calls_fail(brief, TRI_TIMEOUT);
  }
  MUST(tri_comm_barrier(c) == TRI_OK); /* rank 0 waits here, with its longer limit */
  tri_comm_destroy(brief);
  tri_comm_destroy(c);
}

/* A message that comes when its receiver has given up and destroyed the communicator is written to no memory that
 * somebody else has by then. */
static void test_late_message(void) {
  enum { COUNT = 1000, BLOCKS = 16 };
  static float sum[COUNT];
  tri_comm_config config = usual;
  config.timeout_ms = 200;
  tri_comm *c = make(&usual), *brief = make(&config);
  size_t bytes = COUNT * sizeof *sum * (size_t)c->size;
  char *blocks[BLOCKS] = {0}, *whole = allocate(bytes);
  memset(whole, 90, bytes);
  if (c->rank) {
    MUST(tri_comm_all_reduce(brief, sum, COUNT) == TRI_TIMEOUT);
    tri_comm_destroy(brief);
    for (int i = 0; i < BLOCKS; i++) {
      blocks[i] = tri_malloc(bytes, 1);
      MUST(blocks[i] != NULL);
      memset(blocks[i], 90, bytes);
    }
  }
  MUST(tri_comm_barrier(c) == TRI_OK);
  if (!c->rank) {
    tri_comm_all_reduce(brief, sum, COUNT);
    tri_comm_destroy(brief);
  }
  MUST(tri_comm_barrier(c) == TRI_OK && tri_comm_barrier(c) == TRI_OK);
  for (int i = 0; i < BLOCKS && c->rank; i++) {
    MUST(!memcmp(blocks[i], whole, bytes));
    tri_free(blocks[i]);
  }
  free(whole);
  tri_comm_destroy(c);
}

/* The same of the memory of a caller that has given up. */
static void test_late_receives(bool all) {
  enum { BYTES = 1000, MOST = 64 };
  static char in[MOST * BYTES], out[MOST * BYTES], whole[MOST * BYTES];
  size_t sizes[MOST];
  tri_comm_config config = usual;
  tri_comm_req req = {0};
  config.timeout_ms = 200;
  tri_comm *c = make(&usual), *brief = make(&config);
  MUST(c->size <= MOST);
  for (int r = 0; r < c->size; r++) sizes[r] = BYTES;
  if (c->rank) {
    tri_status st = all ? tri_comm_all_to_all(brief, out, sizes, in, sizes) : tri_comm_recv(brief, in, BYTES, 0, 1);
    MUST(st == TRI_TIMEOUT);
    memset(in, 90, sizeof in);
  }
  memset(whole, 90, sizeof whole);
  MUST(tri_comm_barrier(c) == TRI_OK);
  if (!c->rank && all) tri_comm_all_to_all(brief, out, sizes, in, sizes);
  for (int r = 1; r < c->size && !c->rank && !all; r++)
    if (tri_comm_isend(brief, out, BYTES, r, 1, &req) == TRI_OK) tri_comm_wait(brief, &req); /* they may not take it */
  MUST(tri_comm_barrier(c) == TRI_OK && tri_comm_barrier(c) == TRI_OK);
  if (c->rank) MUST(!memcmp(in, whole, sizeof in));
  tri_comm_destroy(brief);
  tri_comm_destroy(c);
}

/* With the host's shared memory, and as between hosts. Pending operations of a communicator in error stay behind: these
 * come last. */
int main(int argc, char **argv) {
  tri_error err = {0};
  mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  if (mpi && tri_mpi_init(&argc, &argv, &err) != TRI_OK) return 1;
  for (int messages = 0; messages <= mpi; messages++) {
    usual.messages_only = messages;
    test_all_reduce(false);
    test_all_reduce(true);
    test_all_gather();
    test_reduce_scatter();
    test_all_to_all();
    test_broadcast();
    test_split();
    test_transfers();
    test_message_before_collective();
    test_too_large();
    test_missing_slots();
    test_all_to_all_of_other_sizes();
  }
  for (int messages = 0; messages <= mpi; messages++) {
    usual.messages_only = messages;
    test_abort();
    test_stop();
    test_timeout(meet_all);
    test_timeout(scatter_all);
    test_timeout(send_from_first);
    test_late_message();
    test_late_receives(false);
    test_late_receives(true);
  }
  if (!my_rank) puts("comm_test: all is well");
  if (mpi) tri_mpi_finalize();
  return 0;
}
