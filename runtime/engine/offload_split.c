/* SPDX-License-Identifier: Apache-2.0 */
/* Streamed weights that several ranks of a host read for each other: who reads what.
 *
 * A part is cut at the ends of what is common, and the common bytes into pieces, each with one reader. No rank asks
 * another: pieces follow from the weights' places, which are equal on all ranks where the hashes that they exchange (a
 * word for each part) are equal. Parts with unequal words are read by every rank as before. */
#include <stdio.h>

#include "base/hash.h"
#include "base/wait.h"
#include "runtime/engine/offload_impl.h"
#include "runtime/load/common_bytes.h"

/* Words that a rank tells before those of its parts: the files that these come from; the first part that it streams,
 * and the last one up to which all have room in its ring at first. */
enum { SOURCE, FIRST, LAST, PARTS };

int tri_offload_num_words(int num_layers) { return PARTS + num_layers * TRI_LAYER_PARTS; }

/* ---- pieces ---- */

struct cutting {
  const tri_common_range *ranges;
  int num_ranges;
  size_t most;   /* bytes of a piece */
  size_t common; /* bytes, so far */
  uint64_t hash; /* of the pieces */
  tri_part_extents *out;
};

static tri_status add(struct cutting *c, const tri_stream_extent *x, size_t from, size_t bytes, bool common) {
  tri_part_extents *out = c->out;
  if (!bytes) return TRI_OK;
  if (out->num == out->room) {
    int room = out->room ? 2 * out->room : 8;
    tri_stream_extent *more = tri_grow(out->extents, (size_t)out->num, (size_t)room, sizeof *more);
    if (!more) return TRI_NO_MEMORY;
    out->extents = more;
    out->room = room;
  }
  tri_stream_extent cut = *x;
  cut.offset += from;
  cut.at += from;
  cut.bytes = bytes;
  cut.reader = common;
  out->extents[out->num++] = cut;
  return TRI_OK;
}

/* Adds common bytes [from, end) of an extent, in pieces that end where a block of the file does. */
static tri_status add_common(struct cutting *c, const tri_stream_extent *x, size_t from, size_t end,
                             const tri_common_range *r) {
  for (size_t n; from < end; from += n) {
    size_t most = c->most - (x->offset + from) % TRI_READER_BLOCK;
    n = end - from < most ? end - from : most;
    const uint64_t piece[] = {r->name, x->at + from - r->at, n};
    c->hash = tri_hash_bytes(c->hash, piece, sizeof piece);
    c->common += n;
    TRI_CHECK(add(c, x, from, n, true));
  }
  return TRI_OK;
}

/* Cuts an extent where ranges begin and end. */
static tri_status cut(struct cutting *c, const tri_stream_extent *x) {
  size_t done = 0;
  for (int i = 0; i < c->num_ranges; i++) {
    const tri_common_range *r = &c->ranges[i];
    size_t end = r->at + r->bytes;
    if (end <= x->at || r->at >= x->at + x->bytes) continue;
    size_t from = r->at > x->at ? r->at - x->at : 0, to = end < x->at + x->bytes ? end - x->at : x->bytes;
    TRI_CHECK(add(c, x, done, from - done, false));
    TRI_CHECK(add_common(c, x, from, to, r));
    done = to;
  }
  return add(c, x, done, x->bytes - done, false);
}

/* Gives each rank as much of a part as the others, one after the other; parts begin with different ranks, so that what
 * does not divide evens out. */
static void give_readers(tri_part_extents *x, size_t common, int part, int ranks) {
  size_t before = 0;
  for (int i = 0; i < x->num; i++) {
    if (!x->extents[i].reader) continue;
    double middle = (double)before + (double)x->extents[i].bytes / 2;
    int share = (int)(middle / (double)common * ranks);
    x->extents[i].reader = (share + part) % ranks + 1;
    before += x->extents[i].bytes;
  }
}

/* Large enough for the disk or the link, small enough that each rank gets some. */
static size_t piece_bytes(const tri_common_range *ranges, int num, int ranks, size_t limit) {
  size_t all = 0, most;
  for (int i = 0; i < num; i++) all += ranges[i].bytes;
  most = all / (size_t)ranks / TRI_READER_BLOCK * TRI_READER_BLOCK;
  if (most < TRI_READER_BLOCK) return TRI_READER_BLOCK;
  return most < limit ? most : limit;
}

/* Cuts a streamed part into its pieces. *word: the same where the pieces are, 0 where there are none. What lies in the
 * host's memory is one run of bytes. */
static tri_status cut_part(const tri_offload *o, int number, const tri_weight_map *m, int ranks, tri_part_extents *out,
                           uint64_t *word) {
  tri_common_range ranges[TRI_COMMON_RANGES];
  bool file = tri_offload_is_read(o, number);
  const tri_stream_extent whole = {.bytes = o->tiers->bytes[number]};
  int part = o->tiers->parts[number], n = tri_common_ranges(m, part, ranges);
  size_t most = piece_bytes(ranges, n, ranks, file ? TRI_OFFLOAD_PIECE_BYTES : TRI_OFFLOAD_LINK_BYTES);
  struct cutting c = {.ranges = ranges, .num_ranges = n, .most = most, .hash = TRI_HASH_SEED ^ file, .out = out};
  tri_status st = file ? TRI_OK : cut(&c, &whole);
  *word = 0;
  for (int i = 0; st == TRI_OK && file && i < o->parts[number].num_extents; i++)
    st = cut(&c, &o->parts[number].extents[i]);
  if (st == TRI_OK && c.common) *word = c.hash | 1;
  give_readers(out, c.common, part, ranks);
  return st;
}

/* ---- agreement ---- */

/* Pieces of packs and of checkpoints are not the same. */
static uint64_t hash_source(const tri_offload *o, const tri_weights_config *w) {
  uint64_t h = tri_offload_hash_source(TRI_HASH_SEED, w);
  return (o->pack ? tri_mix64(h) : h) | 1;
}

/* Returns the last part up to which all streamed ones have room in the ring at first. */
static uint64_t find_last(const tri_tiers *t) {
  int n = 0;
  while (n < t->num_streamed && t->places[n].back > n) n++;
  return (uint64_t)t->parts[n - 1];
}

/* Waits for the words of all ranks, however long they take to make packs: see tri_engine_create. For who watches the
 * start a wait is progress. *all false: a rank has left. */
static tri_status hear(const tri_split *s, tri_backend *be, const atomic_bool *stop, const uint64_t **words,
                       bool *all) {
  const tri_wait_policy policy = {.stop = stop};
  tri_wait wait = tri_wait_begin(&policy, TRI_NEVER);
  *all = true;
  for (int r = 0; r < tri_split_size(s); r++) {
    tri_status st;
    while ((st = tri_split_hear(s, r, &words[r])) == TRI_AGAIN) {
      __atomic_fetch_add(&be->loaded, 1, __ATOMIC_RELAXED);
      TRI_CHECK(tri_wait_pause(&wait));
    }
    *all &= st == TRI_OK;
  }
  return TRI_OK;
}

static bool are_alike(const uint64_t **words, int ranks, int word) {
  for (int r = 1; r < ranks; r++)
    if (words[r][word] != words[0][word]) return false;
  return words[0][word] != 0;
}

/* Takes the pieces of the parts of which all ranks have the same. */
static void use_pieces(tri_offload *o, tri_part_extents *cuts, const uint64_t **words, int ranks) {
  for (int i = 0; i < o->tiers->num_streamed; i++) {
    if (!are_alike(words, ranks, PARTS + o->tiers->parts[i])) continue;
    o->whole[i] = o->extents[i];
    o->extents[i] = cuts[i];
    cuts[i] = (tri_part_extents){0};
    o->parts[i] = (tri_stream_part){.extents = o->extents[i].extents,
                                    .num_extents = o->extents[i].num,
                                    .checked = o->whole[i].extents,
                                    .num_checked = o->whole[i].num}; /* none of what is in the host's memory */
    for (int k = 0; k < o->extents[i].num; k++)
      if (o->extents[i].extents[k].reader) o->common += o->extents[i].extents[k].bytes;
  }
}

/* Finds how many of its parts come to each rank before any walks: those for which all rings have room. 0: to some rank
 * none. */
static int find_first_parts(const tri_tiers *t, const uint64_t **words, int ranks) {
  int n = 0;
  uint64_t first = words[0][FIRST], last = words[0][LAST];
  for (int r = 1; r < ranks; r++) {
    if (words[r][FIRST] > first) first = words[r][FIRST];
    if (words[r][LAST] < last) last = words[r][LAST];
  }
  while (first <= last && n < t->num_streamed && (uint64_t)t->parts[n] <= last) n++;
  return n;
}

static tri_status agree(tri_offload *o, const tri_weights_config *w, tri_split *split, const atomic_bool *stop,
                        tri_part_extents *cuts) {
  const uint64_t *words[TRI_SPLIT_MAX_RANKS];
  int ranks = tri_split_size(split);
  bool all;
  TRI_CHECK(hear(split, w->backend, stop, words, &all));
  if (!all || !are_alike(words, ranks, SOURCE)) return TRI_OK;
  o->first_parts = find_first_parts(o->tiers, words, ranks);
  if (o->first_parts) use_pieces(o, cuts, words, ranks);
  if (o->common) o->split = split;
  return TRI_OK;
}

/* Cuts all parts, and tells the others how. */
static tri_status propose(const tri_offload *o, const tri_weights_config *w, tri_split *split, tri_part_extents *cuts,
                          uint64_t *words, tri_error *err) {
  tri_weight_map m = {0};
  tri_status st = tri_weight_map_make(w->model, w->shard, w->ckpt, w->dtype, w->quantization, w->tiers, &m, err);
  words[SOURCE] = hash_source(o, w);
  words[FIRST] = (uint64_t)o->tiers->parts[0];
  words[LAST] = find_last(o->tiers);
  for (int i = 0; st == TRI_OK && i < o->tiers->num_streamed; i++)
    st = cut_part(o, i, &m, tri_split_size(split), &cuts[i], &words[PARTS + o->tiers->parts[i]]);
  tri_weight_map_free(&m);
  if (st == TRI_OK) tri_split_tell(split, words);
  return st;
}

tri_status tri_offload_share_reads(tri_offload *o, const tri_weights_config *weights, tri_split *split,
                                   const atomic_bool *stop, tri_error *err) {
  size_t n = (size_t)o->tiers->num_streamed;
  tri_part_extents *cuts = tri_calloc(n, sizeof *cuts);
  uint64_t *words = tri_calloc((size_t)tri_offload_num_words(weights->shard->layers.count), sizeof *words);
  o->whole = tri_calloc(n, sizeof *o->whole);
  tri_status st = cuts && words && o->whole ? TRI_OK : TRI_NO_MEMORY;
  if (st == TRI_OK) st = propose(o, weights, split, cuts, words, err);
  if (st == TRI_OK) st = agree(o, weights, split, stop, cuts);
  for (size_t i = 0; cuts && i < n; i++) tri_part_extents_free(&cuts[i]);
  tri_free(cuts);
  tri_free(words);
  if (st != TRI_OK && !(err && err->status)) tri_fail(err, st, "offload_weights", "%s", tri_status_text(st));
  return st;
}
