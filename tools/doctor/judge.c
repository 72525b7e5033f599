/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "tools/doctor/doctor.h"

/* Fail is for what a start would die of, warn for what makes it slower or may become a problem. No I/O: see doctor.h.
 */
#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)

/* Fills in a finding's texts. */
#define VALUE(x, ...) snprintf((x)->value, sizeof(x)->value, __VA_ARGS__)
#define LIMIT(x, ...) snprintf((x)->limit, sizeof(x)->limit, __VA_ARGS__)
#define ADVICE(x, ...) snprintf((x)->advice, sizeof(x)->advice, __VA_ARGS__)

static double gib(int64_t bytes) { return (double)bytes / (double)GIB; }

/* ---- the host ---- */

static void judge_cores(const tri_host_facts *h, tri_findings *out) {
  bool few = h->online > 0 && h->cores < h->online / 2;
  tri_finding *x = tri_findings_add(out, few || !h->can_bind ? TRI_LEVEL_WARN : TRI_LEVEL_OK, "cores");
  VALUE(x, "%d cores to run on, %d online, threads can %sbe bound", h->cores, h->online, h->can_bind ? "" : "not ");
  if (few)
    ADVICE(x, "This process may use less than half of the host: look at taskset, cpusets and the job's request.");
  if (!h->can_bind) ADVICE(x, "Workers bind their threads to cores; a container or a seccomp profile forbids it here.");
}

static void judge_memory(const tri_host_facts *h, int64_t model_bytes, tri_findings *out) {
  bool tiny = h->memory_allowed < GIB / 2, small = h->memory_allowed < model_bytes;
  tri_finding *x = tri_findings_add(out, small ? TRI_LEVEL_WARN : TRI_LEVEL_OK, "memory");
  if (tiny) x->level = TRI_LEVEL_FAIL;
  VALUE(x, "%.1f GiB of %.1f available, %.1f with control groups", gib(h->memory_available), gib(h->memory),
        gib(h->memory_allowed));
  if (model_bytes) LIMIT(x, "the weights have %.1f GiB", gib(model_bytes));
  if (small) ADVICE(x, "The weights do not fit into this host's memory: use GPUs, more ranks, int8 or streaming.");
  if (tiny) ADVICE(x, "Less than 0.5 GiB is free: end other programs, or raise the control group's limit.");
}

/* A value that is not known (-1) is below every limit, and fails. */
static void judge_limit(const char *check, const char *unit, int64_t value, int64_t divisor, int64_t fail, int64_t warn,
                        const char *advice, tri_findings *out) {
  tri_level level = value < warn ? TRI_LEVEL_WARN : TRI_LEVEL_OK;
  if (value < fail) level = TRI_LEVEL_FAIL;
  tri_finding *x = tri_findings_add(out, level, check);
  if (value == INT64_MAX)
    VALUE(x, "unlimited");
  else
    VALUE(x, "%" PRId64 "%s", value / divisor, unit);
  LIMIT(x, "at least %" PRId64 "%s", warn / divisor, unit);
  if (level != TRI_LEVEL_OK) ADVICE(x, "%s", advice);
}

/* Looks for what mpirun would fail of without a word; only what is wrong is a finding. */
static void judge_launch(const tri_host_facts *h, tri_findings *out) {
  const char *const checks[] = {"hostname", "slurm"};
  for (int i = 0; i < 2; i++) {
    char why[TRI_MPIRUN_WHY];
    tri_mpirun_verdict v = i ? tri_mpirun_check_slurm(&h->job, h->name, why) : tri_mpirun_check_name(h->name, why);
    if (v == TRI_MPIRUN_STARTS) continue;
    tri_finding *x = tri_findings_add(out, v == TRI_MPIRUN_FAILS ? TRI_LEVEL_FAIL : TRI_LEVEL_WARN, checks[i]);
    char *advice = strchr(why, ':'); /* after what was found */
    if (advice) *advice++ = '\0';
    VALUE(x, "%.255s", why);
    if (advice)
      ADVICE(x, "%c%.250s.", advice[1] >= 'a' && advice[1] <= 'z' ? advice[1] - 'a' + 'A' : advice[1], advice + 2);
  }
}

void tri_judge_host(const tri_host_facts *h, int64_t model_bytes, tri_findings *out) {
  judge_cores(h, out);
  judge_memory(h, model_bytes, out);
  judge_limit("memlock", " MiB", h->memlock, MIB, 0, 64 * MIB,
              "InfiniBand and io_uring lock memory: raise memlock in limits.conf or LimitMEMLOCK of the service.", out);
  judge_limit("nofile", "", h->nofile, 1, 1024, 4096,
              "Every client is an open file: raise nofile in limits.conf or LimitNOFILE of the service.", out);
  judge_limit("shm", " MiB free", h->shm_free, MIB, 64 * MIB, 1024 * MIB,
              "Ranks of a host share memory in /dev/shm: give the container a larger one (--shm-size).", out);
  judge_launch(h, out);
}

/* ---- disks ---- */

void tri_judge_disk(const char *path, uint64_t bytes, double seconds, bool direct, tri_findings *out) {
  const double slow = 200e6;
  const uint64_t enough = 32 << 20; /* the beginning of a file takes longer than the rest */
  double rate = seconds > 0 ? (double)bytes / seconds : 0;
  bool is_slow = rate < slow && bytes >= enough;
  tri_finding *x = tri_findings_add(out, is_slow ? TRI_LEVEL_WARN : TRI_LEVEL_OK, "disk");
  VALUE(x, "%.0f MB/s %s, %.80s", rate * 1e-6, direct ? "past the page cache" : "through the page cache", path);
  LIMIT(x, bytes < enough ? "%.1f MB are too few to judge by" : "at least %.0f MB/s",
        (bytes < enough ? (double)bytes : slow) * 1e-6);
  if (is_slow) ADVICE(x, "A start reads all weights: put the model on a local NVMe drive.");
}

void tri_judge_nvme(const char *path, int64_t free_bytes, int64_t model_bytes, tri_findings *out) {
  tri_finding *x = tri_findings_add(out, free_bytes < model_bytes ? TRI_LEVEL_WARN : TRI_LEVEL_OK, "nvme");
  if (free_bytes < 0) {
    x->level = TRI_LEVEL_FAIL;
    VALUE(x, "%.100s cannot be written to", path);
    ADVICE(x, "Make the folder, for the user that the workers run as.");
    return;
  }
  VALUE(x, "%.1f GiB free, %.100s", gib(free_bytes), path);
  if (model_bytes) LIMIT(x, "the weights have %.1f GiB", gib(model_bytes));
  if (free_bytes < model_bytes) ADVICE(x, "Packs of all ranks may not fit here: make room, or name a larger drive.");
}

/* ---- devices ---- */

const char tri_device_query[] = "--query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,"
                                "ecc.errors.uncorrected.volatile.total,pcie.link.gen.current,pcie.link.gen.max,"
                                "pcie.link.width.current,pcie.link.width.max";
enum { NUM_TEXTS = 2, NUM_NUMBERS = 9 };

/* Takes a value off the line, without the blanks around it. */
static bool take_value(const char **line, char *out, size_t cap) {
  const char *s = *line;
  if (!s) return false;
  while (*s == ' ') s++;
  size_t n = strcspn(s, ",\r\n");
  *line = s[n] == ',' ? s + n + 1 : NULL;
  while (n && s[n - 1] == ' ') n--;
  snprintf(out, cap, "%.*s", (int)n, s);
  return n > 0;
}

/* The query's order is that of the fields below. Some boards do not tell some values: "[N/A]" becomes -1, which no
 * check holds against them. */
bool tri_device_read(const char *line, tri_device_facts *d) {
  *d = (tri_device_facts){0};
  int64_t *const numbers[NUM_NUMBERS] = {&d->memory_mib,           &d->used_mib,   &d->clock_mhz,
                                         &d->most_clock_mhz,       &d->ecc_errors, &d->pcie_generation,
                                         &d->most_pcie_generation, &d->pcie_width, &d->most_pcie_width};
  char text[64], end;
  if (!take_value(&line, d->name, sizeof d->name) || !take_value(&line, d->driver, sizeof d->driver)) return false;
  for (int i = 0; i < NUM_NUMBERS; i++) {
    if (!take_value(&line, text, sizeof text)) return false;
    if (sscanf(text, "%" SCNd64 " %c", numbers[i], &end) != 1) *numbers[i] = -1; /* "[N/A]" */
  }
  return !line;
}

void tri_judge_device(int number, const tri_device_facts *d, tri_findings *out) {
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_OK, "gpu");
  char ecc[64] = "no ECC counters";
  if (d->ecc_errors >= 0) snprintf(ecc, sizeof ecc, "%" PRId64 " uncorrected ECC errors", d->ecc_errors);
  VALUE(x,
        "%d: %s, driver %s, %" PRId64 " of %" PRId64 " MiB in use, %" PRId64 " of %" PRId64 " MHz, PCIe %" PRId64
        " of %" PRId64 " x%" PRId64 " of %" PRId64 ", %s",
        number, d->name, d->driver, d->used_mib, d->memory_mib, d->clock_mhz, d->most_clock_mhz, d->pcie_generation,
        d->most_pcie_generation, d->pcie_width, d->most_pcie_width, ecc);
  /* The generation falls while a device is idle, its width does not. */
  if (d->pcie_width > 0 && d->pcie_width < d->most_pcie_width) {
    x->level = TRI_LEVEL_WARN;
    ADVICE(x, "The GPU has fewer PCIe lanes than it could: check its slot, riser and switch.");
  }
  if (d->memory_mib > 0 && d->used_mib * 20 > d->memory_mib) {
    x->level = TRI_LEVEL_WARN;
    ADVICE(x, "Another process uses more than 5%% of the GPU's memory: end it, or do not use this GPU.");
  }
  if (d->ecc_errors > 0) {
    x->level = TRI_LEVEL_FAIL;
    ADVICE(x, "The GPU's memory has had uncorrectable errors: drain the host and reset or replace the GPU.");
  }
}

/* ---- MPI ---- */

void tri_judge_mpirun(const char *version, tri_findings *out) {
  int major = 0, minor = 0;
  const char *at = version ? strstr(version, "Open MPI") : NULL;
  if (at) at += strcspn(at, "0123456789");
  bool known = at && sscanf(at, "%d.%d", &major, &minor) == 2;
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_OK, "mpirun");
  LIMIT(x, "Open MPI 4");
  if (!version || !known) {
    x->level = TRI_LEVEL_FAIL;
    VALUE(x, "%s%.150s", version ? "not Open MPI: " : "mpirun is not in PATH", version ? version : "");
    ADVICE(x, "Install Open MPI (openmpi-bin), with its mpirun first in PATH.");
    return;
  }
  VALUE(x, "Open MPI %d.%d", major, minor);
  if (major == 4) return;
  x->level = TRI_LEVEL_WARN;
  ADVICE(x, "Trireme is tested with Open MPI 4.1; other versions may not accept its options.");
}
