/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/constrained_kit.h"

#include <check.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/grammar/schema.h"

enum { FIRST = 6 }; /* ids before it are special, with those that end an answer among them */

static const char *const texts[] = {
    "{",    "}",    "[",   "]",    ":",    ",",  "\"",   "a",    "b",        "c",      "d",
    "e",    "x",    "y",   "z",    "0",    "1",  "2",    "3",    "4",        "5",      "6",
    "7",    "8",    "9",   "-",    ".",    " ",  "\\",   "n",    "t",        "r",      "u",
    "l",    "f",    "s",   "E",    "+",    "/",  "\n",   "{\"",  "\":",      "\",",    "\"}",
    "\": ", "true", "fal", "se",   "null", "ab", "xyz",  "\"a",  "\"b\"",    "12",     "00",
    ", ",   "],",   "]}",  ", \"", "bcd",  "}}", "\xc3", "\xa9", "\xc3\xa9", "\": \"", "abcdefghijkl"};

static const tri_wire_constraint wires[CONSTRAINED_KINDS] = {
#define SCHEMA(schema)                                                                                                 \
  {                                                                                                                    \
    .kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = { schema, sizeof schema - 1 }                                          \
  }
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"maxLength\":4},"
           "\"b\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120}},\"required\":[\"a\"]}"),
    SCHEMA("{\"enum\":[\"ab\",\"xyz\",12,true,null]}"),
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":[\"boolean\",\"null\"]},\"maxItems\":3}"),
    SCHEMA("{\"type\":\"integer\"}"),
    SCHEMA("{\"type\":\"string\"}"),
    {.kind = TRI_CONSTRAINT_JSON_OBJECT},
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"},\"b\":{\"const\":1}}}"),
#undef SCHEMA
};

tri_wire_constraint constrained_wire(int kind) { return wires[kind]; }

const char *constrained_token(uint32_t id) {
  return id >= FIRST && id - FIRST < sizeof texts / sizeof *texts ? texts[id - FIRST] : NULL;
}

tri_vocabulary *constrained_vocabulary(uint32_t size) {
  tri_token_bytes *tokens = tri_calloc(size, sizeof *tokens);
  tri_vocabulary *v;
  size_t n = 0;
  ck_assert_ptr_nonnull(tokens);
  for (uint32_t id = 0; id < size; id++) {
    const char *text = constrained_token(id);
    if (text) tokens[n++] = (tri_token_bytes){id, (uint32_t)strlen(text), (const uint8_t *)text};
  }
  ck_assert_int_eq(tri_vocabulary_create(tokens, n, size, &v, NULL), TRI_OK);
  tri_free(tokens);
  return v;
}

static tri_grammar_cache *cache_of(tri_grammar_source *source) { return ((constrained_source *)source)->cache; }

void constrained_source_open(constrained_source *s, uint32_t size) {
  s->source.open = cache_of;
  s->vocabulary = constrained_vocabulary(size);
  ck_assert_int_eq(tri_grammar_cache_create(s->vocabulary, 64 << 20, &s->cache), TRI_OK);
}

void constrained_source_close(constrained_source *s) {
  tri_grammar_cache_destroy(s->cache);
  if (s->vocabulary) tri_vocabulary_destroy(s->vocabulary);
}

void constrained_walk_begin(constrained_walk *w, const tri_wire_constraint *wire) {
  tri_error err = {0};
  const tri_wire_frame *f = &wire->frame;
  const tri_schema_frame frame = {f->begin.s,       f->separator.s, f->end.s,          f->begin.len,
                                  f->separator.len, f->end.len,     f->most + !f->most};
  const tri_schema_options options = {.frame = &frame};
  tri_status st = wire->kind == TRI_CONSTRAINT_JSON_OBJECT
                      ? tri_schema_any_object(&options, &w->net, &err)
                      : tri_schema_compile_text(wire->text.s, wire->text.len, &options, &w->net, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert_int_eq(tri_configs_create(w->net, 16 << 20, &w->configs), TRI_OK);
  w->at = tri_configs_begin(w->configs);
}

void constrained_walk_end(constrained_walk *w) {
  tri_configs_destroy(w->configs);
  tri_net_destroy(w->net);
}

int constrained_walk_next(const constrained_walk *w, uint32_t size, uint32_t *mask) {
  int n = 0;
  memset(mask, 0, (size + 31) / 32 * sizeof *mask);
  for (uint32_t id = 0; id < size; id++) {
    const char *text = constrained_token(id);
    if (!text || !tri_configs_walk(w->configs, w->at, text, strlen(text))) continue;
    mask[id / 32] |= 1u << id % 32;
    n++;
  }
  return n;
}

void constrained_walk_take(constrained_walk *w, uint32_t id) {
  const char *text = constrained_token(id);
  w->at = tri_configs_walk(w->configs, w->at, text, strlen(text));
}

bool constrained_walk_may_end(const constrained_walk *w) { return tri_configs_may_end(w->configs, w->at); }
