/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's loop: signals (by signalfd), lines of events from the coordinator, the gateway's pulse, and five
 * times a second the clock.
 *
 *   running                 what ends is started again
 *   draining                asked to end: first the gateway finishes its answers, then the coordinator its jobs, then
 *                           the replicas leave; nothing is started any more
 *   at_once                 asked again: the coordinator gets a moment for its clients, then all is killed
 *   stopping                everything is being killed, with the exit code that is settled by then
 *
 * Each flag stays set, and each step has a deadline, after which the next one follows by force. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/wire/socket_lock.h"
#include "coordinator/net/signals.h"
#include "coordinator/up/up.h"
#include "base/file.h"
#include "base/line_pipe.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"
#include "runtime/model/layout.h"

enum { STOP_GRACE_MS = 5000, LAST_WORDS_MS = 1500, EMPTY_MS = 500 };

static tri_status prepare(tri_up *u, tri_error *err) {
  ssize_t n = readlink("/proc/self/exe", u->bin_dir, sizeof u->bin_dir - 1);
  if (n <= 0) return tri_fail(err, TRI_IO, "exe", "cannot find my own program");
  *strrchr(u->bin_dir, '/') = '\0';
  const char *base = getenv("XDG_RUNTIME_DIR");
  if (!base || access(base, W_OK)) base = "/tmp";
  tri_up_folders_clean("/dev/shm"); /* where a replica of several ranks has its segments (spawn.c) */
  tri_status st = tri_up_folder_make(base, &u->run_dir, err);
  snprintf(u->boot_path, sizeof u->boot_path, "%s/boot", u->run_dir.path);
  snprintf(u->keys_path, sizeof u->keys_path, "%s/keys", u->run_dir.path);
  snprintf(u->workers_path, sizeof u->workers_path, "%s/workers", u->run_dir.path);
  return st;
}

/* A coordinator that was killed leaves its socket, at which clients would wait for an answer. It is removed
 * where no process listens any more: another cluster may have its own there by now. The file's number would not tell,
 * as a coordinator may bind its socket anew. */
static void remove_socket(const tri_up *u) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  const char *path = u->endpoint + 6;
  if (!u->stopping || strncmp(u->endpoint, "ipc://", 6) != 0 || strlen(path) >= sizeof at.sun_path) return;
  memcpy(at.sun_path, path, strlen(path));
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), lock = -1;
  bool free = tri_socket_lock(path, &lock, NULL) == TRI_OK; /* one that begins to listen has it */
  if (fd >= 0 && free && connect(fd, (const struct sockaddr *)&at, sizeof at) && errno == ECONNREFUSED) unlink(path);
  tri_socket_unlock(path, lock);
  if (fd >= 0) close(fd);
}

/* Refuses here, once, a layout that every rank would refuse after its start. */
static tri_status check_layout(tri_up *u, tri_error *err) {
  const tri_serve_options *o = &u->opts.serve;
  tri_shard shard;
  TRI_CHECK(tri_serve_layout_make(o, &u->layout, err));
  tri_model_config *config = tri_calloc(1, sizeof *config);
  if (!config) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory");
  tri_status st = tri_model_config_load(o->model, TRI_CONFIG_RULES(o), config, err);
  const tri_serve_layout *l = &u->layout;
  tri_expert_placement *placement = NULL;
  tri_expert_placement_config pc = {.ep = l->ep,
                                    .strategy = (tri_expert_strategy)o->expert_placement_strategy,
                                    .num_redundant = o->num_redundant_experts,
                                    .file = o->init_expert_location,
                                    .moves = o->enable_eplb};
  if (st == TRI_OK) st = tri_expert_placement_make(config, &pc, &placement, err);
  tri_parallel p = {.tp = l->tp, .pp = l->pp, .dp = l->dp, .ep = l->ep, .placement = placement};
  if (st == TRI_OK) st = tri_shard_make(config, p, &shard, err);
  tri_expert_placement_free(placement);
  tri_free(config);
  return st;
}

/* It may have ended already: process 0 would be this one's whole replica. */
static void tell_coordinator(const tri_up *u, int signal) {
  if (u->coordinator > 0) kill(u->coordinator, signal);
}

/* After a gateway that took its time a signal would be another one than that which every process may have had. */
static void drain_coordinator(tri_up *u, bool late) {
  if (u->stopping || u->coordinator_told || u->at_once) return;
  u->coordinator_told = true;
  u->told_late = late;
  u->deadline_ns = tri_deadline_after_ms((int64_t)(u->opts.serve.drain_timeout * 1e3) + STOP_GRACE_MS);
  if (!late || !tri_up_tell(u, "drain %d", u->drain_signal)) tell_coordinator(u, u->drain_signal);
}

/* Asked twice: at once, but for the coordinator's last words to its clients. */
static void end_at_once(tri_up *u, int signal) {
  tri_log(TRI_LOG_WARN, u->called, "SIG%s again: ending everything at once", sigabbrev_np(signal));
  u->deadline_ns = tri_deadline_after_ms(u->stopping ? 0 : LAST_WORDS_MS);
  u->at_once = true;
  tri_up_gateway_stop(u, LAST_WORDS_MS);
  if (u->stopping || (u->coordinator_told && !u->told_late))
    tell_coordinator(u, SIGTERM);
  else
    tri_up_tell_why(u, "it was told again to shut down, which means at once");
}

static void drain(tri_up *u, int signal) {
  int64_t now = tri_now_ns(), gateway_ms = tri_up_gateway_drain_ms(u) + STOP_GRACE_MS;
  if (u->at_once) return;
  if (u->draining) {
    if (now - u->asked_ns >= TRI_SAME_REQUEST_MS * 1000000LL) end_at_once(u, signal);
    return;
  }
  u->asked_ns = now;
  u->draining = true;
  /* The coordinator names in its log what it got. To it SIGHUP means that its supervisor is gone. */
  u->drain_signal = signal == SIGHUP ? SIGTERM : signal;
  if (u->stopping) return; /* for another reason, and soon */
  if (u->away) { /* it is not known which jobs would end, and with a journal the next start continues with them */
    tri_log(TRI_LOG_WARN, u->called, "SIG%s while there is no coordinator: ending everything", sigabbrev_np(signal));
    tri_up_stop_all(u, TRI_EXIT_FAILED);
    return;
  }
  tri_log(TRI_LOG_INFO, u->called, "SIG%s: draining", sigabbrev_np(signal));
  u->deadline_ns = tri_deadline_after_ms(gateway_ms + STOP_GRACE_MS);
  tri_up_replicas_drain(u);
  if (!tri_up_gateway_stop(u, gateway_ms)) drain_coordinator(u, false);
}

static void start_replicas(tri_up *u) {
  tri_error err = {0};
  tri_status st = tri_boot_load(u->boot_path, tri_deadline_after_ms(5000), &u->boot, &err);
  if (st != TRI_OK) tri_up_give_up(u, TRI_EXIT_FAILED, "%s", err.message);
  for (int g = 0; !u->stopping && g < u->layout.replicas; g++) tri_up_replica_start(u, g);
}

/* The replicas that run know the keys of their first coordinator alone. */
static void compare_boot(tri_up *u) {
  tri_boot now = {.replicas = 0};
  tri_error err = {0};
  bool same = tri_boot_load(u->boot_path, tri_now_ns(), &now, &err) == TRI_OK && tri_boot_equal(&now, &u->boot);
  tri_boot_free(&now);
  if (!same)
    tri_up_give_up(
        u, TRI_EXIT_FAILED,
        "%s was removed or changed while the coordinator was started again: the running replicas cannot find this one",
        u->boot_path);
}

/* Takes a line of the coordinator's: listening ENDPOINT; came REPLICA EPOCH RANK; ready REPLICA EPOCH; drained LOST;
 * lost REPLICA EPOCH RANK CODE WHY. What it says of an earlier epoch is over. Others ("alive") only show that it lives.
 */
static void take_event(tri_up *u, char *line) {
  unsigned replica, rank;
  unsigned long long epoch;
  int used = 0, failed;
  char code[32];
  if (!strncmp(line, "listening ", 10)) {
    tri_up_coordinator_listens(u, line + 10);
    if (u->boot.endpoint[0])
      compare_boot(u);
    else
      start_replicas(u);
    tri_up_gateway_begin(u);
  } else if (sscanf(line, "came %u %llu %u", &replica, &epoch, &rank) == 3 && replica < TRI_UP_MAX_REPLICAS) {
    if (u->replicas[replica].epoch == epoch) tri_up_start_came(u, (int)replica, rank);
  } else if (sscanf(line, "ready %u %llu", &replica, &epoch) == 2 && replica < TRI_UP_MAX_REPLICAS) {
    if (u->replicas[replica].epoch == epoch) tri_up_replica_ready(u, (int)replica);
  } else if (sscanf(line, "drained %llu", &epoch) == 1) {
    u->drained = true;
    if (epoch && !u->stopping) u->exit_code = TRI_EXIT_FAILED; /* jobs were lost */
  } else if (sscanf(line, "lost %u %llu %d %31s %n", &replica, &epoch, &failed, code, &used) == 4 && used &&
             replica < TRI_UP_MAX_REPLICAS) {
    if (u->replicas[replica].epoch == epoch) tri_up_replica_lost(u, (int)replica, failed, code, line + used);
  }
}

static void read_events(tri_up *u) {
  for (;;) {
    const size_t most = sizeof u->line - 1;
    size_t held = u->line_len < most ? u->line_len : 0; /* no event is so long */
    ssize_t n = read(u->event_fd, u->line + held, most - held);
    if (n <= 0) return;
    u->line_len = held + (size_t)n;
    u->line[u->line_len] = '\0';
    u->last_word_ns = tri_now_ns();
    for (char *end; (end = strchr(u->line, '\n'));) {
      *end = '\0';
      take_event(u, u->line);
      u->line_len -= (size_t)(end + 1 - u->line);
      memmove(u->line, end + 1, u->line_len + 1);
    }
  }
}

/* A launcher that does not see its ranks end (anybody may hold mpirun up through its open ports) is not waited for. On
 * other hosts it has daemons, which are its children as long as they live. */
static void end_empty_launchers(tri_up *u, int64_t now) {
  if (!u->draining || u->coordinator || now < u->empty_check_ns) return;
  u->empty_check_ns = now + EMPTY_MS * 1000000LL;
  for (int g = 0; g < u->layout.replicas; g++) {
    tri_up_replica *replica = &u->replicas[g];
    bool alone = !replica->segments.path[0]; /* no launcher, or not one of this host's ranks */
    if (!replica->pid || alone || tri_up_has_children(replica->pid)) continue;
    if (replica->empty) tri_up_kill(replica->pid, &replica->killed_ns);
    replica->empty = true;
  }
}

/* A replica that still loads has nothing to finish, and looks for its coordinator when it has loaded. */
static void kill_loading(tri_up *u) {
  for (int g = 0; g < u->layout.replicas; g++)
    if (!u->replicas[g].ready) tri_up_kill(u->replicas[g].pid, &u->replicas[g].killed_ns);
}

static void coordinator_ended(tri_up *u, int status) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : TRI_EXIT_FAILED;
  char text[96];
  u->coordinator = 0;
  read_events(u);
  if (u->drained && !u->at_once && !u->stopping) { /* replicas that serve leave by themselves */
    kill_loading(u);
    int64_t until = tri_deadline_after_ms(STOP_GRACE_MS);
    if (until < u->deadline_ns) u->deadline_ns = until;
    return;
  }
  if (u->draining && !u->at_once && !u->stopping && !u->endpoint[0]) { /* it had not begun, and has no jobs */
    tri_up_stop_all(u, TRI_EXIT_OK);
    return;
  }
  if (!u->stopping && !u->draining && tri_up_coordinator_again(u, status)) return;
  if (!u->stopping && !u->at_once)
    tri_log(TRI_LOG_ERROR, u->called, "the coordinator %s: ending the replicas", tri_up_end_text(status, text));
  tri_up_stop_all(u, code ? code : TRI_EXIT_FAILED);
}

static void gateway_ended(tri_up *u, int status) {
  tri_up_gateway_ended(u, status);
  if (u->draining) drain_coordinator(u, true);
}

static void reap(tri_up *u) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == u->coordinator) coordinator_ended(u, status);
    if (pid == u->gateway.pid) gateway_ended(u, status);
    for (int g = 0; g < u->layout.replicas; g++)
      if (u->replicas[g].pid == pid) tri_up_replica_ended(u, g, status);
  }
}

static void read_signals(tri_up *u) {
  struct signalfd_siginfo info;
  while (read(u->signal_fd, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD)
      reap(u);
    else if (info.ssi_signo == SIGHUP && u->opts.gateway.api_key_file)
      tri_up_gateway_reload(u);
    else if (info.ssi_signo != SIGUSR1 || !u->draining)
      drain(u, (int)info.ssi_signo); /* Slurm may deliver SIGUSR1 more than once */
  }
}

/* A coordinator or a gateway that does not die has the place where the next one would listen: a cluster
 * that continues waits for its end. One that ends does not. The status is what waitpid tells of such an end. */
static void leave_behind(tri_up *u, int64_t now) {
  if (!u->stopping && !u->draining) return;
  if (tri_up_is_stuck(u, u->gateway.pid, u->gateway.killed_ns, now, "the gateway")) gateway_ended(u, SIGKILL);
  if (tri_up_is_stuck(u, u->coordinator, u->coordinator_killed_ns, now, "the coordinator"))
    coordinator_ended(u, SIGKILL);
}

static bool anything_runs(const tri_up *u) {
  bool runs = u->coordinator > 0 || u->gateway.pid > 0;
  for (int g = 0; g < u->layout.replicas; g++) runs |= u->replicas[g].pid > 0;
  return runs;
}

static void check_times(tri_up *u) {
  int64_t now = tri_now_ns();
  if (u->notice_fd >= 0) tri_line_pipe_flush(u->notice_fd, &u->notices);
  end_empty_launchers(u, now);
  if ((u->draining || !u->listening) && now > u->deadline_ns && !u->stopping) {
    if (!u->at_once)
      tri_log(TRI_LOG_ERROR, u->called, "%s took too long: ending everything",
              u->draining ? "draining" : "the coordinator's start");
    tri_up_stop_all(u, TRI_EXIT_FAILED);
  }
  if (u->stopping && now > u->deadline_ns) tri_up_kill(u->coordinator, &u->coordinator_killed_ns);
  tri_up_coordinator_check(u, now);
  tri_up_gateway_check(u, now);
  tri_up_replicas_check(u, now);
  leave_behind(u, now);
}

static int supervise(tri_up *u) {
  while (anything_runs(u) || (!u->stopping && !u->draining)) {
    struct pollfd fds[] = {{.fd = u->signal_fd, .events = POLLIN},
                           {.fd = u->coordinator > 0 ? u->event_fd : -1, .events = POLLIN},
                           {.fd = u->gateway.pid > 0 ? u->gateway.pulse_fd : -1, .events = POLLIN}};
    poll(fds, 3, 200);
    if (fds[1].revents & POLLIN) read_events(u);
    if (fds[2].revents & POLLIN) tri_up_gateway_pulse(u);
    read_signals(u);
    reap(u);
    check_times(u);
  }
  if (u->draining) tri_log(TRI_LOG_INFO, u->called, "everything has ended, exit code %d", u->exit_code);
  return u->exit_code;
}

static void end_well(int signal) {
  (void)signal;
  _exit(TRI_EXIT_OK);
}

/* Returns whether SIGHUP is left alone: its parent had it ignored, as nohup does. With keys it means
 * that these are read again, which a terminal's end may ask for as well. */
static bool leaves_hangup(const tri_up *u) {
  struct sigaction had;
  return !u->opts.gateway.api_key_file && !sigaction(SIGHUP, NULL, &had) && had.sa_handler == SIG_IGN;
}

/* From here on signals are read from u->signal_fd. SIGTERM gets back what it did when the program began, which is what
 * children do with it until they are other programs: with end_well they would end well. */
static void read_signals_later(tri_up *u, const struct sigaction *term) {
  static const int handled[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCHLD};
  sigset_t set;
  signal(SIGPIPE, SIG_IGN); /* the reader of the log may be gone: jobs are to be drained all the same */
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++) sigaddset(&set, handled[i]);
  if (leaves_hangup(u)) sigdelset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, NULL);
  sigaction(SIGTERM, term, NULL);
  u->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Settles what the children are given; the journal is one of it, and the launcher has room for so much. */
static tri_status settle_options(tri_up *u, const tri_options *opts, tri_error *err) {
  TRI_CHECK(tri_up_options_finish(u, opts, err));
  TRI_CHECK(tri_up_journal_choose(u, err));
  TRI_CHECK(tri_up_options_check(u, err));
  TRI_CHECK(tri_up_check_key_files(u, err));
  return tri_up_gateway_prepare(u, opts, err);
}

int main(int argc, char **argv) {
  /* Nothing is made or started before the options are read, which may wait for a file as long as a writer likes. */
  struct sigaction term, early = {.sa_handler = end_well};
  sigaction(SIGTERM, &early, &term);
  static tri_up u;
  tri_options *opts = NULL;
  tri_error err = {0};
  tri_file_open_standard(true);
  int code = tri_up_options_read(&u, argc, argv, &opts);
  if (code >= 0) return code;
  tri_log_setup((tri_log_level)u.opts.serve.log_level, "-");
  tri_log_with_time(true);
  for (int i = 0; tri_options_note(opts, i); i++) tri_log(TRI_LOG_WARN, u.called, "%s", tri_options_note(opts, i));
  read_signals_later(&u, &term);
  u.event_fd = u.notice_fd = u.gateway.pulse_fd = -1;
  tri_status st = settle_options(&u, opts, &err);
  if (st == TRI_OK) st = tri_up_gateway_check_port(&u, &err);
  if (st == TRI_OK) st = prepare(&u, &err);
  if (st == TRI_OK) st = check_layout(&u, &err);
  if (st == TRI_OK) st = tri_up_place_replicas(&u, &err);
  if (st == TRI_OK) st = tri_up_check_mpirun(&u, &err);
  if (st == TRI_OK) st = tri_up_replicas_prepare(&u, &err);
  if (st == TRI_OK) st = tri_up_coordinator_start(&u, &err);
  if (st != TRI_OK) {
    tri_log(TRI_LOG_ERROR, u.called, "%s", err.message[0] ? err.message : tri_status_text(st));
    code = tri_exit_code(st);
  } else {
    code = supervise(&u);
  }
  remove_socket(&u);
  for (int g = 0; g < TRI_UP_MAX_REPLICAS; g++) tri_up_folder_remove(&u.replicas[g].segments);
  tri_up_folder_remove(&u.run_dir);
  tri_buf_free(&u.notices);
  tri_boot_free(&u.boot);
  tri_hosts_free(&u.hosts);
  tri_free(u.places);
  tri_free(u.held_hosts);
  tri_arena_destroy(u.arena);
  tri_options_free(opts);
  return code;
}
