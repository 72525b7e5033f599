/* submit --file: many prompts at a time, results in the order of the input. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cmd/cmd.h"
#include "runtime/base/mem.h"
#include "runtime/base/wait.h"

enum { MAX_LINE = 4 << 20, AHEAD = 16, PROGRESS_MS = 100, BAR = 30 };

/* One input line from its reading to its writing. */
typedef struct slot {
  struct slot *next; /* the line after it */
  uint64_t line, id;
  bool done, cached;
  char request_id[33];
  uint32_t num_choices;
  struct piece {
    cmd_buf text, ids, logprobs;
  } * choices;    /* what has streamed in so far */
  cmd_buf result; /* the output line */
} slot;

typedef struct batch {
  const cmd_submit_options *o;
  trireme *c;
  FILE *in, *out;
  char *line;
  size_t line_cap;
  slot *oldest, *newest; /* all lines that are not written yet */
  slot **by_id;          /* open hash table of what is in flight */
  size_t mask;
  uint64_t lines, succeeded, failed, tokens, not_sent;
  int64_t in_flight, waiting; /* waiting: done, but an older line is not */
  off_t in_size, in_read;
  bool end, bar, cut_short;
  int64_t started_ns, drawn_ns;
} batch;

/* ---- what is in flight, by the request's number ---- */

static void ids_put(batch *b, slot *s) {
  size_t i = s->id & b->mask;
  while (b->by_id[i]) i = (i + 1) & b->mask;
  b->by_id[i] = s;
}

static slot *ids_take(batch *b, uint64_t id, bool remove) {
  size_t i = id & b->mask;
  while (b->by_id[i] && b->by_id[i]->id != id) i = (i + 1) & b->mask;
  slot *s = b->by_id[i];
  if (!s || !remove) return s;
  b->by_id[i] = NULL;
  /* Entries that this one had pushed further move up. */
  for (size_t j = (i + 1) & b->mask; b->by_id[j]; j = (j + 1) & b->mask) {
    slot *moved = b->by_id[j];
    b->by_id[j] = NULL;
    ids_put(b, moved);
  }
  return s;
}

/* ---- results ---- */

static void slot_free(slot *s) {
  for (uint32_t i = 0; i < s->num_choices; i++) {
    cmd_buf_free(&s->choices[i].text);
    cmd_buf_free(&s->choices[i].ids);
    cmd_buf_free(&s->choices[i].logprobs);
  }
  tri_free(s->choices);
  cmd_buf_free(&s->result);
  tri_free(s);
}

static void begin_result(slot *s) {
  cmd_buf_printf(&s->result, "{\"line\":%llu", (unsigned long long)s->line);
  if (s->request_id[0]) cmd_buf_printf(&s->result, ",\"request_id\":\"%s\"", s->request_id);
}

static void put_error(batch *b, slot *s, const char *code, const char *field, const char *message) {
  begin_result(s);
  cmd_json_open(&s->result, "error", '{');
  cmd_json_error(&s->result, code, field, message);
  cmd_buf_add(&s->result, "}}\n", 3);
  s->done = true;
  b->waiting++;
  b->failed++;
}

static void fail_slot(batch *b, slot *s, const char *code, const char *field, const char *message) {
  if (b->bar) fprintf(stderr, "\r\033[K");
  cmd_line_failed(b->o->file, s->line, field, message);
  put_error(b, s, code, field, message);
}

static void take_tokens(slot *s, const trireme_event *e) {
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    if (c->index >= s->num_choices) continue;
    struct piece *p = &s->choices[c->index];
    cmd_buf_add(&p->text, c->text, c->text_len);
    for (size_t k = 0; k < c->num_ids; k++) cmd_buf_printf(&p->ids, p->ids.len ? ",%u" : "%u", c->ids[k]);
    if (!c->logprobs) continue;
    if (!p->logprobs.len) cmd_buf_add(&p->logprobs, "[", 1);
    cmd_json_logprobs(&p->logprobs, c);
  }
}

static void finish_slot(batch *b, slot *s, const trireme_event *e) {
  cmd_buf *r = &s->result;
  bool ok = true;
  begin_result(s);
  cmd_buf_key(r, "choices");
  for (size_t i = 0; i < e->done.num; i++) {
    const trireme_finished *f = e->done.choices[i];
    struct piece none = {0}, *p = i < s->num_choices ? &s->choices[i] : &none;
    ok &= strcmp(f->finish_reason, "abort") && strcmp(f->finish_reason, "error");
    cmd_buf_printf(r, "%s{\"index\":%zu,\"text\":", i ? "," : "[", i);
    cmd_buf_json(r, f->text_len ? f->text : p->text.data, f->text_len ? f->text_len : p->text.len);
    cmd_buf_printf(r, ",\"finish_reason\":\"%s\",\"completion_tokens\":%llu", f->finish_reason,
                   (unsigned long long)f->completion_tokens);
    if (p->ids.len) cmd_buf_printf(r, ",\"token_ids\":[%s]", p->ids.data);
    if (p->logprobs.len) cmd_buf_printf(r, ",\"logprobs\":%s]", p->logprobs.data);
    cmd_buf_add(r, "}", 1);
  }
  cmd_buf_printf(r, e->done.num ? "]" : "[]");
  cmd_buf_printf(r,
                 ",\"prompt_tokens\":%llu,\"completion_tokens\":%llu,\"queue_ms\":%.3f,\"first_token_ms\":%.3f,\"total_"
                 "ms\":%.3f,\"seed\":%llu%s%s}\n",
                 (unsigned long long)e->done.prompt_tokens, (unsigned long long)e->done.completion_tokens,
                 e->done.queue_ms, e->done.first_token_ms, e->done.total_ms, (unsigned long long)e->done.seed,
                 e->done.timed_out ? ",\"timed_out\":true" : "", s->cached ? ",\"cached\":true" : "");
  s->done = true;
  b->waiting++;
  b->tokens += e->done.completion_tokens;
  if (ok)
    b->succeeded++;
  else
    b->failed++;
}

/* Gives up what is under way, so that the lines that are done can be written. */
static void abandon(batch *b, const char *code, const char *message) {
  for (slot *s = b->oldest; s; s = s->next)
    if (!s->done) put_error(b, s, code, "", message);
  b->in_flight = 0;
}

/* Writes the oldest lines as far as they are done. */
static bool write_results(batch *b) {
  while (b->oldest && b->oldest->done) {
    slot *s = b->oldest;
    if (s->result.failed || fwrite(s->result.data, 1, s->result.len, b->out) != s->result.len) return false;
    b->oldest = s->next;
    if (!b->oldest) b->newest = NULL;
    b->waiting--;
    slot_free(s);
  }
  return b->in_flight || !fflush(b->out);
}

/* ---- input ---- */

/* Parses and sends one line. False: the connection is of no use any more. */
static bool submit_line(batch *b, slot *s, size_t len, trireme_error *error) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  cmd_request q;
  tri_status st = cmd_parse_line(b->line, len, &doc, &err);
  cmd_request_init(&q);
  if (st == TRI_OK) st = cmd_request_json(&b->o->request, tri_json_root(doc), &q, &err);
  if (st == TRI_OK) {
    s->num_choices = q.r.n > 0 && q.r.n <= 64 ? (uint32_t)q.r.n : 1;
    s->choices = tri_calloc(s->num_choices, sizeof *s->choices);
    if (!s->choices) st = TRI_NO_MEMORY;
  }
  trireme_result r = st != TRI_OK ? TRIREME_OK : trireme_submit(b->c, &q.r, &s->id, error);
  if (st != TRI_OK) {
    fail_slot(b, s, tri_status_code(st), err.field, err.message[0] ? err.message : tri_status_text(st));
  } else if (r == TRIREME_INVALID) {
    fail_slot(b, s, error->code, error->field, error->message);
  } else if (!r) {
    b->in_flight++;
    ids_put(b, s);
  }
  cmd_request_free(&q);
  tri_json_free(doc);
  return !r || r == TRIREME_INVALID;
}

static bool is_blank(const char *s, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (!strchr(" \t\r\n", s[i])) return false;
  return true;
}

/* Reads and sends lines until enough are in flight. */
static bool feed(batch *b, trireme_error *error) {
  int64_t most = b->o->concurrency;
  /* Finished lines behind a slow one are kept in memory: not without bound. */
  while (!b->end && !cmd_signal && b->in_flight < most && b->waiting < AHEAD * most + 1000) {
    ssize_t n = getline(&b->line, &b->line_cap, b->in);
    if (n < 0) {
      b->end = true;
      break;
    }
    b->lines++;
    b->in_read += n;
    if (is_blank(b->line, (size_t)n)) continue;
    slot *s = tri_calloc(1, sizeof *s);
    if (!s) return false;
    s->line = b->lines;
    if (b->newest)
      b->newest->next = s;
    else
      b->oldest = s;
    b->newest = s;
    if (n > MAX_LINE)
      fail_slot(b, s, "too_large", "", "the line is too long");
    else if (!submit_line(b, s, (size_t)n, error))
      return false;
  }
  return true;
}

/* How many lines are left that would have been sent. Of a pipe nobody knows: it may have no end. */
static void count_rest(batch *b) {
  b->cut_short = true;
  for (ssize_t n; b->in_size > 0 && !b->end && (n = getline(&b->line, &b->line_cap, b->in)) >= 0;)
    b->not_sent += !is_blank(b->line, (size_t)n);
}

/* ---- progress ---- */

static void sum_up(const batch *b, int64_t now) {
  double seconds = (double)(now - b->started_ns) * 1e-9 + 1e-9;
  fprintf(stderr, "%llu done, %llu failed, ", (unsigned long long)b->succeeded, (unsigned long long)b->failed);
  if (!b->cut_short && b->in_flight) fprintf(stderr, "%lld running, ", (long long)b->in_flight);
  if (b->not_sent)
    fprintf(stderr, "%llu not sent, ", (unsigned long long)b->not_sent);
  else if (b->cut_short && !b->end && b->in_size <= 0)
    fprintf(stderr, "the rest not sent, ");
  fprintf(stderr, "%.1f req/s, %.0f tok/s", (double)b->succeeded / seconds, (double)b->tokens / seconds);
}

static void draw(batch *b, bool last) {
  int64_t now = tri_now_ns();
  if (!b->bar || (!last && now - b->drawn_ns < PROGRESS_MS * 1000000LL)) return;
  b->drawn_ns = now;
  char bar[BAR + 1];
  uint64_t over = b->succeeded + b->failed;
  /* The number of lines is not known before the file has been read: its bytes stand in for it. */
  double total = b->in_size > 0 && b->in_read > 0 ? (double)b->lines * (double)b->in_size / (double)b->in_read : 0;
  int full = total > 0 ? (int)((double)over / total * BAR) : 0;
  if (b->end && !b->in_flight) full = BAR;
  for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
  bar[BAR] = '\0';
  fprintf(stderr, "\r\033[K[%s] ", bar);
  sum_up(b, now);
  if (last) fputc('\n', stderr);
}

/* The last line: the bar as it ended, or, where there was none, what stood beside it. */
static void draw_end(batch *b) {
  draw(b, true);
  if (b->bar || !b->o->progress) return;
  fprintf(stderr, "trireme: ");
  sum_up(b, tri_now_ns());
  fputc('\n', stderr);
}

/* ---- the loop ---- */

static int on_event(batch *b, const trireme_event *e) {
  bool ends = e->kind == TRIREME_EVENT_DONE || e->kind == TRIREME_EVENT_ERROR;
  slot *s = ids_take(b, e->id, ends);
  if (!s) return TRI_EXIT_OK;
  if (e->kind == TRIREME_EVENT_ACCEPTED) {
    memcpy(s->request_id, e->accepted.request_id, sizeof s->request_id);
    s->cached = e->accepted.cached;
  }
  if (e->kind == TRIREME_EVENT_TOKENS) take_tokens(s, e);
  if (e->kind == TRIREME_EVENT_ERROR) fail_slot(b, s, e->error.code, e->error.field, e->error.message);
  if (e->kind == TRIREME_EVENT_DONE) finish_slot(b, s, e);
  if (!ends) return TRI_EXIT_OK;
  b->in_flight--;
  return write_results(b) ? TRI_EXIT_OK : TRI_EXIT_FAILED;
}

static int run(batch *b) {
  trireme_error error = {0};
  int code = TRI_EXIT_OK;
  b->started_ns = tri_now_ns();
  while (code == TRI_EXIT_OK && !cmd_signal) {
    trireme_event e;
    trireme_result r = feed(b, &error) ? TRIREME_OK : TRIREME_FAILED;
    if (!r && !write_results(b)) return cmd_output_failed();
    if (!r && b->end && !b->in_flight) break;
    if (!r) r = trireme_next(b->c, b->bar ? PROGRESS_MS : -1, &e, &error);
    if (r == TRIREME_OK)
      code = on_event(b, &e);
    else if (r != TRIREME_TIMEOUT && r != TRIREME_INTERRUPTED)
      code = cmd_fail(&error);
    draw(b, false);
  }
  if (cmd_signal) fprintf(stderr, "\ntrireme: interrupted; requests under way are cancelled\n");
  abandon(b, cmd_signal ? "aborted" : error.code, cmd_signal ? "interrupted" : error.message);
  if (!write_results(b)) return cmd_output_failed();
  if (cmd_signal || code != TRI_EXIT_OK) count_rest(b);
  draw_end(b);
  return code == TRI_EXIT_OK && (cmd_signal || b->failed) ? TRI_EXIT_FAILED : code;
}

static int open_files(batch *b) {
  const cmd_submit_options *o = b->o;
  int code = cmd_open_lines("trireme submit", "prompts", o->file, o->output, &b->in);
  if (code != TRI_EXIT_OK) return code;
  if (!fseeko(b->in, 0, SEEK_END)) {
    b->in_size = ftello(b->in);
    rewind(b->in);
  }
  bool to_file = o->output && strcmp(o->output, "-");
  /* Not truncated yet: without a coordinator what was there stays. */
  b->out = to_file ? fopen(o->output, "ae") : stdout;
  if (!b->out) return cmd_failed("trireme submit", "cannot write %s: %s", o->output, strerror(errno));
  return TRI_EXIT_OK;
}

int cmd_submit_file(const cmd_submit_options *o) {
  batch b = {.o = o, .bar = o->progress && isatty(STDERR_FILENO), .mask = 1};
  while (b.mask < 2 * (size_t)o->concurrency) b.mask *= 2;
  b.by_id = tri_calloc(b.mask, sizeof *b.by_id);
  b.mask--;
  int code = b.by_id ? open_files(&b) : TRI_EXIT_FAILED;
  if (code == TRI_EXIT_OK) code = cmd_connect(&o->connection, &b.c);
  cmd_catch_signals();
  if (code == TRI_EXIT_OK && b.out != stdout && ftruncate(fileno(b.out), 0) && errno != EINVAL) code = TRI_EXIT_FAILED;
  if (code == TRI_EXIT_OK) code = run(&b);
  trireme_close(b.c);
  if (b.out && b.out != stdout && fclose(b.out) && code == TRI_EXIT_OK) code = cmd_output_failed();
  if (b.in && b.in != stdin) fclose(b.in);
  for (slot *s = b.oldest, *next; s; s = next) {
    next = s->next;
    slot_free(s);
  }
  free(b.line); /* getline's */
  tri_free(b.by_id);
  return code;
}
