/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-gateway: an HTTP server of OpenAI's API before a coordinator. */
#include <signal.h>
#include <string.h>
#include <time.h>

#include "comm/wire/endpoint.h"
#include "client/gateway/finder.h"
#include "client/gateway/gateway.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options/sampling_numbers.h"
#include "base/version.h"

#define S gw_options
static const tri_option own_options[] = {
    {TRI_OPT(S, model), .name = "model", .metavar = "DIR", .group = "Chat",
     .help = "folder of the served model; its tokenizer.json and chat template are needed for chat, tokenize and "
             "detokenize"},
    {TRI_OPT(S, endpoint), .name = "endpoint", .env = TRI_ENDPOINT_ENV, .metavar = "ADDRESS", .group = "Connection",
     .help = "address of the coordinator, ipc://PATH or tcp://HOST:PORT; default: this user's socket"},
    {TRI_OPT(S, key_file), .name = "key-file", .env = "TRIREME_KEY_FILE", .metavar = "FILE", .group = "Connection",
     .help = "the gateway's CURVE key pair (see trireme keygen)"},
    {TRI_OPT(S, server_key), .name = "server-key", .env = "TRIREME_SERVER_KEY", .metavar = "KEY", .group = "Connection",
     .help = "the coordinator's public key"},
    {TRI_OPT(S, connect_timeout_ms), .name = "connect-timeout-ms", .min = 1, .max = 3600000,
     .fallback = TRI_NUMBER_TEXT(TRIREME_CONNECT_TIMEOUT_MS), .group = "Connection",
     .help = "how long to wait for the coordinator"},
    {TRI_OPT(S, reconnect_timeout_ms), .name = "reconnect-timeout-ms", .env = "TRIREME_RECONNECT_TIMEOUT_MS", .min = 0,
     .max = 604800000, .fallback = TRI_NUMBER_TEXT(TRIREME_RECONNECT_TIMEOUT_MS), .group = "Connection",
     .help = "how long a lost coordinator may be away; 0: requests end with it"},
    {TRI_OPT(S, pulse_fd), .name = "pulse-fd", .hidden = true, .min = -1, .max = 1 << 20, .fallback = "-1",
     .metavar = "FD", .group = "Connection", .help = "pipe of trireme up, by which it sees that the gateway is alive"},
};
#undef S
enum { NUM_OWN = sizeof own_options / sizeof *own_options, MOST_OPTIONS = 64 };

static tri_options_spec spec = {
    .program = "trireme gateway",
    .usage = "--http [ADDR:]PORT [OPTION]...",
    .summary = "Serves OpenAI's HTTP API for a coordinator. SIGTERM or Ctrl-C drains.",
    .epilog = "Examples:\n"
              "  trireme gateway --http 8000\n"
              "  trireme gateway --http 0.0.0.0:8000 --api-key-file keys --endpoint tcp://head:5555\n",
    .version = "trireme gateway " TRIREME_VERSION,
};

/* The order of a start: the port is open before the coordinator is found, so that one that is taken shows at once; what
 * clients send until then waits in their sockets. A tokenizer that does not fit ends a start, but not a gateway that
 * runs: its coordinator may have changed. */
static int serve(gateway *g) {
  tri_error err = {0};
  trireme_error error = {0};
  tri_status st = gw_open(g, &err);
  if (st != TRI_OK) {
    fprintf(stderr, "trireme gateway: %s\n", err.message[0] ? err.message : tri_status_text(st));
    return tri_exit_code(st);
  }
  trireme_config config = gw_coordinator_config(g, (int)g->o.connect_timeout_ms);
  gw_found found;
  trireme_result r = gw_find_first(g, &config, &found, &error);
  if (r != TRIREME_OK && g->leaving) {
    gw_cut(g);
    return tri_exit_code(http_server_run(g->server));
  }
  if (r != TRIREME_OK || !gw_adopt(g, &found)) {
    fprintf(stderr, "trireme gateway: %s\n", error.message[0] ? error.message : "no connection to the coordinator");
    return TRI_EXIT_FAILED;
  }
  if (g->model.tokenizer && !g->model_fits) {
    fprintf(stderr, "trireme gateway: the tokenizer.json in %s is not the one that the coordinator serves %s with\n",
            g->o.model, g->name);
    return TRI_EXIT_USAGE;
  }
  tri_log(TRI_LOG_INFO, "gateway", "accepting requests for %s", found.names);
  gw_show_pulse(g); /* requests may be answered before the first tick, and from then on it must not stand still */
  st = http_server_run(g->server);
  return tri_exit_code(st);
}

int main(int argc, char **argv) {
  tri_options *parsed = NULL;
  gateway *g = tri_calloc(1, sizeof *g);
  tri_file_open_standard(true);
  if (!g) return TRI_EXIT_FAILED;
  tri_option table[MOST_OPTIONS];
  size_t n = tri_gateway_options_copy(table, offsetof(gw_options, http));
  memcpy(table + n, own_options, sizeof own_options);
  spec.options = table;
  spec.count = n + NUM_OWN;
  int code = tri_options_main(&spec, &g->o, argc, argv, &parsed);
  if (code < 0) {
    signal(SIGPIPE, SIG_IGN);
    tri_log_setup(TRI_LOG_INFO, "-");
    tri_log_with_time(true);
    g->started = time(NULL);
    code = serve(g);
  }
  gw_close(g);
  tri_options_free(parsed);
  tri_free(g);
  return code;
}
