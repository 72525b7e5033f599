/* `trireme up`: starts a coordinator and its replica groups, restarts groups that die, and ends all of them together.
 */
#ifndef TRI_COORDINATOR_UP_UP_H
#define TRI_COORDINATOR_UP_UP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "comm/wire/boot.h"
#include "runtime/base/hosts.h"
#include "runtime/base/serve_layout.h"

enum { TRI_UP_MAX_GROUPS = 64, TRI_UP_MAX_ARGS = 512, TRI_UP_MAX_RANKS = 1024 };

typedef struct tri_up_options {
  tri_serve_options serve;
  const char *hosts, *launcher, *launcher_args;
  int max_restarts;
} tri_up_options;

/* A folder of this process in /tmp or /dev/shm, locked as long as it lives. No path: none. */
typedef struct tri_up_folder {
  char path[256];
  int fd;
} tri_up_folder;

typedef struct tri_up_group {
  tri_up_folder segments; /* of the ranks' shared memory and the launcher's session, which stay when they are killed */
  pid_t pid;              /* of mpirun, srun or the one worker; 0: not running */
  uint64_t epoch;
  bool came, ready; /* a rank has ever been heard of; this start serves */
  bool empty;       /* at the end: its launcher had no ranks any more when it was last looked at */
  int failures;     /* starts in a row that ended before they were ready, or soon after */
  int64_t started_ns, restart_ns, kill_ns;
  bool here[TRI_UP_MAX_RANKS]; /* ranks that have been heard of since this start */
  int num_here;
  int64_t progress_ns; /* when the last of them was */
  double say_s;        /* seconds without progress after which there is the next word about it */
} tri_up_group;

typedef struct tri_up {
  tri_up_options opts;
  tri_serve_layout layout;
  char **pass; /* arguments for the children */
  int num_pass;
  char bin_dir[4096], boot_path[300], workers_path[300];
  tri_up_folder run_dir;
  tri_boot boot;
  tri_hosts hosts;
  tri_place *places; /* of every group's ranks; NULL: all are here, or where the launcher puts them */
  pid_t coordinator;
  int event_fd, notice_fd; /* of the coordinator: what it tells, and what it is told */
  int signal_fd;
  char line[1024]; /* of events, until its end has come */
  size_t line_len;
  tri_up_group groups[TRI_UP_MAX_GROUPS];
  bool listening, draining, drained, at_once, stopping;
  int exit_code;
  int64_t asked_ns;     /* the first request to end */
  int64_t deadline_ns;  /* of draining or of the coordinator's start */
  int64_t last_word_ns; /* of the coordinator */
  int64_t empty_check_ns;
} tri_up;

/* spawn.c: children in process groups of their own, which end with this process. */
tri_status tri_up_spawn_coordinator(tri_up *u, tri_error *err);
tri_status tri_up_spawn_group(tri_up *u, int group, tri_error *err);
void tri_up_kill(pid_t pid);         /* the whole process group, at once */
bool tri_up_has_children(pid_t pid); /* that have not ended */

/* starts.c: a start that makes no progress until all of its ranks have come is talked about, and given up in the end.
 * Behind that each rank watches itself. */
void tri_up_start_begin(tri_up *u, int group);
void tri_up_start_came(tri_up *u, int group, unsigned rank);
void tri_up_start_check(tri_up *u, int group, int64_t now);

/* hosts.c: places for all ranks on the hosts of --hosts, or of a Slurm job. TRI_USAGE where
 * those have too few, or where mpirun would not find one. */
tri_status tri_up_place_groups(tri_up *u, tri_error *err);

/* folders.c: make a fresh folder under base, and remove those that killed supervisors have left there. */
void tri_up_folders_clean(const char *base); /* of supervisors that were killed */
tri_status tri_up_folder_make(const char *base, tri_up_folder *f, tri_error *err);
void tri_up_folder_remove(tri_up_folder *f); /* with the files in it */

#endif
