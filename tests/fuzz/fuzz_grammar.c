/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a JSON Schema, or behind `regex:`, `gbnf:` or `choice:` as one of those: refused with a reason, or a
 * network of which every answer that is begun can be ended. On the way through two made-up answers the masks of a small
 * vocabulary are compared with walks over each token's bytes.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/grammar/choice.h"
#include "runtime/grammar/gbnf.h"
#include "runtime/grammar/instance.h"
#include "runtime/grammar/masks.h"
#include "runtime/grammar/regex.h"
#include "runtime/grammar/schema.h"
#include "tests/fuzz/mutate.h"

enum { MOST_BYTES = 8 << 20, MOST_WORK = 300000, DRAWN = 24, MOST_MASKS = 8 };

static void need(bool ok) {
  if (!ok) abort();
}

static const char *const pieces[] = {
    "{",    "}",   "[",   "]",   ",",        ":",    "\"",           "a",    "ab",   "\"a",  "\":",   "\",",
    "{\"",  "\"}", "1",   "0",   "12",       "-",    ".5",           "e",    "E+1",  "tr",   "ue",    "false",
    "null", "\\",  "\\n", "u00", "\\u001",   "\xc3", "\xa9",         " ",    "\n",   "\n  ", "\"b\"", "b\":",
    "}}",   "]}",  "[[",  "x",   "\xe2\x82", "\xac", "\xf0\x9f\x98", "\x80", "\x7f", "\x01"};
enum { TOKENS = sizeof pieces / sizeof *pieces };

static tri_vocabulary *make_vocabulary(void) {
  tri_token_bytes tokens[TOKENS];
  tri_vocabulary *v = NULL;
  for (uint32_t i = 0; i < TOKENS; i++)
    tokens[i] = (tri_token_bytes){i, (uint32_t)strlen(pieces[i]), (const uint8_t *)pieces[i]};
  need(tri_vocabulary_create(tokens, TOKENS, TOKENS, &v, NULL) == TRI_OK);
  return v;
}

static void check_mask(tri_configs *c, tri_masks *m, uint32_t config) {
  const uint64_t *mask = tri_masks_of(m, config);
  need(mask || tri_configs_is_full(c));
  for (uint32_t i = 0; mask && i < TOKENS; i++) {
    bool walks = tri_configs_walk(c, config, pieces[i], strlen(pieces[i])) != 0;
    if (tri_configs_is_full(c)) return;
    need(walks == (mask[i / 64] >> i % 64 & 1));
  }
}

/* An answer is walked over: each of its bytes may come, and at its end the whole may end. */
static void check_instance(tri_configs *c, tri_masks *m, uint64_t *seed) {
  tri_buf text = {0};
  tri_status st = tri_grammar_instance(c, seed, DRAWN, &text);
  need(st == TRI_OK || st == TRI_NO_CAPACITY || st == TRI_NO_MEMORY);
  need(st != TRI_NO_CAPACITY || tri_configs_is_full(c));
  uint32_t at = st == TRI_OK ? tri_configs_begin(c) : 0;
  for (size_t i = 0; at && i < text.len; i++) {
    if (i < MOST_MASKS) check_mask(c, m, at);
    if (tri_configs_is_full(c)) break;
    need(tri_configs_may_go_on(c, at));
    at = tri_configs_step(c, at, (uint8_t)text.data[i]);
    need(at || tri_configs_is_full(c));
  }
  if (st == TRI_OK && !tri_configs_is_full(c)) need(at && tri_configs_may_end(c, at));
  tri_buf_free(&text);
}

/* TRI_ABORTED: it is no JSON. */
static tri_status compile_schema(const char *text, size_t size, tri_net **net, tri_error *err) {
  tri_schema_options options = {.no_white_space = size % 2, .most_work = MOST_WORK};
  tri_json_doc *doc = NULL;
  if (tri_json_parse(text, size, &doc, NULL) != TRI_OK) return TRI_ABORTED;
  tri_status st = tri_schema_compile(tri_json_root(doc), &options, net, err);
  tri_json_free(doc);
  return st;
}

/* A text for each line. */
static tri_status compile_choice(const char *text, size_t size, tri_net **net, tri_error *err) {
  enum { MOST = 64 };
  tri_choice_text list[MOST];
  size_t num = 0, from = 0;
  for (size_t i = 0; i <= size && num < MOST; i++) {
    if (i < size && text[i] != '\n') continue;
    list[num++] = (tri_choice_text){text + from, i - from};
    from = i + 1;
  }
  return tri_choice_compile(list, num, net, err);
}

static tri_status compile(const char *text, size_t size, tri_net **net, tri_error *err) {
  static const struct {
    const char *word;
    tri_status (*compile)(const char *text, size_t size, tri_net **net, tri_error *err);
  } kinds[] = {{"regex:", tri_regex_compile}, {"gbnf:", tri_gbnf_compile}, {"choice:", compile_choice}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    size_t len = strlen(kinds[i].word);
    if (size >= len && !memcmp(text, kinds[i].word, len)) return kinds[i].compile(text + len, size - len, net, err);
  }
  return compile_schema(text, size, net, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static tri_vocabulary *v;
  tri_net *net = NULL;
  tri_configs *c = NULL;
  tri_masks *m = NULL;
  tri_error err = {0};
  uint64_t seed = size;
  if (!v) v = make_vocabulary();
  tri_status st = compile((const char *)data, size, &net, &err);
  if (st == TRI_ABORTED) return 0;
  need(st == TRI_OK || (st == err.status && err.message[0]));
  if (st != TRI_OK) return 0;
  need(tri_configs_create(net, MOST_BYTES, &c) == TRI_OK);
  need(tri_masks_create(c, v, 4, &m) == TRI_OK);
  for (int i = 0; i < 2 && !tri_configs_is_full(c); i++) check_instance(c, m, &seed);
  tri_masks_destroy(m);
  tri_configs_destroy(c);
  tri_net_destroy(net);
  return 0;
}
