/* SPDX-License-Identifier: Apache-2.0 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdint.h>
#include <stdio.h>

#include "base/foreign.h"
#include "base/mem.h"
#include "text/tokenizer/regex/regex.h"
#include "text/unicode/unicode.h"

/* A hostile text must not cost more time than its length warrants, and backtracking can cost powers of it. Three
 * bounds hold that: PCRE2's limit of steps for one match, the effort for all matches of a text together, and the heap
 * limit.
 *
 * The effort is counted by callouts after each repeat (what it has moved over) and by the steps of matches that had to
 * be tried again. Both PCRE2's JIT and its interpreter run the callouts; the interpreter is used where a pattern has
 * no JIT code or the JIT's stack ends. */
enum {
  JIT_STACK_START = 32 << 10,
  JIT_STACK_LIMIT = 1 << 20,
  HEAP_LIMIT_KIB = 64 << 10,  /* the interpreter's, which takes over where the JIT's stack ends */
  MATCH_LIMIT_BASE = 1000000, /* backtracking per match: this much and a multiple of the text */
  MATCH_LIMIT_PER_BYTE = 32,
  FREE_STEPS = 1024, /* of a match's backtracking: further ones count */
  MORE_STEPS = 16,
  STEP_EFFORT = 4, /* as many bytes as cost what a step does */
  LONGEST_PATTERN = 64 << 10,
  EFFORT_BASE = 32 << 20, /* a tenth of a second, and several times that where the interpreter takes over */
  EFFORT_PER_BYTE = 16
};

struct tok_regex {
  pcre2_code *code;
  bool jit;
};

struct tok_regex_scratch {
  pcre2_match_data *match;
  pcre2_match_context *context;
  pcre2_jit_stack *stack;
  tok_effort *effort; /* NULL: no limit */
  size_t start, at;   /* of the match under way: where it begins, and where the last callout was */
};

tri_status tok_regex_compile(const char *pattern, size_t len, bool literal, const tok_field *where, tok_regex **out,
                             tri_error *err) {
  tri_status st = TRI_OK;
  tri_buf spelled = {0};
  pcre2_compile_context *context = NULL;
  tok_regex *re = NULL;
  if (len > LONGEST_PATTERN)
    return tok_field_fail(where, TRI_TOO_LARGE, err, "the pattern has %zu bytes, the limit is %d", len,
                          LONGEST_PATTERN);
  if (literal)
    st = tri_buf_append(&spelled, pattern, len);
  else
    st = tok_dialect_translate(pattern, len, where, &spelled, err);
  if (st != TRI_OK) goto cleanup;

  st = TRI_NO_MEMORY;
  context = pcre2_compile_context_create(NULL);
  re = tri_calloc(1, sizeof *re);
  if (!context || !re) goto cleanup;
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int code = 0;
  PCRE2_SIZE at;
  TRI_FOREIGN_BEGIN();
  re->code = pcre2_compile((PCRE2_SPTR)(spelled.data ? spelled.data : ""), spelled.len, options, &code, &at, context);
  TRI_FOREIGN_END();
  if (!re->code) {
    PCRE2_UCHAR message[160] = "";
    pcre2_get_error_message(code, message, sizeof message);
    st = tok_field_fail(where, TRI_UNSUPPORTED, err, "the pattern is not supported: %s", (const char *)message);
    goto cleanup;
  }
  TRI_FOREIGN_BEGIN();
  re->jit = pcre2_jit_compile(re->code, PCRE2_JIT_COMPLETE) == 0;
  TRI_FOREIGN_END();
  *out = re;
  re = NULL;
  st = TRI_OK;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(where, err);
  tok_regex_destroy(re);
  pcre2_compile_context_free(context);
  tri_buf_free(&spelled);
  return st;
}

void tok_regex_destroy(tok_regex *re) {
  if (!re) return;
  pcre2_code_free(re->code);
  tri_free(re);
}

void tok_effort_begin(tok_effort *e, size_t text_len) { e->left = EFFORT_BASE + (uint64_t)EFFORT_PER_BYTE * text_len; }

/* Runs after each long repeat of a pattern (dialect.c puts the callouts there): the way from the last one is what the
 * repeat has moved over, forwards or in backtracking. */
static int count_effort(pcre2_callout_block *block, void *scratch) {
  tok_regex_scratch *s = scratch;
  if (block->start_match != s->start) s->start = s->at = block->start_match;
  size_t now = block->current_position, moved = now > s->at ? now - s->at : s->at - now;
  s->at = now;
  if (tok_effort_stopped(s->effort)) return PCRE2_ERROR_CALLOUT;
  if (s->effort->left <= moved) return PCRE2_ERROR_CALLOUT;
  s->effort->left -= moved + 1;
  return 0;
}

tri_status tok_regex_scratch_create(tok_effort *effort, tok_regex_scratch **out) {
  tok_regex_scratch *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->effort = effort;
  s->match = pcre2_match_data_create(1, NULL); /* the whole match is all that is asked for */
  s->context = pcre2_match_context_create(NULL);
  s->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_LIMIT, NULL); /* NULL where PCRE2 has no JIT */
  if (!s->match || !s->context) {
    tok_regex_scratch_destroy(s);
    return TRI_NO_MEMORY;
  }
  pcre2_jit_stack_assign(s->context, NULL, s->stack);
  pcre2_set_heap_limit(s->context, HEAP_LIMIT_KIB);
  if (effort) pcre2_set_callout(s->context, count_effort, s);
  *out = s;
  return TRI_OK;
}

void tok_regex_scratch_destroy(tok_regex_scratch *s) {
  if (!s) return;
  pcre2_jit_stack_free(s->stack);
  pcre2_match_context_free(s->context);
  pcre2_match_data_free(s->match);
  tri_free(s);
}

/* The JIT first; where its stack ends (a deep recursion over a long text) the interpreter runs the same match from the
 * start, on the heap. */
static int match(const tok_regex *re, tok_regex_scratch *s, const char *text, size_t len, size_t from, uint32_t steps) {
  int rc = PCRE2_ERROR_JIT_STACKLIMIT;
  pcre2_set_match_limit(s->context, steps);
  s->start = SIZE_MAX;
  if (re->jit) rc = pcre2_jit_match(re->code, (PCRE2_SPTR)text, len, from, 0, s->match, s->context);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(re->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match, s->context);
  return rc;
}

/* PCRE2 does not say how many steps a match took, only that they were too many: one that takes many is tried with few
 * and then with more, and what was in vain counts as effort. */
static int match_in_steps(const tok_regex *re, tok_regex_scratch *s, const char *text, size_t len, size_t from) {
  uint64_t most = MATCH_LIMIT_BASE + (uint64_t)MATCH_LIMIT_PER_BYTE * len;
  if (most > UINT32_MAX) most = UINT32_MAX;
  for (uint64_t steps = FREE_STEPS; steps < most; steps *= MORE_STEPS) {
    int rc = match(re, s, text, len, from, (uint32_t)steps);
    if (rc != PCRE2_ERROR_MATCHLIMIT) return rc;
    if (!s->effort) continue;
    if (tok_effort_stopped(s->effort) || s->effort->left <= steps * STEP_EFFORT) return PCRE2_ERROR_CALLOUT;
    s->effort->left -= steps * STEP_EFFORT;
  }
  return match(re, s, text, len, from, (uint32_t)most);
}

tri_status tok_regex_find(const tok_regex *re, tok_regex_scratch *s, const char *text, size_t len, size_t from,
                          size_t *start, size_t *end) {
  if (s->effort && tok_effort_stopped(s->effort)) return TRI_ABORTED;
  int rc = match_in_steps(re, s, text, len, from);
  if (rc == PCRE2_ERROR_NOMATCH) return TRI_NOT_FOUND;
  if (rc == PCRE2_ERROR_CALLOUT) return tok_effort_stopped(s->effort) ? TRI_ABORTED : TRI_NO_CAPACITY;
  if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
    return TRI_NO_CAPACITY;
  if (rc == PCRE2_ERROR_NOMEMORY) return TRI_NO_MEMORY;
  if (rc < 0) return TRI_INTERNAL;
  const PCRE2_SIZE *pair = pcre2_get_ovector_pointer(s->match);
  TRI_FOREIGN_WROTE(pair, 2 * sizeof *pair);
  *start = pair[0];
  *end = pair[1];
  return TRI_OK;
}

tri_status tok_regex_next(tok_regex_walk *w, size_t *start, size_t *end) {
  while (w->at <= w->len) {
    TRI_CHECK(tok_regex_find(w->regex, w->scratch, w->text, w->len, w->at, start, end));
    if (*start == *end && w->begun && *end == w->last_end) {
      size_t skip = 1;
      if (w->at < w->len) tok_utf8_decode(w->text + w->at, &skip);
      w->at += skip;
      continue;
    }
    w->begun = true;
    w->at = w->last_end = *end;
    return TRI_OK;
  }
  return TRI_NOT_FOUND;
}
