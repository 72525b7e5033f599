/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/decode_steps.h"

#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/bytelevel.h"
#include "text/unicode/unicode.h"

/* A step hands on what no later input can change and keeps the rest in its state: that is how a stream gives text
 * early and a whole decode gives the same text. What a step keeps is bounded by the limit of its buffers. */
#define REPLACEMENT "\xef\xbf\xbd"

/* ---- runs ---- */

void tok_decode_step_free(tok_decode_step *step) {
  tok_replace_destroy(step->replace);
  for (size_t i = 0; i < TOK_CLEANUPS; i++) tok_replace_destroy(step->cleanup[i]);
  tri_buf_free(&step->affix);
}

tri_status tok_decode_run_init(tok_decode_run *r, const tok_decode_step *steps, size_t count, size_t limit) {
  r->steps = steps;
  r->count = count;
  r->states = tri_calloc(count ? count : 1, sizeof *r->states);
  if (!r->states) return TRI_NO_MEMORY;
  for (size_t i = 0; i < count; i++) r->states[i].kept.max = r->states[i].out.max = limit;
  return TRI_OK;
}

void tok_decode_run_free(tok_decode_run *r) {
  for (size_t i = 0; r->states && i < r->count; i++) {
    tri_buf_free(&r->states[i].kept);
    tri_buf_free(&r->states[i].out);
  }
  tri_free(r->states);
  tok_regex_scratch_destroy(r->regex);
  *r = (tok_decode_run){0};
}

tri_status tok_decode_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  if (!len) return TRI_OK;
  return step == r->count ? tri_buf_append(r->out, text, len) : r->steps[step].kind->text(r, step, text, len);
}

tri_status tok_decode_end(tok_decode_run *r, size_t step) {
  return step == r->count ? TRI_OK : r->steps[step].kind->end(r, step);
}

tri_status tok_decode_end_all(tok_decode_run *r) {
  for (size_t i = 0; i < r->count; i++) {
    tok_decode_state *s = &r->states[i];
    TRI_CHECK(r->steps[i].kind->finish ? r->steps[i].kind->finish(r, i) : TRI_OK);
    s->kept.len = s->out.len = s->a = 0;
    s->b = 0;
    s->flag = s->flag2 = false;
  }
  return TRI_OK;
}

/* Hands a step's output to the next one. */
static tri_status hand_on(tok_decode_run *r, size_t step) {
  tri_buf *out = &r->states[step].out;
  tri_status st = tok_decode_text(r, step + 1, out->data, out->len);
  out->len = 0;
  return st;
}

/* A whole token enters the next step. */
static tri_status give_token(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tri_status st = tok_decode_text(r, step + 1, text, len);
  return st == TRI_OK ? tok_decode_end(r, step + 1) : st;
}

/* For steps that want the whole token: kept collects it. */
static tri_status keep_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  return tri_buf_append(&r->states[step].kept, text, len);
}

static tri_status ignore_end(tok_decode_run *r, size_t step) {
  (void)r;
  (void)step;
  return TRI_OK;
}

static tri_status finish_token(tok_decode_run *r, size_t step) { return tok_decode_end(r, step + 1); }

/* ---- ByteLevel: characters to bytes, then bytes to text ---- */

/* A token with a character outside the alphabet (an added one) is taken as it is written, whole. */
static tri_status end_byte_level(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  TRI_CHECK(tri_buf_reserve(&s->out, s->kept.len));
  for (size_t i = 0, n; i < s->kept.len; i += n) {
    int byte = tok_bytelevel_byte(tok_utf8_decode(s->kept.data + i, &n));
    if (byte < 0) {
      s->out.len = 0;
      TRI_CHECK(tri_buf_append(&s->out, s->kept.data, s->kept.len));
      break;
    }
    s->out.data[s->out.len++] = (char)byte;
  }
  s->kept.len = 0;
  TRI_CHECK(hand_on(r, step));
  return tok_decode_end(r, step + 1);
}

const tok_decode_kind tok_decode_byte_level = {.text = keep_text, .end = end_byte_level, .per_token = true};

/* How many bytes at the end of s are an unfinished character. */
static size_t unfinished(const char *s, size_t n) {
  for (size_t back = 1; back <= 3 && back <= n; back++) {
    size_t len;
    unsigned char c = (unsigned char)s[n - back];
    if ((c & 0xc0) == 0x80) continue;
    return tok_utf8_step(s + n - back, back, &len) == TOK_UTF8_TRUNCATED ? back : 0;
  }
  return 0;
}

/* kept: the beginning of a character whose end has not come yet. All is one token from here on. */
static tri_status repair_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tok_decode_state *s = &r->states[step];
  TRI_CHECK(tri_buf_append(&s->kept, text, len));
  size_t tail = unfinished(s->kept.data, s->kept.len), whole = s->kept.len - tail;
  TRI_CHECK(tok_utf8_append_lossy(&s->out, s->kept.data, whole));
  if (tail) memmove(s->kept.data, s->kept.data + whole, tail);
  s->kept.len = tail;
  return hand_on(r, step);
}

static tri_status finish_repair(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  TRI_CHECK(tok_utf8_append_lossy(&s->out, s->kept.data, s->kept.len));
  TRI_CHECK(hand_on(r, step));
  return tok_decode_end(r, step + 1);
}

const tok_decode_kind tok_decode_repair = {.text = repair_text, .end = ignore_end, .finish = finish_repair};

/* ---- ByteFallback ---- */

/* "<0x" two hexadecimal digits ">". That a sign may stand for the first digit is how the reference's number parser
 * reads it. */
static bool is_byte_token(const char *s, size_t len, unsigned char *byte) {
  unsigned value = 0;
  if (len != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return false;
  for (size_t i = 3; i < 5; i++) {
    char c = s[i];
    if (c >= '0' && c <= '9')
      value = value * 16 + (unsigned)(c - '0');
    else if (c >= 'a' && c <= 'f')
      value = value * 16 + (unsigned)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      value = value * 16 + (unsigned)(c - 'A' + 10);
    else if (c != '+' || i != 3)
      return false;
  }
  *byte = (unsigned char)value;
  return true;
}

/* A run of byte tokens is a text if all of it is well-formed, and a replacement character for each byte if not: it is
 * certain only when it has ended or gone wrong.
 *
 * kept: the token's text so far, up to six bytes; out: the run's bytes, of which a are whole characters; flag: the
 * token is too long for a byte token and on its way; flag2: the run has gone wrong. */
static tri_status give_replacements(tok_decode_run *r, size_t step, size_t count) {
  tri_status st = TRI_OK;
  while (st == TRI_OK && count--) st = give_token(r, step, REPLACEMENT, strlen(REPLACEMENT));
  return st;
}

static tri_status add_byte(tok_decode_run *r, size_t step, unsigned char byte) {
  tok_decode_state *s = &r->states[step];
  char c = (char)byte;
  size_t len;
  if (s->flag2) return give_replacements(r, step, 1);
  tri_status st = tri_buf_append(&s->out, &c, 1);
  if (st != TRI_OK) return st;
  switch (tok_utf8_step(s->out.data + s->a, s->out.len - s->a, &len)) {
  case TOK_UTF8_CHAR: s->a = s->out.len; break;
  case TOK_UTF8_TRUNCATED: break;
  case TOK_UTF8_INVALID:
    st = give_replacements(r, step, s->out.len);
    s->out.len = s->a = 0;
    s->flag2 = true;
  }
  return st;
}

static tri_status end_run(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  size_t len = s->out.len, good = s->a;
  s->out.len = s->a = 0;
  s->flag2 = false;
  if (!len) return TRI_OK;
  return good == len ? give_token(r, step, s->out.data, len) : give_replacements(r, step, len);
}

static tri_status byte_fallback_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tok_decode_state *s = &r->states[step];
  if (!s->flag) {
    if (s->kept.len + len <= 6) return tri_buf_append(&s->kept, text, len);
    TRI_CHECK(end_run(r, step));
    TRI_CHECK(tok_decode_text(r, step + 1, s->kept.data, s->kept.len));
    s->kept.len = 0;
    s->flag = true;
  }
  return tok_decode_text(r, step + 1, text, len);
}

static tri_status end_byte_fallback(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  unsigned char byte;
  tri_status st = TRI_OK;
  if (s->flag) {
    s->flag = false;
    return tok_decode_end(r, step + 1);
  }
  if (is_byte_token(s->kept.data, s->kept.len, &byte)) {
    st = add_byte(r, step, byte);
  } else {
    TRI_CHECK(end_run(r, step));
    st = give_token(r, step, s->kept.data, s->kept.len);
  }
  s->kept.len = 0;
  return st;
}

static size_t inner_byte_fallback(const tok_decode_step *step, char *s, size_t len, size_t cap) {
  unsigned char byte;
  (void)step;
  (void)cap;
  if (!is_byte_token(s, len, &byte)) return len;
  s[0] = (char)byte;
  return 1;
}

const tok_decode_kind tok_decode_byte_fallback = {
    .text = byte_fallback_text, .end = end_byte_fallback, .finish = end_run, .inner = inner_byte_fallback};

/* ---- Fuse ---- */

static tri_status pass_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  return tok_decode_text(r, step + 1, text, len);
}

const tok_decode_kind tok_decode_fuse = {.text = pass_text, .end = ignore_end, .finish = finish_token};

/* ---- Replace ---- */

/* Plain strings: a is how much of the pattern stands at the end. Regular expressions want the whole token. */
static tri_status replace_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tok_decode_state *s = &r->states[step];
  const tok_replace *replace = r->steps[step].replace;
  if (replace->regex) return keep_text(r, step, text, len);
  tri_status st = tok_replace_feed(replace, &s->a, text, len, &s->out);
  return st == TRI_OK ? hand_on(r, step) : st;
}

static tri_status end_replace(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  const tok_replace *replace = r->steps[step].replace;
  if (replace->regex)
    TRI_CHECK(tok_replace_apply(replace, &r->regex, s->kept.len ? s->kept.data : "", s->kept.len, NULL, NULL, &s->out));
  else
    TRI_CHECK(tok_replace_flush(replace, &s->a, &s->out));
  s->kept.len = 0;
  TRI_CHECK(hand_on(r, step));
  return tok_decode_end(r, step + 1);
}

const tok_decode_kind tok_decode_replace = {.text = replace_text, .end = end_replace, .per_token = true};

/* ---- Strip ---- */

/* a: characters that were taken off the token's front; flag: its front has passed; b: characters at its end that may
 * have to go, all of them the one that is stripped. */
static tri_status strip_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tok_decode_state *s = &r->states[step];
  const tok_decode_step *strip = &r->steps[step];
  size_t width = strlen(strip->character);
  for (size_t i = 0, n; i < len; i += n) {
    tok_utf8_decode(text + i, &n);
    bool same = n == width && !memcmp(text + i, strip->character, n);
    if (!s->flag && same && s->a < strip->start) {
      s->a++;
      continue;
    }
    s->flag = true;
    if (same && s->b < strip->stop) {
      s->b++;
      continue;
    }
    for (; !same && s->b; s->b--) TRI_CHECK(tri_buf_append(&s->out, strip->character, width));
    TRI_CHECK(tri_buf_append(&s->out, text + i, n));
  }
  return hand_on(r, step);
}

static tri_status end_strip(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  s->a = 0;
  s->b = 0;
  s->flag = false;
  return tok_decode_end(r, step + 1);
}

const tok_decode_kind tok_decode_strip = {.text = strip_text, .end = end_strip, .per_token = true};

/* ---- Metaspace ---- */

/* flag: the first token has passed. In it visible spaces vanish where the pre-tokenizer may have added one. */
static tri_status metaspace_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tok_decode_state *s = &r->states[step];
  const tok_metaspace *m = &r->steps[step].metaspace;
  bool drop = !s->flag && m->scheme != TOK_PREPEND_NEVER;
  for (size_t i = 0, n; i < len; i += n) {
    tok_utf8_decode(text + i, &n);
    if (n != m->len || memcmp(text + i, m->replacement, n) != 0)
      TRI_CHECK(tri_buf_append(&s->out, text + i, n));
    else if (!drop)
      TRI_CHECK(tri_buf_append(&s->out, " ", 1));
  }
  return hand_on(r, step);
}

static tri_status end_metaspace(tok_decode_run *r, size_t step) {
  r->states[step].flag = true;
  return tok_decode_end(r, step + 1);
}

/* Puts a space in the place of every occurrence of a text. */
static size_t spaces_for(const char *text, size_t text_len, char *s, size_t len) {
  size_t n = 0;
  for (size_t i = 0; i < len; n++) {
    bool here = len - i >= text_len && !memcmp(s + i, text, text_len);
    s[n] = here ? ' ' : s[i];
    i += here ? text_len : 1;
  }
  return n;
}

static size_t inner_metaspace(const tok_decode_step *step, char *s, size_t len, size_t cap) {
  (void)cap;
  return spaces_for(step->metaspace.replacement, step->metaspace.len, s, len);
}

const tok_decode_kind tok_decode_metaspace = {.text = metaspace_text, .end = end_metaspace, .inner = inner_metaspace};

/* ---- WordPiece ---- */

tri_status tok_decode_load_cleanup(tok_decode_step *step) {
  static const char *const pairs[TOK_CLEANUPS][2] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (size_t i = 0; i < TOK_CLEANUPS; i++) TRI_CHECK(tok_replace_create(pairs[i][0], pairs[i][1], &step->cleanup[i]));
  return TRI_OK;
}

/* All that is replaced has a space in it. kept and out take turns; the result is in out. */
static tri_status clean_up(const tok_decode_step *step, tok_decode_state *s) {
  for (size_t i = 0; i < TOK_CLEANUPS && step->cleanup[i]; i++) {
    if (!s->out.len || !memchr(s->out.data, ' ', s->out.len)) break;
    tri_buf from = s->out;
    s->out = s->kept;
    s->kept = from;
    s->out.len = 0;
    TRI_CHECK(tok_replace_apply(step->cleanup[i], NULL, from.data, from.len, NULL, NULL, &s->out));
  }
  return TRI_OK;
}

/* flag: the first token has passed. A later one joins its predecessor if it has the prefix. */
static tri_status end_wordpiece(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  const tri_buf *prefix = &r->steps[step].affix;
  size_t skip = 0;
  if (s->flag) {
    if (s->kept.len >= prefix->len && (!prefix->len || !memcmp(s->kept.data, prefix->data, prefix->len)))
      skip = prefix->len;
    else
      TRI_CHECK(tri_buf_append(&s->out, " ", 1));
  }
  if (s->kept.len > skip) TRI_CHECK(tri_buf_append(&s->out, s->kept.data + skip, s->kept.len - skip));
  s->flag = true;
  TRI_CHECK(clean_up(&r->steps[step], s));
  s->kept.len = 0;
  TRI_CHECK(hand_on(r, step));
  return tok_decode_end(r, step + 1);
}

/* Without the prefix, or with a space; what the clean-up would make of its neighbours is theirs. */
static size_t inner_wordpiece(const tok_decode_step *step, char *s, size_t len, size_t cap) {
  size_t prefix = step->affix.len;
  if (len >= prefix && (!prefix || !memcmp(s, step->affix.data, prefix))) {
    memmove(s, s + prefix, len - prefix);
    return len - prefix;
  }
  if (len == cap) len--;
  memmove(s + 1, s, len);
  s[0] = ' ';
  return len + 1;
}

const tok_decode_kind tok_decode_wordpiece = {.text = keep_text, .end = end_wordpiece, .inner = inner_wordpiece};

/* ---- BPEDecoder ---- */

/* A suffix ends a word: a space, but nothing in the last token. Whether a token is the last shows when the next one
 * comes: kept is the previous token from its first suffix on; flag: there is one; out: the current token. */
static tri_status give_previous(tok_decode_run *r, size_t step, const char *space) {
  tok_decode_state *s = &r->states[step];
  const tri_buf *suffix = &r->steps[step].affix;
  size_t at = 0;
  if (!s->flag) return TRI_OK;
  while (at < s->kept.len) {
    const char *from = s->kept.data + at;
    const char *found = memmem(from, s->kept.len - at, suffix->data, suffix->len);
    size_t n = found ? (size_t)(found - from) : s->kept.len - at;
    TRI_CHECK(tok_decode_text(r, step + 1, from, n));
    if (found) TRI_CHECK(tok_decode_text(r, step + 1, space, strlen(space)));
    at += n + (found ? suffix->len : 0);
  }
  s->kept.len = 0;
  s->flag = false;
  return tok_decode_end(r, step + 1);
}

static tri_status bpe_text(tok_decode_run *r, size_t step, const char *text, size_t len) {
  tri_status st = give_previous(r, step, " ");
  return st == TRI_OK ? tri_buf_append(&r->states[step].out, text, len) : st;
}

static tri_status end_bpe(tok_decode_run *r, size_t step) {
  tok_decode_state *s = &r->states[step];
  const tri_buf *suffix = &r->steps[step].affix;
  TRI_CHECK(give_previous(r, step, " ")); /* the current token may be empty */
  const char *found = s->out.len ? memmem(s->out.data, s->out.len, suffix->data, suffix->len) : NULL;
  size_t sure = found ? (size_t)(found - s->out.data) : s->out.len;
  TRI_CHECK(tri_buf_append(&s->kept, s->out.data + sure, s->out.len - sure));
  TRI_CHECK(tok_decode_text(r, step + 1, s->out.data, sure));
  s->out.len = 0;
  s->flag = true;
  return TRI_OK;
}

static tri_status finish_bpe(tok_decode_run *r, size_t step) { return give_previous(r, step, ""); }

static size_t inner_bpe(const tok_decode_step *step, char *s, size_t len, size_t cap) {
  (void)cap;
  return spaces_for(step->affix.data, step->affix.len, s, len);
}

const tok_decode_kind tok_decode_bpe = {.text = bpe_text, .end = end_bpe, .finish = finish_bpe, .inner = inner_bpe};
