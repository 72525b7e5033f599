/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chat/chat_answer.h"

#include <string.h>

#include "client/chat/call_scan.h"
#include "runtime/base/mem.h"

typedef enum state {
  AT_BEGINNING, /* <think> may come */
  IN_REASONING,
  IN_TEXT,
  IN_CALL,
  BEHIND_CALL, /* an end marker may come, or a separator of calls */
} state;

struct chat_answer {
  chat_answer_config config;
  state state;
  tri_buf held;   /* bytes that nothing has been decided of */
  size_t blanks;  /* at their beginning, as far as they have been counted */
  bool blank;     /* of the text: only white space so far, since the beginning or the last call */
  bool bare;      /* the call has no marker */
  bool begun;     /* its name has been given */
  tri_buf raw;    /* all of one that has not begun, to be text if it is none */
  call_scan scan; /* of the call */
  unsigned num_calls;
};

static const char think[] = "<think>", end_of_think[] = "</think>";

/* The markers of a form: of a call's beginning, and of its end. */
static const struct markers {
  const char *name, *begin, *end;
} markers[] = {
    [CHAT_CALLS_NONE] = {"none", NULL, NULL},
    [CHAT_CALLS_HERMES] = {"hermes", "<tool_call>", "</tool_call>"},
    [CHAT_CALLS_MISTRAL] = {"mistral", "[TOOL_CALLS]", NULL},
    [CHAT_CALLS_LLAMA] = {"llama", "<|python_tag|>", NULL},
    [CHAT_CALLS_FUNCTION] = {"function", "<function=", "</function>"},
    [CHAT_CALLS_TAGS] = {"qwen3_coder", "<tool_call>", "</tool_call>"},
};

bool chat_calls_by_name(const char *name, chat_calls *out) {
  for (int i = 0; i < CHAT_NUM_CALLS; i++)
    if (!strcmp(markers[i].name, name)) {
      *out = (chat_calls)i;
      return true;
    }
  return false;
}

tri_status chat_answer_create(const chat_answer_config *config, chat_answer **out) {
  chat_answer *a = tri_calloc(1, sizeof *a);
  if (!a) return TRI_NO_MEMORY;
  a->config = *config;
  a->scan.is_text = config->is_text;
  a->scan.ctx = config->ctx;
  a->blank = true;
  a->state = config->reasoning ? AT_BEGINNING : IN_TEXT;
  if (config->reasoning && config->in_reasoning) a->state = IN_REASONING;
  *out = a;
  return TRI_OK;
}

void chat_answer_free(chat_answer *a) {
  if (!a) return;
  tri_buf_free(&a->held);
  tri_buf_free(&a->raw);
  call_scan_free(&a->scan);
  tri_free(a);
}

unsigned chat_answer_num_calls(const chat_answer *a) { return a->num_calls; }

static void give(chat_answer *a, chat_part part, const char *s, size_t len) {
  if (len) a->config.give(a->config.ctx, part, s, len);
}

/* Returns how many blanks the held bytes begin with. Those that have been counted are not looked at again, as an answer
 * may have nothing else. */
static size_t count_blanks(chat_answer *a, const char *s, size_t n) {
  while (a->blanks < n && call_is_blank(s[a->blanks])) a->blanks++;
  return a->blanks;
}

/* Returns whether s begins with a word, or with as much of it as s has. */
static bool may_begin(const char *s, size_t n, const char *word) {
  size_t len = strlen(word);
  return !memcmp(s, word, n < len ? n : len);
}

static bool begins(const char *s, size_t n, const char *word) {
  return n >= strlen(word) && !memcmp(s, word, strlen(word));
}

/* Returns where a word is, or where what may become it begins: the end where neither is. *whole tells which. */
static size_t find(const char *s, size_t n, const char *word, bool *whole) {
  for (size_t i = 0; i < n; i++) {
    const char *at = memchr(s + i, word[0], n - i);
    if (!at) break;
    i = (size_t)(at - s);
    if (!may_begin(at, n - i, word)) continue;
    *whole = begins(at, n - i, word);
    return i;
  }
  *whole = false;
  return n;
}

/* ---- the states: each says how many of the held bytes it has used; none, and no other state: it waits for more ----
 */

static size_t at_beginning(chat_answer *a, const char *s, size_t n, bool last) {
  size_t blanks = count_blanks(a, s, n);
  bool possible = blanks == n || may_begin(s + blanks, n - blanks, think);
  bool there = begins(s + blanks, n - blanks, think);
  if (possible && !there && !last) return 0;
  a->state = there ? IN_REASONING : IN_TEXT;
  return there ? blanks + strlen(think) : 0;
}

static size_t in_reasoning(chat_answer *a, const char *s, size_t n, bool last) {
  bool whole;
  size_t end = find(s, n, end_of_think, &whole);
  if (last && !whole) end = n;
  give(a, CHAT_PART_REASONING, s, end);
  if (!whole) return end;
  a->state = IN_TEXT;
  return end + strlen(end_of_think);
}

static void scan_next(chat_answer *a) {
  static const call_form forms[CHAT_NUM_CALLS] = {
      [CHAT_CALLS_MISTRAL] = CALL_OBJECT_OR_NAME, [CHAT_CALLS_FUNCTION] = CALL_NAME, [CHAT_CALLS_TAGS] = CALL_TAGS};
  a->state = IN_CALL;
  a->begun = false;
  a->raw.len = 0;
  call_scan_begin(&a->scan, forms[a->config.calls]);
}

/* A call begins behind `size` bytes: its marker, none if it is bare, and white space before it. */
static tri_status begin_calls(chat_answer *a, bool bare, const char *s, size_t size) {
  a->bare = bare;
  a->scan.in_list = false;
  scan_next(a);
  return tri_buf_append(&a->raw, s, size);
}

/* Without a marker a call can only be what the text begins with. */
static bool may_be_bare(const chat_answer *a, char c) {
  return (a->config.calls == CHAT_CALLS_LLAMA && c == '{') || (a->config.calls == CHAT_CALLS_MISTRAL && c == '[');
}

static tri_status in_text(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  const char *marker = markers[a->config.calls].begin;
  size_t blanks = a->blank ? count_blanks(a, s, n) : 0;
  bool whole = false;
  if (a->blank && blanks == n) { /* to be dropped beside calls */
    if (last && !a->num_calls) give(a, CHAT_PART_TEXT, s, n);
    if (last) *used = n;
    return TRI_OK;
  }
  size_t end = marker ? blanks + find(s + blanks, n - blanks, marker, &whole) : n;
  bool at_once = a->blank && end == blanks;
  if (at_once && !whole && end < n && !last) return TRI_OK; /* perhaps a marker */
  if (a->blank && !(at_once && whole) && may_be_bare(a, s[blanks])) {
    *used = blanks;
    return begin_calls(a, true, s, blanks);
  }
  if (last && !whole) end = n;
  size_t given = at_once && whole ? 0 : end;
  give(a, CHAT_PART_TEXT, s, given);
  a->blank = a->blank && !given;
  *used = whole ? end + strlen(marker) : end;
  return whole ? begin_calls(a, false, s + given, *used - given) : TRI_OK;
}

/* ---- calls ---- */

static void give_arguments(chat_answer *a) {
  if (!a->begun) return;
  give(a, CHAT_PART_ARGUMENTS, a->scan.arguments.data, a->scan.arguments.len);
  a->scan.arguments.len = 0;
}

/* Gives the name once it and the beginning of the arguments, or their absence, are known. Returns whether it is a call
 * as far as one can tell. */
static bool give_name(chat_answer *a, bool ended) {
  const call_scan *c = &a->scan;
  if (a->begun || !c->has_name || (!c->has_arguments && !ended)) return a->begun || !ended;
  bool known = !a->bare || (c->has_arguments && a->config.is_tool(a->config.ctx, c->name.data, c->name.len));
  if (!known) return false;
  a->begun = true;
  a->num_calls++;
  a->config.give(a->config.ctx, CHAT_PART_CALL, c->name.data, c->name.len);
  if (!c->has_arguments) give(a, CHAT_PART_ARGUMENTS, "{}", 2);
  return true;
}

/* A call that turns out to be none is text, all of it. */
static void leave_call(chat_answer *a) {
  if (!a->begun) give(a, CHAT_PART_TEXT, a->raw.data, a->raw.len);
  a->blank = a->begun;
  a->state = IN_TEXT;
}

static tri_status in_call(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  call_step step = CALL_GOES_ON;
  size_t i = 0;
  while (i < n && step == CALL_GOES_ON) {
    TRI_CHECK(call_scan_byte(&a->scan, s[i], &step));
    if (!a->begun) TRI_CHECK(tri_buf_append(&a->raw, &s[i], 1));
    i++;
    if (step != CALL_IS_NONE && !give_name(a, step == CALL_ENDS)) step = CALL_IS_NONE;
  }
  *used = i;
  give_arguments(a);
  if (step == CALL_ENDS) a->state = BEHIND_CALL;
  if (step == CALL_IS_NONE || (last && step == CALL_GOES_ON)) leave_call(a);
  return TRI_OK;
}

static tri_status behind_call(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  const char *end = markers[a->config.calls].end;
  size_t blanks = count_blanks(a, s, n);
  bool over = blanks == n;
  if (over && !last) return TRI_OK;
  if (end && !over && may_begin(s + blanks, n - blanks, end) && !begins(s + blanks, n - blanks, end) && !last)
    return TRI_OK;
  a->state = IN_TEXT;
  a->blank = true;
  if (over) return TRI_OK;
  char c = s[blanks];
  if (end && begins(s + blanks, n - blanks, end)) {
    *used = blanks + strlen(end);
  } else if ((a->scan.in_list && c == ',') || (a->config.calls == CHAT_CALLS_LLAMA && c == ';')) {
    *used = blanks + 1;
    scan_next(a);
    return tri_buf_append(&a->raw, &c, 1);
  } else if (a->scan.in_list && c == ']') {
    *used = blanks + 1;
  }
  return TRI_OK;
}

/* ---- all of them ---- */

/* Lets the states use up what they can. */
static tri_status run(chat_answer *a, bool last) {
  size_t done = 0;
  tri_status st = TRI_OK;
  for (;;) {
    size_t n = a->held.len - done, used = 0;
    state before = a->state;
    if (!n && !(last && before == IN_CALL)) break;
    const char *s = a->held.data + done;
    switch (before) {
    case AT_BEGINNING: used = at_beginning(a, s, n, last); break;
    case IN_REASONING: used = in_reasoning(a, s, n, last); break;
    case IN_TEXT: TRI_TRY(in_text(a, s, n, last, &used)); break;
    case IN_CALL: TRI_TRY(in_call(a, s, n, last, &used)); break;
    case BEHIND_CALL: TRI_TRY(behind_call(a, s, n, last, &used)); break;
    }
    done += used;
    if (used) a->blanks = 0;
    if (!used && a->state == before) break;
  }
cleanup:
  if (done) memmove(a->held.data, a->held.data + done, a->held.len - done);
  a->held.len -= done;
  return st;
}

tri_status chat_answer_push(chat_answer *a, const char *s, size_t len) {
  TRI_CHECK(tri_buf_append(&a->held, s, len));
  return run(a, false);
}

tri_status chat_answer_finish(chat_answer *a) {
  TRI_CHECK(tri_buf_reserve(&a->held, 1)); /* so that it has an address */
  return run(a, true);
}
