/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for what Open MPI's mpirun fails of without saying so: made before a start, and by `trireme doctor`. */
#ifndef TRI_BASE_HOST_MPIRUN_CHECK_H
#define TRI_BASE_HOST_MPIRUN_CHECK_H

#include <stdbool.h>
#include <stdint.h>

enum { TRI_MPIRUN_WHY = 360 };

typedef enum tri_mpirun_verdict { TRI_MPIRUN_STARTS, TRI_MPIRUN_MAY_FAIL, TRI_MPIRUN_FAILS } tri_mpirun_verdict;

/* The checks below set why to one sentence for people, unless it starts. */

/* The name of this host: with more than 55 characters before its domain Open MPI 4.1 smashes its own stack. */
tri_mpirun_verdict tri_mpirun_check_name(const char *host, char why[TRI_MPIRUN_WHY]);
/* Bytes that are free in /dev/shm, for replicas of so many ranks on this host; -1: not known. */
tri_mpirun_verdict tri_mpirun_check_shm(int64_t free_bytes, int replicas, int ranks, char why[TRI_MPIRUN_WHY]);
/* The Slurm job of the environment: mpirun starts ranks on its nodes, through srun. */
typedef struct tri_slurm_words {
  const char *id, *nodes, *tasks; /* SLURM_JOBID, SLURM_NODELIST, SLURM_TASKS_PER_NODE; NULL where they are not set */
  const char *here;               /* SLURMD_NODENAME: the name that Slurm has for this host, within the job */
  bool has_srun;                  /* in PATH */
} tri_slurm_words;
tri_slurm_words tri_slurm_words_read(void);
tri_mpirun_verdict tri_mpirun_check_slurm(const tri_slurm_words *job, const char *host, char why[TRI_MPIRUN_WHY]);

#endif
