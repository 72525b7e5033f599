/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/mpirun_check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/host/hosts.h"

enum { LONGEST_NAME = 55 };

/* Measured with Open MPI 4.1 and 2, 4, 8 and 16 ranks (8.2, 12.4, 16.9 and 25.9 MiB), of which it is up to 0.1 MiB
 * less: the launcher's own store, and what a rank touches at its start, of which the first ones' is more. */
enum { SHM_OF_GROUP = 4096 << 10, SHM_OF_RANK = 1150 << 10, FIRST_RANKS = 4, SHM_OF_FIRST = 2136 << 10 };

tri_mpirun_verdict tri_mpirun_check_name(const char *host, char why[TRI_MPIRUN_WHY]) {
  size_t len = strcspn(host, ".");
  if (len <= LONGEST_NAME) return TRI_MPIRUN_STARTS;
  snprintf(
      why, TRI_MPIRUN_WHY,
      "the name of this host has %zu characters, and Open MPI's mpirun aborts with more than %d: give it a shorter "
      "one (hostname; in Kubernetes the pod's name or hostname), or start one rank, which needs no mpirun",
      len, LONGEST_NAME);
  return TRI_MPIRUN_FAILS;
}

tri_mpirun_verdict tri_mpirun_check_shm(int64_t free_bytes, int replicas, int ranks, char why[TRI_MPIRUN_WHY]) {
  int first = ranks < FIRST_RANKS ? ranks : FIRST_RANKS;
  int64_t needed = SHM_OF_GROUP + (int64_t)first * SHM_OF_FIRST + (int64_t)(ranks - first) * SHM_OF_RANK;
  needed *= replicas;
  if (free_bytes < 0 || free_bytes >= needed) return TRI_MPIRUN_STARTS;
  snprintf(why, TRI_MPIRUN_WHY,
           "/dev/shm has %.1f MiB free, and %d replica%s of %d ranks need at least %.1f MiB there to communicate: give "
           "the container a larger one (--shm-size), or remove files from it",
           (double)free_bytes / 0x1p20, replicas, replicas == 1 ? "" : "s", ranks, (double)needed / 0x1p20);
  return TRI_MPIRUN_FAILS;
}

static bool is_in_path(const char *program) {
  const char *path = getenv("PATH");
  for (const char *at = path ? path : ""; *at; at += strspn(at, ":")) {
    char file[PATH_MAX];
    size_t n = strcspn(at, ":");
    snprintf(file, sizeof file, "%.*s/%s", (int)n, at, program);
    if (!access(file, X_OK)) return true;
    at += n;
  }
  return false;
}

tri_slurm_words tri_slurm_words_read(void) {
  return (tri_slurm_words){.id = getenv("SLURM_JOBID"),
                           .nodes = getenv("SLURM_NODELIST"),
                           .tasks = getenv("SLURM_TASKS_PER_NODE"),
                           .here = getenv("SLURMD_NODENAME"),
                           .has_srun = is_in_path("srun")};
}

/* Compares without domains. */
static bool is_host(const char *a, const char *b) {
  size_t n = strcspn(a, ".");
  return n == strcspn(b, ".") && !strncmp(a, b, n);
}

tri_mpirun_verdict tri_mpirun_check_slurm(const tri_slurm_words *job, const char *host, char why[TRI_MPIRUN_WHY]) {
  static const char way[] = "unset the SLURM_ variables to start here, or start within the job";
  tri_hosts nodes = {0};
  bool here = false;
  if (!job->id) return TRI_MPIRUN_STARTS;
  if (!job->nodes || !job->tasks) {
    snprintf(why, TRI_MPIRUN_WHY, "SLURM_JOBID names job %.40s, and %s is not set, without which mpirun ends: %s",
             job->id, job->nodes ? "SLURM_TASKS_PER_NODE" : "SLURM_NODELIST", way);
    return TRI_MPIRUN_FAILS;
  }
  if (tri_hosts_parse_slurm(job->nodes, job->tasks, &nodes, NULL) != TRI_OK) return TRI_MPIRUN_STARTS;
  for (int i = 0; i < nodes.count; i++) here |= is_host(nodes.list[i].name, job->here ? job->here : host);
  bool alone = here && nodes.count == 1;
  tri_hosts_free(&nodes);
  if (alone || (here && job->has_srun)) return TRI_MPIRUN_STARTS;
  if (!job->has_srun) {
    snprintf(why, TRI_MPIRUN_WHY,
             "SLURM_JOBID names job %.40s on %.80s, whose nodes mpirun reaches through srun, which is not in PATH: %s",
             job->id, job->nodes, way);
    return TRI_MPIRUN_FAILS;
  }
  snprintf(
      why, TRI_MPIRUN_WHY,
      "SLURM_JOBID names job %.40s on %.80s, and this host, %.60s, is none of them: mpirun starts the ranks there. "
      "If that job is over, %s",
      job->id, job->nodes, host, way);
  return TRI_MPIRUN_MAY_FAIL;
}
