/* SPDX-License-Identifier: Apache-2.0 */
/* trireme-coordinator: the front door. Options, the start and the end; loop.c has what is between them. */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "coordinator/mpi_launch.h"
#include "coordinator/jobs/response_cache.h"
#include "coordinator/server.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"

/* Returns whether jobs were lost. */
static bool say_end(struct server *s) {
  unsigned long long lost = tri_core_lost(s->core);
  if (lost)
    tri_log(TRI_LOG_ERROR, "coordinator", "ended: %llu running %s lost", lost, lost > 1 ? "jobs were" : "job was");
  if (!lost && s->cut_short) /* jobs of a client that was cut off before are cancelled, and not lost */
    tri_log(TRI_LOG_INFO, "coordinator", "ended at once: no job was running any more");
  else if (!lost)
    tri_log(TRI_LOG_INFO, "coordinator", "ended: no job was lost");
  if (s->draining) tri_supervisor_tell(&s->supervisor, "drained %llu", lost);
  return lost > 0;
}

static const tri_options_spec spec = {
    .program = "trireme-coordinator",
    .usage = "--model DIR [OPTION]...",
    .summary = "The coordinator of a Trireme cluster: accepts requests over ZeroMQ and gives them to replicas.",
    .epilog = "Examples:\n"
              "  mpirun -n 1 trireme-coordinator --launch mpi --model DIR : -n 4 trireme-worker --launch mpi --model "
              "DIR -tp 2 -pp 2\n"
              "  trireme up --model DIR -tp 2 -pp 2        starts this program and its workers\n",
    .version = "trireme-coordinator " TRIREME_VERSION,
    .config_file = true,
};

/* Opens all that the server has. What was opened before a failure is server_close's. */
static tri_status open_all(struct server *s, bool mpi, int *argc, char ***argv, tri_error *err) {
  bool one_host = true;
  tri_status st = tri_signals_catch(&s->signal_fd, err);
  if (st == TRI_OK) st = tri_serve_model_find(&s->opts, err);
  if (st == TRI_OK) st = tri_response_cache_check(s->opts.response_cache, s->opts.memory_cap, err);
  if (st == TRI_OK && mpi)
    st = tri_mpi_launch_join(argc, argv, s->opts.start_timeout, s->opts.interface, &one_host, &s->keys, err);
  if (st == TRI_OK) st = server_open(s, one_host, err);
  if (st == TRI_OK && mpi) st = tri_mpi_launch_hand_out(&s->boot, err);
  return st;
}

int main(int argc, char **argv) {
  static struct server s;
  tri_options *opts = NULL;
  tri_error err = {0};
  tri_file_open_standard(true);
  tri_options_spec sp = spec;
  sp.options = tri_serve_option_table;
  sp.count = tri_serve_option_count;
  int code = tri_options_main(&sp, &s.opts, argc, argv, &opts);
  if (code >= 0) return code;
  tri_log_setup((tri_log_level)s.opts.log_level, "-");
  tri_log_with_time(true);
  tri_zserver_allow_files();
  s.supervisor = (tri_supervisor){
      .event_fd = s.opts.event_fd, .notice_fd = s.opts.notice_fd, .on_event = server_take_event, .ctx = &s};
  bool mpi = s.opts.launch == TRI_LAUNCH_MPI;
  /* A supervisor's end raises SIGHUP, so that clients hear of it; mpirun's end raises SIGKILL, as for every rank. */
  int at_its_end = s.opts.event_fd >= 0 ? SIGHUP : 0;
  prctl(PR_SET_PDEATHSIG, mpi ? SIGKILL : at_its_end);
  s.signals = (tri_signal_history){.mpi = mpi, .supervised = s.opts.event_fd >= 0};
  tri_status st = open_all(&s, mpi, &argc, &argv, &err);
  tri_boot_free(&s.boot); /* from here on the public keys are enough */
  if (st != TRI_OK) {
    const char *field = tri_error_field_beside(&err);
    tri_log(TRI_LOG_ERROR, "coordinator", "%s%s%s", err.status ? err.message : tri_status_text(st),
            *field ? " -- " : "", field);
    tri_supervisor_tell(&s.supervisor, "failed %s", err.message);
    server_close(&s);
    _exit(tri_exit_code(st));
  }
  tri_supervisor_tell(&s.supervisor, "listening %s", tri_zserver_endpoint(s.clients));
  server_begin(&s);
  server_serve(&s);
  bool failed = s.failed || say_end(&s);
  server_close(&s);
  tri_options_free(opts);
  if (failed) _exit(TRI_EXIT_FAILED);
  if (mpi) tri_mpi_launch_leave();
  return TRI_EXIT_OK;
}
