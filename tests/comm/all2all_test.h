/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of all2all_test. The first failure ends all ranks. */
#ifndef TRI_TESTS_COMM_ALL2ALL_TEST_H
#define TRI_TESTS_COMM_ALL2ALL_TEST_H

#include "tests/comm/paper_all2all.h"

#define MUST(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) test_fail(__FILE__, __LINE__, #condition);                                                       \
  } while (0)

_Noreturn void test_fail(const char *file, int line, const char *what);
void *test_alloc(size_t count, size_t size);

enum placement { LINEAR, ROUND_ROBIN, SCATTERED, PLACEMENTS };

struct layout {
  int tp, dp, etp, num_experts, top_k, max_rows, hidden;
  enum placement placement;
};

/* The ways of rows: the product's forms, and those that they are compared with. */
typedef enum way { ALLGATHER, COORDINATED, PAPER, FLAT, WAYS } way;

/* A stage of all ranks, with one exchange of each. Its configuration has the communicators. */
struct stage {
  struct layout layout;
  tri_comm *world, *tensor, *column;
  tri_all2all_config cfg;
  int32_t *first_rank;
  tri_all2all *all2all;
  paper_all2all *paper;
  way way; /* of the last dispatch */
};

void stage_make(struct stage *s, const struct layout *layout, const tri_comm_config *config);
/* Leaves the memory to operations that never end. */
void stage_abandon(struct stage *s);
void stage_free(struct stage *s);
const char *way_name(way way);
tri_status stage_dispatch(struct stage *s, way way, const int32_t *rows, const float *x, const int32_t *experts,
                          const float *weights, const tri_all2all_rows *all);
tri_status stage_combine(struct stage *s, const float *y, float *out, bool accumulate);
/* A communicator of all ranks alone. */
tri_comm *make_world(const tri_comm_config *config);

struct random {
  uint64_t state;
};
uint32_t random_below(struct random *r, uint32_t n);

/* Rounds of one stage, the same on every rank; with delays some ranks come late. */
void run_rounds(struct stage *s, int rounds, uint64_t seed, bool delays);
void run_bench(const tri_comm_config *config);

#endif
