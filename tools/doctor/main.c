/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme doctor`: looks at hosts before a cluster is started there. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/last_hang.h"
#include "base/mem.h"
#include "base/options/options.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "tools/doctor/doctor.h"

static const char *const launchers[] = {"mpirun", "srun", NULL};

static const tri_option table[] = {
    {TRI_OPT(tri_doctor_options, model), .name = "model", .alias = "m", .metavar = "DIR",
     .help = "model folder whose size and disk to check"},
    {TRI_OPT(tri_doctor_options, nvme_path), .name = "nvme-path", .metavar = "DIR[,DIR...]",
     .help = "folders that packs of weights will go to"},
    {TRI_OPT(tri_doctor_options, ports), .name = "ports", .metavar = "N[,N...]", .fallback = "8000",
     .help = "TCP ports that must be free"},
    {TRI_OPT(tri_doctor_options, hosts), .name = "hosts", .metavar = "H:N,...",
     .help = "hosts to check, as for trireme up; default: this host, or a Slurm job's nodes"},
    {TRI_OPT(tri_doctor_options, hostfile), .name = "hostfile", .metavar = "FILE",
     .help = "the same from a file with a host a line, \"NAME slots=N\""},
    {TRI_OPT(tri_doctor_options, launcher), .name = "launcher", .choices = launchers, .fallback = "mpirun",
     .help = "program that starts others on hosts"},
    {TRI_OPT(tri_doctor_options, launcher_args), .name = "launcher-args", .metavar = "\"ARG...\"",
     .help = "more arguments for the launcher"},
    {TRI_OPT(tri_doctor_options, mpi_start), .name = "mpi-start", .fallback = "true",
     .help = "start two ranks with MPI, which takes a second"},
    {TRI_OPT(tri_doctor_options, timeout), .name = "timeout", .min = 1, .max = 3600, .fallback = "60",
     .metavar = "SECONDS", .help = "time limit for a host, or for the two ranks"},
    {TRI_OPT(tri_doctor_options, json), .name = "json", .help = "print one JSON object"},
    {TRI_OPT(tri_doctor_options, last_hang), .name = "last-hang",
     .help = "print the report of the last replica that hung, which its coordinator keeps on this host"},
    {TRI_OPT(tri_doctor_options, mpi_rank), .name = "mpi-rank", .hidden = true, .help = "be one of the two ranks"},
    {TRI_OPT(tri_doctor_options, this_host), .name = "this-host", .hidden = true,
     .help = "this one, in a Slurm job too"},
};

static const tri_options_spec spec = {
    .program = "trireme doctor",
    .usage = "[OPTION]...",
    .summary =
        "Checks this host, or a list of hosts, before a cluster is started there. Exit code 1 if something would fail.",
    .epilog = "Examples:\n"
              "  trireme doctor --model DIR\n"
              "  trireme doctor --model DIR --hosts a:8,b:8 --json\n"
              "  trireme doctor --last-hang\n",
    .version = "trireme doctor " TRIREME_VERSION,
    .config_file = true,
    TRI_OPTIONS(table),
};

static int show_last_hang(void) {
  char path[PATH_MAX], *text = NULL;
  size_t len = 0;
  tri_error err = {0};
  tri_status st = tri_last_hang_read(path, &text, &len, &err);
  if (st == TRI_OK) fwrite(text, 1, len, stdout);
  if (st == TRI_NOT_FOUND)
    fprintf(stderr, "trireme doctor: no report of a replica that hung: there is no %s\n",
            path[0] ? path : "state folder (XDG_STATE_HOME, HOME)");
  else if (st != TRI_OK)
    fprintf(stderr, "trireme doctor: %s: %s\n", path, err.message[0] ? err.message : tri_status_text(st));
  tri_free(text);
  return st == TRI_OK ? TRI_EXIT_OK : TRI_EXIT_FAILED;
}

/* Every host is looked at by a doctor of its own. MPI is tried on the first two hosts, or with two ranks on the only
 * one, since what fails between hosts fails between any two. */
static void check_list(const tri_doctor_options *o, char **names, int count, tri_findings *all) {
  char two[600];
  tri_doctor_check_hosts(o, names, count, all);
  if (!o->mpi_start) return;
  snprintf(two, sizeof two, "%.250s%s%.250s", names[0], count > 1 ? "," : ":2", count > 1 ? names[1] : "");
  if (count == 1 && !strcmp(o->launcher, "srun")) snprintf(two, sizeof two, "%.250s", names[0]);
  tri_doctor_check_mpi(o, two, &all[0]);
}

/* An empty entry is refused, also after the last comma: a port may be missing there. */
static tri_status check_port_list(const char *ports, tri_error *err) {
  enum { MOST_PORT = 65535 };
  for (const char *p = ports; p && *p; p += *p == ',') {
    char *end;
    long port = strtol(p, &end, 10);
    bool whole = end > p && (!*end || (*end == ',' && end[1]));
    if (!whole || port < 1 || port > MOST_PORT)
      return tri_fail(err, TRI_USAGE, "ports", "--ports is \"%s\": a list of numbers from 1 to %d is wanted", ports,
                      MOST_PORT);
    p = end;
  }
  return TRI_OK;
}

/* Refuses what a command for another host has no room for: half of it would be another one. */
static tri_status check_lengths(const tri_doctor_options *o, tri_error *err) {
  enum { MOST_BYTES = 3500, MOST_WORDS = 32 };
  const char *const texts[] = {o->launcher, o->launcher_args, o->model, o->nvme_path, o->ports};
  size_t bytes = 0;
  int words = 0;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) bytes += texts[i] ? strlen(texts[i]) : 0;
  if (bytes > MOST_BYTES)
    return tri_fail(err, TRI_TOO_LARGE, "launcher_args",
                    "--launcher, --launcher-args, --model, --nvme-path and --ports have %zu bytes together, the limit "
                    "is %d",
                    bytes, MOST_BYTES);
  for (const char *text = o->launcher_args; text && *text; text += strcspn(text, " ")) {
    text += strspn(text, " ");
    if (*text) words++;
  }
  if (words <= MOST_WORDS) return TRI_OK;
  return tri_fail(err, TRI_TOO_LARGE, "launcher_args", "--launcher-args: %d arguments, the limit is %d", words,
                  MOST_WORDS);
}

static int check(const tri_doctor_options *o) {
  tri_error err = {0};
  char **names = NULL, *memory = NULL;
  int count = 0, code = TRI_EXIT_OK;
  tri_findings *all = NULL;
  tri_status st;
  TRI_TRY(check_port_list(o->ports, &err));
  TRI_TRY(check_lengths(o, &err));
  TRI_TRY(tri_doctor_list_hosts(o, &names, &count, &memory, &err));
  /* No names: this host is checked, and MPI is started on it. */
  int hosts = count ? count : 1;
  all = tri_calloc((size_t)hosts, sizeof *all);
  TRI_TRY(all ? TRI_OK : TRI_NO_MEMORY);
  if (count) {
    check_list(o, names, count, all);
  } else {
    tri_doctor_check(o, all);
    if (o->mpi_start) tri_doctor_check_mpi(o, NULL, all);
  }
  (o->json ? tri_findings_print_json : tri_findings_print)(all, hosts, stdout);
  if (tri_findings_worst(all, hosts) == TRI_LEVEL_FAIL) code = TRI_EXIT_FAILED;
cleanup:
  if (st != TRI_OK) {
    fprintf(stderr, "trireme doctor: %s\n", err.message[0] ? err.message : tri_status_text(st));
    code = tri_exit_code(st);
  }
  tri_free(all);
  tri_free(names);
  tri_free(memory);
  return code;
}

int main(int argc, char **argv) {
  tri_doctor_options o = {0};
  tri_options *parsed = NULL;
  int code = tri_options_main(&spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  signal(SIGPIPE, SIG_IGN);
  if (o.mpi_rank)
    code = tri_doctor_mpi_rank();
  else
    code = o.last_hang ? show_last_hang() : check(&o);
  tri_options_free(parsed);
  return tri_stdout_end(spec.program, code);
}
