/* SPDX-License-Identifier: Apache-2.0 */
/* submit --file: many prompts at a time, results in the order of the input.
 *
 * A line: read -> sent -> (accepted, tokens) -> done -> written, when all before it are. Lines are a list from the
 * oldest that is not written; a table finds those in flight by their request's number. in_flight bounds how many are
 * sent, `waiting` how many answers are kept for an older line that is slow.
 *
 * A full queue is no failure of a line: it counts as in flight, and is parsed and sent again after a pause that
 * doubles, or at once for each answer that has made a place. After MOST_TRIES pauses the refusal is its answer.
 *
 * Each end (of the input, an interrupt, a lost connection) writes what is done: lines under way get an error, which
 * --resume does not take for an answer. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cmd/many.h"
#include "client/cmd/submit_file.h"
#include "base/mem.h"
#include "base/wait.h"

enum {
  MAX_LINE = 4 << 20,
  AHEAD = 16,
  FIRST_PAUSE_MS = 100, /* before a line that had no room is sent again; doubled with each try */
  LONGEST_PAUSE_MS = 10000,
  MOST_TRIES = 40,
  LOOK_MS = 50, /* between two looks at the lines that wait for that */
};

typedef struct batch {
  const cmd_submit_options *o;
  cli_request defaults;
  submit_context context;
  trireme *c;
  FILE *in, *out;
  char *line;
  size_t line_cap;
  submit_done *before;          /* answers that the output has, and no line yet; NULL: it begins */
  submit_slot *oldest, *newest; /* all lines that are not written yet */
  submit_slot **by_id;          /* open hash table of what is in flight */
  size_t mask;
  uint64_t lines, succeeded, failed, tokens, not_sent, answered_before;
  int64_t in_flight, waiting; /* waiting: done, but an older line is not */
  int64_t refused;            /* of those in flight: for lack of room, and to be sent again */
  int64_t freed;              /* answers since then: each has left a place to one of them */
  off_t in_size;
  bool end, cut_short;
  many_bar bar;
  int64_t looked_ns;
} batch;

/* ---- what is in flight, by the request's number ---- */

static void ids_put(batch *b, submit_slot *s) {
  size_t i = s->id & b->mask;
  while (b->by_id[i]) i = (i + 1) & b->mask;
  b->by_id[i] = s;
}

/* The table has at least twice as many places as requests may be in flight, so that a search always meets an empty one.
 */
static submit_slot *ids_take(batch *b, uint64_t id, bool remove) {
  size_t i = id & b->mask;
  while (b->by_id[i] && b->by_id[i]->id != id) i = (i + 1) & b->mask;
  submit_slot *s = b->by_id[i];
  if (!s || !remove) return s;
  b->by_id[i] = NULL;
  /* Entries that this one had pushed further move up. */
  for (size_t j = (i + 1) & b->mask; b->by_id[j]; j = (j + 1) & b->mask) {
    submit_slot *moved = b->by_id[j];
    b->by_id[j] = NULL;
    ids_put(b, moved);
  }
  return s;
}

/* ---- results ---- */

static void put_error(batch *b, submit_slot *s, const trireme_error *e, bool answered) {
  submit_answer_error(s, e, answered);
  tri_buf_free(&s->input); /* it may wait for long until it is written */
  b->waiting++;
  b->failed++;
}

static void fail_slot(batch *b, submit_slot *s, const trireme_error *e) {
  many_bar_clear(&b->bar);
  cli_line_failed(b->o->file, s->line, e->field, e->message);
  put_error(b, s, e, true);
}

static void finish_slot(batch *b, submit_slot *s, const trireme_event *e) {
  bool ok = true;
  if (e->kind == TRIREME_EVENT_EMBEDDING) {
    submit_answer_embedding(s, e);
  } else {
    ok = submit_answer_done(s, e);
    b->tokens += e->done.completion_tokens;
  }
  tri_buf_free(&s->input);
  b->waiting++;
  if (ok)
    b->succeeded++;
  else
    b->failed++;
}

/* Gives up what is under way, so that the lines that are done can be written. */
static void abandon(batch *b, const trireme_error *e) {
  for (submit_slot *s = b->oldest; s; s = s->next)
    if (!s->done) put_error(b, s, e, false);
  b->in_flight = b->refused = 0;
}

/* Writes the oldest lines as far as they are done. */
static bool write_results(batch *b) {
  while (b->oldest && b->oldest->done) {
    submit_slot *s = b->oldest;
    if (s->result.failed || fwrite(s->result.data, 1, s->result.len, b->out) != s->result.len) return false;
    b->oldest = s->next;
    if (!b->oldest) b->newest = NULL;
    b->waiting--;
    submit_slot_free(s);
  }
  return b->in_flight || !fflush(b->out);
}

/* ---- input ---- */

/* Sends what a line asks for. False: the connection is of no use any more. */
static bool send_line(batch *b, submit_slot *s, const submit_request *r, trireme_error *error) {
  const trireme_request *q = s->form == SUBMIT_CHAT ? &r->chat.c.r : &r->q.r;
  trireme_result result = s->form == SUBMIT_EMBEDDING ? trireme_embed(b->c, &r->embed, &s->id, error)
                                                      : trireme_submit(b->c, q, &s->id, error);
  if (result == TRIREME_INVALID) {
    fail_slot(b, s, error);
    return true;
  }
  if (result) return false;
  b->in_flight++;
  ids_put(b, s);
  return true;
}

/* Sends a line again that was refused for lack of room. */
static bool send_again(batch *b, submit_slot *s, trireme_error *error) {
  submit_request r;
  tri_error err = {0};
  tri_status st = submit_line_parse(&b->context, s, &r, &err);
  trireme_error e = cli_error_of(st, &err);
  bool ok = true;
  s->retry_ns = 0;
  b->refused--;
  b->in_flight--; /* until it is sent */
  if (st == TRI_OK)
    ok = send_line(b, s, &r, error);
  else
    fail_slot(b, s, &e);
  submit_request_free(&r);
  return ok;
}

/* Sends the oldest lines again for which answers have made room. Those tries do not count: it may be gone already. */
static bool fill_places(batch *b, trireme_error *error) {
  for (submit_slot *s = b->oldest; s && b->refused && b->freed; s = s->next) {
    if (s->done || !s->retry_ns) continue;
    b->freed--;
    s->tries--;
    if (!send_again(b, s, error)) return false;
  }
  b->freed = 0;
  return true;
}

static bool send_refused(batch *b, trireme_error *error) {
  int64_t now = tri_now_ns();
  if (!fill_places(b, error)) return false;
  if (!b->refused || now - b->looked_ns < LOOK_MS * 1000000LL) return true;
  b->looked_ns = now;
  for (submit_slot *s = b->oldest; s; s = s->next)
    if (!s->done && s->retry_ns && now >= s->retry_ns && !send_again(b, s, error)) return false;
  return true;
}

/* A queue that is full names no field, as it is nothing about this line. Returns false where it is not that. */
static bool try_later(batch *b, submit_slot *s, const trireme_error *e) {
  if (strcmp(e->code, "no_capacity") != 0 || e->field[0] || s->tries == MOST_TRIES) return false;
  int64_t ms = FIRST_PAUSE_MS;
  for (unsigned i = 0; i < s->tries && ms < LONGEST_PAUSE_MS; i++) ms *= 2;
  s->tries++;
  s->retry_ns = tri_deadline_after_ms(ms < LONGEST_PAUSE_MS ? ms : LONGEST_PAUSE_MS);
  b->refused++;
  b->in_flight++; /* it counts as under way */
  return true;
}

static void append(batch *b, submit_slot *s) {
  if (b->newest)
    b->newest->next = s;
  else
    b->oldest = s;
  b->newest = s;
}

/* Reads the line that b->line has, and sends it. False: the connection, or the memory, is of no use any more. */
static bool take_line(batch *b, size_t len, trireme_error *error) {
  submit_request r = {0};
  tri_error err = {0};
  tri_status st = TRI_OK;
  bool ok = true;
  submit_slot *s = tri_calloc(1, sizeof *s);
  if (!s) return false;
  s->line = b->lines;
  if (len > MAX_LINE) {
    st = tri_fail(&err, TRI_TOO_LARGE, "", "the line is too long");
  } else {
    tri_text_add(&s->input, b->line, len);
    st = s->input.failed ? TRI_NO_MEMORY : submit_line_parse(&b->context, s, &r, &err);
  }
  if (submit_done_take(b->before, s)) {
    b->answered_before++;
    submit_slot_free(s);
  } else {
    trireme_error e = cli_error_of(st, &err);
    append(b, s);
    if (st == TRI_OK)
      ok = send_line(b, s, &r, error);
    else
      fail_slot(b, s, &e);
  }
  submit_request_free(&r);
  return ok;
}

static bool is_blank(const char *s, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (!strchr(" \t\r\n", s[i])) return false;
  return true;
}

/* Reads and sends lines until enough are in flight. */
static bool feed(batch *b, trireme_error *error) {
  int64_t most = b->o->concurrency;
  /* Finished lines after a slow one are kept in memory: not without bound. */
  while (!b->end && !cli_signal && b->in_flight < most && b->waiting < AHEAD * most + 1000) {
    ssize_t n = getline(&b->line, &b->line_cap, b->in);
    if (n < 0) {
      b->end = true;
      break;
    }
    b->lines++;
    if (!is_blank(b->line, (size_t)n) && !take_line(b, (size_t)n, error)) return false;
  }
  return true;
}

/* How many lines are left that would have been sent. Of a pipe that is not known: it may have no end. */
static void count_rest(batch *b) {
  b->cut_short = true;
  for (ssize_t n; b->in_size > 0 && !b->end && (n = getline(&b->line, &b->line_cap, b->in)) >= 0;)
    b->not_sent += !is_blank(b->line, (size_t)n);
}

/* ---- progress ---- */

enum { WORDS_BYTES = 200 };

__attribute__((format(printf, 2, 3))) static void add(char words[WORDS_BYTES], const char *fmt, ...) {
  size_t used = strlen(words);
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(words + used, WORDS_BYTES - used, fmt, ap);
  va_end(ap);
}

static void sum_up(const batch *b, char words[WORDS_BYTES]) {
  double seconds = (double)(tri_now_ns() - b->bar.started_ns) * 1e-9 + 1e-9;
  words[0] = '\0';
  add(words, "%llu done, %llu failed, ", (unsigned long long)b->succeeded, (unsigned long long)b->failed);
  if (!b->cut_short && b->in_flight > b->refused) add(words, "%lld running, ", (long long)(b->in_flight - b->refused));
  if (!b->cut_short && b->refused) add(words, "%lld without room, ", (long long)b->refused);
  if (b->not_sent)
    add(words, "%llu not sent, ", (unsigned long long)b->not_sent);
  else if (b->cut_short && !b->end && b->in_size <= 0)
    add(words, "the rest not sent, ");
  if (b->answered_before) add(words, "%llu before, ", (unsigned long long)b->answered_before);
  add(words, "%.1f req/s, %.0f tok/s", (double)b->succeeded / seconds, (double)b->tokens / seconds);
}

static void draw(batch *b, bool last) {
  char words[WORDS_BYTES];
  if (!b->bar.on) return;
  sum_up(b, words);
  many_bar_draw(&b->bar, b->succeeded + b->failed + b->answered_before, b->answered_before, words, last);
}

/* The last line: the bar as it ended, or, where there was none, what was next to it. */
static void draw_end(batch *b) {
  char words[WORDS_BYTES];
  draw(b, true);
  if (b->bar.on || !b->o->progress) return;
  sum_up(b, words);
  fprintf(stderr, "trireme: %s\n", words);
}

/* ---- the loop ---- */

static int on_event(batch *b, const trireme_event *e) {
  bool ends = e->kind == TRIREME_EVENT_DONE || e->kind == TRIREME_EVENT_ERROR || e->kind == TRIREME_EVENT_EMBEDDING;
  submit_slot *s = ids_take(b, e->id, ends);
  if (!s) return TRI_EXIT_OK;
  if (e->kind == TRIREME_EVENT_ACCEPTED) {
    memcpy(s->request_id, e->accepted.request_id, sizeof s->request_id);
    s->cached = e->accepted.cached;
  }
  if (e->kind == TRIREME_EVENT_TOKENS) submit_answer_tokens(s, e);
  if (!ends) return TRI_EXIT_OK;
  b->in_flight--;
  b->freed += e->kind != TRIREME_EVENT_ERROR;
  if (e->kind != TRIREME_EVENT_ERROR)
    finish_slot(b, s, e);
  else if (!try_later(b, s, &e->error))
    fail_slot(b, s, &e->error);
  return write_results(b) ? TRI_EXIT_OK : cli_output_failed(b->out);
}

static int wait_ms(const batch *b) {
  if (b->refused) return LOOK_MS;
  return b->bar.on ? MANY_BAR_MS : -1;
}

static int run(batch *b) {
  cli_presence coordinator = {.in_line = b->bar.on};
  trireme_error error = {0};
  int code = TRI_EXIT_OK;
  many_bar_begin(&b->bar, b->o->progress, b->in);
  while (code == TRI_EXIT_OK && !cli_signal) {
    trireme_event e;
    trireme_result r = send_refused(b, &error) && feed(b, &error) ? TRIREME_OK : TRIREME_FAILED;
    if (!r && !write_results(b)) return cli_output_failed(b->out);
    if (!r && b->end && !b->in_flight) break;
    if (!r) r = cli_next(b->c, wait_ms(b), &coordinator, &e, &error);
    if (r == TRIREME_OK)
      code = on_event(b, &e);
    else if (r != TRIREME_TIMEOUT && r != TRIREME_INTERRUPTED)
      code = cli_fail(&error);
    draw(b, false);
  }
  if (cli_signal) fprintf(stderr, "\ntrireme: interrupted; requests under way are cancelled\n");
  if (cli_signal) error = (trireme_error){.code = "aborted", .message = "interrupted"};
  abandon(b, &error);
  if (!write_results(b)) return cli_output_failed(b->out);
  if (cli_signal || code != TRI_EXIT_OK) count_rest(b);
  draw_end(b);
  return code == TRI_EXIT_OK && (cli_signal || b->failed) ? TRI_EXIT_FAILED : code;
}

static int open_files(batch *b) {
  const cmd_submit_options *o = b->o;
  int code = cli_open_lines("trireme submit", "prompts", o->file, o->output, &b->in);
  if (code != TRI_EXIT_OK) return code;
  if (!fseeko(b->in, 0, SEEK_END)) {
    b->in_size = ftello(b->in);
    rewind(b->in);
  }
  bool to_file = o->output && strcmp(o->output, "-");
  if (!to_file) b->out = stdout;
  if (to_file) code = many_output_open("trireme submit", o->output, &b->out);
  if (code != TRI_EXIT_OK || !o->resume) return code;
  code = submit_done_read("trireme submit", o->output, &b->before);
  if (code != TRI_EXIT_OK) return code;
  fclose(b->out); /* another file may have its place now */
  return many_output_open("trireme submit", o->output, &b->out);
}

/* --model may be the served model's folder instead of its name; what is no such folder is a name. */
static int open_chat(batch *b) {
  const char *model = b->o->request.r.model;
  submit_context *x = &b->context;
  struct stat file;
  b->defaults = b->o->request;
  x->defaults = &b->defaults;
  if (!model) return TRI_EXIT_OK;
  if (stat(model, &file) || !S_ISDIR(file.st_mode)) {
    tri_fail(&x->no_chat, TRI_NOT_FOUND, "model", "there is no folder %s", model);
    return TRI_EXIT_OK;
  }
  int code = submit_chat_open(model, b->c, (int)b->o->connection.connect_timeout_ms, &x->chat, &x->no_chat);
  if (x->chat) b->defaults.r.model = NULL;
  return code;
}

int cmd_submit_file(const cmd_submit_options *o) {
  batch b = {.o = o, .mask = 1};
  while (b.mask < 2 * (size_t)o->concurrency) b.mask *= 2;
  b.by_id = tri_calloc(b.mask, sizeof *b.by_id);
  b.mask--;
  int code = b.by_id ? open_files(&b) : TRI_EXIT_FAILED;
  if (code == TRI_EXIT_OK) code = cli_connect(&o->connection, &b.c);
  if (code == TRI_EXIT_OK) code = open_chat(&b);
  cli_catch_signals();
  bool begins = code == TRI_EXIT_OK && b.out != stdout && !o->resume;
  if (begins && !many_output_empty(o->output, b.out, o->progress)) code = TRI_EXIT_FAILED;
  if (code == TRI_EXIT_OK) code = run(&b);
  trireme_close(b.c);
  if (b.out && b.out != stdout && fclose(b.out) && code == TRI_EXIT_OK) code = cli_output_failed(NULL);
  if (b.in && b.in != stdin) fclose(b.in);
  for (submit_slot *s = b.oldest, *next; s; s = next) {
    next = s->next;
    submit_slot_free(s);
  }
  submit_done_free(b.before);
  submit_chat_close(b.context.chat);
  free(b.line); /* getline's */
  tri_free(b.by_id);
  return code;
}
