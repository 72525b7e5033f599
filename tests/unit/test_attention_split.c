/* SPDX-License-Identifier: Apache-2.0 */
/* How a device cuts attention: every key of every token in exactly one part, in order, and no more parts than places.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/split_plan.h"

enum { MOST_SEQS = 300, SMS = 132 };

typedef struct world {
  tri_batch b;
  int32_t start[MOST_SEQS + 1], block_start[MOST_SEQS + 1], context[MOST_SEQS];
  tri_attention_part *parts;
  tri_attention_tile *tiles;
  tri_attention_split split;
} world;

static unsigned state = 1;
static int any(int low, int high) {
  state = state * 1664525u + 1013904223u;
  return low + (int)((state >> 8) % (unsigned)(high - low + 1));
}

static void add(world *w, int tokens, int context) {
  tri_batch *b = &w->b;
  w->context[b->num_seqs++] = context;
  b->num_tokens += tokens;
  w->start[b->num_seqs] = b->num_tokens;
  w->block_start[b->num_seqs] = w->block_start[b->num_seqs - 1] + context / 16 + 1;
}

static void split(world *w, const tri_attention_shape *s) {
  w->b.seq_start = w->start;
  w->b.context_len = w->context;
  w->b.block_start = w->block_start;
  size_t parts = (size_t)tri_attention_most_parts(s, &w->b, SMS), tiles = (size_t)tri_attention_most_tiles(s, &w->b);
  w->parts = malloc((parts + 1) * sizeof *w->parts);
  w->tiles = malloc((tiles + 1) * sizeof *w->tiles);
  memset(w->parts, 0x55, (parts + 1) * sizeof *w->parts);
  memset(w->tiles, 0x55, (tiles + 1) * sizeof *w->tiles);
  tri_attention_split_batch(s, &w->b, SMS, w->parts, w->tiles, &w->split);
  ck_assert(w->split.num_parts <= (int)parts && w->split.num_tiles <= (int)tiles);
  ck_assert_int_eq(w->parts[parts].row, 0x55555555);
  ck_assert_int_eq(w->tiles[tiles].row, 0x55555555);
}

static void destroy(world *w) {
  free(w->parts);
  free(w->tiles);
  *w = (world){0};
}

static int seq_of(const world *w, int row) {
  int s = 0;
  while (w->start[s + 1] <= row) s++;
  return s;
}

/* The keys that a token sees: before it a window, after it nothing, all or as many. */
static int first_of(const tri_attention_shape *s, int position) {
  if (s->window && s->chunked) return position / s->window * s->window;
  return s->window && position >= s->window ? position - s->window + 1 : 0;
}
static int last_of(const world *w, const tri_attention_shape *s, int seq, int position) {
  int end = w->context[seq] - 1;
  if (s->causal) return position;
  return s->window && position + s->window - 1 < end ? position + s->window - 1 : end;
}

/* Checks that the parts of a row, of which p is one, have the keys that it sees, in their order. */
static void check_context(const world *w, const tri_attention_shape *s, const tri_attention_part *p) {
  int seq = seq_of(w, p->row), position = w->context[seq] - (w->start[seq + 1] - p->row);
  int last = last_of(w, s, seq, position), next = first_of(s, position);
  for (int split = 0; split < p->splits; split++) {
    const tri_attention_part *q = w->parts;
    while (q < w->parts + w->split.num_parts && !(q->row == p->row && q->split == split)) q++;
    ck_assert(q < w->parts + w->split.num_parts && q->blocks == w->b.block_start[seq] && q->position == position &&
              q->splits == p->splits);
    ck_assert(q->first == next && q->end > q->first);
    ck_assert(p->splits > 1 ? q->place - split == p->place - p->split : q->place == -1);
    next = q->end;
  }
  ck_assert_int_eq(next, last + 1);
}

static void check_parts(const world *w, const tri_attention_shape *s) {
  bool seen[4096] = {false}, placed[4096] = {false};
  int num = 0;
  for (int i = 0; i < w->split.num_parts && w->parts[i].row >= 0; i++, num++) {
    const tri_attention_part *p = &w->parts[i];
    ck_assert(p->row < w->b.num_tokens && p->splits >= 1 && p->splits <= s->most_splits && p->split < p->splits);
    seen[p->row] = true;
    if (p->place >= 0) {
      ck_assert(p->place < w->split.num_places && !placed[p->place]);
      placed[p->place] = true;
    }
    if (!p->split) check_context(w, s, p);
  }
  int parts = 0, joined = w->split.joined;
  ck_assert(joined == 1 || (joined <= s->most_joined && !(joined & (joined - 1)) && num == w->split.num_parts));
  for (int i = 0; i < num && joined > 1; i++) ck_assert_int_eq(w->parts[i].splits, 1);
  for (int i = 0; i < num; i++) parts += w->parts[i].split ? 0 : w->parts[i].splits;
  ck_assert_int_eq(parts, num);
  for (int i = num; i < w->split.num_parts; i++) ck_assert_int_eq(w->parts[i].row, -1);
  for (int q = 0; q < w->b.num_seqs; q++)
    for (int row = w->start[q]; row < w->start[q + 1]; row++) {
      bool prompt = s->rows && w->start[q + 1] - w->start[q] > 1;
      ck_assert_int_eq(seen[row], !prompt);
    }
}

/* Checks that the parts of a tile, of which t is the first, have its keys, in their order, and ends that a block's
 * reads of so many keys meet. Returns the key behind the last part. */
static int check_tile_parts(const world *w, const tri_attention_shape *s, const tri_attention_tile *t) {
  int next = t->first, begin = t->first & -s->tile_box;
  for (int split = 0; split < t->splits; split++) {
    const tri_attention_tile *q = w->tiles;
    while (q < w->tiles + w->split.num_tiles && !(q->row == t->row && q->split == split)) q++;
    ck_assert(q < w->tiles + w->split.num_tiles && q->splits == t->splits && q->rows == t->rows);
    ck_assert(q->position == t->position && q->context == t->context && q->blocks == t->blocks);
    ck_assert(q->first == next && q->end > q->first && q->place - split == t->place);
    if (split < t->splits - 1) ck_assert_int_eq((q->end - begin) % s->tile_keys, 0);
    next = q->end;
  }
  return next;
}

static void check_tiles(const world *w, const tri_attention_shape *s) {
  bool seen[4096] = {false}, placed[4096] = {false};
  int places = 0;
  for (int i = 0; i < w->split.num_tiles; i++) {
    const tri_attention_tile *t = &w->tiles[i];
    int seq = seq_of(w, t->row), position = w->context[seq] - (w->start[seq + 1] - t->row),
        last = position + t->rows - 1;
    ck_assert(t->splits >= 1 && t->split >= 0 && t->split < t->splits && (t->splits > 1) == (t->place >= 0));
    places += t->splits > 1;
    if (t->place >= 0) {
      ck_assert(t->place < w->split.num_tile_places && !placed[t->place]);
      placed[t->place] = true;
    }
    if (t->split) continue;
    ck_assert(t->blocks == w->b.block_start[seq] && t->rows >= 1 && t->rows <= s->rows && t->position == position &&
              t->context == w->context[seq]);
    int end = last_of(w, s, seq, last) + 1;
    ck_assert_int_eq(t->first, first_of(s, position));
    ck_assert_int_eq(t->splits > 1 ? check_tile_parts(w, s, t) : t->end, end);
    for (int r = 0; r < t->rows; r++) {
      ck_assert(seq_of(w, t->row + r) == seq && !seen[t->row + r]);
      seen[t->row + r] = true;
    }
  }
  ck_assert_int_eq(places, w->split.num_tile_places);
  ck_assert_int_le(places, s->tile_places);
  for (int q = 0; q < w->b.num_seqs; q++)
    for (int row = w->start[q]; row < w->start[q + 1]; row++)
      ck_assert_int_eq(seen[row], s->rows && w->start[q + 1] - w->start[q] > 1);
}

/* Sets what prompts on Hopper have: tiles of 128 keys in boxes of a KV block. */
static void split_tiles(tri_attention_shape *s, int units, int box) {
  s->tile_units = units;
  s->tile_keys = 128;
  s->tile_box = box;
  s->tile_places = 264 / units;
  s->tile_cost = 1;
}

START_TEST(all_keys_once) {
  for (int i = 0; i < 1200; i++) {
    world w = {0};
    tri_attention_shape s = {.window = any(0, 1) ? any(1, 700) : 0,
                             .causal = any(0, 3) > 0,
                             .units = 1 << any(0, 6),
                             .blocks = any(1, 4),
                             .most_splits = 1 << any(0, 7),
                             .most_joined = any(0, 1) ? 8 : any(0, 8)};
    int seqs = any(1, i % 50 ? 12 : MOST_SEQS), kind = any(0, 2);
    s.chunked = any(0, 1);
    s.keys = any(0, 1) ? 64 : 16;
    s.rows = any(0, 1) ? any(1, 192) : 0;
    if (s.rows && any(0, 1)) split_tiles(&s, 1 << any(0, 4), 16 << any(0, 3));
    s.enough = any(1, s.blocks);
    for (int q = 0; q < seqs; q++) {
      int tokens = kind == 0 || w.b.num_tokens > 3000 ? 1 : any(0, any(0, 1) ? 3 : 200),
          most = any(0, 9) ? 600 : 140000;
      add(&w, tokens, tokens + any(tokens ? 0 : 1, most));
    }
    split(&w, &s);
    check_parts(&w, &s);
    check_tiles(&w, &s);
    destroy(&w);
  }
}
END_TEST

static const tri_attention_shape llama = {
    .causal = 1, .units = 8, .keys = 64, .blocks = 3, .enough = 2, .most_splits = 128, .rows = 64};

static int longest(const world *w) {
  int most = 0;
  for (int i = 0; i < w->split.num_parts; i++)
    if (w->parts[i].row >= 0 && w->parts[i].end - w->parts[i].first > most) most = w->parts[i].end - w->parts[i].first;
  return most;
}

/* Many contexts of one length are work enough, and are not cut into what would not be equal. */
START_TEST(equal_contexts_stay_whole) {
  world w = {0};
  for (int i = 0; i < 64; i++) add(&w, 1, 512);
  split(&w, &llama);
  ck_assert_int_eq(w.split.num_parts, 64);
  ck_assert_int_eq(w.split.num_places, 0);
  destroy(&w);
}
END_TEST

/* No part is much longer than the device's share of all keys, whatever lies beside it. */
START_TEST(long_contexts_are_shared) {
  static const struct {
    int count, context, longest;
  } batches[] = {{32, 400, 120000}, {1, 120000, 120000}, {32, 8192, 8192}, {32, 4096, 4096}, {5, 30000, 90000}};
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
    world w = {0};
    int64_t keys = 0;
    for (int q = 0; q < batches[i].count; q++) {
      int context = q ? batches[i].context : batches[i].longest;
      add(&w, 1, context);
      keys += context;
    }
    split(&w, &llama);
    ck_assert_int_lt(longest(&w), keys * 8 / (2 * SMS) * 5 / 4 + 64);
    ck_assert_int_ge(w.parts[0].end - w.parts[0].first, longest(&w) * 9 / 10); /* the longest begin first */
    destroy(&w);
  }
}
END_TEST

/* A short context is cut for the processors' sake, but not into less than two reads. */
START_TEST(a_short_context_has_few_parts) {
  world w = {0};
  add(&w, 1, 250);
  split(&w, &llama);
  ck_assert_int_eq(w.parts[0].splits, 2);
  ck_assert_int_eq(w.split.num_parts, 2);
  destroy(&w);
  add(&w, 1, 60);
  split(&w, &llama);
  ck_assert_int_eq(w.split.num_parts, 1);
  destroy(&w);
}
END_TEST

/* Recorded steps serve many lengths: conversations that grow by 2,000 tokens have few numbers of places. */
START_TEST(recorded_steps_are_few) {
  bool seen[4096] = {false};
  int numbers = 0;
  for (int context = 100; context < 2100; context++) {
    world w = {0};
    for (int i = 0; i < 20; i++) add(&w, 1, context * (i + 1) / 10);
    split(&w, &llama);
    numbers += !seen[w.split.num_parts];
    seen[w.split.num_parts] = true;
    destroy(&w);
  }
  ck_assert_int_le(numbers, 7);
}
END_TEST

/* Clusters have short contexts where one block each would leave multiprocessors idle, and neither long ones nor those
 * that fill the device. Each change of their size is a recorded step of its own: there are few. */
START_TEST(few_short_contexts_are_joined) {
  static const struct {
    int seqs, context, enough, joined;
  } batches[] = {{1, 60, 2, 1},   {1, 128, 2, 1},  {1, 130, 2, 4},   {1, 512, 2, 8},   {1, 1200, 2, 8}, {1, 2048, 2, 1},
                 {8, 130, 2, 1},  {8, 512, 2, 4},  {8, 600, 4, 4},   {8, 4096, 2, 1},  {32, 130, 2, 1}, {32, 512, 2, 1},
                 {32, 130, 4, 1}, {32, 512, 4, 2}, {32, 2048, 4, 1}, {1, 120000, 2, 1}};
  tri_attention_shape s = llama;
  s.most_joined = 8;
  s.rows = 0;
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
    world w = {0};
    for (int q = 0; q < batches[i].seqs; q++) add(&w, 1, batches[i].context - q % 2);
    s.enough = batches[i].enough;
    s.blocks = s.enough > 3 ? s.enough : 3;
    split(&w, &s);
    check_parts(&w, &s);
    ck_assert_msg(w.split.joined == batches[i].joined, "%d contexts of %d keys: %d", batches[i].seqs,
                  batches[i].context, w.split.joined);
    destroy(&w);
  }
  int changes = 0, before = 1;
  for (int context = 1; context < 4000; context++) {
    world w = {0};
    add(&w, 1, context);
    split(&w, &s);
    changes += w.split.joined != before;
    before = w.split.joined;
    destroy(&w);
  }
  ck_assert_int_le(changes, 4);
}
END_TEST

/* Ranks that know the longest context alone launch alike, whatever theirs are, and find all their keys. */
START_TEST(even_batches_plan_alike) {
  for (int i = 0; i < 80; i++) {
    int seqs = any(1, i % 20 ? 12 : MOST_SEQS), most = any(1, any(0, 1) ? 300 : 9000), parts = -1, places = -1;
    tri_attention_shape s = llama;
    s.window = any(0, 1) ? 0 : any(1, 700);
    s.chunked = any(0, 1);
    s.units = 1 << any(0, 4);
    s.most_joined = 8;
    int joined = 0;
    for (int rank = 0; rank < 4; rank++) {
      world w = {.b = {.is_even = true, .max_context = most}};
      for (int q = 0; q < seqs; q++) add(&w, 1, rank ? any(1, rank == 1 ? most : 1 + most / 10) : most);
      split(&w, &s);
      check_parts(&w, &s);
      if (!rank) parts = w.split.num_parts;
      if (!rank) places = w.split.num_places;
      if (!rank) joined = w.split.joined;
      ck_assert(w.split.joined == joined && w.split.num_parts == parts && w.split.num_places == places);
      destroy(&w);
    }
  }
}
END_TEST

/* Blocks that take tiles to and fro have equal work only where the list goes from long to short, whatever the prompts
 * are. */
START_TEST(long_tiles_come_first) {
  static const tri_attention_shape packed = {
      .causal = 1, .units = 8, .keys = 64, .blocks = 3, .enough = 2, .most_splits = 128, .rows = 32};
  world w = {0};
  for (int i = 0; i < 20; i++) add(&w, 100, 100 + any(0, 5000));
  split(&w, &packed);
  int most = w.tiles[0].end - w.tiles[0].first;
  for (int i = 1; i < w.split.num_tiles; i++) {
    int before = w.tiles[i - 1].end - w.tiles[i - 1].first, keys = w.tiles[i].end - w.tiles[i].first;
    ck_assert_int_le(keys, before + most / 64 + 1);
  }
  destroy(&w);
}
END_TEST

/* The second turn of a chat has a tile or two for each KV head: without parts most of the device would wait. */
START_TEST(second_turns_fill_the_device) {
  static const int tokens[] = {2, 16, 64, 64, 64, 300, 64}, contexts[] = {4160, 4160, 4160, 32768, 700, 4400, 120064};
  for (int i = 0; i < 7; i++) {
    world w = {0};
    tri_attention_shape s = {.causal = 1, .units = 8, .keys = 64, .blocks = 3, .enough = 2, .most_splits = 128};
    s.rows = 32;
    split_tiles(&s, 8, 16);
    add(&w, tokens[i], contexts[i]);
    split(&w, &s);
    check_tiles(&w, &s);
    int items = 8 * w.split.num_tiles, tiles = (tokens[i] + s.rows - 1) / s.rows;
    int longest = 0, whole = (contexts[i] + 127) / 128;
    for (int t = 0; t < w.split.num_tiles; t++) {
      int keys = (w.tiles[t].end - w.tiles[t].first + 127) / 128;
      longest = keys > longest ? keys : longest;
    }
    int rounds = (items + SMS - 1) / SMS;
    ck_assert_msg(rounds <= 2 && longest < whole, "%d x %d: %d items", tokens[i], contexts[i], items);
    /* Each reads about its share, or so little that putting parts together would take longer. */
    int share = whole * 8 * tiles / SMS;
    ck_assert_msg(rounds * longest <= share + share / 4 + 4, "%d x %d: %d of %d tiles of keys", tokens[i], contexts[i],
                  longest, share);
    destroy(&w);
  }
}
END_TEST

/* Whole prompts, and many second turns, have blocks enough. */
START_TEST(many_tiles_stay_whole) {
  for (int i = 0; i < 4; i++) {
    world w = {0};
    tri_attention_shape s = {.causal = 1, .units = 8, .keys = 64, .blocks = 3, .enough = 2, .most_splits = 128};
    s.rows = 32;
    split_tiles(&s, 8, 16);
    if (i < 3) add(&w, 512 << i, 512 << i);
    for (int q = 0; i == 3 && q < 40; q++) add(&w, 64, 4160);
    split(&w, &s);
    check_tiles(&w, &s);
    ck_assert_int_eq(w.split.num_tile_places, 0);
    destroy(&w);
  }
}
END_TEST

Suite *suite_attention_split(void);
Suite *suite_attention_split(void) {
  Suite *s = suite_create("attention_split");
  TCase *c = tcase_create("attention_split");
  tcase_add_test(c, all_keys_once);
  tcase_add_test(c, equal_contexts_stay_whole);
  tcase_add_test(c, long_contexts_are_shared);
  tcase_add_test(c, a_short_context_has_few_parts);
  tcase_add_test(c, recorded_steps_are_few);
  tcase_add_test(c, few_short_contexts_are_joined);
  tcase_add_test(c, even_batches_plan_alike);
  tcase_add_test(c, long_tiles_come_first);
  tcase_add_test(c, second_turns_fill_the_device);
  tcase_add_test(c, many_tiles_stay_whole);
  suite_add_tcase(s, c);
  return s;
}
