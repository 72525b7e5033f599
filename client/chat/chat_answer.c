/* SPDX-License-Identifier: Apache-2.0 */
/* `held` has the bytes that no state has used; each state says how many it uses, and that it waits by using none.
 *
 *   AT_BEGINNING -<think>-> IN_REASONING -</think>-> IN_TEXT -marker-> IN_CALL -whole-> BEHIND_CALL -end marker->
 * IN_TEXT
 *        \--anything else: IN_TEXT                          \--none after all: IN_TEXT      \--another call: IN_CALL
 *
 * A call has two stages. Until its name is given (`begun`) it may turn out to be text: `raw` keeps all of its bytes for
 * that. From then on clients have a part of it, which cannot be taken back: `raw` keeps only what was read since the
 * last part was given, and a call that breaks is completed with brackets, what is in `raw` becoming text.
 * White space between calls, and around them, is dropped; `blank` says that the text so far has nothing else. */
#include "client/chat/chat_answer.h"

#include <stdio.h>
#include <string.h>

#include "client/chat/call_scan.h"
#include "client/chat/channels.h"
#include "base/mem.h"

typedef enum state {
  AT_BEGINNING, /* <think> may come */
  IN_REASONING,
  IN_TEXT,
  IN_CALL,
  BEHIND_CALL, /* an end marker may come, or a separator of calls */
} state;

struct chat_answer {
  chat_answer_config config;
  chat_channels *channels; /* not NULL: the answer is made of channels, and all else here is unused */
  state state;
  tri_buf held;   /* bytes that nothing has been decided of */
  size_t blanks;  /* at their beginning, as far as they have been counted */
  bool blank;     /* of the text: only white space so far, since the beginning or the last call */
  bool bare;      /* the call has no marker */
  bool begun;     /* its name has been given */
  bool checked;   /* its name has been looked for among the tools, */
  bool known;     /* and found; one with a marker is known in any case */
  bool broken;    /* a call is not whole */
  tri_buf raw;    /* of the call: all bytes, and with its name those since a part was given; text if it ends there */
  call_scan scan; /* of the call */
  unsigned num_calls;
};

static const char think[] = "<think>", end_of_think[] = "</think>";

/* The markers of a form: of a call's beginning, and of its end. bare: what a call begins with where the first is left
 * out, anywhere in the text. */
static const struct markers {
  const char *name, *begin, *end, *bare;
} markers[] = {
    [CHAT_CALLS_NONE] = {.name = "none"},
    [CHAT_CALLS_HERMES] = {.name = "hermes", .begin = "<tool_call>", .end = "</tool_call>"},
    [CHAT_CALLS_MISTRAL] = {.name = "mistral", .begin = "[TOOL_CALLS]"},
    [CHAT_CALLS_LLAMA] = {.name = "llama", .begin = "<|python_tag|>"},
    [CHAT_CALLS_FUNCTION] = {.name = "function", .begin = "<function=", .end = "</function>"},
    [CHAT_CALLS_TAGS] = {.name = "qwen3_coder", .begin = "<tool_call>", .end = "</tool_call>", .bare = "<function="},
    [CHAT_CALLS_CHANNELS] = {.name = "harmony"},
};

bool chat_calls_by_name(const char *name, chat_calls *out) {
  for (int i = 0; i < CHAT_NUM_CALLS; i++)
    if (!strcmp(markers[i].name, name)) {
      *out = (chat_calls)i;
      return true;
    }
  return false;
}

const char *chat_calls_name(chat_calls calls) { return markers[calls].name; }

const chat_call_frame *chat_calls_frame(chat_calls calls) {
  static const chat_call_frame hermes = {.begin = "<tool_call>\n",
                                         .separator = "\n</tool_call>\n<tool_call>\n",
                                         .end = "\n</tool_call>",
                                         .begin_in_reasoning = "</think>\n\n<tool_call>\n",
                                         .arguments = "arguments"},
                               llama = {.begin = "",
                                        .separator = "; ",
                                        .end = "",
                                        .begin_in_reasoning = "</think>\n\n",
                                        .arguments = "parameters"};
  if (calls == CHAT_CALLS_HERMES) return &hermes;
  return calls == CHAT_CALLS_LLAMA ? &llama : NULL;
}

void chat_calls_names(char out[CHAT_CALLS_NAMES]) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < CHAT_NUM_CALLS && used < CHAT_CALLS_NAMES; i++)
    if (i != CHAT_CALLS_NONE)
      used += (size_t)snprintf(out + used, CHAT_CALLS_NAMES - used, "%s%s", used ? ", " : "", markers[i].name);
}

tri_status chat_answer_create(const chat_answer_config *config, chat_answer **out) {
  chat_answer *a = tri_calloc(1, sizeof *a);
  if (!a) return TRI_NO_MEMORY;
  a->config = *config;
  a->scan.is_text = config->is_text;
  a->scan.is_parameter = config->is_parameter;
  a->scan.ctx = config->ctx;
  a->blank = true;
  a->state = config->reasoning ? AT_BEGINNING : IN_TEXT;
  if (config->reasoning && config->in_reasoning) a->state = IN_REASONING;
  if (config->channels && chat_channels_create(config, &a->channels) != TRI_OK) {
    chat_answer_free(a);
    return TRI_NO_MEMORY;
  }
  *out = a;
  return TRI_OK;
}

void chat_answer_free(chat_answer *a) {
  if (!a) return;
  chat_channels_free(a->channels);
  tri_buf_free(&a->held);
  tri_buf_free(&a->raw);
  call_scan_free(&a->scan);
  tri_free(a);
}

bool chat_answer_calls(const chat_answer *a) {
  return a->channels ? chat_channels_calls(a->channels) : a->num_calls > 0 && !a->broken;
}

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

/* Returns whether s has a part of a word, with more of it to come. NULL: there is no word. */
static bool may_become(const char *s, size_t n, const char *word) {
  return word && may_begin(s, n, word) && !begins(s, n, word);
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
  a->begun = a->checked = false;
  a->known = true;
  a->raw.len = 0;
  call_scan_begin(&a->scan, forms[a->config.calls]);
}

/* A call begins after `size` bytes: its marker, none if it is bare, and white space before it. */
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

/* Finds the marker of a call, or the one that stands for it, as `find` does. *bare: it is that one. */
static size_t find_call(const chat_answer *a, const char *s, size_t n, bool *whole, bool *bare) {
  const struct markers *m = &markers[a->config.calls];
  bool other = false;
  *whole = *bare = false;
  size_t at = m->begin ? find(s, n, m->begin, whole) : n;
  size_t also = m->bare ? find(s, at, m->bare, &other) : at;
  if (also >= at) return at;
  *bare = true;
  *whole = other;
  return also;
}

static tri_status in_text(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  size_t blanks = a->blank ? count_blanks(a, s, n) : 0;
  bool whole = false, bare = false;
  if (a->blank && blanks == n) { /* to be dropped next to calls */
    if (last && !a->num_calls) give(a, CHAT_PART_TEXT, s, n);
    if (last) *used = n;
    return TRI_OK;
  }
  size_t end = blanks + find_call(a, s + blanks, n - blanks, &whole, &bare);
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
  *used = whole && !bare ? end + strlen(markers[a->config.calls].begin) : end;
  return whole ? begin_calls(a, bare, s + given, *used - given) : TRI_OK;
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
  if (a->bare && c->has_name && !a->checked) {
    a->checked = true;
    a->known = a->config.is_tool(a->config.ctx, c->name.data, c->name.len);
  }
  if (!a->known) return false;
  if (a->begun || !c->has_name || (!c->has_arguments && !ended)) return a->begun || !ended;
  if (a->bare && !c->has_arguments && a->config.calls != CHAT_CALLS_TAGS) return false;
  a->begun = true;
  a->num_calls++;
  a->config.give(a->config.ctx, CHAT_PART_CALL, c->name.data, c->name.len);
  if (!c->has_arguments) give(a, CHAT_PART_ARGUMENTS, "{}", 2);
  return true;
}

/* Forgets bytes of the call that clients have, as a name or arguments. */
static void forget(chat_answer *a) {
  size_t n = a->raw.len, last = a->scan.pending;
  if (!a->begun || n <= last) return;
  memmove(a->raw.data, a->raw.data + n - last, last);
  a->raw.len = last;
}

/* A call has ended: `next`, the last byte taken, has shown it, or the answer has ended. One that has not begun is
 * text, all of it. Of another one what clients have is made whole, and the rest is text; `next` is read again. */
static tri_status leave_call(chat_answer *a, bool next) {
  size_t n = a->raw.len - (a->begun && next), blanks = 0;
  bool broken = !next || (a->begun && a->scan.open);
  while (blanks < n && call_is_blank(a->raw.data[blanks])) blanks++;
  if (a->begun) {
    TRI_CHECK(call_scan_close(&a->scan));
    give_arguments(a);
    if (blanks == n) n = 0;
  }
  give(a, CHAT_PART_TEXT, a->raw.data, n);
  a->blank = a->begun && !n;
  a->state = a->blank ? BEHIND_CALL : IN_TEXT;
  if (broken) a->scan.in_list = false;
  a->broken = a->broken || broken;
  return TRI_OK;
}

static tri_status in_call(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  call_step step = CALL_GOES_ON;
  size_t i = 0;
  while (i < n && step == CALL_GOES_ON) {
    TRI_CHECK(call_scan_byte(&a->scan, s[i], &step));
    TRI_CHECK(tri_buf_append(&a->raw, &s[i], 1));
    i++;
    if (step != CALL_IS_NONE && !give_name(a, step == CALL_ENDS)) step = CALL_IS_NONE;
    forget(a);
  }
  *used = i;
  if (last && step == CALL_GOES_ON) {
    if (a->scan.form == CALL_TAGS) TRI_CHECK(call_tags_finish(&a->scan, &step));
    if (step == CALL_ENDS && !give_name(a, true)) step = CALL_IS_NONE;
  }
  give_arguments(a);
  if (step == CALL_ENDS) a->state = BEHIND_CALL;
  if (step == CALL_ENDS || (step == CALL_GOES_ON && !last)) return TRI_OK;
  if (step == CALL_IS_NONE && a->begun) *used = i - 1;
  return leave_call(a, step == CALL_IS_NONE);
}

static tri_status behind_call(chat_answer *a, const char *s, size_t n, bool last, size_t *used) {
  const char *end = markers[a->config.calls].end, *bare = markers[a->config.calls].bare;
  size_t blanks = count_blanks(a, s, n);
  bool over = blanks == n;
  if (over && !last) return TRI_OK;
  if (!over && !last && (may_become(s + blanks, n - blanks, end) || may_become(s + blanks, n - blanks, bare)))
    return TRI_OK;
  a->state = IN_TEXT;
  a->blank = true;
  if (over) return TRI_OK;
  char c = s[blanks];
  if (bare && begins(s + blanks, n - blanks, bare)) { /* another one in the same wrapper */
    *used = blanks;
    scan_next(a);
    return TRI_OK;
  }
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

/* Puts bytes back that a call has taken and that stand after it, at a place of the held bytes. */
static tri_status put_back(chat_answer *a, size_t at) {
  size_t n = a->scan.rest.len;
  if (!n) return TRI_OK;
  TRI_CHECK(tri_buf_reserve(&a->held, n));
  memmove(a->held.data + at + n, a->held.data + at, a->held.len - at);
  memcpy(a->held.data + at, a->scan.rest.data, n);
  a->held.len += n;
  a->scan.rest.len = 0;
  return TRI_OK;
}

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
    case IN_CALL:
      TRI_TRY(in_call(a, s, n, last, &used));
      TRI_TRY(put_back(a, done + used));
      break;
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
  if (a->channels) return chat_channels_push(a->channels, s, len);
  TRI_CHECK(tri_buf_append(&a->held, s, len));
  return run(a, false);
}

tri_status chat_answer_finish(chat_answer *a, bool by_model) {
  if (a->channels) return chat_channels_finish(a->channels, by_model);
  TRI_CHECK(tri_buf_reserve(&a->held, 1)); /* so that it has an address */
  return run(a, true);
}
