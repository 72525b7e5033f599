/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `trireme up` and `trireme serve`: those of the coordinator and the workers, whose tables are taken
 * over as they are and whose values are passed on to the children, those of the gateway, and its own. */
#include <libgen.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/up/up.h"
#include "base/version.h"

enum {
  MOST_OPTIONS = 160,
  MOST_PASSED = TRI_UP_MAX_ARGS - 64, /* in addition to what a launcher takes */
  MOST_LAUNCHER_BYTES = 1023,         /* of --launcher-args */
  SERVE_PORT = 8000
};

static const char *const launchers[] = {"mpirun", "srun", NULL};

static const tri_option own_options[] = {
    {TRI_OPT(tri_up_options, hosts), .name = "hosts", .metavar = "H:N,...", .group = "Hosts",
     .help =
         "hosts and ranks on each, as in mpirun --host, for all replicas; default: this host, or a Slurm job's nodes"},
    {TRI_OPT(tri_up_options, launcher), .name = "launcher", .choices = launchers, .fallback = "mpirun",
     .group = "Hosts", .help = "program that starts the ranks of a replica"},
    {TRI_OPT(tri_up_options, launcher_args), .name = "launcher-args", .metavar = "\"ARG...\"", .group = "Hosts",
     .help = "more arguments for the launcher"},
    {TRI_OPT(tri_up_options, max_restarts), .name = "max-restarts", .min = 0, .max = 1000, .fallback = "5",
     .metavar = "N", .group = "Hosts",
     .help = "failed starts in a row after which a replica, the gateway or a coordinator is given up"},
    {TRI_OPT(tri_up_options, no_journal), .name = "no-journal", .group = "Service",
     .help = "keep no journal: requests end with their coordinator. By default, without --journal, it is in "
             "$XDG_STATE_HOME/trireme or ~/.local/state/trireme"},
    {TRI_OPT(tri_up_options, quarantine_time), .name = "quarantine-time", .min = 0, .max = 86400, .fallback = "600",
     .metavar = "SECONDS", .group = "Hosts",
     .help = "how long a host is avoided while other replicas serve, after its GPU failed or three starts in a row "
             "failed there; 0: never"},
};
/* The same address as other servers say it. */
static const tri_option http_options[] = {
    {TRI_OPT(tri_up_options, http_host), .name = "host", .metavar = "ADDR", .group = "HTTP",
     .help = "address of the HTTP server, instead of --http; default: 127.0.0.1"},
    {TRI_OPT(tri_up_options, http_port), .name = "port", .min = 0, .max = 65535, .metavar = "N", .group = "HTTP",
     .help = "port of the HTTP server, instead of --http; default: 8000"},
};
enum {
  NUM_OWN = sizeof own_options / sizeof *own_options,
  NUM_HTTP = sizeof http_options / sizeof *http_options,
};

static const tri_options_spec up_spec = {
    .program = "trireme up",
    .usage = "MODEL [OPTION]...",
    .summary =
        "Starts a coordinator and its replicas, with --http also an HTTP gateway, and restarts what dies. SIGTERM or "
        "Ctrl-C drains.",
    .epilog = "Examples:\n"
              "  trireme up --model DIR                         one worker on this host\n"
              "  trireme up --model DIR --http 8000             the same, with OpenAI's HTTP API on port 8000\n"
              "  trireme up --model DIR -tp 2 -pp 2 -dp 2       two replicas of four ranks\n"
              "  trireme up --model DIR -tp 4 --hosts a:2,b:2   one replica on two hosts\n",
    .version = "trireme up " TRIREME_VERSION,
    .config_file = true,
    .arg_option = "model",
};
static const tri_options_spec serve_spec = {
    .program = "trireme serve",
    .usage = "MODEL [OPTION]...",
    .summary = "Serves a model over OpenAI's HTTP API on port 8000 of this host, as trireme up --model MODEL --http "
               "8000 does. "
               "Common options of vLLM's and llama.cpp's servers are understood, or refused with the name of ours.",
    .epilog = "Examples:\n"
              "  trireme serve DIR\n"
              "  trireme serve DIR --port 8080 --tensor-parallel-size 2 --max-model-len 8192\n"
              "  trireme serve -m DIR -c 8192 -np 16\n"
              "  trireme serve DIR --host 0.0.0.0 --api-key-file keys\n",
    .version = "trireme serve " TRIREME_VERSION,
    .config_file = true,
    .arg_option = "model",
};

/* The table is put together from the coordinator's and the workers' options, the gateway's with their offsets moved,
 * and those of this program. */
int tri_up_options_read(tri_up *u, int argc, char **argv, tri_options **out) {
  static tri_option table[MOST_OPTIONS];
  static tri_options_spec spec;
  size_t n = 0;
  u->is_serve = argc > 0 && !strcmp(basename(argv[0]), "trireme-serve");
  spec = u->is_serve ? serve_spec : up_spec;
  u->called = u->is_serve ? "serve" : "up";
  for (size_t i = 0; i < tri_serve_option_count; i++)
    if (strcmp(tri_serve_option_table[i].group, "Launch")) /* those are for this program to give */
      table[n++] = tri_serve_option_table[i];              /* serve is the first member: the offsets hold */
  n += tri_gateway_options_copy(table + n, offsetof(tri_up_options, gateway));
  for (int i = 0; i < NUM_HTTP; i++) table[n++] = http_options[i];
  for (int i = 0; i < NUM_OWN; i++) table[n++] = own_options[i];
  spec.options = table;
  spec.count = n;
  spec.words = tri_up_words;
  spec.num_words = tri_up_num_words;
  spec.usual = u->is_serve ? tri_serve_usual : tri_up_usual;
  spec.num_usual = u->is_serve ? tri_serve_num_usual : tri_up_num_usual;
  u->opts.http_port = -1;
  return tri_options_main(&spec, &u->opts, argc, argv, out);
}

/* Makes one address for the gateway of what may be said in two ways. */
static tri_status find_http(tri_up *u, tri_error *err) {
  tri_up_options *o = &u->opts;
  bool has_port = o->http_port >= 0;
  char text[400];
  if (o->gateway.listen && (o->http_host || has_port))
    return tri_fail(err, TRI_USAGE, "http", "--http %.80s says all that --host and --port do", o->gateway.listen);
  if (o->gateway.listen || (!u->is_serve && !o->http_host && !has_port)) return TRI_OK;
  const char *host = o->http_host ? o->http_host : "127.0.0.1";
  if (!strcmp(host, "localhost")) host = "127.0.0.1";
  bool is_v6 = strchr(host, ':') && host[0] != '[';
  snprintf(text, sizeof text, "%s%.300s%s:%d", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
           has_port ? o->http_port : SERVE_PORT);
  o->gateway.listen = tri_arena_strndup(u->arena, text, strlen(text));
  return o->gateway.listen ? TRI_OK : TRI_NO_MEMORY;
}

static tri_status find_model(tri_up *u, tri_error *err) {
  /* vLLM's --served-model-name A B takes the model with it, too, where that comes after the names. */
  tri_opt_list *names = &u->opts.serve.served_model_name;
  if (!u->opts.serve.model && u->is_serve && names->count > 1) u->opts.serve.model = names->items[--names->count];
  if (!u->opts.serve.model)
    return tri_fail(err, TRI_USAGE, "model", "--model is missing. Usage: trireme %s MODEL [OPTION]...", u->called);
  return tri_serve_model_find(&u->opts.serve, err);
}

/* One word, NAME=VALUE, so that a value that begins with a dash is not taken for an option. */
const char *tri_up_argument(tri_up *u, const char *name, const char *value) {
  size_t room = strlen(name) + strlen(value) + sizeof "--=";
  char *text = tri_arena_alloc(u->arena, room, 1);
  if (text) snprintf(text, room, "--%s=%s", name, value);
  return text;
}

/* The children get what was given here, in the command line, the environment or a file, in one spelling. */
static tri_status pass(tri_up *u, const tri_options *opts, tri_error *err) {
  for (size_t i = 0; i < tri_serve_option_count; i++) {
    const tri_option *t = &tri_serve_option_table[i];
    const char *text = strcmp(t->name, "model") != 0 ? tri_options_text(opts, t->name) : u->opts.serve.model;
    const tri_opt_list one = {.items = &text, .count = text != NULL};
    const tri_opt_list *all = &one;
    if (t->type == TRI_OPT_LIST) all = (const tri_opt_list *)((const char *)&u->opts.serve + t->offset);
    for (size_t k = 0; k < all->count; k++) {
      if (u->num_pass == MOST_PASSED) return tri_fail(err, TRI_TOO_LARGE, "arguments", "too many arguments");
      u->pass[u->num_pass] = tri_up_argument(u, t->name, all->items[k]);
      if (!u->pass[u->num_pass++]) return TRI_NO_MEMORY;
    }
  }
  return TRI_OK;
}

/* Refuses what a command has no room for: half of an argument would be another one. */
tri_status tri_up_options_check(const tri_up *u, tri_error *err) {
  const char *text = u->opts.launcher_args;
  int words = 0, most = MOST_PASSED - u->num_pass;
  if (!text) return TRI_OK;
  if (strlen(text) > MOST_LAUNCHER_BYTES)
    return tri_fail(err, TRI_TOO_LARGE, "launcher_args", "--launcher-args: %zu bytes, the limit is %d", strlen(text),
                    MOST_LAUNCHER_BYTES);
  for (; *text; text += strcspn(text, " ")) {
    text += strspn(text, " ");
    if (*text) words++;
  }
  if (words <= most) return TRI_OK;
  return tri_fail(err, TRI_TOO_LARGE, "launcher_args", "--launcher-args: %d arguments, the limit is %d", words, most);
}

tri_status tri_up_options_finish(tri_up *u, const tri_options *opts, tri_error *err) {
  TRI_CHECK(tri_arena_create(4096, &u->arena));
  TRI_CHECK(find_model(u, err));
  TRI_CHECK(find_http(u, err));
  return pass(u, opts, err);
}
