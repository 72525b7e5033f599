/* SPDX-License-Identifier: Apache-2.0 */
/* Children: each has a process group of its own, which is killed as a whole, and a death signal, so that none outlives
 * the supervisor. The coordinator gets SIGHUP and the gateway SIGTERM, to say something to their clients; a replica has
 * nothing to say, and gets SIGKILL. The supervisor has one thread, so that a child may do anything before exec. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/host/mpi_environment.h"
#include "base/wait.h"

enum {
  MAX_SOCKET_PATH = 100, /* what the system allows is a little more */
  /* For workers to wait for the next coordinator, as long as clients do. It comes in well under a second, but several
   * starts that fail, or one that takes all of TRI_UP_START_MS, last longer: the replicas then leave and start anew. */
  LEASE_S = 60,
};

struct command {
  char *argv[TRI_UP_MAX_ARGS];
  int n;
  char text[4096]; /* of numbers and words */
  size_t used;
};

/* The list ends with a NULL, for which one place is left; words beyond it are dropped. */
static void add(struct command *c, const char *arg) {
  if (c->n < TRI_UP_MAX_ARGS - 1) c->argv[c->n++] = (char *)(uintptr_t)arg;
}

/* Each word of a text, which is printed as by printf, is an argument. */
__attribute__((format(printf, 2, 3))) static void add_words(struct command *c, const char *fmt, ...) {
  char *text = c->text + c->used, *save = NULL;
  size_t room = sizeof c->text - c->used;
  va_list ap;
  va_start(ap, fmt);
  size_t len = (size_t)vsnprintf(text, room, fmt, ap);
  va_end(ap);
  c->used += len < room ? len + 1 : room - 1; /* a full text takes no more words */
  for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) add(c, word);
}

static void add_passed(struct command *c, const tri_up *u) {
  for (int i = 0; i < u->num_pass; i++) add(c, u->pass[i]);
}

/* The signals that a replica's launcher is never to see: sent to every process at once, as by a cgroup's or a service
 * manager's kill, they ask the supervisor to drain. mpirun would end its ranks a second later. It leaves the mask
 * alone, and ranks start with an empty one. */
static void mask_requests(sigset_t *set) {
  static const int requests[] = {SIGTERM, SIGINT, SIGHUP};
  for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) sigaddset(set, requests[i]);
}

/* The child keeps the descriptors of `keep`, which -1 ends. */
static tri_status spawn(struct command *c, int death_signal, const int *keep, pid_t *out, tri_error *err) {
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) return tri_fail(err, TRI_NO_MEMORY, "fork", "cannot start %s: %s", c->argv[0], strerror(errno));
  if (!pid) {
    sigset_t mask;
    sigemptyset(&mask);
    if (death_signal == SIGKILL) mask_requests(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    signal(SIGPIPE, SIG_DFL); /* for programs that are not ours */
    setpgid(0, 0);            /* a terminal's Ctrl-C is for the supervisor, who drains */
    prctl(PR_SET_PDEATHSIG, death_signal);
    if (getppid() != parent) _exit(TRI_EXIT_FAILED); /* it died in between */
    for (; *keep >= 0; keep++) fcntl(*keep, F_SETFD, 0);
    tri_leave_mpi_job();
    execvp(c->argv[0], c->argv);
    fprintf(stderr, "ERROR - up: cannot run %s: %s\n", c->argv[0], strerror(errno));
    _exit(127);
  }
  /* Parent and child both set the group, so that it is there whichever of them runs first. */
  setpgid(pid, pid);
  *out = pid;
  return TRI_OK;
}

tri_status tri_up_spawn_coordinator(tri_up *u, tri_error *err) {
  struct command c = {0};
  int events[2], notices[2];
  char program[4200];
  /* Non-blocking on both sides: a stopped supervisor must not stop the coordinator, nor the other way round. */
  if (pipe2(events, O_CLOEXEC | O_NONBLOCK)) return tri_fail(err, TRI_IO, "pipe", "no pipe: %s", strerror(errno));
  u->event_fd = events[0];
  if (pipe2(notices, O_CLOEXEC | O_NONBLOCK)) {
    close(events[1]);
    return tri_fail(err, TRI_IO, "pipe", "no pipe: %s", strerror(errno));
  }
  u->notice_fd = notices[1];
  snprintf(program, sizeof program, "%s/trireme-coordinator", u->bin_dir);
  add(&c, program);
  add_passed(&c, u);
  add_words(&c, "--launch group --event-fd %d --notice-fd %d --boot-file", events[1], notices[0]);
  add(&c, u->boot_path);
  add(&c, "--worker-key-file");
  add(&c, u->keys_path);
  if (u->endpoint[0]) { /* where clients look for it */
    add(&c, "--endpoint");
    add(&c, u->endpoint);
  }
  char endpoint[320], host[128];
  bool chosen_here = !strcmp(u->opts.serve.worker_endpoint, "auto");
  if (chosen_here && u->places) {
    /* Workers on other hosts must reach it. */
    tri_boot_host_address(u->opts.serve.interface, host, sizeof host);
    add_words(&c, "--worker-endpoint tcp://%s:*", host);
  } else if (chosen_here && !strcmp(u->opts.launcher, "mpirun") && strlen(u->workers_path) <= MAX_SOCKET_PATH) {
    /* All are on this host, where a socket file costs less than a loopback connection. */
    snprintf(endpoint, sizeof endpoint, "ipc://%s", u->workers_path);
    add(&c, "--worker-endpoint");
    add(&c, endpoint);
  }
  tri_status st = spawn(&c, SIGHUP, (const int[]){events[1], notices[0], -1}, &u->coordinator, err);
  close(events[1]);
  close(notices[0]);
  return st;
}

tri_status tri_up_spawn_gateway(tri_up *u, tri_error *err) {
  struct command c = {0};
  tri_up_gateway *g = &u->gateway;
  char program[4200];
  int pulse[2];
  if (pipe2(pulse, O_CLOEXEC | O_NONBLOCK)) return tri_fail(err, TRI_IO, "pipe", "no pipe: %s", strerror(errno));
  snprintf(program, sizeof program, "%s/trireme-gateway", u->bin_dir);
  add(&c, program);
  for (int i = 0; i < g->num_args; i++) add(&c, g->args[i]);
  add(&c, "--endpoint");
  add(&c, g->endpoint);
  g->restarts.started_ns = g->pulse_ns = tri_now_ns();
  g->restarts.restart_ns = g->kill_ns = g->killed_ns = 0;
  g->has_begun = g->reload = false;
  add_words(&c, "--pulse-fd %d", pulse[1]);
  tri_status st = spawn(&c, SIGTERM, (const int[]){pulse[1], -1}, &g->pid, err);
  close(pulse[1]);
  g->pulse_fd = pulse[0];
  return st;
}

/* A replica's hosts for its launcher, and their shares for its workers. */
struct shares {
  char hosts[TRI_HOSTS_TEXT], places[TRI_PLACES_TEXT];
};

static void add_mpirun(struct command *c, const tri_up *u, const tri_up_replica *g, const struct shares *s, int world) {
  /* The workers pin their threads themselves. A rank's death must end the others without delay. */
  add_words(c, "mpirun -n %d --bind-to none --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0", world);
  add_words(c, "--mca oob_tcp_keepalive_time 2 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3");
  add_words(c, "-x " TRI_BOOT_ENV);
  if (g->segments.path[0]) { /* where ranks share memory, and where the launcher has its session */
    add_words(c, "--mca btl_vader_backing_directory");
    add(c, g->segments.path);
    add_words(c, "--mca orte_tmpdir_base");
    add(c, g->segments.path);
  }
  /* Open MPI's daemons; what the environment says goes to the ranks as well. */
  if (u->opts.serve.interface) setenv("OMPI_MCA_oob_tcp_if_include", u->opts.serve.interface, 0);
  if (u->places) add(c, "--host");
  if (u->places) add(c, s->hosts);
  if (!u->opts.hosts) add(c, "--oversubscribe");
}

static void add_srun(struct command *c, const tri_up *u, const struct shares *s, int world) {
  add_words(c, "srun -n %d --mpi=pmix --kill-on-bad-exit=1 --overlap", world);
  if (!u->places) return;
  add_words(c, "--distribution=arbitrary --nodelist"); /* a name for each rank */
  add(c, s->hosts);
}

static bool find_shares(const tri_up *u, int replica, int world, struct shares *s) {
  const tri_place *places = u->places ? u->places + (size_t)replica * (size_t)world : NULL;
  bool names = !strcmp(u->opts.launcher, "srun");
  if (!places) return true;
  return (names ? tri_hosts_names : tri_hosts_list)(&u->hosts, places, world, s->hosts) &&
         tri_hosts_shares(&u->hosts, places, world, s->places);
}

tri_status tri_up_spawn_replica(tri_up *u, int replica, tri_error *err) {
  struct command c = {0};
  tri_up_replica *g = &u->replicas[replica];
  char program[4200];
  int world = tri_serve_layout_world(&u->layout);
  bool alone = world == 1 && !u->places && strcmp(u->opts.launcher, "srun");
  struct shares shares = {0};
  if (!find_shares(u, replica, world, &shares))
    return tri_fail(err, TRI_TOO_LARGE, "hosts", "the names of replica %d's hosts are too long for a command", replica);
  snprintf(program, sizeof program, "%s/trireme-worker", u->bin_dir);
  if (!alone && !strcmp(u->opts.launcher, "srun")) {
    add_srun(&c, u, &shares, world);
  } else if (!alone) {
    /* Elsewhere the folder would be missing. Without one Open MPI takes /dev/shm itself. */
    if (!u->places) tri_up_folder_make("/dev/shm", &g->segments, NULL);
    add_mpirun(&c, u, g, &shares, world);
  }
  if (!alone && u->opts.launcher_args) add_words(&c, "%s", u->opts.launcher_args);
  add(&c, program);
  add_passed(&c, u);
  add_words(&c, "--launch %s --group %d --epoch %llu --lease %d", alone ? "self" : "group", replica,
            (unsigned long long)++g->epoch, LEASE_S);
  tri_up_tell(u, "expect %d %llu", replica, (unsigned long long)g->epoch); /* before all that its ranks say */
  if (u->places) add(&c, "--places");
  if (u->places) add(&c, shares.places);
  g->restarts.started_ns = tri_now_ns();
  g->restarts.restart_ns = g->kill_ns = g->killed_ns = 0;
  g->ready = g->device_failed = false;
  g->hold = TRI_UP_HOLD_NONE;
  g->failed_rank = -1;
  g->said[0] = '\0';
  tri_up_start_begin(u, replica);
  /* No other child inherits the keys of its ranks. */
  tri_status st = tri_boot_to_env(&u->boot, (uint32_t)replica, err);
  if (st == TRI_OK) st = spawn(&c, SIGKILL, (const int[]){-1}, &g->pid, err);
  tri_boot_clear_env();
  if (st != TRI_OK) tri_up_folder_remove(&g->segments);
  return st;
}

/* A zombie is no child any more. Without /proc the answer is yes, as far as can be known. */
bool tri_up_has_children(pid_t pid) {
  DIR *dir = opendir("/proc");
  bool found = !dir;
  for (const struct dirent *e; !found && (e = readdir(dir));) {
    char path[64], line[512], state = 'Z';
    int parent = 0;
    if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
    snprintf(path, sizeof path, "/proc/%.20s/stat", e->d_name);
    FILE *f = fopen(path, "re");
    if (!f) continue;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    /* The name of a program may have brackets and blanks: fields are counted from the last bracket on. */
    const char *behind_name = strrchr(line, ')');
    found = behind_name && sscanf(behind_name, ") %c %d", &state, &parent) == 2 && parent == pid && state != 'Z';
  }
  if (dir) closedir(dir);
  return found;
}
