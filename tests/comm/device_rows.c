/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of experts' rows: what comes, and what is given back, in rounds of random rows that follow each other in
 * graphs, with ranks that are late now and then. Every rank makes every rank's numbers itself, and the sums that
 * experts would make are known beforehand: whole numbers by rank and row. Rows that travel rounded are compared with a
 * slow rounding of their own, bit by bit. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "comm/device/p2p_impl.h"
#include "tests/comm/device_rows.h"

enum { ROUNDS = 12, REPLAYS = 40, STORMS = 100 /* for each replay */, SLOTS = 3 /* of a rank */, POISON = 0xee };

/* How a case's rows travel: as they are, all of them as e4m3, or those of every other round, by chance. */
enum travel { WHOLE, ROUNDED, MIXED };

/* Few rows, many, and more than 3 MiB to send have kernels of their own, as have many that are short: rounds of large
 * cases come to all of them. Large ones are replayed less often, as their numbers take time. */
static const struct rows_case {
  int max_rows, hidden, top_k;
  tri_dtype type;
  bool routed; /* dispatch makes the choices */
  enum travel travel;
  int replays;
} cases[] = {{40, 264, 8, TRI_F32, false, WHOLE, REPLAYS},    {17, 7168, 2, TRI_BF16, false, WHOLE, REPLAYS},
             {33, 1030, 5, TRI_F16, false, WHOLE, REPLAYS},   {9, 7, 1, TRI_F32, false, WHOLE, REPLAYS},
             {300, 1288, 8, TRI_BF16, false, WHOLE, REPLAYS}, {150, 1030, 3, TRI_F16, true, WHOLE, REPLAYS},
             {300, 2950, 4, TRI_F32, false, WHOLE, REPLAYS},  {110, 4800, 8, TRI_BF16, false, WHOLE, REPLAYS},
             {3, 128, 2, TRI_BF16, false, ROUNDED, REPLAYS},  {17, 7168, 2, TRI_BF16, false, MIXED, REPLAYS},
             {1024, 128, 8, TRI_BF16, false, MIXED, REPLAYS}, {129, 384, 3, TRI_BF16, true, MIXED, REPLAYS},
             {333, 2048, 4, TRI_BF16, false, ROUNDED, 10},    {1023, 640, 8, TRI_BF16, false, MIXED, 10},
             {1024, 7168, 8, TRI_BF16, false, ROUNDED, 1}};
enum { CASES = sizeof cases / sizeof *cases };

/* A round's arrays on the device; host: a copy of what came. */
struct round {
  int32_t rows[TRI_ROWS_RANKS];
  int stride;
  char *x, *all_x, *host;
  int32_t *experts, *all_experts;
  float *weights, *all_weights, *y, *out, *logits;
};

struct rows_test {
  tri_rows_config cfg;
  bool routed;
  enum travel travel;
  int replays;
  size_t row_bytes, number; /* number: of rows of all ranks, at most */
  struct round rounds[ROUNDS];
  uint32_t salt;
};

/* ---- numbers ---- */

static uint32_t pick(const struct rows_test *t, int round, int rank, int row, int i) {
  return dc_mix(dc_mix(dc_mix(t->salt * 64 + (uint32_t)round) + (uint32_t)rank * 4096 + (uint32_t)row) + (uint32_t)i);
}

static int logits_of(const struct rows_test *t) { return SLOTS * t->cfg.ranks + 3; }

/* Slots of all ranks, of none, and of another column. */
static int32_t slot_of(const struct rows_test *t, int round, int rank, int row, int c) {
  int32_t all = SLOTS * t->cfg.ranks, slot = (int32_t)(pick(t, round, rank, row, c) % (uint32_t)(all + 3));
  if (t->routed) return (int32_t)((pick(t, round, rank, row, 0) + (uint32_t)c) % (uint32_t)logits_of(t));
  return slot > all ? -1 : slot;
}
/* The choice that is c-th has a logit of -c: its weight is this. */
static float weight_of(const struct rows_test *t, int place) {
  double sum = 0;
  if (!t->routed) return (float)(place % 7);
  for (int c = 0; c < t->cfg.top_k; c++) sum += exp(-c);
  return (float)(exp(-(place % t->cfg.top_k)) / sum);
}
static bool is_rounded(const struct rows_test *t, int round) {
  return t->travel == ROUNDED || (t->travel == MIXED && dc_mix((uint32_t)round + 77) % 2);
}
/* The kinds of elements that a row is made of. */
static uint32_t seed_of(const struct rows_test *t, int round, int rank, int row) {
  return pick(t, round, rank, row, 100);
}
/* Whole numbers that 8 bits hold, by the row's place among all. */
static float part(const struct rows_test *t, int from, size_t place, size_t i) {
  return (float)(dc_mix((uint32_t)from * 131 + (uint32_t)place + t->salt) % 16 + i % 16);
}
/* A bit for each rank that has one of a row's slots. */
static unsigned owners_of(const struct rows_test *t, int round, int rank, int row) {
  unsigned owners = 0;
  for (int c = 0; c < t->cfg.top_k; c++) {
    int32_t slot = slot_of(t, round, rank, row, c);
    for (int k = 0; k < t->cfg.ranks; k++)
      owners |= (unsigned)(slot >= t->cfg.first_slot[k] && slot < t->cfg.end_slot[k]) << k;
  }
  return owners;
}

/* ---- elements ---- */

/* A number of BF16 out of a group of TRI_INT8_GROUP that has a largest magnitude of its own, up to 2^15 times as large
 * as others: some groups are zeros, next to nothing, as large as can be, or have one that is no number. */
static float various(uint32_t seed, size_t i) {
  const uint32_t group = dc_mix(seed + (uint32_t)(i / TRI_INT8_GROUP)), x = dc_mix(group + (uint32_t)i * 77);
  uint32_t exponent = 64 + group / 32 % 128, bits;
  if (group % 32 == 0) return x % 2 ? -0.0f : 0;
  if (group % 32 == 1) exponent = 20; /* less than 2^-106 */
  if (group % 32 == 2) exponent = 254;
  bits = (x & 0x80000000u) | (exponent - (x >> 8 & 15)) << 23 | (x & 0x7f) << 16;
  if (group % 32 == 3 && i % TRI_INT8_GROUP == group / 32 % TRI_INT8_GROUP) bits = 0x7f800000u | (x & 0x7f) << 16;
  float v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* Element i of a row before it travels. */
static float element(uint32_t seed, bool rounded, size_t i) {
  return rounded ? various(seed, i) : (float)(seed % 64 + 1 + i % 64);
}

/* The nearest number with three bits after its first one, down to 2^-6, and multiples of 2^-9 below that; of two that
 * are as near the even one. At most 448. */
static double nearest_e4m3(double x) {
  int exponent;
  double size = fabs(x);
  if (size >= 448) return copysign(448, x);
  frexp(size, &exponent);
  if (exponent < -5) exponent = -5;
  double step = ldexp(1, exponent - 4);
  return copysign(rint(size / step) * step, x);
}

/* A group of a row after it has travelled rounded. */
static void travel(float *x) {
  float most = 0;
  bool finite = true;
  for (int i = 0; i < TRI_INT8_GROUP; i++) {
    finite &= isfinite(x[i]) != 0;
    most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
  }
  bool some = most > 1e-30f;
  float factor = some ? 448 / most : 0, scale = some ? most / 448 : 0;
  for (int i = 0; i < TRI_INT8_GROUP; i++) {
    float product = x[i] * factor, code = (float)nearest_e4m3((double)product);
    uint16_t narrow = tri_f32_to_bf16(code * scale);
    x[i] = finite ? tri_bf16_to_f32(narrow) : NAN;
  }
}

/* A whole row, as it must lie in the memory of the rank that gets it. */
static void expect_row(const struct rows_test *t, int round, int rank, int row, bool has_travelled, float *x) {
  const bool rounded = is_rounded(t, round);
  const uint32_t seed = seed_of(t, round, rank, row);
  for (int i = 0; i < t->cfg.hidden; i++) x[i] = element(seed, rounded, (size_t)i);
  for (int i = 0; i < t->cfg.hidden && rounded && has_travelled; i += TRI_INT8_GROUP) travel(x + i);
}

/* ---- a test's memory ---- */

static void *device_bytes(dc_rank *d, size_t bytes) {
  void *p;
  DC_MUST(cudaMalloc(&p, bytes + 16) == cudaSuccess);
  return p;
}

static void make_round(dc_rank *d, struct rows_test *t, int n) {
  struct round *r = &t->rounds[n];
  size_t choices = t->number * (size_t)t->cfg.top_k * 4, floats = t->number * (size_t)t->cfg.hidden * 4;
  uint32_t kind = dc_mix((uint32_t)n + 5) % 4;
  for (int k = 0; k < t->cfg.ranks; k++) {
    uint32_t x = dc_mix((uint32_t)(n * 8 + k));
    r->rows[k] = kind == 0 ? 1 : (int32_t)(x % (uint32_t)(t->cfg.max_rows + 1)); /* a shard may have none */
    if (k == n % t->cfg.ranks) r->rows[k] = kind == 1 ? t->cfg.max_rows : (r->rows[k] ? r->rows[k] : 1);
    if (r->rows[k] > r->stride) r->stride = r->rows[k];
  }
  r->x = device_bytes(d, t->number * t->row_bytes);
  r->all_x = device_bytes(d, t->number * t->row_bytes);
  r->experts = device_bytes(d, choices);
  r->all_experts = device_bytes(d, choices);
  r->weights = device_bytes(d, choices);
  r->all_weights = device_bytes(d, choices);
  r->y = device_bytes(d, floats);
  r->out = device_bytes(d, floats);
  r->logits = device_bytes(d, t->number * (size_t)logits_of(t) * 4);
  DC_MUST(cudaMallocHost((void **)&r->host, floats) == cudaSuccess);
}

static void free_round(const struct round *r) {
  void *all[] = {r->x, r->all_x, r->experts, r->all_experts, r->weights, r->all_weights, r->y, r->out, r->logits};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) cudaFree(all[i]);
  cudaFreeHost(r->host);
}

static void put(dc_rank *d, void *to, const void *from, size_t bytes) {
  DC_MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
}
static void get(dc_rank *d, void *to, const void *from, size_t bytes) {
  DC_MUST(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, tri_cuda_stream(&d->be)) == cudaSuccess);
  DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
}
static void poison(dc_rank *d, void *p, size_t bytes) {
  DC_MUST(cudaMemsetAsync(p, POISON, bytes, tri_cuda_stream(&d->be)) == cudaSuccess);
}

static void load_logits(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  int own = r->rows[d->host->rank], cols = logits_of(t);
  float *logits = (float *)r->host;
  for (int i = 0; i < own * cols; i++) logits[i] = -1000;
  for (int i = 0; i < own * t->cfg.top_k; i++) {
    int row = i / t->cfg.top_k, c = i % t->cfg.top_k;
    logits[row * cols + slot_of(t, n, d->host->rank, row, c)] = (float)-c;
  }
  put(d, r->logits, logits, (size_t)(own * cols) * 4);
}

static void load_round(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  size_t k = (size_t)t->cfg.top_k, hidden = (size_t)t->cfg.hidden, own = (size_t)r->rows[d->host->rank];
  int32_t *slots = (int32_t *)r->host;
  float *floats = (float *)r->host;
  for (size_t row = 0; row < own; row++) {
    uint32_t seed = seed_of(t, n, d->host->rank, (int)row);
    for (size_t i = 0; i < hidden; i++)
      tri_store_f32(r->host, t->cfg.type, row * hidden + i, element(seed, is_rounded(t, n), i));
  }
  put(d, r->x, r->host, own * t->row_bytes);
  for (size_t i = 0; i < own * k; i++) slots[i] = slot_of(t, n, d->host->rank, (int)(i / k), (int)(i % k));
  put(d, r->experts, slots, own * k * 4);
  for (size_t i = 0; i < own * k; i++) floats[i] = weight_of(t, (int)i);
  put(d, r->weights, floats, own * k * 4);
  if (t->routed) load_logits(d, t, n);
  for (size_t i = 0; i < t->number * hidden; i++) floats[i] = part(t, d->host->rank, i / hidden, i % hidden);
  put(d, r->y, floats, t->number * hidden * 4);
  poison(d, r->all_x, t->number * t->row_bytes);
  poison(d, r->all_experts, t->number * k * 4);
  poison(d, r->all_weights, t->number * k * 4);
  poison(d, r->out, t->number * hidden * 4);
}

/* ---- what must have come ---- */

static void check_tables(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  const int32_t *slots = (int32_t *)r->host;
  int k = t->cfg.top_k, all = t->cfg.ranks * r->stride * k;
  get(d, r->host, r->all_experts, (size_t)all * 4);
  for (int i = 0; i < all; i++) {
    int row = i / k % r->stride, rank = i / k / r->stride;
    DC_MUST(slots[i] == (row < r->rows[rank] ? slot_of(t, n, rank, row, i % k) : -1));
  }
  get(d, r->host, r->all_weights, (size_t)all * 4);
  for (int i = 0; i < all; i++) {
    int row = i / k % r->stride, rank = i / k / r->stride, place = row * k + i % k;
    if (row < r->rows[rank] && slot_of(t, n, rank, row, i % k) >= 0)
      DC_MUST(((float *)r->host)[i] == weight_of(t, place));
  }
}

static bool same(float a, float b) { return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a); }

/* Tells where a row differs, and how much of it. */
static void tell_row(const dc_rank *d, const struct rows_test *t, int n, int rank, int row, const float *want) {
  const struct round *r = &t->rounds[n];
  const size_t first = ((size_t)rank * (size_t)r->stride + (size_t)row) * (size_t)t->cfg.hidden;
  int wrong = 0, at = -1;
  for (int i = 0; i < t->cfg.hidden; i++) {
    if (same(tri_load_f32(r->host, t->cfg.type, first + (size_t)i), want[i])) continue;
    if (!wrong++) at = i;
  }
  fprintf(stderr, "rank %d: replay %u, round %d (%s, %d rows at most), row %d of rank %d: %d of %d elements differ\n",
          d->host->rank, t->salt, n, is_rounded(t, n) ? "rounded" : "whole", r->stride, row, rank, wrong,
          t->cfg.hidden);
  for (int i = at; i >= 0 && i < t->cfg.hidden && i < at + 8; i++) {
    float got = tri_load_f32(r->host, t->cfg.type, first + (size_t)i);
    fprintf(stderr, "  element %d: %.9g, not %.9g\n", i, (double)got, (double)want[i]);
  }
}

static void check_rows(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  size_t hidden = (size_t)t->cfg.hidden;
  float *want = d->want;
  get(d, r->host, r->all_x, t->number * t->row_bytes);
  for (int place = 0; place < t->cfg.ranks * r->stride; place++) {
    int rank = place / r->stride, row = place % r->stride;
    bool wanted = row < r->rows[rank] && owners_of(t, n, rank, row) >> d->host->rank & 1, right = true;
    if (wanted) expect_row(t, n, rank, row, rank != d->host->rank, want);
    for (size_t i = 0; i < hidden && wanted; i++)
      right &= same(tri_load_f32(r->host, t->cfg.type, (size_t)place * hidden + i), want[i]);
    if (!right) tell_row(d, t, n, rank, row, want);
    DC_MUST(right);
    for (size_t i = 0; i < t->row_bytes && !wanted; i++)
      DC_MUST((unsigned char)r->host[(size_t)place * t->row_bytes + i] == POISON);
  }
}

static void check_sums(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  int own = d->host->rank, rows = r->rows[own];
  size_t hidden = (size_t)t->cfg.hidden;
  get(d, r->host, r->out, t->number * hidden * 4);
  for (int row = 0; row < rows; row++) {
    unsigned owners = owners_of(t, n, own, row);
    for (size_t i = 0; i < hidden; i++) {
      float sum = 0;
      for (int k = 0; k < t->cfg.ranks; k++)
        if (owners >> k & 1) sum += part(t, k, (size_t)(own * r->stride + row), i);
      DC_MUST(((float *)r->host)[(size_t)row * hidden + i] == sum);
    }
  }
  for (size_t i = (size_t)rows * hidden * 4; i < t->number * hidden * 4; i++)
    DC_MUST((unsigned char)r->host[i] == POISON);
}

/* ---- boxes ---- */

/* Tells what lies in a rank's boxes, by area and half: after a wait that failed, what has come; else nothing should.
 * Returns how many vectors are not empty. */
static size_t tell_boxes(dc_rank *d, const struct rows_test *t) {
  static const char *const areas[] = {"tables", "tables", "rows", "rows", "results"};
  const tri_p2p_impl *p = tri_p2p_impl_of(d->comm);
  const size_t rows = (size_t)(t->cfg.ranks * t->cfg.max_rows);
  size_t bytes, left = 0, at = 0;
  DC_MUST(tri_rows_bytes(&t->cfg, &bytes));
  uint32_t(*vectors)[4] = malloc(bytes);
  DC_MUST(vectors && cudaMemcpy(vectors, p->memory[d->host->rank], bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
  for (int area = 0; area < 5; area++) {
    const size_t length = (size_t)(area < 2 ? tri_rows_table_vectors(&t->cfg) : tri_rows_vectors(&t->cfg));
    size_t count = 0, first = 0;
    for (size_t i = 0; i < rows * length; i++) {
      const uint32_t *w = vectors[at + i];
      if ((w[0] & w[1] & w[2] & w[3]) != UINT32_MAX && !count++) first = i;
    }
    const size_t row = first / length;
    const uint32_t *w = vectors[at + first];
    if (count)
      fprintf(stderr,
              "rank %d: %s, half %d: %zu vectors; the first: source %zu row %zu vector %zu: %08x %08x %08x %08x\n",
              d->host->rank, areas[area], area % 2, count, row / (size_t)t->cfg.max_rows, row % (size_t)t->cfg.max_rows,
              first % length, w[0], w[1], w[2], w[3]);
    left += count;
    at += rows * length;
  }
  free(vectors);
  return left;
}

/* Every place that was written to has been filled again, once all ranks are through. */
static void check_boxes(dc_rank *d, const struct rows_test *t) {
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
  DC_MUST(tell_boxes(d, t) == 0);
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
}

/* Waits for the rounds, and tells how far they came if one has not. */
static void finish_rounds(dc_rank *d, const struct rows_test *t) {
  tri_cuda_rounds counts;
  bool synced = cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess;
  if (synced && tri_comm_query(d->comm) != TRI_OK) {
    get(d, &counts, tri_p2p_impl_of(d->comm)->all2all.rounds, sizeof counts);
    fprintf(stderr, "rank %d: %u rounds dispatched, %u combined since the start, salt %u; what lies in the boxes:\n",
            d->host->rank, counts.dispatched, counts.combined, t->salt);
    tell_boxes(d, t);
  }
  dc_sync(d);
}

/* ---- rounds ---- */

static tri_status launch_round(dc_rank *d, const struct rows_test *t, int n) {
  const struct round *r = &t->rounds[n];
  int own = r->rows[d->host->rank], cols = logits_of(t);
  const tri_moe_route_args route = {.logits = {r->logits, own, cols, cols, TRI_F32},
                                    .score = TRI_MOE_SOFTMAX,
                                    .top_k = t->cfg.top_k,
                                    .num_groups = 1,
                                    .renormalize = true,
                                    .scale = 1};
  const tri_rows_dispatch there = {.rows = r->rows,
                                   .stride = r->stride,
                                   .x = r->x,
                                   .experts = t->routed ? NULL : r->experts,
                                   .weights = t->routed ? NULL : r->weights,
                                   .route = t->routed ? &route : NULL,
                                   .rounded = is_rounded(t, n),
                                   .all = {r->all_x, r->all_experts, r->all_weights}};
  const tri_rows_combine back = {
      .rows = r->rows, .all_experts = r->all_experts, .stride = r->stride, .y = r->y, .out = r->out};
  tri_status st = tri_comm_dispatch(d->comm, &there);
  return st == TRI_OK ? tri_comm_combine(d->comm, &back) : st;
}

static void launch_all(dc_rank *d, void *arg) {
  const struct rows_test *t = arg;
  for (int n = 0; n < ROUNDS; n++) DC_MUST(launch_round(d, t, n) == TRI_OK);
}

static void be_late(const dc_rank *d, uint32_t x) {
  uint32_t late = dc_mix(x + (uint32_t)d->host->rank * 99);
  if (late % 4 == 0) nanosleep(&(struct timespec){.tv_nsec = late / 4 % 2000000}, NULL);
}

static void check_all(dc_rank *d, const struct rows_test *t) {
  finish_rounds(d, t);
  for (int n = 0; n < ROUNDS; n++) {
    check_tables(d, t, n);
    check_rows(d, t, n);
    check_sums(d, t, n);
  }
}

/* Graphs, and launches between them: the rounds go on whoever launches. */
static void test_case(dc_rank *d, struct rows_test *t) {
  for (int n = 0; n < ROUNDS; n++) make_round(d, t, n);
  cudaGraphExec_t graph = dc_record(d, launch_all, t);
  for (uint32_t i = 0; i < (uint32_t)t->replays; i++) {
    t->salt = i + 1;
    for (int n = 0; n < ROUNDS; n++) load_round(d, t, n);
    be_late(d, i);
    if (dc_mix(i + (uint32_t)d->host->rank) % 3 == 0) /* some ranks launch what others replay */
      launch_all(d, t);
    else
      DC_MUST(cudaGraphLaunch(graph, tri_cuda_stream(&d->be)) == cudaSuccess);
    check_all(d, t);
  }
  for (uint32_t i = 0; i < (uint32_t)(STORMS * t->replays); i++) {
    DC_MUST(cudaGraphLaunch(graph, tri_cuda_stream(&d->be)) == cudaSuccess);
    if (i % 32 == 31) finish_rounds(d, t);
    if (i % 256 == 0) be_late(d, i);
  }
  check_all(d, t);
  check_boxes(d, t);
  cudaGraphExecDestroy(graph);
  for (int n = 0; n < ROUNDS; n++) free_round(&t->rounds[n]);
}

static tri_rows_config config_of(const struct rows_case *c, int ranks) {
  tri_rows_config r = {
      .ranks = ranks, .max_rows = c->max_rows, .hidden = c->hidden, .top_k = c->top_k, .type = c->type};
  for (int k = 0; k < ranks; k++) r.first_slot[k] = SLOTS * k;
  for (int k = 0; k < ranks; k++) r.end_slot[k] = SLOTS * k + SLOTS;
  return r;
}

/* Rank 0 stays away: the others' kernels end by themselves, one limit for all that were launched. */
static void test_no_rows(dc_rank *d, struct rows_test *t) {
  for (int n = 0; n < ROUNDS; n++) make_round(d, t, n);
  for (int n = 0; n < ROUNDS; n++) load_round(d, t, n);
  d->comm->cfg.timeout_ms = 300;
  int64_t since = tri_now_ns();
  if (d->host->rank) {
    for (int n = 0; n < ROUNDS; n++) launch_round(d, t, n); /* the last ones may find the first one's error */
    DC_MUST(cudaStreamSynchronize(tri_cuda_stream(&d->be)) == cudaSuccess);
    DC_MUST(dc_elapsed_ms(since) >= 300);
    DC_MUST(tri_comm_query(d->comm) == TRI_PEER_LOST);
  }
  DC_MUST(tri_comm_barrier(d->host) == TRI_OK);
  if (!d->host->rank) tri_comm_abort(d->comm); /* its peers must not be waited for when it goes */
  for (int n = 0; n < ROUNDS; n++) free_round(&t->rounds[n]);
}

static void tell_case(const dc_rank *d, const struct rows_test *t, int64_t start) {
  static const char *const travels[] = {"whole", "rounded", "whole and rounded"};
  if (d->host->rank) return;
  printf("rows: up to %d of %d elements, top %d, type %d, %s%s: %lld ms\n", t->cfg.max_rows, t->cfg.hidden,
         t->cfg.top_k, (int)t->cfg.type, travels[t->travel], t->routed ? ", routed" : "",
         (long long)dc_elapsed_ms(start));
  fflush(stdout);
}

void dc_test_rows(dc_rank *d, dc_rows_connect connect, dc_rows_disconnect disconnect) {
  for (int i = 0; i <= CASES; i++) {
    struct rows_test *t = calloc(1, sizeof *t);
    DC_MUST(t != NULL);
    t->cfg = config_of(&cases[i % CASES], d->host->size);
    t->row_bytes = (size_t)t->cfg.hidden * tri_dtype_size(t->cfg.type);
    t->number = (size_t)(t->cfg.ranks * t->cfg.max_rows);
    t->salt = 1;
    t->routed = cases[i % CASES].routed;
    t->travel = cases[i % CASES].travel;
    t->replays = cases[i % CASES].replays;
    int64_t start = tri_now_ns();
    connect(d, &t->cfg);
    if (i < CASES)
      test_case(d, t);
    else
      test_no_rows(d, t);
    disconnect(d);
    tell_case(d, t, start);
    free(t);
  }
}
