/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes are collected in `held` and the states use them up from its beginning; one that may be the first part of a
 * marker waits for the rest. IN_HEADER -<|message|>-> IN_BODY -marker-> BETWEEN -<|start|> or <|channel|>-> IN_HEADER.
 * A body is given as it comes, to the part that its header says; one of a call passes through call_arguments.c. A
 * header that has no end within LONGEST_HEADER bytes is dropped up to there, so that memory is bounded. */
#include "client/chat/channels.h"

#include <string.h>

#include "client/chat/call_scan.h"
#include "base/buf.h"
#include "base/mem.h"

enum { LONGEST_HEADER = 1024 };

typedef enum state {
  IN_HEADER, /* role, channel and recipient, up to <|message|> */
  IN_BODY,
  BETWEEN, /* a message has ended */
} state;

struct chat_channels {
  chat_answer_config config;
  state state;
  bool begun;     /* something other than white space has come */
  tri_buf held;   /* bytes that nothing has been decided of; of a header all of it */
  chat_part part; /* of the body under way */
  bool fresh;     /* nothing of it has been given */
  bool given[2];  /* there is text; there is reasoning */
  unsigned num_calls;
  bool broken;              /* a call is not whole */
  bool told;                /* the name of the call has been given */
  bool behind;              /* the body is what stands after the call in its message */
  tri_buf name, out;        /* of the call; arguments to be given */
  call_arguments arguments; /* of the call */
};

static const char start[] = "<|start|>", channel[] = "<|channel|>", message[] = "<|message|>",
                  constrain[] = "<|constrain|>";
static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", start, channel};
enum { NUM_ENDS = sizeof ends / sizeof *ends, NUM_CLOSING = 3 };

tri_status chat_channels_create(const chat_answer_config *config, chat_channels **out) {
  chat_channels *c = tri_calloc(1, sizeof *c);
  if (!c) return TRI_NO_MEMORY;
  c->config = *config;
  c->part = CHAT_PART_TEXT;
  c->fresh = true;
  if (config->in_text) c->state = IN_BODY;
  *out = c;
  return TRI_OK;
}

void chat_channels_free(chat_channels *c) {
  if (!c) return;
  tri_buf_free(&c->held);
  tri_buf_free(&c->name);
  tri_buf_free(&c->out);
  call_arguments_free(&c->arguments);
  tri_free(c);
}

bool chat_channels_calls(const chat_channels *c) { return c->num_calls > 0 && !c->broken; }

/* ---- texts ---- */

static bool begins(const char *s, size_t n, const char *word) {
  return n >= strlen(word) && !memcmp(s, word, strlen(word));
}

/* Returns whether s is the beginning of a word, and not all of it. */
static bool is_part(const char *s, size_t n, const char *word) { return n < strlen(word) && !memcmp(s, word, n); }

/* Returns where the first of the markers is, and sets *which; without one where the end of s may become one. */
static size_t find_end(const char *s, size_t n, int *which) {
  for (size_t i = 0; i < n; i++) {
    const char *at = memchr(s + i, '<', n - i);
    if (!at) break;
    i = (size_t)(at - s);
    for (*which = 0; *which < NUM_ENDS; ++*which)
      if (begins(at, n - i, ends[*which])) return i;
    for (int k = 0; k < NUM_ENDS; k++)
      if (is_part(at, n - i, ends[k])) return i;
  }
  *which = NUM_ENDS;
  return n;
}

/* ---- bodies ---- */

/* Gives bytes of a text. Messages of one kind have a line end between them. */
static void give_text(chat_channels *c, const char *s, size_t n) {
  bool *given = &c->given[c->part == CHAT_PART_REASONING];
  if (!n) return;
  if (c->fresh && *given) c->config.give(c->config.ctx, c->part, "\n", 1);
  *given = true;
  c->fresh = false;
  c->config.give(c->config.ctx, c->part, s, n);
}

/* Gives the arguments that there are, and before the first of them the name. */
static void give_call(chat_channels *c) {
  if (!c->out.len) return;
  if (!c->told) {
    c->told = true;
    c->num_calls++;
    c->config.give(c->config.ctx, CHAT_PART_CALL, c->name.data, c->name.len);
  }
  c->config.give(c->config.ctx, CHAT_PART_ARGUMENTS, c->out.data, c->out.len);
  c->out.len = 0;
}

/* The call ends here; the rest of the message is text, with what its arguments have held. */
static tri_status leave_call(chat_channels *c, bool whole) {
  if (c->told && !whole) {
    c->broken = true;
    TRI_CHECK(call_arguments_close(&c->arguments, &c->out));
    give_call(c);
  }
  c->part = CHAT_PART_TEXT;
  c->fresh = true;
  c->behind = whole;
  give_text(c, c->arguments.held.data, whole ? 0 : c->arguments.held.len);
  return TRI_OK;
}

/* Takes arguments, as many bytes as are some. */
static tri_status take_arguments(chat_channels *c, const char *s, size_t n, size_t *used) {
  call_step step = CALL_GOES_ON;
  size_t i = 0;
  while (i < n && step == CALL_GOES_ON) {
    TRI_CHECK(call_arguments_byte(&c->arguments, s[i], &c->out, &step));
    i += step != CALL_IS_NONE;
  }
  c->fresh = c->fresh && !i;
  *used = i;
  give_call(c);
  return step == CALL_GOES_ON ? TRI_OK : leave_call(c, step == CALL_ENDS);
}

/* Gives bytes of a body. White space around arguments goes. */
static tri_status give(chat_channels *c, const char *s, size_t n) {
  while (n) {
    size_t used = n;
    bool around = c->fresh && (c->part == CHAT_PART_ARGUMENTS || c->behind);
    if (around && call_is_blank(*s))
      used = 1;
    else if (c->part == CHAT_PART_ARGUMENTS)
      TRI_CHECK(take_arguments(c, s, n, &used));
    else
      give_text(c, s, n);
    s += used;
    n -= used;
  }
  return TRI_OK;
}

/* A call that has nothing where its arguments stand has an empty object, unless it is cut. */
static tri_status end_body(chat_channels *c, bool cut) {
  if (c->part != CHAT_PART_ARGUMENTS) return TRI_OK;
  c->broken = c->broken || cut;
  if (!c->fresh) return leave_call(c, false);
  if (!cut) TRI_CHECK(tri_buf_append(&c->out, "{}", 2));
  give_call(c);
  return TRI_OK;
}

static tri_status in_body(chat_channels *c, const char *s, size_t n, bool last, bool by_model, size_t *used) {
  int which;
  size_t end = find_end(s, n, &which);
  if (last && which == NUM_ENDS) end = n;
  TRI_CHECK(give(c, s, end));
  *used = which < NUM_CLOSING ? end + strlen(ends[which]) : end;
  if (which == NUM_ENDS) return last ? end_body(c, !by_model || !c->fresh) : TRI_OK;
  c->state = BETWEEN;
  return end_body(c, false);
}

/* ---- headers ---- */

typedef struct header {
  const char *channel, *recipient;
  size_t channel_len, recipient_len;
} header;

static size_t word_length(const char *s, size_t n) {
  size_t len = 0;
  while (len < n && !call_is_blank(s[len]) && s[len] != '<') len++;
  return len;
}

/* Reads the header that ends at n. What stands before another beginning, or before the end of a message, is none of it.
 */
static header read_header(const char *s, size_t n) {
  static const char to[] = "to=";
  header h = {0};
  for (size_t i = 0; i < n; i++) {
    for (int k = 0; k < NUM_ENDS; k++)
      if (ends[k] != channel && begins(s + i, n - i, ends[k])) h = (header){0};
    bool word = !i || call_is_blank(s[i - 1]) || s[i - 1] == '>';
    if (begins(s + i, n - i, channel)) {
      h.channel = s + i + strlen(channel);
      h.channel_len = word_length(h.channel, n - i - strlen(channel));
    } else if (word && begins(s + i, n - i, to)) {
      h.recipient = s + i + strlen(to);
      h.recipient_len = word_length(h.recipient, n - i - strlen(to));
    }
  }
  return h;
}

static bool is_word(const char *s, size_t n, const char *word) { return n == strlen(word) && !memcmp(s, word, n); }

static tri_status begin_call(chat_channels *c, const char *name, size_t len) {
  c->part = CHAT_PART_ARGUMENTS;
  c->told = false;
  c->name.len = 0;
  call_arguments_begin(&c->arguments);
  return tri_buf_append(&c->name, name, len);
}

/* A recipient is a tool of the request by its name, with functions. before it or without. */
static tri_status begin_body(chat_channels *c, const header *h) {
  static const char functions[] = "functions.";
  const char *name = h->recipient;
  size_t len = h->recipient_len;
  bool prefixed = name && len > strlen(functions) && begins(name, len, functions);
  if (prefixed) {
    name += strlen(functions);
    len -= strlen(functions);
  }
  c->state = IN_BODY;
  c->fresh = true;
  c->behind = false;
  bool calls = c->config.calls == CHAT_CALLS_CHANNELS && name && len;
  if (calls && (prefixed || c->config.is_tool(c->config.ctx, name, len))) return begin_call(c, name, len);
  if (len || is_word(h->channel, h->channel_len, "analysis"))
    c->part = CHAT_PART_REASONING;
  else
    c->part = CHAT_PART_TEXT;
  return TRI_OK;
}

/* Returns whether the answer begins with a header: after white space comes a marker or a recipient, or a part of one
 * that may still become it. Else it is a text without a header. */
static bool may_be_header(const char *s, size_t n, bool last) {
  static const char *const firsts[] = {channel, message, constrain, start, "to="};
  while (n && call_is_blank(*s)) {
    s++;
    n--;
  }
  for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++)
    if (begins(s, n, firsts[i]) || (!last && is_part(s, n, firsts[i]))) return true;
  return false;
}

static tri_status in_header(chat_channels *c, const char *s, size_t n, bool last, size_t *used) {
  const size_t window = n < LONGEST_HEADER ? n : LONGEST_HEADER;
  const char *end = memmem(s, window, message, strlen(message));
  *used = 0;
  if (!c->begun && n && !may_be_header(s, n, last)) {
    c->begun = true;
    return begin_body(c, &(header){0});
  }
  if (end) {
    header h = read_header(s, (size_t)(end - s));
    c->begun = true;
    *used = (size_t)(end - s) + strlen(message);
    return begin_body(c, &h);
  }
  if (last) *used = n; /* of a header that goes nowhere nothing is shown */
  if (last || n < LONGEST_HEADER) return TRI_OK;
  c->begun = true;
  *used = LONGEST_HEADER - strlen(message); /* its beginning may stand after that */
  return TRI_OK;
}

/* Between messages nothing is said: what stands there goes. */
static size_t between(chat_channels *c, const char *s, size_t n, bool last) {
  int which;
  size_t at = find_end(s, n, &which);
  if (which < NUM_CLOSING) return at + strlen(ends[which]);
  if (which == NUM_ENDS) return last ? n : at;
  c->state = IN_HEADER;
  return at;
}

/* by_model: the model has ended the answer, and not a limit. */
static tri_status run(chat_channels *c, bool last, bool by_model) {
  size_t done = 0;
  tri_status st = TRI_OK;
  for (;;) {
    size_t n = c->held.len - done, used = 0;
    state before = c->state;
    const char *s = c->held.data + done;
    if (before == IN_HEADER) TRI_TRY(in_header(c, s, n, last, &used));
    if (before == IN_BODY) TRI_TRY(in_body(c, s, n, last, by_model, &used));
    if (before == BETWEEN) used = between(c, s, n, last);
    done += used;
    if (c->state == before && (!used || done == c->held.len)) break;
  }
cleanup:
  memmove(c->held.data, c->held.data + done, c->held.len - done);
  c->held.len -= done;
  return st;
}

tri_status chat_channels_push(chat_channels *c, const char *s, size_t len) {
  TRI_CHECK(tri_buf_append(&c->held, s, len));
  return c->held.len ? run(c, false, false) : TRI_OK;
}

tri_status chat_channels_finish(chat_channels *c, bool by_model) {
  TRI_CHECK(tri_buf_reserve(&c->held, 1)); /* so that it has an address */
  return run(c, true, by_model);
}
