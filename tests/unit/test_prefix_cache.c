/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache and the block pool against a plain model: a list of the whole texts that blocks hold. */
#include <check.h>
#include <string.h>

#include "base/hash.h"
#include "worker/schedule/block_pool.h"

Suite *suite_prefix_cache(void);

enum { BLOCK = 3, BLOCKS = 12, DEPTH = 5, TOKENS = BLOCK * DEPTH, OWNERS = 6, ROUNDS = 20000 };

static const tri_sip_key key = {{1, 2}};

static uint64_t collide(tri_sip_key k, const void *data, size_t len) {
  (void)k, (void)data, (void)len;
  return 5;
}

static tri_block_pool make_pool(int blocks, tri_prefix_hash *hash) {
  tri_block_pool p;
  tri_prefix_config c = {.num_blocks = blocks, .block_size = BLOCK, .key = key, .hash = hash};
  ck_assert_int_eq(tri_block_pool_init(&p, blocks), TRI_OK);
  ck_assert_int_eq(tri_prefix_cache_create(&c, &p.cache), TRI_OK);
  return p;
}

/* ---- random operations ---- */

/* A block as the model knows it. */
struct known {
  bool held;     /* by the cache */
  bool orphaned; /* the block before it is gone: it will not be found any more */
  uint64_t root, released;
  int depth; /* blocks of text, with itself */
  uint32_t text[TOKENS];
  int owners;
};

/* A sequence: some blocks of a text. */
struct owner {
  int num;
  int32_t blocks[DEPTH];
  uint32_t text[TOKENS];
  uint64_t root;
};

struct world {
  tri_block_pool pool;
  struct known known[BLOCKS];
  struct owner owners[OWNERS];
  uint64_t rng, clock, evictions;
  int found;
};

static uint64_t roll(struct world *w, uint64_t n) { return tri_splitmix64(&w->rng) % n; }

static bool is_prefix(const struct known *k, const struct owner *o, int depth) {
  return k->held && k->depth == depth && k->root == o->root &&
         !memcmp(k->text, o->text, (size_t)(depth * BLOCK) * sizeof *o->text);
}

/* The block that the model has for the text of o up to depth. */
static int32_t model_find(const struct world *w, const struct owner *o, int depth) {
  for (int32_t b = 0; b < BLOCKS; b++)
    if (is_prefix(&w->known[b], o, depth) && !w->known[b].orphaned) return b;
  return -1;
}

static tri_prefix_id root_of(const struct world *w, const struct owner *o) {
  return tri_prefix_root(w->pool.cache, 0, &o->root, sizeof o->root);
}

/* Forgets a block; what stands behind it is lost with it. */
static void model_forget(struct world *w, int32_t block) {
  struct known *gone = &w->known[block];
  for (int b = 0; b < BLOCKS; b++) {
    struct known *k = &w->known[b];
    if (k->held && k->depth > gone->depth && k->root == gone->root &&
        !memcmp(k->text, gone->text, (size_t)(gone->depth * BLOCK) * sizeof *k->text))
      k->orphaned = true;
  }
  gone->held = gone->orphaned = false;
  w->evictions++;
}

/* Takes a block, which must be one that the cache does not hold, or the one released longest ago. */
static int32_t take(struct world *w) {
  int spare = 0;
  int32_t oldest = -1;
  for (int32_t b = 0; b < BLOCKS; b++) {
    const struct known *k = &w->known[b];
    spare += !k->owners && !k->held;
    if (!k->owners && k->held && (oldest < 0 || k->released < w->known[oldest].released)) oldest = b;
  }
  int32_t block = tri_block_take(&w->pool);
  if (block < 0) {
    ck_assert(!spare && oldest < 0);
    return block;
  }
  if (spare)
    ck_assert(!w->known[block].owners && !w->known[block].held);
  else
    ck_assert_int_eq(block, oldest);
  if (!spare) model_forget(w, block);
  w->known[block].owners = 1;
  return block;
}

static void release(struct world *w, struct owner *o) {
  while (o->num) {
    struct known *k = &w->known[o->blocks[--o->num]];
    tri_block_drop(&w->pool, o->blocks[o->num]);
    if (!--k->owners) k->released = ++w->clock;
  }
}

static void note(struct world *w, const struct owner *o, int32_t block, int depth) {
  struct known *k = &w->known[block];
  k->held = true;
  k->orphaned = false;
  k->root = o->root;
  k->depth = depth;
  memcpy(k->text, o->text, (size_t)(depth * BLOCK) * sizeof *k->text);
}

/* A sequence of few different tokens begins: it takes what is there, and computes the rest as far as blocks go. */
static void begin(struct world *w, struct owner *o) {
  release(w, o);
  o->root = roll(w, 2);
  for (int i = 0; i < TOKENS; i++) o->text[i] = (uint32_t)roll(w, 8) ? 0 : 1;
  tri_prefix_id id = root_of(w, o);
  int depth = 1 + (int)roll(w, DEPTH);
  for (; o->num < depth; o->num++) {
    int32_t want = model_find(w, o, o->num + 1), got = tri_prefix_find(w->pool.cache, id, o->text + o->num * BLOCK);
    ck_assert_int_eq(got, want);
    if (got < 0) break;
    tri_block_share(&w->pool, got);
    w->known[got].owners++;
    o->blocks[o->num] = got;
    id = tri_prefix_of(w->pool.cache, got);
    w->found++;
  }
  for (; o->num < depth; o->num++) {
    int32_t block = take(w);
    if (block < 0) return;
    o->blocks[o->num] = block;
    bool there = model_find(w, o, o->num + 1) >= 0;
    id = tri_prefix_enter(w->pool.cache, block, id, o->text + o->num * BLOCK);
    if (!there) note(w, o, block, o->num + 1);
  }
}

static void check(const struct world *w) {
  int idle = 0, without = 0;
  for (int b = 0; b < BLOCKS; b++) {
    const struct known *k = &w->known[b];
    without += !k->owners;
    idle += !k->owners && k->held;
    if (k->owners != w->pool.refs[b] || k->held != tri_prefix_holds(w->pool.cache, b)) ck_abort_msg("block %d", b);
  }
  if (idle != tri_prefix_num_idle(w->pool.cache) || without != tri_block_num_free(&w->pool)) ck_abort_msg("counts");
}

/* With a hash by which all blocks are alike, too: what is found is right whatever it says. */
START_TEST(test_random) {
  static struct world w;
  memset(&w, 0, sizeof w);
  w.rng = 11;
  w.pool = make_pool(BLOCKS, _i ? collide : NULL);
  for (int i = 0; i < ROUNDS; i++) {
    struct owner *o = &w.owners[roll(&w, OWNERS)];
    if (roll(&w, 3))
      begin(&w, o);
    else
      release(&w, o);
    check(&w);
  }
  ck_assert_int_gt(w.found, 1000);
  ck_assert_uint_gt(w.evictions, 1000);
  ck_assert_uint_eq(w.evictions, tri_prefix_num_evicted(w.pool.cache));
  for (int i = 0; i < OWNERS; i++) release(&w, &w.owners[i]);
  ck_assert_int_eq(tri_block_num_free(&w.pool), BLOCKS);
  tri_block_pool_free(&w.pool);
}
END_TEST

/* ---- particular cases ---- */

static const uint32_t text[] = {1, 2, 3, 4, 5, 6};

/* Kinds and salts have roots of their own, and a salt's end is where it ends. */
START_TEST(test_roots) {
  tri_block_pool p = make_pool(4, NULL);
  const tri_prefix_id roots[] = {tri_prefix_root(p.cache, 0, "", 0),    tri_prefix_root(p.cache, 1, "", 0),
                                 tri_prefix_root(p.cache, 0, "a", 1),   tri_prefix_root(p.cache, 0, "b", 1),
                                 tri_prefix_root(p.cache, 0, "a\0", 2), tri_prefix_root(p.cache, 1, "a", 1)};
  enum { ROOTS = sizeof roots / sizeof *roots };
  int32_t block = tri_block_take(&p);
  tri_prefix_enter(p.cache, block, roots[2], text);
  for (int i = 0; i < ROOTS; i++) {
    ck_assert_int_eq(tri_prefix_find(p.cache, roots[i], text), i == 2 ? block : -1);
    for (int k = 0; k < i; k++) ck_assert(memcmp(&roots[i], &roots[k], sizeof roots[i]));
  }
  tri_block_pool_free(&p);
}
END_TEST

/* A block is found behind what it was computed behind, and behind nothing that has the same tokens. */
START_TEST(test_chain) {
  tri_block_pool p = make_pool(4, _i ? collide : NULL);
  tri_prefix_id root = tri_prefix_root(p.cache, 0, NULL, 0);
  int32_t first = tri_block_take(&p), second = tri_block_take(&p), twin = tri_block_take(&p);
  tri_prefix_id one = tri_prefix_enter(p.cache, first, root, text), two = tri_prefix_enter(p.cache, second, one, text);
  ck_assert_int_eq(tri_prefix_find(p.cache, root, text), first);
  ck_assert_int_eq(tri_prefix_find(p.cache, one, text), second);
  ck_assert_int_eq(tri_prefix_find(p.cache, two, text), -1);
  ck_assert_int_eq(tri_prefix_find(p.cache, one, text + 3), -1);
  tri_prefix_id same = tri_prefix_enter(p.cache, twin, root, text);
  ck_assert(!memcmp(&same, &one, sizeof one));
  ck_assert(!tri_prefix_holds(p.cache, twin));
  tri_block_pool_free(&p);
}
END_TEST

/* A block that comes again after its eviction is a new one: what stood behind the old one is not found behind it. */
START_TEST(test_again) {
  tri_block_pool p = make_pool(2, NULL);
  tri_prefix_id root = tri_prefix_root(p.cache, 0, NULL, 0);
  int32_t first = tri_block_take(&p), second = tri_block_take(&p);
  tri_prefix_id one = tri_prefix_enter(p.cache, first, root, text);
  tri_prefix_enter(p.cache, second, one, text + 3);
  tri_block_drop(&p, first);
  ck_assert_int_eq(tri_prefix_find(p.cache, root, text), first);
  ck_assert_int_eq(tri_block_take(&p), first);
  ck_assert_int_eq(tri_prefix_find(p.cache, root, text), -1);
  tri_prefix_id again = tri_prefix_enter(p.cache, first, root, text);
  ck_assert(memcmp(&again, &one, sizeof one));
  ck_assert_int_eq(tri_prefix_find(p.cache, again, text + 3), -1);
  ck_assert_int_eq(tri_block_take(&p), -1);
  tri_block_pool_free(&p);
}
END_TEST

/* Without a cache a pool is what it was. */
START_TEST(test_pool) {
  tri_block_pool p;
  ck_assert_int_eq(tri_block_pool_init(&p, 2), TRI_OK);
  ck_assert_int_eq(tri_block_take(&p), 0);
  ck_assert_int_eq(tri_block_take(&p), 1);
  ck_assert_int_eq(tri_block_take(&p), -1);
  tri_block_share(&p, 0);
  tri_block_drop(&p, 0);
  ck_assert_int_eq(tri_block_num_free(&p), 0);
  tri_block_drop(&p, 0);
  ck_assert_int_eq(tri_block_num_free(&p), 1);
  tri_block_pool_free(&p);
}
END_TEST

Suite *suite_prefix_cache(void) {
  Suite *s = suite_create("prefix_cache");
  TCase *t = tcase_create("prefix_cache");
  tcase_add_loop_test(t, test_random, 0, 2);
  tcase_add_test(t, test_roots);
  tcase_add_loop_test(t, test_chain, 0, 2);
  tcase_add_test(t, test_again);
  tcase_add_test(t, test_pool);
  suite_add_tcase(s, t);
  return s;
}
