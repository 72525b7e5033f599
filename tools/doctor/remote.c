/* SPDX-License-Identifier: Apache-2.0 */
/* Other hosts: this program is started there through the launcher that `trireme up` would use, and its findings are
 * read. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host/hosts.h"
#include "base/mem.h"
#include "base/wait.h"
#include "tools/doctor/doctor.h"

/* Words go straight to exec: no shell on this host reads them. main.c has measured their lengths, so that the fixed
 * sizes below suffice. */
enum { MOST_ARGS = 64, MOST_BYTES = 1 << 20, OUTPUT_BYTES = 64 << 10 };

/* A command line, and the text of its words. */
struct command {
  char *argv[MOST_ARGS + 1];
  int n;
  char text[8192];
  size_t used;
};

static void add(struct command *c, const char *word) {
  size_t room = sizeof c->text - c->used, len = strlen(word) + 1;
  if (c->n == MOST_ARGS || len > room) return;
  c->argv[c->n++] = memcpy(c->text + c->used, word, len);
  c->used += len;
}

static void add_words(struct command *c, const char *words) {
  char text[2048], *save = NULL;
  snprintf(text, sizeof text, "%s", words ? words : ""); /* which main.c has measured */
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) add(c, word);
}

static void add_value(struct command *c, const char *name, const char *value) {
  if (!value) return;
  add(c, name);
  add(c, value);
}

/* The launcher and its arguments for so many ranks on hosts; NULL: on this one.
 *
 * --overlap lets a step run in a job whose resources other steps have; --oversubscribe, two ranks where mpirun counts
 * one slot. */
static void add_launcher(struct command *c, const tri_doctor_options *o, int ranks, const char *hosts) {
  char number[16], program[4200] = "";
  bool by_srun = !strcmp(o->launcher, "srun");
  snprintf(number, sizeof number, "%d", ranks);
  add(c, o->launcher);
  add(c, "-n");
  add(c, number);
  add_words(c, by_srun ? "--overlap --mpi=pmix" : "--bind-to none");
  if (!by_srun && !hosts) add(c, "--oversubscribe");
  if (hosts) add_value(c, by_srun ? "--nodelist" : "--host", hosts);
  add_words(c, o->launcher_args);
  ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
  if (len > 0) program[len] = '\0';
  add(c, program);
}

/* Puts what a program has said into one line. */
static const char *one_line(char *text) {
  for (char *s = text; *s; s++)
    if ((unsigned char)*s < ' ') *s = ' ';
  return text;
}

void tri_doctor_check_mpi(const tri_doctor_options *o, const char *hosts, tri_findings *out) {
  enum { RANKS = 2 };
  struct command c = {0};
  tri_running run;
  tri_error err = {0};
  char text[2048] = "";
  add_launcher(&c, o, RANKS, hosts);
  add(&c, "--mpi-rank");
  int code = -1;
  if (tri_run_start(c.argv, &run, &err) == TRI_OK)
    code = tri_run_end(&run, tri_deadline_after_ms((int64_t)(o->timeout * 1e3)), text, sizeof text);
  bool met = !code && strstr(text, "2 ranks have met");
  tri_finding *x = tri_findings_add(out, met ? TRI_LEVEL_OK : TRI_LEVEL_FAIL, "mpi-start");
  if (met)
    snprintf(x->value, sizeof x->value, "two ranks have met%s%.150s", hosts ? " on " : "", hosts ? hosts : "");
  else if (code < 0)
    snprintf(x->value, sizeof x->value, "two ranks did not meet within %g s", o->timeout);
  else
    snprintf(x->value, sizeof x->value, "%s ended with code %d: %.180s", o->launcher, code, one_line(text));
  if (!met)
    snprintf(x->advice, sizeof x->advice, "Run '%s -n 2 hostname' by hand, and see to ssh, firewalls and PATH.",
             o->launcher);
}

/* ---- lists of hosts ---- */

static bool is_listed(char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (!strcmp(names[i], name)) return true;
  return false;
}

/* A name is the first word of its line; the rest says slots. */
static void take_lines(char *text, char **names, int *count) {
  char *save = NULL, *words = NULL;
  for (char *line = strtok_r(text, "\n", &save); line && *count < TRI_HOSTS_MAX; line = strtok_r(NULL, "\n", &save)) {
    line[strcspn(line, "#")] = '\0';
    char *name = strtok_r(line, " \t\r", &words);
    if (name && !is_listed(names, *count, name)) names[(*count)++] = name;
  }
}

static tri_status take_hosts(const tri_hosts *h, char **names, int *count, char **memory) {
  size_t bytes = (size_t)h->count * TRI_HOST_NAME;
  if (!(*memory = tri_malloc(bytes ? bytes : 1, 1))) return TRI_NO_MEMORY;
  for (int i = 0; i < h->count && *count < TRI_HOSTS_MAX; i++) {
    char *name = *memory + (size_t)i * TRI_HOST_NAME;
    memcpy(name, h->list[i].name, TRI_HOST_NAME);
    if (!is_listed(names, *count, name)) names[(*count)++] = name;
  }
  return TRI_OK;
}

tri_status tri_doctor_list_hosts(const tri_doctor_options *o, char ***names, int *count, char **memory,
                                 tri_error *err) {
  tri_hosts hosts = {0};
  const char *nodes = o->this_host ? NULL : getenv("SLURM_JOB_NODELIST");
  size_t len;
  tri_status st = TRI_OK;
  *count = 0;
  *memory = NULL;
  if (o->hosts && o->hostfile) return tri_fail(err, TRI_USAGE, "hostfile", "--hosts and --hostfile exclude each other");
  *names = tri_calloc(TRI_HOSTS_MAX, sizeof **names);
  if (!*names) return tri_fail(err, TRI_NO_MEMORY, "hosts", "no memory");
  if (o->hosts)
    TRI_TRY(tri_hosts_parse(o->hosts, &hosts, err));
  else if (nodes && !o->hostfile)
    TRI_TRY(tri_hosts_parse_slurm(nodes, "", &hosts, err));
  if (hosts.count) TRI_TRY(take_hosts(&hosts, *names, count, memory));
  if (o->hostfile) {
    st = tri_file_read(o->hostfile, MOST_BYTES, memory, &len, err);
    if (st != TRI_OK) tri_fail(err, st, "hostfile", "--hostfile %.200s: %s", o->hostfile, tri_status_text(st));
    TRI_TRY(st);
    take_lines(*memory, *names, count);
    if (!*count) st = tri_fail(err, TRI_USAGE, "hostfile", "--hostfile %.200s names no host", o->hostfile);
  }
cleanup:
  tri_hosts_free(&hosts);
  return st;
}

/* ---- their findings ---- */

static void say_unreachable(const tri_doctor_options *o, const char *name, int code, char *text, tri_findings *out) {
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_FAIL, "reach");
  if (code < 0)
    snprintf(x->value, sizeof x->value, "no answer within %g s", o->timeout);
  else
    snprintf(x->value, sizeof x->value, "%s ended with code %d: %.180s", o->launcher, code, one_line(text));
  snprintf(x->advice, sizeof x->advice,
           "Run '%s -n 1 --host %.60s hostname' by hand; Trireme must be installed under the same path there.",
           o->launcher, name);
}

/* The text may stand among the words of the launcher. */
static void take_findings(const tri_doctor_options *o, const char *name, int code, char *text, tri_findings *out) {
  tri_error err = {0};
  const char *begin = strstr(text, "{\"worst\"");
  size_t len = begin ? strcspn(begin, "\n") : 0;
  bool read = begin && tri_findings_read(begin, len, out, &err) == TRI_OK;
  if (!read) say_unreachable(o, name, code, text, out);
  snprintf(out->host, sizeof out->host, "%s", name); /* as the list calls it */
}

/* Half of the time: a doctor there that runs out of it still reports before this one gives up. */
static tri_status start_on(const tri_doctor_options *o, const char *name, tri_running *run) {
  struct command c = {0};
  char seconds[32];
  tri_error err = {0};
  snprintf(seconds, sizeof seconds, "%g", o->timeout / 2);
  add_launcher(&c, o, 1, name);
  add_words(&c, "--this-host --json --no-mpi-start");
  add_value(&c, "--launcher", o->launcher);
  add_value(&c, "--timeout", seconds);
  add_value(&c, "--model", o->model);
  add_value(&c, "--nvme-path", o->nvme_path);
  add_value(&c, "--ports", o->ports);
  return tri_run_start(c.argv, run, &err);
}

/* All are started before the first is waited for, and all have the same deadline: a list of hosts takes as long as its
 * slowest one. */
void tri_doctor_check_hosts(const tri_doctor_options *o, char **names, int count, tri_findings *out) {
  tri_running *runs = tri_calloc((size_t)count, sizeof *runs);
  char *text = tri_malloc(OUTPUT_BYTES, 1);
  int64_t deadline = tri_deadline_after_ms((int64_t)(o->timeout * 1e3));
  for (int i = 0; runs && i < count; i++)
    if (start_on(o, names[i], &runs[i]) != TRI_OK) runs[i].pid = 0;
  for (int i = 0; i < count; i++) {
    char nothing[1] = "";
    bool runs_there = runs && text && runs[i].pid;
    int code = runs_there ? tri_run_end(&runs[i], deadline, text, OUTPUT_BYTES) : -1;
    take_findings(o, names[i], code, runs_there ? text : nothing, &out[i]);
  }
  tri_free(runs);
  tri_free(text);
}
