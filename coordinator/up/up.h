/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme up`: starts a coordinator and its replicas, restarts replicas that die, and ends all of them together.
 */
#ifndef TRI_COORDINATOR_UP_UP_H
#define TRI_COORDINATOR_UP_UP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm/wire/boot.h"
#include "comm/wire/endpoint.h"
#include "base/buf.h"
#include "base/options/gateway_options.h"
#include "base/host/hosts.h"
#include "base/mem.h"
#include "base/options/serve_layout.h"

enum {
  TRI_UP_MAX_REPLICAS = 64,
  TRI_UP_MAX_ARGS = 512,
  TRI_UP_WORDS = TRI_ERROR_MESSAGE + 40, /* bytes of what a rank says of its end, with its number */
  TRI_UP_MAX_GATEWAY_ARGS = 128,
  TRI_UP_MAX_RANKS = 1024,
  TRI_UP_SOON_MS = 10000, /* a child that ends so soon after its start has failed in starting */
};

typedef struct tri_up_options {
  tri_serve_options serve;
  tri_gateway_options gateway;
  const char *hosts, *launcher, *launcher_args;
  const char *http_host;
  int http_port; /* -1: not given */
  int max_restarts, quarantine_time;
  bool no_journal;
} tri_up_options;

/* A folder of this process in /tmp or /dev/shm, locked as long as it lives. No path: none. */
typedef struct tri_up_folder {
  char path[256];
  int fd;
} tri_up_folder;

/* A child that is started again when it ends. */
typedef struct tri_up_restarts {
  int failures; /* starts in a row that ended before they were ready, or soon after */
  int given_up; /* times in a row that too many of them had failed */
  int64_t started_ns, restart_ns;
} tri_up_restarts;

/* Why a replica stays down for long: it failed too often, or a host that it needs has failed. */
typedef enum tri_up_hold { TRI_UP_HOLD_NONE, TRI_UP_GIVEN_UP, TRI_UP_QUARANTINED } tri_up_hold;

/* A host that replicas are placed on, and what is held against it. */
typedef struct tri_up_host {
  int failed_starts; /* of replicas, in a row */
  int64_t until_ns;  /* until when it is not used; 0: it is */
  char why[300];
} tri_up_host;

typedef struct tri_up_replica {
  tri_up_folder segments; /* of the ranks' shared memory and the launcher's session, which stay when they are killed */
  pid_t pid;              /* of mpirun, srun or the one worker; 0: not running */
  uint64_t epoch;
  bool came, ready; /* a rank has ever been heard of; this start serves */
  bool empty;       /* at the end: its launcher had no ranks any more when it was last looked at */
  tri_up_restarts restarts;
  tri_up_hold hold;
  char hold_why[300];
  int end_status;              /* of its last end, which */
  int64_t judge_ns;            /* is judged at that time at the latest; 0: it has been */
  int64_t end_ns;              /* when it was */
  int failed_rank;             /* that has said why it ends, in this start; -1: none has */
  bool device_failed;          /* as that rank has said */
  char said[TRI_UP_WORDS];     /* its words */
  int64_t kill_ns;             /* when it is killed; 0: it is not */
  int64_t killed_ns;           /* when it first was */
  bool here[TRI_UP_MAX_RANKS]; /* ranks that have been heard of since this start */
  int num_here;
  int64_t progress_ns; /* when the last of them was */
  double say_s;        /* seconds without progress after which there is the next word about it */
} tri_up_replica;

/* The HTTP gateway before the coordinator, with --http. */
typedef struct tri_up_gateway {
  pid_t pid;                         /* 0: not running */
  char endpoint[TRI_ENDPOINT_BYTES]; /* where it finds the coordinator */
  const char *args[TRI_UP_MAX_GATEWAY_ARGS];
  int num_args;
  tri_up_restarts restarts;
  int64_t kill_ns;   /* it has been told to end, and is not waited for any longer; 0: not so */
  int64_t killed_ns; /* when it was first killed; 0: it was not */
  int pulse_fd;      /* by which it shows that its loop turns; -1: none */
  bool has_begun;    /* it has shown so, in this start */
  bool has_served;   /* in some start */
  bool reload;       /* it is to read its keys again when it has begun */
  int64_t pulse_ns;  /* when it last has, or was started */
  int64_t looked_ns; /* when that was last looked at */
} tri_up_gateway;

typedef struct tri_up {
  bool is_serve;      /* called as `trireme serve` */
  const char *called; /* "up" or "serve": signs lines of the log */
  tri_up_options opts;
  tri_serve_layout layout;
  tri_arena *arena;
  const char *pass[TRI_UP_MAX_ARGS]; /* arguments for the coordinator and the workers */
  int num_pass;
  char bin_dir[4096], boot_path[300], keys_path[300], workers_path[300];
  tri_up_folder run_dir;
  tri_boot boot;
  tri_hosts hosts;
  tri_place *places;       /* of every replica's ranks; NULL: all are here, or where the launcher puts them */
  tri_up_host *held_hosts; /* [hosts.count, 1 at least] */
  pid_t coordinator;
  int64_t coordinator_killed_ns; /* when it was first killed; 0: it was not */
  tri_up_restarts coordinator_restarts;
  char endpoint[TRI_ENDPOINT_BYTES]; /* where it has listened for clients; empty: it never has */
  int event_fd, notice_fd;           /* of the coordinator: its messages, and those to it */
  tri_buf notices;                   /* lines to it for which its pipe had no room */
  int signal_fd;
  char line[1024]; /* of events, until its end has come */
  size_t line_len;
  tri_up_replica replicas[TRI_UP_MAX_REPLICAS];
  tri_up_gateway gateway;
  bool listening, draining, drained, at_once, stopping;
  bool away;                        /* the coordinator was killed, and the next one does not listen yet */
  bool coordinator_told, told_late; /* to drain; when the gateway had ended */
  int drain_signal;
  int exit_code;
  int64_t asked_ns;     /* the first request to end */
  int64_t deadline_ns;  /* of draining or of the coordinator's start */
  int64_t last_word_ns; /* of the coordinator */
  int64_t checked_ns;   /* when it was last looked whether that is long ago */
  int64_t empty_check_ns;
} tri_up;

/* spawn.c: children in process groups of their own, which end with this process. */
tri_status tri_up_spawn_coordinator(tri_up *u, tri_error *err);
tri_status tri_up_spawn_replica(tri_up *u, int replica, tri_error *err);
tri_status tri_up_spawn_gateway(tri_up *u, tri_error *err);
bool tri_up_has_children(pid_t pid); /* that have not ended */

enum { TRI_UP_START_MS = 60000 }; /* that the coordinator's start may take */

/* stop.c: children are ended, one or all. */
/* Kills the whole process group at once, and notes when it was first done. */
void tri_up_kill(pid_t pid, int64_t *killed_ns);
/* Says, and logs, that a child was killed seconds ago and does not end: it hangs in a driver or on a dead file system,
 * or a debugger has it. It is not to be waited for. */
bool tri_up_is_stuck(const tri_up *u, pid_t pid, int64_t killed_ns, int64_t now, const char *name);
/* Writes one line to the coordinator, now or when it reads again. Returns false where it is gone. */
bool tri_up_tell(tri_up *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Tells the gateway to end, and gives it so long. Returns false where none runs. */
bool tri_up_gateway_stop(tri_up *u, int64_t ms);
bool tri_up_tell_why(tri_up *u, const char *why); /* that the cluster ends; false: the coordinator is gone */
/* Ends everything at once, with this exit code unless there is one. */
void tri_up_stop_all(tri_up *u, int code);
/* Ends the replicas at once, and the coordinator once it has told its clients why. Does nothing where everything
 * is about to end. */
void tri_up_give_up(tri_up *u, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* options.c: read says the exit code, or -1 to continue; finish settles what depends on several, and what the children
 * are given; check refuses what a launcher has no room for. */
int tri_up_options_read(tri_up *u, int argc, char **argv, tri_options **out);
tri_status tri_up_options_finish(tri_up *u, const tri_options *opts, tri_error *err);
tri_status tri_up_options_check(const tri_up *u, tri_error *err);
const char *tri_up_argument(tri_up *u, const char *name, const char *value); /* "--name=value"; NULL: no memory */

/* journal.c */
/* Gives the children a journal, where nothing else was said and there is a place for one. */
tri_status tri_up_journal_choose(tri_up *u, tri_error *err);

/* option_aliases.c: other servers' names of options. */
extern const tri_option_word tri_up_words[];
extern const size_t tri_up_num_words;
/* usual_options.c: what --help shows of the two programs' options. */
extern const tri_usual_option tri_serve_usual[], tri_up_usual[];
extern const size_t tri_serve_num_usual, tri_up_num_usual;

/* restarts.c */
const char *tri_up_end_text(int status, char out[96]); /* of a child, for the log */
bool tri_up_end_is_by_signal(int status);              /* of the child, or of a rank that it has launched */
bool tri_up_end_is_of_device(int status);              /* a rank's device has failed */
int tri_up_end_code(int status);                       /* of this program, where it gives up because of that end */
/* Sets when a child that has ended by itself is to be started again. Returns false where it hardly will work another
 * time. soon: it ended before it was ready, or soon after; never: none of its starts has come so far. */
bool tri_up_restart(tri_up_restarts *r, int64_t now, int max_restarts, int status, bool soon, bool never);
/* The same for a child that has worked, and whose ends may be its clients' doing: it is always started again, after the
 * longest of those pauses at the latest, and minutes later where it was refused. */
void tri_up_restart_served(tri_up_restarts *r, int64_t now, int status, bool soon);
/* Sets it to a time some minutes ahead, later each time in a row. Returns the pause, ns. */
int64_t tri_up_restart_later(tri_up_restarts *r, int64_t now);

/* replicas.c: the life of the replicas, in the loop of the supervisor. */
tri_status tri_up_replicas_prepare(tri_up *u, tri_error *err);
void tri_up_replica_start(tri_up *u, int replica);
void tri_up_replica_ready(tri_up *u, int replica);
/* The coordinator has lost it. rank: whose end that is, -1: of none; code: of its error. */
void tri_up_replica_lost(tri_up *u, int replica, int rank, const char *code, const char *why);
void tri_up_replica_ended(tri_up *u, int replica, int status);
void tri_up_replicas_check(tri_up *u, int64_t now);
void tri_up_replicas_tell(tri_up *u);  /* a coordinator of what other ones know */
void tri_up_replicas_drain(tri_up *u); /* tells it which starts do not come any more */

/* coordinator.c: the coordinator's life. Starts one, and tells it of the replicas that were started before. */
tri_status tri_up_coordinator_start(tri_up *u, tri_error *err);
void tri_up_coordinator_listens(tri_up *u, const char *endpoint);
/* It has ended without being asked to. Returns false where it is not to be started again. */
bool tri_up_coordinator_again(tri_up *u, int status);
void tri_up_coordinator_check(tri_up *u, int64_t now);

/* key_files.c: refuses files of keys that are not there or hold none, before anything is started. */
tri_status tri_up_check_key_files(const tri_up *u, tri_error *err);

/* gateway.c: the gateway's life, in the loop of the supervisor. */
tri_status tri_up_gateway_prepare(tri_up *u, const tri_options *opts, tri_error *err);
/* Looks before anything is loaded whether the gateway can listen where it is to. */
tri_status tri_up_gateway_check_port(const tri_up *u, tri_error *err);
void tri_up_gateway_begin(tri_up *u); /* the coordinator listens */
void tri_up_gateway_ended(tri_up *u, int status);
void tri_up_gateway_reload(tri_up *u);            /* has its keys read again */
int64_t tri_up_gateway_drain_ms(const tri_up *u); /* that its answers may take */
void tri_up_gateway_check(tri_up *u, int64_t now);
/* Its pulse can be read. */
void tri_up_gateway_pulse(tri_up *u);

/* starts.c: a start that makes no progress until all of its ranks have come is talked about, and given up in the end.
 * After that each rank watches itself. */
void tri_up_start_begin(tri_up *u, int replica);
void tri_up_start_came(tri_up *u, int replica, unsigned rank);
void tri_up_start_check(tri_up *u, int replica, int64_t now);

/* hosts.c: places for all ranks on the hosts of --hosts, or of a Slurm job. TRI_USAGE where
 * those have too few, or where mpirun would not find one. */
tri_status tri_up_place_replicas(tri_up *u, tri_error *err);
/* Refuses a start through mpirun that is known to fail, which mpirun itself would not say. */
tri_status tri_up_check_mpirun(const tri_up *u, tri_error *err);

/* folders.c: folders under `base`. */
void tri_up_folders_clean(const char *base); /* removes those that killed supervisors have left */
tri_status tri_up_folder_make(const char *base, tri_up_folder *f, tri_error *err); /* likewise, before */
void tri_up_folder_remove(tri_up_folder *f);                                       /* with the files in it */

#endif
