/* SPDX-License-Identifier: Apache-2.0 */
/* embed and classify: inputs are sent as long as there is room for their answers, which come out in the inputs' order.
 *
 * The slots are a ring: `read` counts inputs taken, `written` those that are out, and an input's slot is its count
 * modulo the room. An answer that comes early waits in its slot; the oldest one that is missing holds up the reading
 * once the ring is full, which bounds memory. A single input is a ring of one slot. */
#include <stdlib.h>
#include <string.h>

#include "client/cmd/many.h"
#include "client/cmd/submit_file.h"
#include "base/mem.h"
#include "base/wait.h"

/* One input from its reading to its writing. */
typedef struct slot {
  uint64_t line, id;
  bool done;
  tri_buf kept; /* members of the line that its answer repeats */
  tri_buf text; /* what is printed */
} slot;

/* Requests get consecutive numbers, and no more are under way than there are slots: the rest of a number by their count
 * is a slot of its own in by_id. */
typedef struct runner {
  const cmd_embed_options *o;
  trireme *c;
  FILE *in, *out;
  char *line;
  size_t line_cap, room;
  slot *slots;         /* [room] */
  slot **by_id;        /* [room] */
  submit_done *before; /* answers that the output has; NULL: it begins */
  many_bar bar;
  uint64_t read, written, lines, failures, answered_before;
  int64_t in_flight;
  bool end, failed;
  int code; /* of an input without a file */
} runner;

/* ---- answers ---- */

static void add_kept(slot *s) {
  tri_text_add(&s->text, s->kept.data ? s->kept.data : "", s->kept.len);
  s->text.failed |= s->kept.failed;
}

static void fail_slot(runner *r, slot *s, const trireme_error *e, bool answered) {
  s->done = true;
  r->failed = true;
  r->failures++;
  many_bar_clear(&r->bar);
  if (!r->in) {
    r->code = answered ? cli_refused(e) : cli_fail(e);
    return;
  }
  cli_line_failed(r->o->file, s->line, e->field, e->message);
  if (r->o->json) {
    tri_text_printf(&s->text, "{\"line\":%llu", (unsigned long long)s->line);
    tri_json_open(&s->text, "error", '{');
    cmd_json_error(&s->text, e->code, e->field, e->message);
    tri_text_add(&s->text, "}", 1);
    add_kept(s);
    tri_text_add(&s->text, "}", 1);
  }
  tri_text_add(&s->text, "\n", 1); /* every input has its line */
}

static void finish_slot(runner *r, slot *s, const trireme_event *e) {
  s->done = true;
  if (!r->o->json) {
    cmd_print_embed_reply(&s->text, e, r->o->top_k);
    /* Tokens take several lines: an empty one ends them. */
    if (r->in && e->kind == TRIREME_EVENT_SCORES && e->scores.tokens) tri_text_add(&s->text, "\n", 1);
    return;
  }
  tri_text_add(&s->text, "{", 1);
  if (r->in) tri_text_printf(&s->text, "\"line\":%llu", (unsigned long long)s->line);
  cmd_json_embed_reply(&s->text, e, r->o->top_k);
  add_kept(s);
  tri_text_add(&s->text, "}\n", 2);
}

/* An event of a number whose slot is another's by now is of no request under way, and passed over. */
static void on_event(runner *r, const trireme_event *e) {
  slot *s = r->by_id[e->id % r->room];
  bool answer = e->kind == TRIREME_EVENT_EMBEDDING || e->kind == TRIREME_EVENT_SCORES;
  if (!s || s->id != e->id || s->done || (!answer && e->kind != TRIREME_EVENT_ERROR)) return;
  r->in_flight--;
  if (answer)
    finish_slot(r, s, e);
  else
    fail_slot(r, s, &e->error, true);
}

/* Writes the oldest answers as far as they are there. */
static bool write_answers(runner *r) {
  for (; r->written < r->read && r->slots[r->written % r->room].done; r->written++) {
    slot *s = &r->slots[r->written % r->room];
    bool ok = !s->text.failed && fwrite(s->text.data ? s->text.data : "", 1, s->text.len, r->out) == s->text.len;
    tri_buf_free(&s->text);
    tri_buf_free(&s->kept);
    if (!ok) return false;
  }
  return r->in_flight || !fflush(r->out);
}

/* ---- inputs ---- */

static trireme_result send_request(runner *r, slot *s, const trireme_embed_request *q, trireme_error *error) {
  trireme_result st = r->o->classify ? trireme_classify(r->c, q, &s->id, error) : trireme_embed(r->c, q, &s->id, error);
  if (st == TRIREME_OK) {
    r->by_id[s->id % r->room] = s;
    r->in_flight++;
  }
  return st;
}

/* Parses and sends one line. Other than OK and INVALID: the connection is of no use any more. */
static trireme_result send_line(runner *r, slot *s, size_t len, trireme_error *error) {
  cli_embed_line l;
  tri_error err = {0};
  tri_status st = cli_embed_line_parse(&r->o->request, r->o->classify, r->line, len, &s->kept, &l, &err);
  if (st != TRI_OK) {
    *error = cli_error_of(st, &err);
    return TRIREME_INVALID;
  }
  trireme_result sent = send_request(r, s, &l.request, error);
  cli_embed_line_free(&l);
  return sent;
}

/* The slot's texts were freed when its former answer was written. */
static slot *next_slot(runner *r) {
  slot *s = &r->slots[r->read++ % r->room];
  *s = (slot){.line = r->lines};
  return s;
}

/* Sends inputs while there are slots for them. */
static trireme_result feed(runner *r, trireme_error *error) {
  while (!r->end && !cli_signal && r->read - r->written < r->room) {
    trireme_result st;
    slot *s;
    ssize_t n = r->in ? getline(&r->line, &r->line_cap, r->in) : 0;
    if (n < 0 || !r->in) r->end = true;
    if (n < 0) break;
    r->lines++;
    if (r->in && strspn(r->line, " \t\r\n") == (size_t)n) continue;
    if (submit_done_take_line(r->before, r->lines)) {
      r->answered_before++;
      continue;
    }
    s = next_slot(r);
    st = r->in ? send_line(r, s, (size_t)n, error) : send_request(r, s, &r->o->request, error);
    if (st == TRIREME_INVALID)
      fail_slot(r, s, error, false);
    else if (st != TRIREME_OK)
      return st;
  }
  return TRIREME_OK;
}

/* ---- progress ---- */

static void sum_up(const runner *r, char *words, size_t size) {
  double seconds = (double)(tri_now_ns() - r->bar.started_ns) * 1e-9 + 1e-9;
  uint64_t good = r->read - (uint64_t)r->in_flight - r->failures;
  int n = snprintf(words, size, "%llu done, %llu failed, ", (unsigned long long)good, (unsigned long long)r->failures);
  if (r->in_flight) n += snprintf(words + n, size - (size_t)n, "%lld running, ", (long long)r->in_flight);
  if (r->answered_before)
    n += snprintf(words + n, size - (size_t)n, "%llu before, ", (unsigned long long)r->answered_before);
  snprintf(words + n, size - (size_t)n, "%.1f req/s", (double)good / seconds);
}

/* Draws the bar; the last line is there without a terminal, too. */
static void draw(runner *r, bool last) {
  char words[200];
  bool line = last && !r->bar.on && r->o->progress && r->o->output;
  if (!r->in || (!r->bar.on && !line)) return;
  sum_up(r, words, sizeof words);
  if (line) fprintf(stderr, "trireme: %s\n", words);
  many_bar_draw(&r->bar, r->read - (uint64_t)r->in_flight + r->answered_before, r->answered_before, words, last);
}

/* ---- the loop ---- */

static int run(runner *r) {
  if (r->in) many_bar_begin(&r->bar, r->o->progress && r->o->output, r->in);
  cli_presence coordinator = {.in_line = r->bar.on};
  trireme_error error = {0};
  while (!cli_signal) {
    trireme_event e;
    trireme_result st = feed(r, &error);
    if (!write_answers(r)) return cli_output_failed(r->out);
    draw(r, false);
    if (st == TRIREME_OK && r->end && r->written == r->read) {
      draw(r, true);
      int failed = r->in ? TRI_EXIT_FAILED : r->code;
      return r->failed ? failed : TRI_EXIT_OK;
    }
    if (st == TRIREME_OK && r->in_flight)
      st = cli_next(r->c, r->bar.on ? MANY_BAR_MS : -1, &coordinator, &e, &error);
    else if (st == TRIREME_OK)
      continue;
    if (st == TRIREME_OK)
      on_event(r, &e);
    else if (st != TRIREME_INTERRUPTED && (st != TRIREME_TIMEOUT || !r->bar.on))
      return cli_fail(&error);
  }
  fprintf(stderr, "trireme: interrupted; requests under way are cancelled\n");
  return TRI_EXIT_FAILED;
}

/* Once there is a coordinator: without one, what was in the file stays. */
static int open_output(runner *r) {
  const char *path = r->o->output, *program = r->o->program;
  if (!path || !strcmp(path, "-")) {
    r->out = stdout;
    return TRI_EXIT_OK;
  }
  int code = many_output_open(program, path, &r->out);
  if (code != TRI_EXIT_OK) return code;
  if (!r->o->resume) return many_output_empty(path, r->out, r->o->progress) ? TRI_EXIT_OK : cli_output_failed(r->out);
  code = submit_done_read(program, path, &r->before);
  if (code != TRI_EXIT_OK) return code;
  fclose(r->out); /* another file may have its place now */
  return many_output_open(program, path, &r->out);
}

int cmd_embed_run(const cmd_embed_options *o) {
  runner r = {.o = o, .room = o->file ? (size_t)o->concurrency : 1};
  r.slots = tri_calloc(r.room, sizeof *r.slots);
  r.by_id = tri_calloc(r.room, sizeof *r.by_id);
  int code = r.slots && r.by_id ? TRI_EXIT_OK : TRI_EXIT_FAILED;
  if (code == TRI_EXIT_OK && o->file) code = cli_open_lines(o->program, "texts", o->file, o->output, &r.in);
  if (code == TRI_EXIT_OK) code = cli_connect(&o->connection, &r.c);
  if (code == TRI_EXIT_OK) code = open_output(&r);
  cli_catch_signals();
  if (code == TRI_EXIT_OK) code = run(&r);
  trireme_close(r.c);
  if (r.out && r.out != stdout && fclose(r.out) && code == TRI_EXIT_OK) code = cli_output_failed(NULL);
  if (r.in && r.in != stdin) fclose(r.in);
  for (size_t i = 0; r.slots && i < r.room; i++) {
    tri_buf_free(&r.slots[i].text);
    tri_buf_free(&r.slots[i].kept);
  }
  submit_done_free(r.before);
  tri_free(r.slots);
  tri_free(r.by_id);
  free(r.line); /* getline's */
  return code;
}
