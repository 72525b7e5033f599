/* SPDX-License-Identifier: Apache-2.0 */
/* Chats of a benchmark: each turn's prompt is all that was said before, the answers included, and some random tokens.
 * A chat's next turn comes as soon as its last answer is there.
 *
 * Request i is turn i / chats of chat i % chats: first turns have the lowest numbers. `order` says which
 * request is sent n-th; it grows as answers come, so that a slow chat holds up no other. */
#include <string.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/mem.h"

/* The turns of a chat take neighbours among the lengths of a file. */
size_t bench_place(const bench_run *b, size_t num, size_t i) {
  size_t turns = (size_t)b->o->num_turns, chats = num / turns;
  return i % chats * turns + i / chats;
}

/* Draws the same lengths as the load will, from the same seed. */
uint64_t bench_longest_chat(const bench_run *b, size_t num) {
  size_t chats = num / (size_t)b->o->num_turns;
  uint64_t *len = tri_calloc(chats, sizeof *len), most = 0, random = bench_lengths_seed(b->o->seed);
  for (size_t i = 0; len && i < num; i++) {
    uint64_t *chat = &len[i % chats];
    *chat += bench_lengths_draw(&b->lengths, bench_place(b, num, i), &random) + (uint64_t)b->o->random_output_len;
    if (*chat > most) most = *chat;
  }
  tri_free(len);
  return most;
}

int bench_chats_begin(const bench_run *b, bench_load *l) {
  size_t turns = (size_t)b->o->num_turns, chats = l->num / turns, of_turn, ids;
  l->order = tri_malloc(l->num, sizeof *l->order);
  l->due = l->num_chats = chats;
  for (size_t i = 0; l->order && i < l->num; i++) l->order[i] = i;
  if (turns == 1) return l->order ? TRI_EXIT_OK : cli_failed("trireme bench", "%s", tri_status_text(TRI_NO_MEMORY));
  of_turn = (size_t)bench_lengths_longest(&b->lengths) + (size_t)b->o->random_output_len;
  l->chats = tri_calloc(chats, sizeof *l->chats);
  if (tri_size_mul(of_turn, turns, &l->chat_room) && tri_size_mul(l->chat_room, chats, &ids))
    l->chat_ids = tri_malloc(ids, sizeof *l->chat_ids);
  if (!l->order || !l->chats || !l->chat_ids)
    return cli_failed("trireme bench", "no memory for %zu chats of %zu turns", chats, turns);
  for (size_t i = 0; i < chats; i++) l->chats[i].ids = l->chat_ids + i * l->chat_room;
  return TRI_EXIT_OK;
}

void bench_chats_free(bench_load *l) {
  tri_free(l->order);
  tri_free(l->chats);
  tri_free(l->chat_ids);
}

static bench_chat *chat_of(const bench_load *l, size_t i) { return &l->chats[i % l->num_chats]; }

static void add(const bench_load *l, bench_chat *c, const uint32_t *ids, size_t n) {
  if (n > l->chat_room - c->num) n = l->chat_room - c->num; /* more than was asked for came */
  if (n) memcpy(c->ids + c->num, ids, n * sizeof *ids);
  c->num += n;
}

const uint32_t *bench_chat_ask(const bench_run *b, const bench_load *l, size_t i, size_t *num) {
  if (!l->chats) return NULL;
  bench_chat *c = chat_of(l, i);
  add(l, c, b->ids, l->requests[i].input_len);
  *num = c->num;
  return c->ids;
}

void bench_chat_hear(const bench_load *l, size_t i, const trireme_choice *answer) {
  if (l->chats) add(l, chat_of(l, i), answer->ids, answer->num_ids);
}

void bench_chat_go_on(bench_load *l, size_t i) {
  size_t chats = l->num_chats, next = i + chats;
  if (next >= l->num) return;
  if (l->requests[i].ok) {
    l->order[l->due++] = next;
    return;
  }
  for (; next < l->num; next += chats) { /* what has no answer to stand after is not asked */
    l->finished++;
    l->failed++;
  }
}
