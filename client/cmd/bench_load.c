/* The load of a benchmark: one thread, one connection, one event loop. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd/bench.h"
#include "runtime/base/buf.h"
#include "runtime/base/hash.h"
#include "runtime/base/mem.h"
#include "runtime/base/wait.h"

/* ---- random numbers ---- */

static double uniform(uint64_t *state) { return (double)(tri_splitmix64(state) >> 11) * 0x1p-53; }

/* ---- prompts ---- */

static int read_prompts(bench_run *b) {
  const char *path = b->o->prompt_file;
  FILE *f = fopen(path, "re");
  if (!f) return cmd_failed("trireme bench", "cannot open %s: %s", path, strerror(errno));
  cmd_request defaults;
  cmd_request_init(&defaults);
  defaults.r.max_tokens = b->o->random_output_len;
  defaults.r.ignore_eos = b->o->ignore_eos;
  defaults.r.temperature = b->o->temperature;
  char *line = NULL;
  size_t cap = 0, number = 0, room = 0;
  int code = TRI_EXIT_OK;
  for (ssize_t n; !code && b->num_from_file < b->num && (n = getline(&line, &cap, f)) >= 0;) {
    tri_json_doc *doc = NULL;
    tri_error err = {0};
    number++;
    if (strspn(line, " \t\r\n") == (size_t)n) continue;
    if (tri_array_reserve(&b->from_file, b->num_from_file, &room, 1, sizeof *b->from_file) != TRI_OK) {
      code = TRI_EXIT_FAILED;
      break;
    }
    cmd_request *q = &b->from_file[b->num_from_file];
    cmd_request_init(q);
    tri_status st = cmd_parse_line(line, (size_t)n, &doc, &err);
    if (st == TRI_OK) st = cmd_request_json(&defaults, tri_json_root(doc), q, &err);
    if (st != TRI_OK) {
      cmd_request_free(q);
      code = cmd_usage("trireme bench", "%s:%zu: %s", path, number, err.message);
    } else {
      b->num_from_file++; /* its lists point into the array, which may still move: send_one sets them again */
    }
    tri_json_free(doc);
  }
  free(line); /* getline's */
  fclose(f);
  if (!code && !b->num_from_file) code = cmd_usage("trireme bench", "%s holds no prompts", path);
  return code;
}

void bench_run_free(bench_run *b) {
  for (size_t i = 0; i < b->num_from_file; i++) cmd_request_free(&b->from_file[i]);
  tri_free(b->from_file);
  tri_free(b->requests);
  tri_free(b->itl_ms);
}

/* ---- events ---- */

static void add_gap(bench_run *b, double ms) {
  tri_status st = tri_array_reserve(&b->itl_ms, b->num_itl, &b->cap_itl, 1, sizeof *b->itl_ms);
  if (st == TRI_OK) b->itl_ms[b->num_itl++] = ms; /* else a gap less in the statistics */
}

static void on_event(bench_run *b, const trireme_event *e, int64_t now) {
  if (e->id < b->first_id || e->id - b->first_id >= b->sent) return;
  bench_request *r = &b->requests[e->id - b->first_id];
  if (e->kind == TRIREME_EVENT_ACCEPTED) r->prompt_tokens = e->accepted.prompt_tokens;
  if (e->kind == TRIREME_EVENT_TOKENS) {
    size_t tokens = 0;
    for (size_t i = 0; i < e->tokens.num; i++) tokens += e->tokens.choices[i]->num_ids;
    if (!tokens) return;
    if (r->first_ns)
      add_gap(b, (double)(now - r->last_ns) * 1e-6);
    else
      r->first_ns = now;
    r->last_ns = now;
    r->output_tokens += tokens;
  }
  if ((e->kind != TRIREME_EVENT_DONE && e->kind != TRIREME_EVENT_ERROR) || r->end_ns) return;
  r->end_ns = now;
  r->ok = e->kind == TRIREME_EVENT_DONE;
  for (size_t i = 0; r->ok && i < e->done.num; i++)
    r->ok = !strcmp(e->done.choices[i]->finish_reason, "stop") || !strcmp(e->done.choices[i]->finish_reason, "length");
  if (r->ok) r->output_tokens = e->done.completion_tokens;
  if (!r->ok && !b->failed++) {
    if (e->kind == TRIREME_EVENT_ERROR)
      b->first_error = e->error;
    else
      snprintf(b->first_error.message, sizeof b->first_error.message,
               e->done.timed_out ? "its deadline_ms has passed" : "it was cancelled");
  }
  b->in_flight--;
  b->finished++;
}

/* ---- the loop ---- */

static void plan_arrivals(bench_run *b, uint64_t *random) {
  double at = 0;
  for (size_t i = 0; i < b->num; i++) {
    b->requests[i].arrival_ns = (int64_t)at;
    if (isfinite(b->o->request_rate)) at += -log1p(-uniform(random)) / b->o->request_rate * 1e9;
  }
}

static trireme_result send_one(bench_run *b, uint32_t *ids, uint64_t *random, trireme_error *error) {
  trireme_request q;
  if (b->num_from_file) {
    cmd_request *from = &b->from_file[b->sent % b->num_from_file];
    /* The array has stopped growing by now. */
    if (from->r.num_stop) from->r.stop = from->stops;
    if (from->r.num_stop_token_ids) from->r.stop_token_ids = from->stop_ids;
    q = from->r;
    q.request_id = NULL; /* a prompt that is used twice is two requests */
    q.no_stream = false;
  } else {
    trireme_request_init(&q);
    for (int64_t i = 0; i < b->o->random_input_len; i++)
      ids[i] = (uint32_t)(tri_splitmix64(random) % (b->vocab_size ? b->vocab_size : 1));
    q.token_ids = ids;
    q.num_token_ids = (size_t)b->o->random_input_len;
    q.max_tokens = b->o->random_output_len;
    q.ignore_eos = b->o->ignore_eos;
    q.temperature = b->o->temperature;
    q.has_seed = true;
    q.seed = b->o->seed + b->sent;
  }
  uint64_t id;
  bench_request *r = &b->requests[b->sent];
  r->sent_ns = tri_now_ns() - b->start_ns;
  trireme_result st = trireme_submit(b->c, &q, &id, error);
  if (st != TRIREME_OK) return st;
  if (!b->sent) b->first_id = id;
  b->sent++;
  if (++b->in_flight > b->most_in_flight) b->most_in_flight = b->in_flight;
  return TRIREME_OK;
}

static int loop(bench_run *b, uint32_t *ids, uint64_t *random) {
  trireme_error error = {0};
  int64_t most = b->o->max_concurrency ? b->o->max_concurrency : INT64_MAX;
  b->start_ns = tri_now_ns();
  while (b->finished < b->num && !cmd_signal) {
    int64_t now = tri_now_ns() - b->start_ns, wait_ms = -1;
    bool more = b->sent < b->num && b->in_flight < most;
    if (more && now >= b->requests[b->sent].arrival_ns) {
      if (send_one(b, ids, random, &error)) return cmd_fail(&error);
      wait_ms = 0; /* read what has come meanwhile, then send the next */
    } else if (more) {
      wait_ms = (b->requests[b->sent].arrival_ns - now + 999999) / 1000000;
    }
    trireme_event e;
    trireme_result r = trireme_next(b->c, wait_ms > 1000000 ? 1000000 : (int)wait_ms, &e, &error);
    if (r == TRIREME_OK)
      on_event(b, &e, tri_now_ns() - b->start_ns);
    else if (r != TRIREME_TIMEOUT && r != TRIREME_INTERRUPTED)
      return cmd_fail(&error);
  }
  b->end_ns = tri_now_ns() - b->start_ns;
  b->interrupted = b->finished < b->num;
  return TRI_EXIT_OK;
}

int bench_prepare(bench_run *b) {
  b->num = (size_t)b->o->num_prompts;
  b->requests = tri_calloc(b->num, sizeof *b->requests);
  if (!b->requests) return TRI_EXIT_FAILED;
  return b->o->prompt_file ? read_prompts(b) : TRI_EXIT_OK;
}

int bench_load(bench_run *b) {
  uint64_t random = b->o->seed;
  uint32_t *ids = tri_malloc((size_t)b->o->random_input_len, sizeof *ids);
  if (!ids) return TRI_EXIT_FAILED;
  plan_arrivals(b, &random);
  int code = loop(b, ids, &random);
  tri_free(ids);
  return code;
}
