/* SPDX-License-Identifier: Apache-2.0 */
/* The constraint of a job, and the thread that makes its masks, against tokens that are tried one by one on the
 * network. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "tests/unit/constrained_kit.h"

Suite *suite_constraint(void);

enum { VOCAB = 97, CHOICES = 4, MOST = 40, WORDS = (VOCAB + 31) / 32 };

static const uint32_t eos[1] = {3};

struct world {
  constrained_source grammars;
  tri_mask_maker *maker;
  tri_waker made;
};

static void open_world(struct world *w) {
  memset(w, 0, sizeof *w);
  constrained_source_open(&w->grammars, VOCAB);
  ck_assert_int_eq(tri_mask_maker_create(&w->made, &w->maker), TRI_OK);
}

static void close_world(struct world *w) {
  tri_mask_maker_destroy(w->maker);
  constrained_source_close(&w->grammars);
}

static tri_mask_state await(struct world *w, tri_constraint *c, int choice) {
  tri_mask_state state;
  while ((state = tri_constraint_look(c, choice)) == TRI_MASK_AWAITED) tri_waker_sleep(&w->made, 100000000);
  return state;
}

static tri_constraint *make(struct world *w, const tri_wire_constraint *wire, int choices) {
  tri_constraint_job job = {
      .wire = wire, .choices = choices, .vocab_size = VOCAB, .most_tokens = MOST, .eos = eos, .num_eos = 1};
  tri_constraint *c;
  ck_assert_int_eq(tri_constraint_create(&w->grammars.source, w->maker, &job, &c), TRI_OK);
  for (int i = 0; i < choices; i++) tri_constraint_begin(c, i, NULL, 0);
  tri_constraint_prepare(c);
  return c;
}

static uint32_t next(uint64_t *seed) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(*seed >> 33);
}

static bool same_mask(const uint32_t *a, const uint32_t *b) {
  for (uint32_t id = 0; id < VOCAB; id++)
    if (((a[id / 32] ^ b[id / 32]) >> id % 32 & 1) != 0) return false;
  return true;
}

/* Takes random tokens of one mask after the other, of several choices in turn, until the answers are whole or long. */
static void draw_all(struct world *w, tri_constraint *c, const tri_wire_constraint *wire, uint64_t seed) {
  constrained_walk walks[CHOICES];
  int num[CHOICES] = {0}, open = CHOICES;
  bool over[CHOICES] = {false};
  for (int i = 0; i < CHOICES; i++) constrained_walk_begin(&walks[i], wire);
  while (open)
    for (int i = 0; i < CHOICES; i++) {
      uint32_t want[WORDS], id;
      if (over[i]) continue;
      tri_mask_state state = await(w, c, i);
      int left = constrained_walk_next(&walks[i], VOCAB, want);
      if (constrained_walk_may_end(&walks[i]) && left) want[eos[0] / 32] |= 1u << eos[0] % 32;
      ck_assert_int_eq(state, left ? TRI_MASK_READY : TRI_MASK_WHOLE);
      over[i] = !left || num[i] == MOST - 1;
      open -= over[i];
      if (over[i]) continue;
      ck_assert(same_mask(tri_constraint_mask(c, i), want));
      do id = next(&seed) % VOCAB;
      while (id == eos[0] || !(want[id / 32] >> id % 32 & 1));
      constrained_walk_take(&walks[i], id);
      tri_constraint_take(c, i, id);
      num[i]++;
    }
  for (int i = 0; i < CHOICES; i++) constrained_walk_end(&walks[i]);
}

/* Texts around the JSON are kept as well, also where its texts may go before the answers do. */
START_TEST(test_frame) {
  static const char schema[] = "{\"enum\":[12,true,[\"ab\"]]}";
  struct world w;
  open_world(&w);
  ck_assert_int_eq(tri_mask_maker_start(w.maker), TRI_OK);
  for (uint32_t most = 0; most <= 3; most++)
    for (uint64_t seed = 0; seed < 10; seed++) {
      char texts[] = "ab{xyz,}bcd";
      const tri_wire_frame frame = {{texts, 3}, {texts + 3, 4}, {texts + 7, 4}, most};
      const tri_wire_constraint wire = {TRI_CONSTRAINT_JSON_SCHEMA, {schema, sizeof schema - 1}, frame};
      char gone[sizeof texts];
      memcpy(gone, texts, sizeof gone);
      tri_wire_constraint given = wire;
      given.frame.begin.s = gone, given.frame.separator.s = gone + 3, given.frame.end.s = gone + 7;
      tri_constraint *c = make(&w, &given, CHOICES);
      memset(gone, 'z', sizeof gone);
      draw_all(&w, c, &wire, seed);
      tri_constraint_destroy(c);
    }
  close_world(&w);
}
END_TEST

START_TEST(test_thread) {
  struct world w;
  open_world(&w);
  ck_assert_int_eq(tri_mask_maker_start(w.maker), TRI_OK);
  for (int kind = 0; kind < CONSTRAINED_KINDS; kind++) {
    tri_wire_constraint wire = constrained_wire(kind);
    for (uint64_t seed = 0; seed < 10; seed++) {
      tri_constraint *c = make(&w, &wire, CHOICES);
      draw_all(&w, c, &wire, seed);
      tri_constraint_destroy(c);
    }
  }
  close_world(&w);
}
END_TEST

/* Jobs end while their masks are made, and others with the same grammar come: whoever is last frees what is left. */
START_TEST(test_ends_while_made) {
  struct world w;
  open_world(&w);
  ck_assert_int_eq(tri_mask_maker_start(w.maker), TRI_OK);
  tri_wire_constraint wire = constrained_wire(4);
  for (int n = 0; n < 300; n++) {
    tri_constraint *c = make(&w, &wire, CHOICES);
    uint32_t quote = 12;
    ck_assert_str_eq(constrained_token(quote), "\"");
    for (int i = 0; i < CHOICES; i++) await(&w, c, i);
    for (int i = 0; i < CHOICES; i++) tri_constraint_take(c, i, quote);
    tri_constraint_destroy(c);
    tri_constraint_destroy(make(&w, &wire, CHOICES)); /* and while it is prepared */
  }
  close_world(&w);
}
END_TEST

/* What finds no room in the ring is asked for again. */
START_TEST(test_full_ring) {
  enum { JOBS = 80, EACH = 64 };
  struct world w;
  tri_constraint *jobs[JOBS];
  open_world(&w);
  tri_wire_constraint wire = constrained_wire(4);
  for (int j = 0; j < JOBS; j++) jobs[j] = make(&w, &wire, EACH);
  tri_mask_maker_run(w.maker);
  for (int j = 0; j < JOBS; j++) {
    for (int i = 0; i < EACH; i++) tri_constraint_take(jobs[j], i, 12);
  }
  tri_mask_maker_run(w.maker);
  ck_assert_int_eq(tri_constraint_look(jobs[0], 0), TRI_MASK_READY);
  ck_assert_int_eq(tri_constraint_look(jobs[JOBS - 1], EACH - 1), TRI_MASK_AWAITED);
  tri_mask_maker_run(w.maker);
  ck_assert_int_eq(tri_constraint_look(jobs[JOBS - 1], EACH - 1), TRI_MASK_READY);
  for (int j = 0; j < JOBS; j++) tri_constraint_destroy(jobs[j]);
  close_world(&w);
}
END_TEST

/* An answer that goes on elsewhere has the mask that it would have had. */
START_TEST(test_begins_with_tokens) {
  struct world w;
  open_world(&w);
  tri_wire_constraint wire = constrained_wire(0);
  constrained_walk walk;
  uint32_t want[WORDS], drawn[3] = {46, 37, 47}; /* {"  a  ": */
  ck_assert_str_eq(constrained_token(drawn[0]), "{\"");
  drawn[1] = 13;
  ck_assert_str_eq(constrained_token(drawn[1]), "a");
  ck_assert_str_eq(constrained_token(drawn[2]), "\":");
  tri_constraint *c = make(&w, &wire, 1);
  tri_constraint_begin(c, 0, drawn, 3);
  tri_mask_maker_run(w.maker);
  constrained_walk_begin(&walk, &wire);
  for (int i = 0; i < 3; i++) constrained_walk_take(&walk, drawn[i]);
  ck_assert_int_gt(constrained_walk_next(&walk, VOCAB, want), 0);
  ck_assert_int_eq(tri_constraint_look(c, 0), TRI_MASK_READY);
  ck_assert(same_mask(tri_constraint_mask(c, 0), want));
  constrained_walk_end(&walk);
  tri_constraint_destroy(c);
  close_world(&w);
}
END_TEST

/* Follows an answer of random tokens. Returns how often what was known was forgotten. *stuck: there was too little
 * memory for one step. */
static int follow_one(tri_grammar *g, const tri_wire_constraint *wire, uint64_t seed, bool *stuck) {
  constrained_walk walk;
  tri_grammar_place place = {0};
  uint32_t tokens[MOST], want[WORDS + 1], mask[WORDS + 1];
  int resets = 0;
  constrained_walk_begin(&walk, wire);
  for (int n = 0; n < MOST; n++) {
    uint64_t before = place.resets;
    tri_grammar_next found = tri_grammar_mask(g, &place, tokens, n, mask);
    resets += n && place.resets != before;
    int left = constrained_walk_next(&walk, VOCAB, want);
    if (!found.tokens && left) ck_assert(!found.the_end);
    *stuck |= !found.tokens && left;
    if (!found.tokens) break;
    ck_assert(same_mask(mask, want));
    do tokens[n] = next(&seed) % VOCAB;
    while (!(want[tokens[n] / 32] >> tokens[n] % 32 & 1));
    constrained_walk_take(&walk, tokens[n]);
  }
  constrained_walk_end(&walk);
  return resets;
}

/* Where memory for configurations is used up they are forgotten, and the answer is followed again; where that is not
 * enough nothing may come. */
START_TEST(test_little_memory) {
  tri_vocabulary *v = constrained_vocabulary(VOCAB);
  tri_wire_constraint wire = constrained_wire(6);
  tri_grammar *g;
  int resets = 0, stuck_ones = 0;
  for (size_t bytes = 1 << 20; tri_grammar_create(&wire, v, bytes, &g, NULL) == TRI_OK; bytes = bytes * 7 / 8) {
    bool stuck = false;
    for (uint64_t seed = 0; seed < 20; seed++) resets += follow_one(g, &wire, seed, &stuck);
    stuck_ones += stuck;
    tri_grammar_drop(g);
  }
  ck_assert_int_gt(resets, 0);
  ck_assert_int_gt(stuck_ones, 0);
  tri_vocabulary_destroy(v);
}
END_TEST

static tri_grammar_cache *no_cache(tri_grammar_source *source) {
  (void)source;
  return NULL;
}

/* A replica that cannot read its tokenizer lets nothing come, and so does one that cannot keep a schema. */
START_TEST(test_no_grammar) {
  struct world w;
  open_world(&w);
  tri_wire_constraint wire = constrained_wire(0);
  const tri_wire_constraint wrong = {.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{\"not\":{}}", 10}};
  tri_constraint *bad = make(&w, &wrong, 2);
  tri_mask_maker_run(w.maker);
  ck_assert_int_eq(tri_constraint_look(bad, 1), TRI_MASK_NONE);
  ck_assert_int_eq(tri_constraint_num_over(bad), 2);
  tri_constraint_destroy(bad);
  w.grammars.source.open = no_cache;
  tri_constraint *c = make(&w, &wire, 1);
  ck_assert_int_eq(tri_constraint_look(c, 0), TRI_MASK_AWAITED);
  tri_mask_maker_run(w.maker);
  ck_assert_int_eq(tri_constraint_look(c, 0), TRI_MASK_NONE);
  tri_constraint_destroy(c);
  close_world(&w);
}
END_TEST

START_TEST(test_cache) {
  struct world w;
  tri_grammar *a, *b, *c;
  tri_error err = {0};
  open_world(&w);
  tri_wire_constraint one = constrained_wire(0), two = constrained_wire(1), object = constrained_wire(5);
  tri_wire_constraint wrong = {.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{\"not\":{}}", 10}};
  ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &one, &a, NULL), TRI_OK);
  ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &one, &b, NULL), TRI_OK);
  ck_assert_ptr_eq(a, b);
  ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &two, &c, NULL), TRI_OK);
  ck_assert_ptr_ne(a, c);
  tri_grammar_drop(b);
  tri_grammar_drop(c);
  ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &object, &c, NULL), TRI_OK);
  tri_grammar_drop(c);
  ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &wrong, &c, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "/not");
  /* One that a job has outlives the cache. */
  tri_grammar_cache_destroy(w.grammars.cache);
  ck_assert_int_eq(tri_grammar_cache_create(w.grammars.vocabulary, 1, &w.grammars.cache), TRI_OK);
  ck_assert(tri_grammar_is_of(a, &one));
  tri_grammar_drop(a);
  /* A cache without room has the last one alone. */
  for (int kind = 0; kind < CONSTRAINED_KINDS; kind++) {
    tri_wire_constraint wire = constrained_wire(kind);
    ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &wire, &a, NULL), TRI_OK);
    ck_assert_int_eq(tri_grammar_cache_get(w.grammars.cache, &wire, &b, NULL), TRI_OK);
    ck_assert_ptr_eq(a, b);
    tri_grammar_drop(a);
    tri_grammar_drop(b);
  }
  close_world(&w);
}
END_TEST

/* The end and other ids: no end before min_tokens, or with ignore_eos, unless nothing else may come. */
START_TEST(test_ends) {
  struct world w;
  tri_constraint *c;
  open_world(&w);
  tri_wire_constraint integer = constrained_wire(3);
  uint32_t one = 22, two = 23; /* digits */
  ck_assert_str_eq(constrained_token(one), "1");
  ck_assert_str_eq(constrained_token(two), "2");
  for (int how = 0; how < 4; how++) {
    tri_constraint_job job = {
        .wire = &integer, .choices = 1, .vocab_size = VOCAB, .most_tokens = MOST, .eos = eos, .num_eos = 1};
    if (how == 1) job.min_tokens = 3;
    if (how == 2) job.ignores_eos = true;
    job.stops = &two;
    job.num_stops = 1;
    if (how == 3) job.bad = &one;
    if (how == 3) job.num_bad = 1;
    ck_assert_int_eq(tri_constraint_create(&w.grammars.source, w.maker, &job, &c), TRI_OK);
    tri_constraint_begin(c, 0, &one, 1);
    tri_constraint_prepare(c);
    tri_mask_maker_run(w.maker);
    const uint32_t *m = tri_constraint_mask(c, 0);
    ck_assert_int_eq(tri_constraint_look(c, 0), TRI_MASK_READY);
    ck_assert_int_eq(m[0] >> eos[0] & 1, how != 1 && how != 2);
    ck_assert_int_eq(m[two / 32] >> two % 32 & 1, how != 1);
    ck_assert_int_eq(m[one / 32] >> one % 32 & 1, how != 3);
    tri_constraint_destroy(c);
  }
  close_world(&w);
}
END_TEST

Suite *suite_constraint(void) {
  Suite *s = suite_create("constraint");
  TCase *t = tcase_create("all");
  tcase_set_timeout(t, 120);
  tcase_add_test(t, test_thread);
  tcase_add_test(t, test_frame);
  tcase_add_test(t, test_ends_while_made);
  tcase_add_test(t, test_full_ring);
  tcase_add_test(t, test_begins_with_tokens);
  tcase_add_test(t, test_little_memory);
  tcase_add_test(t, test_no_grammar);
  tcase_add_test(t, test_cache);
  tcase_add_test(t, test_ends);
  suite_add_tcase(s, t);
  return s;
}
