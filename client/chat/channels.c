/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chat/channels.h"

#include <string.h>

#include "client/chat/call_scan.h"
#include "runtime/base/buf.h"
#include "runtime/base/mem.h"

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
  chat_part part; /* of the body that goes on */
  bool fresh;     /* nothing of it has been given */
  bool given[2];  /* there is text; there is reasoning */
  unsigned num_calls;
  bool cut;                       /* a call is not whole */
  bool in_string, escaped, ended; /* of the call's arguments */
  unsigned depth;
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
  tri_free(c);
}

bool chat_channels_calls(const chat_channels *c) { return c->num_calls > 0 && !c->cut; }

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

/* Follows the JSON of arguments, to know whether it is whole. */
static void follow(chat_channels *c, const char *s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    bool quote = s[i] == '"' && !c->escaped;
    c->escaped = c->in_string && s[i] == '\\' && !c->escaped;
    if (quote) c->in_string = !c->in_string;
    if (c->in_string || quote) continue;
    if (s[i] == '{' || s[i] == '[') c->depth++;
    if ((s[i] == '}' || s[i] == ']') && c->depth) c->ended = --c->depth == 0;
  }
}

/* Gives bytes of a body. Messages of one kind have a line end between them; white space before arguments goes. */
static void give(chat_channels *c, const char *s, size_t n) {
  while (c->part == CHAT_PART_ARGUMENTS && c->fresh && n && call_is_blank(*s)) {
    s++;
    n--;
  }
  if (!n) return;
  if (c->part == CHAT_PART_ARGUMENTS) {
    follow(c, s, n);
  } else {
    bool *given = &c->given[c->part == CHAT_PART_REASONING];
    if (c->fresh && *given) c->config.give(c->config.ctx, c->part, "\n", 1);
    *given = true;
  }
  c->fresh = false;
  c->config.give(c->config.ctx, c->part, s, n);
}

/* A call without arguments has an empty object. Another one is whole if its object is. */
static void end_body(chat_channels *c) {
  if (c->part != CHAT_PART_ARGUMENTS) return;
  if (c->fresh) c->config.give(c->config.ctx, c->part, "{}", 2);
  if (!c->fresh && !c->ended) c->cut = true;
}

static size_t in_body(chat_channels *c, const char *s, size_t n, bool last) {
  int which;
  size_t end = find_end(s, n, &which);
  if (last && which == NUM_ENDS) end = n;
  give(c, s, end);
  if (which == NUM_ENDS) {
    if (last) end_body(c);
    return end;
  }
  end_body(c);
  c->state = BETWEEN;
  return which < NUM_CLOSING ? end + strlen(ends[which]) : end;
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

static void begin_call(chat_channels *c, const char *name, size_t len) {
  c->part = CHAT_PART_ARGUMENTS;
  c->in_string = c->escaped = c->ended = false;
  c->depth = 0;
  c->num_calls++;
  c->config.give(c->config.ctx, CHAT_PART_CALL, name, len);
}

/* A recipient is a tool of the request by its name, with functions. before it or without. */
static void begin_body(chat_channels *c, const header *h) {
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
  bool calls = c->config.calls == CHAT_CALLS_CHANNELS && name && len;
  if (calls && (prefixed || c->config.is_tool(c->config.ctx, name, len)))
    begin_call(c, name, len);
  else if (len || is_word(h->channel, h->channel_len, "analysis"))
    c->part = CHAT_PART_REASONING;
  else
    c->part = CHAT_PART_TEXT;
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

static size_t in_header(chat_channels *c, const char *s, size_t n, bool last) {
  const size_t window = n < LONGEST_HEADER ? n : LONGEST_HEADER;
  const char *end = memmem(s, window, message, strlen(message));
  if (!c->begun && n && !may_be_header(s, n, last)) {
    c->begun = true;
    begin_body(c, &(header){0});
    return 0;
  }
  if (end) {
    header h = read_header(s, (size_t)(end - s));
    c->begun = true;
    begin_body(c, &h);
    return (size_t)(end - s) + strlen(message);
  }
  if (last) return n; /* of a header that goes nowhere nothing is shown */
  if (n < LONGEST_HEADER) return 0;
  c->begun = true;
  return LONGEST_HEADER - strlen(message); /* its beginning may stand after that */
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

static tri_status run(chat_channels *c, bool last) {
  size_t done = 0;
  for (;;) {
    size_t n = c->held.len - done, used = 0;
    state before = c->state;
    const char *s = c->held.data + done;
    if (before == IN_HEADER) used = in_header(c, s, n, last);
    if (before == IN_BODY) used = in_body(c, s, n, last);
    if (before == BETWEEN) used = between(c, s, n, last);
    done += used;
    if (c->state == before && (!used || done == c->held.len)) break;
  }
  memmove(c->held.data, c->held.data + done, c->held.len - done);
  c->held.len -= done;
  return TRI_OK;
}

tri_status chat_channels_push(chat_channels *c, const char *s, size_t len) {
  TRI_CHECK(tri_buf_append(&c->held, s, len));
  return c->held.len ? run(c, false) : TRI_OK;
}

tri_status chat_channels_finish(chat_channels *c) {
  TRI_CHECK(tri_buf_reserve(&c->held, 1)); /* so that it has an address */
  return run(c, true);
}
