/* SPDX-License-Identifier: Apache-2.0 */
/* The shards of a group against as many engines that compute nothing but remember everything (scheduler_kit.h), whose
 * answers come in any order across shards. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/unit/scheduler_kit.h"
#include "worker/schedule/scheduler_impl.h"
#include "worker/schedule/dp_ranks.h"

Suite *suite_dp_ranks(void);

enum { MAX_DP = 3 };

struct world {
  int dp, idle;                /* steps that a shard was without work in */
  struct sim *book;            /* the requests; its engine stands still */
  struct sim *engines[MAX_DP]; /* their schedulers and requests likewise */
  tri_plan_writer *plans[MAX_DP];
  tri_dp_ranks *shards;
  uint64_t step;
};

/* ---- set-up ---- */

static struct world *create(const struct config *c, int dp, uint64_t seed) {
  struct world *w = calloc(1, sizeof *w);
  ck_assert_ptr_nonnull(w);
  tri_sched_config sc = {.limits = c->limits,
                         .swap_cost = c->swap_cost,
                         .prefixes = c->prefixes,
                         .num_micro_batches = c->micro_batches,
                         .depth = c->depth,
                         .prompt_tokens = c->prompt_tokens,
                         .by_priority = c->by_priority};
  w->dp = dp;
  w->book = sim_create(c, seed);
  for (int i = 0; i < dp; i++) {
    w->engines[i] = sim_create(c, seed);
    w->plans[i] = w->engines[i]->writer;
  }
  ck_assert_int_eq(tri_dp_ranks_create(&sc, dp, &w->shards), TRI_OK);
  return w;
}

static void destroy(struct world *w) {
  tri_dp_ranks_destroy(w->shards);
  for (int i = 0; i < w->dp; i++) sim_destroy(w->engines[i]);
  sim_destroy(w->book);
  free(w);
}

static struct config simple_config(int seqs, int budget, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = seqs,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = 100,
                                    .block_size = 4,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = jobs};
}

/* ---- what must hold after every call ---- */

/* Blocks and slots of a shard are those of its sequences. */
static void check_shard(const tri_sched *s) {
  static int refs[MAX_BLOCKS];
  int running = 0, owners = 0, num_free = 0, on_host = 0;
  memset(refs, 0, sizeof refs);
  for (const tri_job *j = s->jobs; j; j = j->next)
    for (int k = 0; k < j->num_seqs; k++) {
      const tri_sequence *q = &j->seqs[k];
      if (q->state != TRI_SCHED_RUNNING) MUST(!q->num_blocks);
      for (int p = 0; p < q->num_host_blocks; p++, on_host++) MUST(s->host.refs[q->host_blocks[p]] == 1);
      if (q->state == TRI_SCHED_RUNNING) MUST(s->slot_owner[q->slot] == q);
      running += q->state == TRI_SCHED_RUNNING;
      for (int p = 0; p < q->num_blocks; p++) refs[q->blocks[p]]++;
    }
  for (int i = 0; i < s->cfg.limits.max_num_seqs; i++) owners += s->slot_owner[i] != NULL;
  MUST(running == s->num_running && running == owners);
  for (int i = 0; i < s->pool.num_blocks; i++) {
    MUST_SAY(refs[i] == s->pool.refs[i], "block %d has %d references and %d owners", i, s->pool.refs[i], refs[i]);
    num_free += !refs[i];
  }
  MUST(num_free == tri_block_num_free(&s->pool));
  MUST(on_host == (int)tri_sched_get_stats(s).host_blocks_used);
}

/* A micro-batch is busy until the last shard has answered. */
static void check_micro_batches(const struct world *w) {
  for (int micro_batch = 0; micro_batch < w->book->cfg.micro_batches; micro_batch++) {
    int most = 0;
    for (int i = 0; i < w->dp; i++) {
      int due = 0;
      for (int k = 0; k < w->engines[i]->num_results; k++) due += w->engines[i]->results[k].micro_batch == micro_batch;
      most = due > most ? due : most;
    }
    MUST(tri_dp_ranks_micro_batch_busy(w->shards, micro_batch) ==
         (most >= (w->book->cfg.depth > 1 ? w->book->cfg.depth : 1)));
    if (most) MUST(tri_dp_ranks_is_busy(w->shards));
  }
}

static void check(const struct world *w) {
  tri_sched_stats sum = {0}, all = tri_dp_ranks_get_stats(w->shards);
  for (int i = 0; i < w->dp; i++) {
    check_shard(tri_dp_ranks_at(w->shards, i));
    tri_sched_stats one = tri_sched_get_stats(tri_dp_ranks_at(w->shards, i));
    sum.running += one.running;
    sum.waiting += one.waiting;
    sum.blocks_used += one.blocks_used;
    sum.tokens += one.tokens;
    sum.preemptions += one.preemptions;
    sum.host_blocks_used += one.host_blocks_used;
    sum.swaps_out += one.swaps_out;
    sum.swaps_in += one.swaps_in;
    sum.blocks_out += one.blocks_out;
    sum.blocks_in += one.blocks_in;
  }
  MUST(all.running == sum.running && all.blocks_used == sum.blocks_used && all.waiting >= sum.waiting);
  MUST(all.tokens == sum.tokens && all.preemptions == sum.preemptions);
  MUST(all.host_blocks_used == sum.host_blocks_used && all.swaps_out == sum.swaps_out);
  MUST(all.swaps_in == sum.swaps_in && all.blocks_out == sum.blocks_out && all.blocks_in == sum.blocks_in);
  check_micro_batches(w);
}

/* ---- the loop ---- */

static void drain(struct world *w) {
  struct sim *s = w->book;
  for (uint32_t i = 0; i < s->out.num; i++) sim_hear(s, &s->out.tokens[i]);
  s->out.num = 0;
  for (tri_job *j; (j = tri_dp_ranks_retired(w->shards));) {
    s->requests[j->id - 100].job = NULL;
    tri_job_destroy(j);
  }
}

static void reap(struct world *w) {
  ck_assert(tri_dp_ranks_reap(w->shards, sim_now(w->book), &w->book->out));
  drain(w);
}

static void arrive(struct world *w, int i) {
  sim_make_job(w->book, &w->book->requests[i]);
  tri_dp_ranks_add(w->shards, w->book->requests[i].job);
}

static void take_events(struct world *w) {
  struct sim *s = w->book;
  for (int i = 0; i < s->cfg.jobs; i++) {
    struct request *r = &s->requests[i];
    if (!r->arrived && r->arrive_at <= s->iteration) arrive(w, i);
    if (r->abort_at == s->iteration) ck_assert_int_eq(tri_dp_ranks_abort(w->shards, r->assign.job), r->job != NULL);
  }
  reap(w);
}

static bool compose(struct world *w, int micro_batch) {
  if (!tri_dp_ranks_compose(w->shards, micro_batch, w->plans)) return false;
  bool any = false;
  w->step++;
  w->book->steps++;
  for (int i = 0; i < w->dp; i++) {
    const tri_plan_header *h = &w->plans[i]->h;
    struct sim *e = w->engines[i];
    MUST(h->step == w->step && h->micro_batch == (uint32_t)micro_batch);
    if (h->num_seqs || h->num_swaps_out) {
      sim_execute(e, micro_batch);
      any = true;
      continue;
    }
    MUST(!h->num_tokens && !h->num_ids && !h->num_blocks && !h->num_copies && !h->num_params);
    e->results[e->num_results++] =
        (struct result){.micro_batch = micro_batch, .r = {.step = h->step, .micro_batch = h->micro_batch}};
    w->idle++;
  }
  MUST(any);
  check(w);
  return true;
}

/* The oldest answer of a shard. */
static void answer(struct world *w, int shard) {
  struct result r;
  sim_take_result(w->engines[shard], &r);
  tri_dp_ranks_absorb(w->shards, shard, r.micro_batch, &r.r, &w->book->out);
  drain(w);
  check(w);
}

static int due(const struct world *w) {
  int n = 0;
  for (int i = 0; i < w->dp; i++) n += w->engines[i]->num_results;
  return n;
}

static void answer_any(struct world *w) {
  int i = sim_range(w->book, 0, w->dp - 1);
  while (!w->engines[i]->num_results) i = (i + 1) % w->dp;
  answer(w, i);
}

static bool iterate(struct world *w) {
  struct sim *s = w->book;
  bool moved = due(w) > 0;
  take_events(w);
  for (int micro_batch = 0; micro_batch < s->cfg.micro_batches; micro_batch++)
    while (!tri_dp_ranks_micro_batch_busy(w->shards, micro_batch) && compose(w, micro_batch)) moved = true;
  do {
    if (due(w)) answer_any(w);
  } while (due(w) && !sim_chance(s, s->cfg.late_percent));
  s->iteration++;
  return moved;
}

static bool has_more(const struct world *w) {
  for (int i = 0; i < w->book->cfg.jobs; i++)
    if (!w->book->requests[i].arrived) return true;
  return tri_dp_ranks_has_work(w->shards);
}

/* Until every request has ended, as it should. */
static void run(struct world *w) {
  struct sim *s = w->book;
  int most = 1000, idle = 0;
  for (int i = 0; i < s->cfg.jobs; i++)
    most += s->requests[i].arrive_at + 60 * (int)s->requests[i].assign.sampling.n * s->cfg.limits.max_model_len;
  while (has_more(w)) {
    bool work = tri_dp_ranks_has_work(w->shards);
    idle = iterate(w) || !work ? 0 : idle + 1;
    ck_assert_msg(idle < 4, "work waits and nothing runs");
    ck_assert_msg(s->iteration < most, "not done after %d iterations", most);
  }
  while (due(w)) answer_any(w);
  ck_assert(!tri_dp_ranks_is_busy(w->shards));
  tri_sched_stats st = tri_dp_ranks_get_stats(w->shards);
  ck_assert_uint_eq(st.blocks_used, 0);
  ck_assert_uint_eq(st.running, 0);
  ck_assert_uint_eq(st.waiting, 0);
  sim_check_told(s, st.preemptions);
}

/* The shard that has a request's job; -1: none yet. */
static int shard_of(const struct world *w, int request) {
  for (int i = 0; i < w->dp; i++)
    for (const tri_job *j = tri_dp_ranks_at(w->shards, i)->jobs; j; j = j->next)
      if (j->id == 100 + (uint64_t)request) return i;
  return -1;
}

static struct request *request(struct world *w, int i, int prompt, int max_tokens, int n) {
  struct request *r = request_init(w->book, i, prompt, max_tokens, n);
  r->assign.sampling.ignore_eos = true;
  request_expect(w->book, r);
  return r;
}

/* One step, and its answers. */
static void step(struct world *w) {
  reap(w);
  ck_assert(compose(w, 0));
  while (due(w)) answer_any(w);
  w->book->iteration++;
}

/* ---- random workloads ---- */

static struct config random_config(struct sim *r) {
  struct config c = {.micro_batches = sim_range(r, 1, 2),
                     .by_priority = sim_chance(r, 40),
                     .search_percent = 15,
                     .score_percent = 15,
                     .begun_percent = 15};
  c.jobs = sim_range(r, 1, MAX_JOBS);
  c.depth = c.micro_batches == 1 && sim_chance(r, 60) ? 2 : 1; /* slots know the last step's draws alone */
  c.late_percent = sim_chance(r, 30) ? 0 : 60;
  tri_limits *l = &c.limits;
  l->vocab_size = VOCAB;
  l->block_size = sim_chance(r, 20) ? 1 : sim_range(r, 2, 17);
  l->max_num_seqs = sim_range(r, MAX_N, MAX_SLOTS / 2);
  l->max_num_batched_tokens = sim_chance(r, 30) ? l->max_num_seqs : sim_range(r, l->max_num_seqs, 100);
  l->max_model_len = sim_range(r, 20, MAX_LEN);
  int full = (l->max_model_len + l->block_size - 1) / l->block_size;
  l->num_blocks = sim_chance(r, 60) ? full + sim_range(r, 0, full) : full * sim_range(r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_BLOCKS) l->num_blocks = MAX_BLOCKS / l->block_size;
  if (c.micro_batches > 1 && sim_chance(r, 50)) c.prompt_tokens = sim_range(r, 1, 40);
  sim_add_host_blocks(r, &c);
  sim_add_prefixes(r, &c);
  return c;
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  int idle = 0, forks = 0, copies = 0, ahead = 0, searches = 0, resumed = 0;
  for (uint64_t seed = (uint64_t)_i * 60; seed < (uint64_t)_i * 60 + 60; seed++) {
    struct sim r = {.rng = sim_mix(seed * 5 + 2)};
    struct config c = random_config(&r);
    struct world *w = create(&c, 1 + (int)(seed % MAX_DP), seed);
    for (int i = 0; i < c.jobs; i++) {
      request_random(w->book, i);
      searches += w->book->requests[i].assign.sampling.num_beams > 1;
    }
    run(w);
    preemptions += tri_dp_ranks_get_stats(w->shards).preemptions;
    idle += w->idle;
    for (int i = 0; i < w->dp; i++) {
      forks += w->engines[i]->forks;
      copies += w->engines[i]->copies;
      ahead += w->engines[i]->ahead;
      resumed += w->engines[i]->resumed;
    }
    destroy(w);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 50);
  ck_assert_int_gt(idle, 1000);
  ck_assert_int_gt(forks, 100);
  ck_assert_int_gt(copies, 100);
  ck_assert_int_gt(ahead, 1000);
  ck_assert_int_gt(searches, 50);
  ck_assert_int_gt(resumed, 20);
}
END_TEST

/* ---- one shard ---- */

static void compose_both(struct sim *s, struct world *w, int micro_batch) {
  while (!tri_sched_micro_batch_busy(s->sched, micro_batch)) {
    size_t want, got;
    bool any = tri_sched_compose(s->sched, micro_batch, s->writer);
    MUST(!tri_dp_ranks_micro_batch_busy(w->shards, micro_batch));
    MUST(compose(w, micro_batch) == any);
    if (!any) return;
    const void *a = tri_plan_finish(s->writer, &want), *b = tri_plan_finish(w->plans[0], &got);
    MUST(want == got && !memcmp(a, b, want));
    sim_execute(s, micro_batch);
  }
  MUST(tri_dp_ranks_micro_batch_busy(w->shards, micro_batch));
}

/* One shard does what its scheduler would do alone: plans are the same to the last byte. */
START_TEST(test_one_shard) {
  int steps = 0;
  for (uint64_t seed = 0; seed < 60; seed++) {
    struct sim r = {.rng = sim_mix(seed * 7 + 3)};
    struct config c = random_config(&r);
    struct sim *s = sim_create(&c, seed);
    struct world *w = create(&c, 1, seed);
    for (int i = 0; i < c.jobs; i++) {
      request_random(s, i);
      request_random(w->book, i);
    }
    while (has_more(w)) {
      sim_take_events(s);
      take_events(w);
      for (int micro_batch = 0; micro_batch < c.micro_batches; micro_batch++) compose_both(s, w, micro_batch);
      do {
        if (!due(w)) break;
        sim_return_result(s);
        answer(w, 0);
      } while (!sim_chance(&r, c.late_percent));
      s->iteration++;
      w->book->iteration++;
    }
    ck_assert(!tri_sched_has_work(s->sched));
    sim_check_answers(s);
    sim_check_told(w->book, tri_dp_ranks_get_stats(w->shards).preemptions);
    steps += s->steps;
    sim_destroy(s);
    destroy(w);
  }
  ck_assert_int_gt(steps, 5000);
}
END_TEST

/* ---- who gets a job ---- */

/* The shard with the fewest tokens, those that are still to be computed included; the lowest of equals. */
START_TEST(test_fewest_tokens) {
  static const int prompts[] = {30, 20, 18, 10, 5, 4}, want[] = {0, 1, 2, 2, 1, 1};
  struct config c = simple_config(8, 16, 200, 6);
  struct world *w = create(&c, 3, 1);
  for (int i = 0; i < 3; i++) request(w, i, prompts[i], 20, 1), arrive(w, i);
  step(w); /* all have 16 tokens now */
  for (int i = 3; i < 6; i++) request(w, i, prompts[i], 20, 1), arrive(w, i);
  step(w);
  for (int i = 0; i < 6; i++) ck_assert_int_eq(shard_of(w, i), want[i]);
  run(w);
  destroy(w);
}
END_TEST

/* Equal jobs that come together: shards differ by one at most, from the first step on. */
START_TEST(test_balance) {
  for (int dp = 2; dp <= MAX_DP; dp++)
    for (int jobs = 1; jobs <= 20; jobs++)
      for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
        struct config c = simple_config(8, 24, 200, jobs);
        c.micro_batches = micro_batches;
        struct world *w = create(&c, dp, (uint64_t)jobs);
        for (int i = 0; i < jobs; i++) request(w, i, 10, 20, 1);
        while (has_more(w)) {
          int least = MAX_JOBS, most = 0;
          iterate(w);
          for (int d = 0; d < dp; d++) {
            int n = 0;
            for (const tri_job *j = tri_dp_ranks_at(w->shards, d)->jobs; j; j = j->next) n++;
            least = n < least ? n : least;
            most = n > most ? n : most;
          }
          ck_assert_int_le(most - least, 1);
        }
        run(w);
        destroy(w);
      }
}
END_TEST

/* As many jobs begin in one step as its budgets have room for, and micro-batches share what comes from the queue
 * evenly. */
START_TEST(test_step_is_filled) {
  for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
    struct config c = simple_config(8, 64, 200, 16);
    c.micro_batches = micro_batches;
    struct world *w = create(&c, 2, 1);
    for (int i = 0; i < c.jobs; i++) request(w, i, 8, 5, 1), arrive(w, i);
    reap(w);
    for (int micro_batch = 0; micro_batch < micro_batches; micro_batch++) {
      ck_assert(compose(w, micro_batch));
      for (int d = 0; d < 2; d++) {
        ck_assert_uint_eq(w->plans[d]->h.num_tokens, 64 / (uint32_t)micro_batches);
        ck_assert_uint_eq(w->plans[d]->h.num_seqs, 8 / (uint32_t)micro_batches);
      }
    }
    ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).waiting, 0);
    run(w);
    destroy(w);
  }
}
END_TEST

/* Who finds no slot or no blocks anywhere waits in front of all others, and goes to whoever has place first. */
START_TEST(test_no_place) {
  struct config c = simple_config(4, 100, 30, 5);
  struct world *w = create(&c, 2, 1);
  static const int prompts[] = {70, 80, 60, 4, 4}, answers[] = {20, 6, 4, 4, 4};
  for (int i = 0; i < 5; i++) request(w, i, prompts[i], answers[i], i == 4 ? 2 : 1), arrive(w, i);
  step(w);
  ck_assert_int_eq(shard_of(w, 0), 0);
  ck_assert_int_eq(shard_of(w, 1), 1);
  for (int k = 0; k < 5; k++) {
    ck_assert_int_eq(shard_of(w, 2), -1); /* 15 blocks are in neither shard, */
    ck_assert_int_eq(shard_of(w, 3), -1); /* and whoever comes later does not overtake */
    ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).waiting, 3);
    step(w);
  }
  step(w); /* the second job has ended */
  ck_assert_int_eq(shard_of(w, 2), 1);
  ck_assert_int_ge(shard_of(w, 3), 0);
  ck_assert_int_ge(shard_of(w, 4), 0);
  run(w);
  destroy(w);
}
END_TEST

/* A sequence that lost its blocks waits on its shard, and nobody new goes there before it. */
START_TEST(test_preempted_first) {
  struct config c = simple_config(2, 100, 30, 5);
  struct world *w = create(&c, 2, 1);
  static const int prompts[] = {50, 60, 55, 4, 4}, want[] = {0, 1, 0, 1};
  for (int i = 0; i < 4; i++) request(w, i, prompts[i], 40, 1), arrive(w, i);
  while (!tri_dp_ranks_get_stats(w->shards).preemptions) step(w);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(shard_of(w, i), want[i]);
  ck_assert_int_eq(w->book->requests[2].job->seqs[0].state, TRI_SCHED_WAITING);
  request(w, 4, prompts[4], 40, 1);
  arrive(w, 4);
  step(w);
  ck_assert_int_eq(shard_of(w, 4), -1);
  run(w);
  destroy(w);
}
END_TEST

/* A shard whose step is full takes nobody: whoever has room first does. */
START_TEST(test_full_step) {
  struct config c = simple_config(4, 16, 200, 3);
  struct world *w = create(&c, 2, 1);
  static const int prompts[] = {70, 48, 5};
  for (int i = 0; i < 3; i++) request(w, i, prompts[i], 10, 1), arrive(w, i);
  for (int k = 0; k < 3; k++) {
    step(w);
    ck_assert_int_eq(shard_of(w, 2), -1);
  }
  step(w);
  ck_assert_int_eq(shard_of(w, 2), 1);
  run(w);
  destroy(w);
}
END_TEST

/* A search waits for a shard with slots for all of its beams. */
START_TEST(test_search_finds_slots) {
  struct config c = simple_config(4, 40, 200, 5);
  struct world *w = create(&c, 2, 1);
  static const int want[] = {0, 1, 1, 1, 0};
  for (int i = 0; i < 4; i++) request(w, i, i ? 4 : 30, 30, 1), arrive(w, i);
  step(w);
  struct request *r = request(w, 4, 40, 6, 2);
  r->assign.sampling.ignore_eos = false;
  r->assign.sampling.num_beams = 3;
  r->assign.sampling.length_penalty = 1;
  request_expect(w->book, r);
  arrive(w, 4);
  step(w);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(shard_of(w, i), want[i]);
  ck_assert_uint_eq(tri_sched_get_stats(tri_dp_ranks_at(w->shards, 0)).running, 4);
  run(w);
  destroy(w);
}
END_TEST

/* The least important of all shards makes way; one more urgent job finds the next one, and a third nobody. */
START_TEST(test_priority_makes_way) {
  static const int64_t priorities[] = {1, 3, 4, 2, 0, 0, 2};
  for (int k = 0; k < 4; k++) {
    bool together = k / 2;
    struct config c = simple_config(2, 40, 200, 7);
    c.by_priority = true;
    c.depth = 1 + k % 2;
    struct world *w = create(&c, 2, 1);
    for (int i = 0; i < 7; i++) request(w, i, 8, 20, 1)->assign.sampling.priority = priorities[i];
    static const int order[] = {0, 3, 1, 2}; /* by priority; each shard gets two */
    for (int i = 0; i < 4; i++) arrive(w, i);
    step(w);
    for (int i = 0; i < 4; i++) ck_assert_int_eq(shard_of(w, order[i]), i % 2);
    arrive(w, 4);
    if (!together) {
      step(w);
      ck_assert_int_eq(w->book->requests[2].job->seqs[0].state, TRI_SCHED_WAITING);
      ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).preemptions, 1);
    }
    arrive(w, 5);
    arrive(w, 6);
    step(w);
    ck_assert_int_eq(shard_of(w, 4), 1); /* in the place of priority 4 */
    ck_assert_int_eq(shard_of(w, 5), 0); /* in that of 3 */
    ck_assert_int_eq(w->book->requests[1].job->seqs[0].state, TRI_SCHED_WAITING);
    ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).preemptions, 2);
    ck_assert_int_eq(shard_of(w, 6), -1); /* matters no more than who runs */
    run(w);
    destroy(w);
  }
}
END_TEST

/* Of those who matter equally little, those of the shard with the fewest tokens make way. */
START_TEST(test_way_with_fewest_tokens) {
  struct config c = simple_config(1, 16, 200, 3);
  c.by_priority = true;
  struct world *w = create(&c, 2, 1);
  static const int prompts[] = {60, 50, 5}, want[] = {0, 1, 1};
  for (int i = 0; i < 3; i++) request(w, i, prompts[i], 10, 1)->assign.sampling.priority = i < 2 ? 5 : 0;
  for (int i = 0; i < 2; i++) arrive(w, i);
  step(w); /* both have 16 tokens now */
  arrive(w, 2);
  step(w);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(shard_of(w, i), want[i]);
  run(w);
  destroy(w);
}
END_TEST

/* The queue's order is that of arrival, or by priority. */
START_TEST(test_queue_order) {
  for (int by_priority = 0; by_priority < 2; by_priority++) {
    struct config c = simple_config(1, 40, 200, 12);
    c.by_priority = by_priority;
    struct world *w = create(&c, 3, 1);
    for (int i = 0; i < c.jobs; i++) {
      request(w, i, 8, 6, 1)->assign.sampling.priority = (i * 5) % 4;
      arrive(w, i);
    }
    run(w);
    for (int i = 0; i < c.jobs; i++)
      for (int k = 0; k < c.jobs; k++) {
        int64_t pi = by_priority ? (i * 5) % 4 : 0, pk = by_priority ? (k * 5) % 4 : 0;
        const struct choice *a = &w->book->requests[i].choice[0], *b = &w->book->requests[k].choice[0];
        if (pi < pk || (pi == pk && i < k)) ck_assert_int_le(a->first_step, b->first_step);
      }
    destroy(w);
  }
}
END_TEST

/* Jobs end in the queue too, by abort or deadline: every choice is answered for once. */
START_TEST(test_end_in_the_queue) {
  struct config c = simple_config(5, 40, 200, 6);
  struct world *w = create(&c, 2, 1);
  for (int i = 0; i < 6; i++) {
    struct request *r = request(w, i, 1, 30, i < 2 ? 5 : 3); /* all choices of a prompt of one token wait for slots */
    if (i == 3) r->assign.remaining_ms = 2;
  }
  for (int i = 0; i < 6; i++) arrive(w, i);
  step(w);
  ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).waiting, 4 * 3);
  ck_assert(tri_dp_ranks_abort(w->shards, 104));
  w->book->requests[4].abort_at = 0;
  step(w);
  step(w);
  ck_assert_uint_eq(tri_dp_ranks_get_stats(w->shards).waiting, 2 * 3);
  for (int i = 3; i <= 4; i++)
    for (int k = 0; k < 3; k++) {
      ck_assert(w->book->requests[i].choice[k].ended && !w->book->requests[i].job);
      ck_assert_int_eq(w->book->requests[i].choice[k].reason, TRI_FINISH_ABORT);
    }
  ck_assert(!tri_dp_ranks_abort(w->shards, 104));
  run(w);
  destroy(w);
}
END_TEST

/* More endings than the outbox holds: the rest come with the next reap. */
START_TEST(test_full_outbox) {
  struct config c = simple_config(5, 16, 100, MAX_JOBS);
  struct world *w = create(&c, 3, 1);
  int rounds = 0, ended = 0;
  for (int i = 0; i < c.jobs; i++) {
    request(w, i, 5, 5, 4);
    arrive(w, i);
    ck_assert(tri_dp_ranks_abort(w->shards, 100 + (uint64_t)i));
  }
  for (bool all = false; !all; rounds++) {
    all = tri_dp_ranks_reap(w->shards, 0, &w->book->out);
    ended += (int)w->book->out.num;
    drain(w);
  }
  ck_assert_int_eq(ended, MAX_JOBS * 4);
  ck_assert_int_gt(rounds, 1);
  ck_assert(!tri_dp_ranks_has_work(w->shards));
  destroy(w);
}
END_TEST

/* ---- steps ---- */

/* A micro-batch's steps end with their last answers, whichever shard is ahead. */
START_TEST(test_answers_of_one_shard_first) {
  struct config c = simple_config(4, 40, 200, 3);
  c.depth = 2;
  struct world *w = create(&c, 3, 1);
  for (int i = 0; i < 2; i++) request(w, i, 10, 20, 1), arrive(w, i);
  request(w, 2, 10, 20, 1)->arrive_at = 1000;
  reap(w);
  ck_assert(compose(w, 0) && compose(w, 0));
  ck_assert(tri_dp_ranks_micro_batch_busy(w->shards, 0));
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 2; k++) {
      answer(w, i == 0 ? 2 : 0); /* one without work, then one with */
      ck_assert(tri_dp_ranks_micro_batch_busy(w->shards, 0));
    }
  ck_assert(!w->book->requests[1].choice[0].got && w->book->requests[0].choice[0].got == 2);
  answer(w, 1);
  ck_assert(!tri_dp_ranks_micro_batch_busy(w->shards, 0));
  ck_assert(compose(w, 0));
  ck_assert(tri_dp_ranks_micro_batch_busy(w->shards, 0));
  answer(w, 1);
  ck_assert(!tri_dp_ranks_micro_batch_busy(w->shards, 0));
  while (due(w)) answer_any(w);
  w->book->requests[2].arrive_at = 0;
  run(w);
  destroy(w);
}
END_TEST

/* A search must know its draws before it goes on: it keeps the steps of all shards apart, and is in each of them. */
START_TEST(test_search_keeps_steps_apart) {
  struct config c = simple_config(4, 40, 200, 2);
  c.depth = 2;
  struct world *w = create(&c, 2, 1);
  struct request *r = request(w, 0, 10, 12, 2);
  r->assign.sampling.num_beams = 3;
  r->assign.sampling.length_penalty = 1;
  request_expect(w->book, r);
  request(w, 1, 10, 12, 1);
  for (int i = 0; i < 2; i++) arrive(w, i);
  for (int k = 0; k < 12; k++) {
    reap(w);
    ck_assert(compose(w, 0) && !tri_dp_ranks_micro_batch_busy(w->shards, 0));
    ck_assert(!compose(w, 0));
    answer(w, 1);
    ck_assert(!compose(w, 0));
    answer(w, 0);
    w->book->iteration++;
  }
  ck_assert_int_eq(w->idle, 0);
  run(w);
  destroy(w);
}
END_TEST

/* A shard that was without work for a long time has a job like any other afterwards. */
START_TEST(test_idle_shards) {
  struct config c = simple_config(2, 40, 200, 3);
  struct world *w = create(&c, 3, 1);
  for (int i = 0; i < 3; i++) request(w, i, i ? 20 : 10, i ? 20 : 80, 1);
  arrive(w, 0);
  for (int k = 0; k < 60; k++) {
    step(w);
    ck_assert_int_eq(w->idle, 2 * (k + 1));
  }
  arrive(w, 1);
  arrive(w, 2);
  step(w);
  ck_assert_int_eq(shard_of(w, 1), 1);
  ck_assert_int_eq(shard_of(w, 2), 2);
  ck_assert_int_eq(w->idle, 120);
  run(w);
  destroy(w);
}
END_TEST

/* A step is looked at, bounded and counted by the shard that has most of each, as it takes as long as that one. */
START_TEST(test_bound) {
  struct config c = simple_config(8, 40, 200, 4);
  struct world *w = create(&c, 2, 1);
  request(w, 0, 30, 20, 1), arrive(w, 0);
  request(w, 1, 8, 20, 1), arrive(w, 1);
  request(w, 2, 8, 20, 1), arrive(w, 2);
  tri_step_outlook o = tri_dp_ranks_outlook(w->shards, 0);
  ck_assert(o.decodes == 0 && o.sequences == 2 && o.prompts);
  step(w);
  tri_step_load load = tri_dp_ranks_load_of(w->shards, w->plans);
  ck_assert(load.decodes == 0 && load.prompt_tokens == 30);
  ck_assert_uint_eq(tri_dp_ranks_num_ended(w->shards, 0), 1);
  o = tri_dp_ranks_outlook(w->shards, 0);
  ck_assert(o.decodes == 2 && o.sequences == 2 && !o.prompts);
  request(w, 3, 25, 20, 1), arrive(w, 3);
  o = tri_dp_ranks_outlook(w->shards, 0);
  ck_assert(o.decodes == 2 && o.sequences == 3 && o.prompts);
  tri_dp_ranks_bound_prompts(w->shards, 10);
  for (int i = 0; i < 3; i++) {
    step(w);
    load = tri_dp_ranks_load_of(w->shards, w->plans);
    ck_assert(load.decodes == 2 && load.prompt_tokens == (i < 2 ? 10 : 5));
  }
  reap(w);
  ck_assert(compose(w, 0));
  answer(w, 1);
  ck_assert_uint_eq(tri_dp_ranks_num_ended(w->shards, 0), 4); /* one shard has yet to answer */
  answer(w, 0);
  ck_assert_uint_eq(tri_dp_ranks_num_ended(w->shards, 0), 5);
  run(w);
  destroy(w);
}
END_TEST

START_TEST(test_destroy_busy) {
  struct config c = simple_config(4, 8, 30, 20);
  c.search_percent = 30;
  for (int steps = 0; steps < 12; steps++) {
    struct world *w = create(&c, 3, 8);
    for (int i = 0; i < c.jobs; i++) request_random(w->book, i);
    for (int i = 0; i < steps; i++) iterate(w);
    destroy(w);
  }
}
END_TEST

START_TEST(test_refused) {
  tri_sched_config c = {.limits = simple_config(4, 8, 30, 1).limits, .num_micro_batches = 1};
  tri_dp_ranks *s = NULL;
  ck_assert_int_eq(tri_dp_ranks_create(&c, 0, &s), TRI_INVALID_ARGUMENT);
  c.limits.whole_sequences = true;
  ck_assert_int_eq(tri_dp_ranks_create(&c, 2, &s), TRI_UNSUPPORTED);
  ck_assert_int_eq(tri_dp_ranks_create(&c, 1, &s), TRI_OK);
  tri_dp_ranks_destroy(s);
  tri_dp_ranks_destroy(NULL);
}
END_TEST

Suite *suite_dp_ranks(void) {
  Suite *suite = suite_create("dp_ranks");
  TCase *random = tcase_create("random"), *cases = tcase_create("cases");
  tcase_set_timeout(random, 120);
  tcase_add_loop_test(random, test_random_workloads, 0, 4);
  tcase_add_test(random, test_one_shard);
  tcase_add_test(cases, test_fewest_tokens);
  tcase_add_test(cases, test_balance);
  tcase_add_test(cases, test_step_is_filled);
  tcase_add_test(cases, test_no_place);
  tcase_add_test(cases, test_preempted_first);
  tcase_add_test(cases, test_full_step);
  tcase_add_test(cases, test_search_finds_slots);
  tcase_add_test(cases, test_priority_makes_way);
  tcase_add_test(cases, test_way_with_fewest_tokens);
  tcase_add_test(cases, test_queue_order);
  tcase_add_test(cases, test_end_in_the_queue);
  tcase_add_test(cases, test_full_outbox);
  tcase_add_test(cases, test_answers_of_one_shard_first);
  tcase_add_test(cases, test_search_keeps_steps_apart);
  tcase_add_test(cases, test_idle_shards);
  tcase_add_test(cases, test_bound);
  tcase_add_test(cases, test_destroy_busy);
  tcase_add_test(cases, test_refused);
  suite_add_tcase(suite, random);
  suite_add_tcase(suite, cases);
  return suite;
}
