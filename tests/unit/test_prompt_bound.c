/* SPDX-License-Identifier: Apache-2.0 */
/* Times of steps, learned from made-up ones, and the bound on tokens of prompts with decodes that follows. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "worker/schedule/prompt_bound.h"

Suite *suite_prompt_bound(void);

enum { MS = 1000000, FACTOR = 3 };

/* A machine: a step reads its weights, or computes its rows if that takes longer, and decodes read their contexts. */
typedef struct machine {
  double weights, row, context; /* seconds */
  int straight;                 /* the first two add up instead */
} machine;

static const machine line = {.weights = 4e-3, .row = 25e-6, .context = 10e-6, .straight = 1};
static const machine bent = {.weights = 4e-3, .row = 25e-6, .context = 10e-6};

static double seconds(const machine *m, int decodes, int prompt_tokens) {
  double products = m->row * (decodes + prompt_tokens);
  double both = m->straight ? m->weights + products : fmax(m->weights, products);
  return both + m->context * decodes;
}

static double uniform(uint64_t *random) { return (double)(tri_splitmix64(random) >> 11) * 0x1p-53; }

static bool is_near(double a, double b, double share) { return fabs(a - b) <= share * b; }

/* ---- times ---- */

/* Times of so many rounds over all sizes; spread: of each, to both sides. One in `outliers` takes 20 times as long. */
static void teach(tri_step_times *t, const machine *m, int rounds, double spread, int outliers) {
  uint64_t random = 5;
  for (int round = 0; round < rounds; round++)
    for (int n = 1; n <= 256; n += n < 16 ? 1 : 7)
      for (int tokens = 0; tokens <= 4096; tokens += 512) {
        double s = seconds(m, n, tokens) * (1 + spread * (2 * uniform(&random) - 1));
        bool disturbed = outliers && tri_splitmix64(&random) % (uint64_t)outliers == 0;
        tri_step_times_add(t, n, tokens, disturbed ? 20 * s : s);
      }
}

START_TEST(test_unknown) {
  tri_step_times t = {0};
  ck_assert(!tri_step_times_has_decodes(&t, 1));
  ck_assert(tri_step_times_of_decodes(&t, 1) == 0);
  ck_assert_int_eq(tri_step_times_prompt_tokens(&t, 1, 100), -1);
  tri_step_times_add(&t, 0, 0, 1);
  tri_step_times_add(&t, 1, 0, 0);
  tri_step_times_add(&t, 1, 5, -1);
  tri_step_times_add(&t, 1, 5, NAN);
  ck_assert(!tri_step_times_has_decodes(&t, 1));
  ck_assert_int_eq(tri_step_times_prompt_tokens(&t, 1, 100), -1);
}
END_TEST

/* On a line every size is found, between the measured ones too. */
START_TEST(test_line) {
  tri_step_times t = {0};
  teach(&t, &line, 1, 0, 0);
  for (int n = 1; n <= 300; n++)
    ck_assert_msg(is_near(tri_step_times_of_decodes(&t, n), seconds(&line, n, 0), 1e-9), "%d decodes", n);
  for (int tokens = 256; tokens < 10000; tokens += 77) {
    int found = tri_step_times_prompt_tokens(&t, line.row * tokens, 1 << 20);
    ck_assert_msg(abs(found - tokens) <= 1, "%d tokens, %d found", tokens, found);
  }
  ck_assert_int_eq(tri_step_times_prompt_tokens(&t, line.row * 1000, 600), 600);
  ck_assert_int_eq(tri_step_times_prompt_tokens(&t, 0, 600), 0);
  ck_assert_int_eq(tri_step_times_prompt_tokens(&t, -1, 600), 0);
}
END_TEST

/* Neither noise nor steps that were disturbed move what is found by more than the noise. */
START_TEST(test_noise) {
  tri_step_times t = {0};
  teach(&t, &line, 5, 0.1, 5);
  for (int n = 1; n <= 256; n++)
    ck_assert_msg(is_near(tri_step_times_of_decodes(&t, n), seconds(&line, n, 0), 0.15), "%d decodes", n);
  for (int tokens = 700; tokens < 4096; tokens += 55) {
    int found = tri_step_times_prompt_tokens(&t, seconds(&line, 64, tokens) - seconds(&line, 64, 0), 1 << 20);
    ck_assert_msg(is_near(found, tokens, 0.25), "%d tokens, %d found", tokens, found);
  }
}
END_TEST

/* A machine that becomes slower is known to be so after four steps, and one that becomes faster after two. */
START_TEST(test_jump) {
  static const struct {
    double factor;
    int steps;
  } jumps[] = {{3, 4}, {0.4, 2}};
  for (int i = 0; i < 2; i++) {
    tri_step_times t = {0};
    for (int k = 0; k < TRI_STEP_CURVE_KEPT; k++) tri_step_times_add(&t, 20, 0, 0.01);
    for (int k = 1; k <= jumps[i].steps; k++) {
      ck_assert(is_near(tri_step_times_of_decodes(&t, 20), 0.01, 1e-9));
      tri_step_times_add(&t, 20, 0, 0.01 * jumps[i].factor);
    }
    ck_assert(is_near(tri_step_times_of_decodes(&t, 20), 0.01 * jumps[i].factor, 1e-9));
  }
}
END_TEST

/* Far more decodes than were measured are not guessed at, and one size alone says nothing of others. */
START_TEST(test_beyond) {
  tri_step_times t = {0};
  tri_step_times_add(&t, 8, 0, 0.004);
  ck_assert(tri_step_times_of_decodes(&t, 200) == 0.004 && tri_step_times_of_decodes(&t, 1) == 0.004);
  tri_step_times_add(&t, 16, 0, 0.005);
  ck_assert(is_near(tri_step_times_of_decodes(&t, 32), 0.007, 1e-9));
  ck_assert(is_near(tri_step_times_of_decodes(&t, 64), 0.011, 1e-9));
  ck_assert(is_near(tri_step_times_of_decodes(&t, 4096), 0.011, 1e-9));
  ck_assert(tri_step_times_has_decodes(&t, 16) && tri_step_times_has_decodes(&t, 31));
  ck_assert(!tri_step_times_has_decodes(&t, 32));
  tri_step_times_add(&t, 1 << 20, 0, 1); /* no size is too large */
  tri_step_times_add(&t, 0, 1 << 20, 1);
  ck_assert(tri_step_times_has_decodes(&t, 1 << 18));
  /* A larger step that was faster was measured at another time. */
  tri_step_times_add(&t, 64, 0, 0.001);
  ck_assert(is_near(tri_step_times_of_decodes(&t, 64), 0.005, 1e-9));
}
END_TEST

/* ---- the bound ---- */

static tri_step_outlook outlook(int decodes, int sequences) {
  return (tri_step_outlook){.decodes = decodes, .sequences = sequences, .prompts = true};
}

START_TEST(test_no_bound) {
  tri_prompt_bound b;
  tri_step_outlook o = outlook(0, 9);
  tri_prompt_bound_init(&b, FACTOR, true);
  teach(&b.times, &bent, 1, 0, 0);
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), TRI_NO_PROMPT_BOUND); /* nothing decodes */
  o = outlook(9, 9);
  o.prompts = false;
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), TRI_NO_PROMPT_BOUND);
  o.prompts = true;
  ck_assert_int_ne(tri_prompt_bound_next(&b, &o), TRI_NO_PROMPT_BOUND);
  b.factor = 0;
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), TRI_NO_PROMPT_BOUND);
}
END_TEST

struct load {
  const machine *m;
  tri_prompt_bound b;
  int64_t now_ns; /* the end of the last step */
  int64_t ends_ns[2];
  int under_way, alone; /* alone: steps of decodes alone although prompts waited */
  uint64_t random;
};

static void end_one(struct load *l) {
  tri_prompt_bound_end(&l->b, l->ends_ns[0]);
  l->ends_ns[0] = l->ends_ns[1];
  l->under_way--;
}

/* A step with as much of the prompts as it may have, composed before the one under way has ended, as on a device. Each
 * 7th takes 10 times as long. Returns its tokens of prompts. */
static int serve(struct load *l, int decodes, int sequences, bool disturbed) {
  tri_step_outlook o = outlook(decodes, sequences);
  int tokens = tri_prompt_bound_next(&l->b, &o);
  int64_t begun = l->under_way ? l->now_ns - MS : l->now_ns;
  ck_assert_int_ge(tokens, 0);
  if (tokens > 8192 - decodes) tokens = 8192 - decodes;
  double s = seconds(l->m, decodes, tokens) * (0.97 + 0.06 * uniform(&l->random));
  if (disturbed) s *= 10;
  tri_prompt_bound_begin(&l->b, (tri_step_load){decodes, tokens}, begun);
  l->now_ns += (int64_t)(s * 1e9);
  l->ends_ns[l->under_way++] = l->now_ns;
  l->alone += !tokens;
  if (l->under_way == 2) end_one(l);
  return tokens;
}

static struct load create_load(const machine *m) {
  struct load l = {.m = m, .random = 3};
  tri_prompt_bound_init(&l.b, FACTOR, true);
  /* The prompts that come first, alone. */
  tri_prompt_bound_begin(&l.b, (tri_step_load){0, 8192}, 0);
  l.now_ns = (int64_t)(seconds(m, 0, 8192) * 1e9);
  tri_prompt_bound_end(&l.b, l.now_ns);
  return l;
}

/* The time of a step with prompts, in steps of the decodes that there will be. */
static double times(const struct load *l, int decodes, int sequences, int tokens) {
  return seconds(l->m, decodes, tokens) / seconds(l->m, sequences, 0);
}

/* Steps come to take the time that they may, from nothing that is known, on either machine, with few decodes and
 * many, and whatever disturbs some. */
START_TEST(test_comes_to_the_target) {
  const machine *machines[] = {&line, &bent};
  for (int k = 0; k < 2; k++)
    for (int decodes = 4; decodes <= 256; decodes *= 4) {
      struct load l = create_load(machines[k]);
      for (int i = 0; i < 300; i++) {
        int tokens = serve(&l, decodes, decodes, i % 7 == 6);
        double tile = l.m->row * l.b.multiple / seconds(l.m, decodes, 0);
        if (i < 20 || !tokens) continue;
        double t = times(&l, decodes, decodes, tokens);
        ck_assert_msg(t < FACTOR * 1.1 + tile, "%d decodes: %.2f times", decodes, t);
        ck_assert_msg(t > FACTOR * 0.85 - tile || tokens == l.b.least, "%d decodes: %.2f times", decodes, t);
        ck_assert_int_eq((tokens + decodes) % (tokens == l.b.least ? 1 : l.b.multiple), 0);
      }
      ck_assert_int_le(l.alone, 2 + 300 / TRI_BOUND_INTERVAL);
      ck_assert_int_ge(l.alone, 300 / TRI_BOUND_INTERVAL);
    }
}
END_TEST

/* Decodes that are still to come count: their steps are as long. */
START_TEST(test_counts_those_to_come) {
  struct load l = create_load(&bent);
  teach(&l.b.times, &bent, 2, 0, 0);
  int few = 0, many = 0;
  for (int i = 0; i < 30; i++) few = serve(&l, 8, 8, false);
  for (int i = 0; i < 30; i++) many = serve(&l, 8, 250, false);
  ck_assert(is_near(times(&l, 8, 8, few), FACTOR, 0.35));
  ck_assert(is_near(times(&l, 8, 250, many), FACTOR, 0.15));
  ck_assert_int_gt(many, 2 * few);
}
END_TEST

/* The bound follows a machine that changes. */
START_TEST(test_follows_a_jump) {
  machine slow = bent;
  slow.row *= 2;
  struct load l = create_load(&bent);
  int before = 0, after = 0, again = 0;
  for (int i = 0; i < 100; i++) before = serve(&l, 100, 100, false);
  l.m = &slow;
  for (int i = 0; i < 100; i++) after = serve(&l, 100, 100, false);
  ck_assert(after && is_near(times(&l, 100, 100, after), FACTOR, 0.2));
  ck_assert_int_lt(after, before);
  l.m = &bent;
  for (int i = 0; i < 100; i++) again = serve(&l, 100, 100, false);
  ck_assert(is_near(again, before, 0.2));
}
END_TEST

/* However slow prompts are, they go on; and with nothing known of them, too. */
START_TEST(test_never_less) {
  machine slow = {.weights = 1e-3, .row = 1e-3};
  struct load l = create_load(&slow);
  for (int i = 0; i < 200; i++) {
    int tokens = serve(&l, 3, 3, false);
    ck_assert(!tokens || tokens == l.b.least);
  }
  ck_assert_int_le(l.alone, 2 + 200 / TRI_BOUND_INTERVAL);
  tri_prompt_bound b;
  tri_step_outlook o = outlook(5, 5);
  tri_prompt_bound_init(&b, FACTOR, false);
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), 0);
  tri_prompt_bound_begin(&b, (tri_step_load){5, 0}, 0);
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), b.least); /* that step has yet to end */
  tri_prompt_bound_end(&b, MS);
  ck_assert_int_eq(tri_prompt_bound_next(&b, &o), b.least);
}
END_TEST

/* Steps with fewer decodes than they were to have do not keep prompts out. */
START_TEST(test_prompts_are_never_kept_out) {
  tri_prompt_bound b;
  int64_t now = 0;
  int alone = 0;
  tri_prompt_bound_init(&b, FACTOR, true);
  for (int i = 0; i < 1000; i++) {
    tri_step_outlook o = outlook(64, 64);
    int tokens = tri_prompt_bound_next(&b, &o);
    tri_prompt_bound_begin(&b, (tri_step_load){63, tokens}, now);
    tri_prompt_bound_end(&b, now += 10 * MS);
    alone += !tokens;
  }
  ck_assert_int_le(alone, 1 + 1000 / TRI_BOUND_UNKNOWN);
}
END_TEST

/* A step that was begun while another ran has its own time. */
START_TEST(test_time_of_a_step) {
  tri_prompt_bound b;
  tri_prompt_bound_init(&b, FACTOR, true);
  tri_prompt_bound_end(&b, 5); /* of a step that was never begun */
  tri_prompt_bound_begin(&b, (tri_step_load){4, 0}, 0);
  tri_prompt_bound_begin(&b, (tri_step_load){100, 0}, 1 * MS);
  tri_prompt_bound_end(&b, 10 * MS);
  tri_prompt_bound_end(&b, 17 * MS);
  tri_prompt_bound_begin(&b, (tri_step_load){1000, 0}, 50 * MS);
  tri_prompt_bound_end(&b, 58 * MS);
  ck_assert(is_near(tri_step_times_of_decodes(&b.times, 4), 10e-3, 1e-9));
  ck_assert(is_near(tri_step_times_of_decodes(&b.times, 1000), 10e-3, 1e-9)); /* no larger step takes less */
  ck_assert(is_near(b.times.decodes.kept[6][0].seconds, 7e-3, 1e-9));
  ck_assert(is_near(b.times.decodes.kept[9][0].seconds, 8e-3, 1e-9));
}
END_TEST

Suite *suite_prompt_bound(void) {
  Suite *s = suite_create("prompt_bound");
  TCase *t = tcase_create("prompt_bound");
  tcase_add_test(t, test_unknown);
  tcase_add_test(t, test_line);
  tcase_add_test(t, test_noise);
  tcase_add_test(t, test_jump);
  tcase_add_test(t, test_beyond);
  tcase_add_test(t, test_no_bound);
  tcase_add_test(t, test_comes_to_the_target);
  tcase_add_test(t, test_counts_those_to_come);
  tcase_add_test(t, test_follows_a_jump);
  tcase_add_test(t, test_never_less);
  tcase_add_test(t, test_prompts_are_never_kept_out);
  tcase_add_test(t, test_time_of_a_step);
  suite_add_tcase(s, t);
  return s;
}
