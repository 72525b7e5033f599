/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of mixture-of-experts layers: alone it tests one rank, under mpirun all layouts of as many as there are.
 *
 *   all2all_test [ROUNDS]         rounds of every layout (60), then lost ranks
 *   all2all_test long ROUNDS      this many rounds of every layout, with delays
 *   all2all_test bench            microseconds of dispatch and combine, on 4 ranks
 *   all2all_test kill MESSAGES    one rank is killed within an exchange; mpirun has to let the others go on */
#include "tests/comm/all2all_test.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool mpi;
static int my_rank, ranks = 1;

void test_fail(const char *file, int line, const char *what) {
  fprintf(stderr, "%s: rank %d: line %d: %s\n", file, my_rank, line, what);
  fflush(stderr);
  if (mpi) tri_mpi_abort(1);
  exit(1);
}

void *test_alloc(size_t count, size_t size) {
  void *p = calloc(count ? count : 1, size);
  MUST(p != NULL);
  return p;
}

uint32_t random_below(struct random *r, uint32_t n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  uint32_t x = (uint32_t)(r->state >> 33);
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return (x ^ (x >> 13)) % n;
}

/* ---- stages ---- */

tri_comm *make_world(const tri_comm_config *config) {
  tri_comm *all, *world;
  MUST((mpi ? tri_comm_mpi_world(config, &all) : tri_comm_self_create(config, &all)) == TRI_OK);
  MUST(tri_comm_split(all, 0, all->rank, NULL, &world) == TRI_OK);
  tri_comm_destroy(all);
  return world;
}

static void place_experts(struct stage *s) {
  const struct layout *l = &s->layout;
  int shares = l->tp * l->dp / l->etp;
  struct random random = {(uint64_t)l->num_experts};
  s->first_rank = test_alloc((size_t)l->num_experts, sizeof *s->first_rank);
  for (int share = 0; share < shares && l->placement == LINEAR; share++)
    for (int x = l->num_experts * share / shares; x < l->num_experts * (share + 1) / shares; x++)
      s->first_rank[x] = share * l->etp;
  for (int x = 0; x < l->num_experts && l->placement == ROUND_ROBIN; x++) s->first_rank[x] = x % shares * l->etp;
  for (int x = 0; x < l->num_experts && l->placement == SCATTERED; x++) /* slices begin anywhere in a shard */
    s->first_rank[x] = (int32_t)random_below(&random, (uint32_t)l->dp) * l->tp +
                       (int32_t)random_below(&random, (uint32_t)(l->tp - l->etp + 1));
}

/* Groups of one rank have a communicator with some layouts, and none with others. */
void stage_make(struct stage *s, const struct layout *layout, const tri_comm_config *config) {
  tri_error err = {0};
  size_t bytes = 0;
  *s = (struct stage){.layout = *layout, .world = make_world(config)};
  int tp = layout->tp, dp = layout->dp, t = s->world->rank % tp, d = s->world->rank / tp;
  bool always = layout->num_experts % 2;
  MUST(s->world->size == tp * dp);
  MUST(tri_comm_split(s->world, d, t, NULL, &s->tensor) == TRI_OK);
  MUST(tri_comm_split(s->world, t, d, NULL, &s->column) == TRI_OK);
  place_experts(s);
  s->cfg = (tri_all2all_config){
      .tensor = tp > 1 || always ? s->tensor : NULL,
      .column = dp > 1 || always ? s->column : NULL,
      .stage = tp * dp > 1 || always ? s->world : NULL,
      .tp = tp,
      .dp = dp,
      .t = t,
      .d = d,
      .max_rows = layout->max_rows,
      .hidden = layout->hidden,
      .top_k = layout->top_k,
      .num_experts = layout->num_experts,
      .etp = layout->etp,
      .first_rank = s->first_rank,
  };
  MUST(tri_all2all_bytes(&s->cfg, &bytes));
  MUST(bytes > (size_t)dp * (size_t)layout->max_rows * (size_t)layout->hidden * sizeof(float));
  MUST(tri_all2all_create(&s->cfg, &s->all2all, &err) == TRI_OK);
  s->paper = paper_all2all_make(&s->cfg);
}

const char *way_name(way way) {
  if (way < PAPER) return tri_all2all_form_name((tri_all2all_form)way);
  return way == PAPER ? "paper" : "flat";
}

tri_status stage_dispatch(struct stage *s, way way, const int32_t *rows, const float *x, const int32_t *experts,
                          const float *weights, const tri_all2all_rows *all) {
  s->way = way;
  if (way >= PAPER) return paper_all2all_dispatch(s->paper, way == FLAT, rows, x, experts, weights, all);
  tri_all2all_use(s->all2all, (tri_all2all_form)way);
  return tri_all2all_dispatch(s->all2all, rows, x, experts, weights, all);
}

tri_status stage_combine(struct stage *s, const float *y, float *out, bool accumulate) {
  return s->way >= PAPER ? paper_all2all_combine(s->paper, y, out, accumulate)
                         : tri_all2all_combine(s->all2all, y, out, accumulate);
}

static void destroy_comms(struct stage *s) {
  tri_comm_destroy(s->tensor);
  tri_comm_destroy(s->column);
  tri_comm_destroy(s->world);
}

static void abort_comms(struct stage *s) {
  tri_comm_abort(s->tensor);
  tri_comm_abort(s->column);
  tri_comm_abort(s->world);
}

/* A communicator that failed on one rank is given back by none: MPI would take its number for another one while the
 * lost messages are still under way. */
void stage_abandon(struct stage *s) {
  abort_comms(s);
  destroy_comms(s);
}

void stage_free(struct stage *s) {
  tri_all2all_destroy(s->all2all);
  paper_all2all_free(s->paper);
  free(s->first_rank);
  destroy_comms(s);
}

/* ---- layouts ---- */

static const struct layout layouts[] = {
    {.tp = 1, .dp = 1, .etp = 1, .num_experts = 5, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 1, .dp = 1, .etp = 1, .num_experts = 4, .top_k = 1, .max_rows = 3, .hidden = 1, .placement = SCATTERED},
    {.tp = 1, .dp = 2, .etp = 1, .num_experts = 5, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 1, .dp = 2, .etp = 1, .num_experts = 16, .top_k = 4, .max_rows = 300, .hidden = 600},
    {.tp = 2, .dp = 1, .etp = 1, .num_experts = 7, .top_k = 2, .max_rows = 9, .hidden = 5},
    {.tp = 2, .dp = 1, .etp = 2, .num_experts = 16, .top_k = 3, .max_rows = 9, .hidden = 5},
    {.tp = 1, .dp = 3, .etp = 1, .num_experts = 5, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 1, .dp = 3, .etp = 1, .num_experts = 16, .top_k = 5, .max_rows = 9, .hidden = 33, .placement = ROUND_ROBIN},
    {.tp = 3, .dp = 1, .etp = 1, .num_experts = 2, .top_k = 1, .max_rows = 9, .hidden = 3},
    {.tp = 2, .dp = 2, .etp = 1, .num_experts = 5, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 2, .dp = 2, .etp = 1, .num_experts = 16, .top_k = 2, .max_rows = 13, .hidden = 16, .placement = SCATTERED},
    {.tp = 2, .dp = 2, .etp = 1, .num_experts = 7, .top_k = 2, .max_rows = 300, .hidden = 500},
    {.tp = 2, .dp = 2, .etp = 2, .num_experts = 7, .top_k = 3, .max_rows = 9, .hidden = 7},
    {.tp = 2, .dp = 2, .etp = 2, .num_experts = 16, .top_k = 8, .max_rows = 9, .hidden = 9, .placement = ROUND_ROBIN},
    {.tp = 4, .dp = 1, .etp = 1, .num_experts = 7, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 4, .dp = 1, .etp = 2, .num_experts = 16, .top_k = 2, .max_rows = 9, .hidden = 7, .placement = SCATTERED},
    {.tp = 4, .dp = 1, .etp = 4, .num_experts = 5, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 1, .dp = 4, .etp = 1, .num_experts = 7, .top_k = 2, .max_rows = 9, .hidden = 7},
    {.tp = 1, .dp = 4, .etp = 1, .num_experts = 3, .top_k = 1, .max_rows = 2, .hidden = 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Large rows are for what is cut into pieces: few rounds are enough. */
static bool is_large(const struct layout *l) { return l->max_rows > 100; }

static void run_layouts(tri_comm_config config, int rounds, bool delays) {
  for (int messages = 0; messages <= mpi; messages++)
    for (int i = 0; i < LAYOUTS; i++) {
      if (layouts[i].tp * layouts[i].dp != ranks) continue;
      struct stage s;
      config.messages_only = messages;
      stage_make(&s, &layouts[i], &config);
      run_rounds(&s, is_large(&layouts[i]) ? 2 + rounds / 500 : rounds, (uint64_t)(i + 100 * messages), delays);
      stage_free(&s);
    }
}

/* ---- what cannot be ---- */

static void must_refuse(const tri_all2all_config *cfg, tri_status want) {
  tri_error err = {0};
  tri_all2all *e = NULL;
  MUST(tri_all2all_create(cfg, &e, &err) == want && e == NULL && *err.message);
}

static void test_refusals(const tri_comm_config *config) {
  struct stage s;
  size_t bytes = 0;
  struct layout one = {.tp = 1, .dp = ranks, .etp = 1, .num_experts = 4, .top_k = 1, .max_rows = 2, .hidden = 2};
  stage_make(&s, &one, config);
  tri_all2all_config cfg = s.cfg;
  cfg.dp++;
  must_refuse(&cfg, TRI_INVALID_ARGUMENT); /* the column is of another size */
  cfg = s.cfg;
  cfg.etp = 2;
  must_refuse(&cfg, TRI_OUT_OF_RANGE);
  cfg = s.cfg;
  cfg.max_rows = 1 << 20;
  cfg.hidden = 1 << 20;
  must_refuse(&cfg, TRI_TOO_LARGE);
  cfg.dp = cfg.tp = cfg.max_rows = cfg.hidden = 1 << 30;
  MUST(!tri_all2all_bytes(&cfg, &bytes));
  s.first_rank[1] = ranks;
  must_refuse(&s.cfg, TRI_OUT_OF_RANGE);
  int32_t rows[16] = {3};
  MUST(tri_all2all_dispatch(s.all2all, rows, NULL, NULL, NULL, NULL) == TRI_OUT_OF_RANGE);
  stage_free(&s);
}

/* ---- lost ranks ---- */

enum { LOST_ROWS = 4, LOST_HIDDEN = 2048, LIMIT_MS = 400 };

struct all2all_buffers {
  int32_t rows[16], own_experts[LOST_ROWS];
  float own_weights[LOST_ROWS], *x, *y, *out;
  tri_all2all_rows all;
};

static void buffers_make(struct all2all_buffers *b, const struct stage *s) {
  size_t rows = (size_t)s->layout.dp * LOST_ROWS;
  *b = (struct all2all_buffers){.x = test_alloc(LOST_ROWS * LOST_HIDDEN, sizeof(float)),
                                .y = test_alloc(rows * LOST_HIDDEN, sizeof(float)),
                                .out = test_alloc(LOST_ROWS * LOST_HIDDEN, sizeof(float))};
  b->all = (tri_all2all_rows){.x = test_alloc(rows * LOST_HIDDEN, sizeof(float)),
                              .experts = test_alloc(rows, sizeof(int32_t)),
                              .weights = test_alloc(rows, sizeof(float))};
  for (int i = 0; i < LOST_ROWS; i++) b->own_experts[i] = (s->cfg.d + i) % s->layout.num_experts;
  for (int d = 0; d < s->layout.dp; d++) b->rows[d] = LOST_ROWS;
}

/* A layer's exchange and the all-reduce after it, without its experts. */
static tri_status run_layer(struct stage *s, way way, struct all2all_buffers *b) {
  TRI_CHECK(stage_dispatch(s, way, b->rows, b->x, b->own_experts, b->own_weights, &b->all));
  TRI_CHECK(stage_combine(s, b->y, b->out, false));
  return tri_comm_all_reduce(s->tensor, b->out, LOST_ROWS * LOST_HIDDEN);
}

static struct layout lost_layout(void) {
  int tp = ranks % 2 ? 1 : 2;
  return (struct layout){tp, ranks / tp, 1, 8, 1, LOST_ROWS, LOST_HIDDEN, ROUND_ROBIN};
}

static tri_status run_until_lost(struct stage *s, way way, struct all2all_buffers *b, int64_t *waited_ms) {
  tri_status st;
  int64_t since;
  do {
    since = tri_now_ns();
    st = run_layer(s, way, b);
  } while (st == TRI_OK);
  *waited_ms = (tri_now_ns() - since) / 1000000;
  MUST(run_layer(s, way, b) != TRI_OK);
  return st;
}

/* The last rank stops calling: the others notice within the limit of one wait each. Without delay each of them has
 * waited for it at once, or for one that has. */
static void test_stopped(tri_comm_config config, way way) {
  struct stage s;
  struct all2all_buffers b;
  struct layout layout = lost_layout();
  tri_comm *world = make_world(&config);
  int64_t waited = 0;
  config.timeout_ms = LIMIT_MS;
  stage_make(&s, &layout, &config);
  buffers_make(&b, &s);
  for (int i = 0; i < 20; i++) MUST(run_layer(&s, way, &b) == TRI_OK);
  if (my_rank < ranks - 1) {
    MUST(run_until_lost(&s, way, &b, &waited) == TRI_TIMEOUT);
    MUST(waited >= LIMIT_MS / 2);
  }
  MUST(tri_comm_barrier(world) == TRI_OK);
  tri_comm_destroy(world);
  stage_abandon(&s);
}

static void *abort_soon(void *arg) {
  usleep(50000);
  abort_comms(arg);
  return NULL;
}

static void test_aborted(tri_comm_config config, way way) {
  struct stage s;
  struct all2all_buffers b;
  struct layout layout = lost_layout();
  tri_comm *world = make_world(&config);
  pthread_t thread;
  int64_t waited = 0;
  stage_make(&s, &layout, &config);
  buffers_make(&b, &s);
  MUST(!pthread_create(&thread, NULL, abort_soon, &s));
  MUST(run_until_lost(&s, way, &b, &waited) == TRI_ABORTED);
  pthread_join(thread, NULL);
  MUST(tri_comm_barrier(world) == TRI_OK); /* a rank that has left is lost to one that is not aborted yet */
  tri_comm_destroy(world);
  stage_abandon(&s);
}

static void test_lost(tri_comm_config config) {
  for (int messages = 0; messages <= mpi && ranks > 1; messages++)
    for (way way = 0; way < PAPER; way++) {
      config.messages_only = messages;
      test_aborted(config, way);
      test_stopped(config, way);
    }
}

static void *kill_soon(void *arg) {
  usleep(150000);
  kill(getpid(), SIGKILL);
  return arg;
}

static int run_killed(tri_comm_config config, bool messages) {
  struct stage s;
  struct all2all_buffers b;
  struct layout layout = lost_layout();
  pthread_t thread;
  int64_t waited = 0;
  config.timeout_ms = LIMIT_MS;
  config.messages_only = messages;
  stage_make(&s, &layout, &config);
  buffers_make(&b, &s);
  way way = messages ? ALLGATHER : COORDINATED;
  if (my_rank == ranks - 1) MUST(!pthread_create(&thread, NULL, kill_soon, NULL));
  tri_status st = run_until_lost(&s, way, &b, &waited);
  MUST(st == TRI_TIMEOUT || st == TRI_PEER_LOST);
  printf("rank %d: %s after %d ms\n", my_rank, tri_status_code(st), (int)waited);
  fflush(stdout);
  _exit(0); /* MPI_Finalize would wait for the lost rank */
}

int main(int argc, char **argv) {
  const tri_comm_config config = {.policy = {.yield_us = 100000}, .deterministic = true, .timeout_ms = 30000};
  const char *what = argc > 1 ? argv[1] : "60";
  tri_error err = {0};
  mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  if (mpi && tri_mpi_init(&argc, &argv, &err) != TRI_OK) return 1;
  tri_comm *world = make_world(&config);
  my_rank = world->rank;
  ranks = world->size;
  tri_comm_destroy(world);
  if (!strcmp(what, "bench")) {
    run_bench(&config);
  } else if (!strcmp(what, "kill")) {
    return run_killed(config, argc > 2 && !strcmp(argv[2], "messages"));
  } else if (!strcmp(what, "long")) {
    run_layouts(config, argc > 2 ? atoi(argv[2]) : 1000, true);
  } else {
    test_refusals(&config);
    run_layouts(config, atoi(what), false);
    test_lost(config);
  }
  if (!my_rank) puts("all2all_test: all is well");
  if (mpi) tri_mpi_finalize();
  return 0;
}
