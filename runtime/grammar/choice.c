/* SPDX-License-Identifier: Apache-2.0 */
/* A trie: texts in order, each continuing from where it leaves the one before. */
#include "runtime/grammar/choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int compare(const void *a, const void *b) {
  const tri_choice_text *x = a, *y = b;
  size_t len = x->len < y->len ? x->len : y->len;
  int order = len ? memcmp(x->s, y->s, len) : 0;
  return order ? order : (x->len > y->len) - (x->len < y->len);
}

static size_t common(const tri_choice_text *a, const tri_choice_text *b) {
  size_t n = 0;
  while (n < a->len && n < b->len && a->s[n] == b->s[n]) n++;
  return n;
}

/* path: [longest + 1], the states of the text before. */
static void add_text(tri_net *net, const tri_choice_text *before, const tri_choice_text *text, uint32_t *path) {
  for (size_t i = before ? common(before, text) : 0; i < text->len && path[i]; i++)
    path[i + 1] = tri_net_add_bytes(net, path[i], text->s + i, 1, TRI_NET_ANY);
  if (tri_net_is_whole(net)) tri_net_set_final(net, path[text->len], 0);
}

static tri_status build(tri_net *net, const tri_choice_text *texts, size_t num, size_t longest, tri_error *err) {
  uint32_t *path = tri_calloc(longest + 1, sizeof *path);
  if (!path) return TRI_NO_MEMORY;
  uint32_t rule = tri_net_add_rule(net, 0);
  path[0] = tri_net_first_state(net, rule);
  for (size_t i = 0; i < num && tri_net_is_whole(net); i++) add_text(net, i ? &texts[i - 1] : NULL, &texts[i], path);
  tri_free(path);
  return tri_net_finish(net, rule, err);
}

tri_status tri_choice_compile(const tri_choice_text *texts, size_t num, tri_net **out, tri_error *err) {
  size_t longest = 0;
  tri_net *net = NULL;
  if (!num) return tri_fail(err, TRI_INVALID_ARGUMENT, "", "there is no text to choose");
  if (num > TRI_CHOICE_MAX)
    return tri_fail(err, TRI_TOO_LARGE, "", "%zu texts to choose from, more than %d", num, TRI_CHOICE_MAX);
  for (size_t i = 0; i < num; i++) longest = texts[i].len > longest ? texts[i].len : longest;
  if (longest > TRI_NET_MAX_STATES)
    return tri_fail(err, TRI_TOO_LARGE, "", "a text of %zu bytes, more than %d", longest, TRI_NET_MAX_STATES);
  tri_choice_text *sorted = tri_malloc(num, sizeof *sorted);
  if (!sorted) return TRI_NO_MEMORY;
  memcpy(sorted, texts, num * sizeof *sorted);
  qsort(sorted, num, sizeof *sorted, compare);
  tri_status st = tri_net_create(&net);
  if (st == TRI_OK) st = build(net, sorted, num, longest, err);
  if (st == TRI_OK) {
    *out = net;
    net = NULL;
  }
  tri_net_destroy(net);
  tri_free(sorted);
  return st;
}
