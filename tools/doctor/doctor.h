/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme doctor`: looks at a host, or at those of a list, before a cluster is started there.
 *
 * Facts are gathered first and judged then: what judges has no I/O, and what gathers from files takes the root of the
 * file system from its caller, so that tests can have their own. */
#ifndef TRI_TOOLS_DOCTOR_DOCTOR_H
#define TRI_TOOLS_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json/json.h"
#include "base/host/mpirun_check.h"

typedef enum tri_level { TRI_LEVEL_OK, TRI_LEVEL_WARN, TRI_LEVEL_FAIL } tri_level;
extern const char *const tri_level_names[]; /* "ok", "warn", "fail" */

enum {
  TRI_DOCTOR_CHECK = 24,
  TRI_DOCTOR_VALUE = 256,
  TRI_DOCTOR_LIMIT = 96,
  TRI_DOCTOR_ADVICE = 256,
  TRI_DOCTOR_MOST = 64, /* findings of one host */
  TRI_DOCTOR_DEVICES = 32,
};

typedef struct tri_finding {
  tri_level level;
  char check[TRI_DOCTOR_CHECK];
  char value[TRI_DOCTOR_VALUE];   /* what was found */
  char limit[TRI_DOCTOR_LIMIT];   /* what it is held against; may be empty */
  char advice[TRI_DOCTOR_ADVICE]; /* one sentence; empty where all is well */
} tri_finding;

typedef struct tri_findings {
  char host[256];
  tri_finding list[TRI_DOCTOR_MOST]; /* further ones are left out */
  int count;
} tri_findings;

/* ---- findings.c ---- */

/* Adds a finding, whose texts the caller fills in. Never NULL: one too many goes to the last place. */
tri_finding *tri_findings_add(tri_findings *f, tri_level level, const char *check);
tri_level tri_findings_worst(const tri_findings *all, int count);
void tri_findings_print(const tri_findings *all, int count, FILE *out);
/* {"worst": ..., "hosts": [{"host": ..., "findings": [{"check", "level", "value", "limit", "advice"}]}]} */
void tri_findings_print_json(const tri_findings *all, int count, FILE *out);
/* Reads the first host of such a text. TRI_CORRUPT: it is none. */
tri_status tri_findings_read(const char *text, size_t len, tri_findings *out, tri_error *err);

/* ---- judge.c: a host by its facts. Bytes, and -1 where something is not known ---- */

typedef struct tri_host_facts {
  int cores, online;                                /* that this process may run on; that the host has */
  bool can_bind;                                    /* threads to cores */
  int64_t memory, memory_available, memory_allowed; /* of all; MemAvailable; what control groups leave of that */
  int64_t memlock, nofile;                          /* limits that this process may set; INT64_MAX: none */
  int64_t shm, shm_free;                            /* of /dev/shm */
  char name[256];                                   /* of the host */
  tri_slurm_words job;                              /* that the environment names */
} tri_host_facts;

void tri_judge_host(const tri_host_facts *h, int64_t model_bytes, tri_findings *out); /* model_bytes 0: not known */
/* A disk that gave bytes in so many seconds. direct: past the page cache. */
void tri_judge_disk(const char *path, uint64_t bytes, double seconds, bool direct, tri_findings *out);
/* free_bytes -1: it cannot be written to. */
void tri_judge_nvme(const char *path, int64_t free_bytes, int64_t model_bytes, tri_findings *out);

/* A device as nvidia-smi tells of it; -1: it does not say. */
typedef struct tri_device_facts {
  char name[64], driver[32];
  int64_t memory_mib, used_mib, clock_mhz, most_clock_mhz, ecc_errors;
  int64_t pcie_generation, most_pcie_generation, pcie_width, most_pcie_width;
} tri_device_facts;

/* Reads a line of nvidia-smi's comma-separated values, in the order of tri_device_query. False: it is none. */
extern const char tri_device_query[];
bool tri_device_read(const char *line, tri_device_facts *out);
void tri_judge_device(int number, const tri_device_facts *d, tri_findings *out);
/* The first line of mpirun --version; NULL: there is no mpirun. */
void tri_judge_mpirun(const char *version, tri_findings *out);

/* ---- host.c ---- */

/* The first number after "NAME:" in a file like /proc/meminfo, in bytes where it is in kB; -1: there is none. */
int64_t tri_read_meminfo(const char *root, const char *name);
void tri_gather_host(const char *root, tri_host_facts *out);

/* ---- run.c: other programs ---- */

typedef struct tri_running {
  int pid, fd; /* fd: its output and its words about errors */
} tri_running;

/* argv[0] is looked for in PATH. Its environment has nothing of an MPI job that this process may be in. */
tri_status tri_run_start(char *const *argv, tri_running *out, tri_error *err);
/* Waits for its end until then, and kills it afterwards. out: its first bytes, with a zero after them. Returns the
 * exit code; 127: there is no such program; -1: it was killed. */
int tri_run_end(tri_running *r, int64_t deadline_ns, char *out, size_t cap);

/* ---- checks.c, remote.c ---- */

typedef struct tri_doctor_options {
  const char *model, *nvme_path, *hosts, *hostfile, *launcher, *launcher_args, *ports;
  bool json, last_hang, mpi_start, mpi_rank, this_host;
  double timeout;
} tri_doctor_options;

void tri_doctor_check(const tri_doctor_options *o, tri_findings *out); /* this host */
/* The start of two ranks through the launcher, on the first two of the hosts where there are several. */
void tri_doctor_check_mpi(const tri_doctor_options *o, const char *hosts, tri_findings *out);
int tri_doctor_mpi_rank(void); /* what those ranks do; returns the exit code */

/* Names of hosts out of --hosts or a host file ("NAME [slots=N]" a line): *names is [*count], for tri_free with its
 * text in *memory. */
tri_status tri_doctor_list_hosts(const tri_doctor_options *o, char ***names, int *count, char **memory, tri_error *err);
/* Starts this program on every host at a time. out: [count]. */
void tri_doctor_check_hosts(const tri_doctor_options *o, char **names, int count, tri_findings *out);

#endif
