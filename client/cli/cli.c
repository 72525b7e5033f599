/* SPDX-License-Identifier: Apache-2.0 */
/* Exit codes: usage, where the request itself is wrong; refused, where it is one that this cluster does not serve;
 * failed, for all else, which may succeed another time. cli.h says when each function prints. */
#include <stdarg.h>
#include <string.h>

#include "client/cli/cli.h"
#include "base/text.h"

volatile sig_atomic_t cli_signal;

static void on_signal(int s) { cli_signal = s; }

void cli_catch_signals(void) {
  /* No SA_RESTART: waits end. The second signal kills as usual. */
  struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &sa, NULL);
  sigaction(SIGTERM, &sa, NULL);
}

static int exit_code(const char *code) {
  if (tri_has_word("invalid_argument out_of_range unknown_field", code)) return TRI_EXIT_USAGE;
  bool refused = tri_has_word("unsupported no_capacity permission draining too_large", code);
  return refused ? TRI_EXIT_REFUSED : TRI_EXIT_FAILED;
}

bool cli_shows_field(const char *field, const char *message) {
  bool typed = !tri_has_word("op v id", field);
  return typed && field[0] && !strstr(message, field);
}

trireme_error cli_error_of(tri_status st, const tri_error *err) {
  trireme_error e = {0};
  snprintf(e.code, sizeof e.code, "%s", tri_status_code(st));
  snprintf(e.field, sizeof e.field, "%s", err->field);
  snprintf(e.message, sizeof e.message, "%.*s", (int)sizeof e.message - 1,
           err->message[0] ? err->message : tri_status_text(st));
  return e;
}

int cli_fail(const trireme_error *e) {
  const char *message = e->message[0] ? e->message : "failed";
  if (cli_shows_field(e->field, message))
    fprintf(stderr, "trireme: %s: %s\n", e->field, message);
  else
    fprintf(stderr, "trireme: %s\n", message);
  /* A model that is not served here is one that cannot be; another thing that is not there may just have gone. */
  if (!strcmp(e->code, "not_found") && !strcmp(e->field, "model")) return TRI_EXIT_REFUSED;
  return exit_code(e->code);
}

int cli_refused(const trireme_error *e) {
  int code = cli_fail(e);
  return code == TRI_EXIT_USAGE ? TRI_EXIT_REFUSED : code;
}

int cli_output_failed(const FILE *out) {
  if (out != stdout) perror("trireme: output");
  return TRI_EXIT_FAILED;
}

static void print(const char *program, const char *fmt, va_list ap) {
  fprintf(stderr, "%s: ", program);
  vfprintf(stderr, fmt, ap);
  fputc('\n', stderr);
}

int cli_failed(const char *program, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print(program, fmt, ap);
  va_end(ap);
  return TRI_EXIT_FAILED;
}

int cli_usage(const char *program, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  print(program, fmt, ap);
  va_end(ap);
  fprintf(stderr, "Try '%s --help'.\n", program);
  return TRI_EXIT_USAGE;
}

trireme_result cli_try_connect(const cli_connection *connection, trireme **out, trireme_error *error) {
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = connection->endpoint;
  config.key_file = connection->key_file;
  config.server_key = connection->server_key;
  config.connect_timeout_ms = (int)connection->connect_timeout_ms;
  config.reconnect_timeout_ms = (int)connection->reconnect_timeout_ms;
  config.client_name = "trireme";
  return trireme_connect(&config, out, error);
}

int cli_connect(const cli_connection *connection, trireme **out) {
  trireme_error error = {0};
  return cli_try_connect(connection, out, &error) ? cli_fail(&error) : TRI_EXIT_OK;
}

static void say(cli_presence *p, bool away) {
  if (p->away == away) return;
  p->away = away;
  fprintf(stderr, "%strireme: %s\n", p->in_line ? "\n" : "",
          away ? "the coordinator is gone; waiting for the next one (--reconnect-timeout-ms)"
               : "a coordinator is there again");
}

/* Waits in short steps, as libtrireme has no event for a coordinator that is away. */
trireme_result cli_next(trireme *c, int timeout_ms, cli_presence *p, trireme_event *e, trireme_error *error) {
  enum { LOOK_MS = 500 };
  int left = timeout_ms;
  for (;;) {
    int wait = left < 0 || left > LOOK_MS ? LOOK_MS : left;
    trireme_result r = trireme_next(c, wait, e, error);
    bool away = trireme_is_away(c);
    if (r == TRIREME_TIMEOUT || !away) say(p, away); /* the error is about one that never returns */
    if (r != TRIREME_TIMEOUT) return r;
    if (left >= 0) left -= wait;
    if (!left) return r;
  }
}

int cli_ask_status(trireme *c, int timeout_ms, trireme_event *e) {
  trireme_error error = {0};
  uint64_t id;
  trireme_result r = trireme_ask_status(c, &id, &error);
  do {
    if (!r) r = trireme_next(c, timeout_ms, e, &error);
    if (r) return cli_fail(&error);
  } while (e->id != id);
  if (e->kind == TRIREME_EVENT_STATUS) return TRI_EXIT_OK;
  return e->kind == TRIREME_EVENT_ERROR ? cli_refused(&e->error) : TRI_EXIT_FAILED;
}

bool cli_is_encoder(const trireme_status *s) { return !strcmp(s->task, "embed") || !strcmp(s->task, "classify"); }
