/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of this host.
 *
 * Each check adds its own findings and fails alone: what cannot be asked is a finding and not the end of the others. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "comm/comm.h"
#include "kernels/backend.h"
#include "base/options/options.h"
#include "base/wait.h"
#include "tools/doctor/doctor.h"
#include "runtime/cost/disk_rate.h"

#define SAY(text, ...) snprintf(text, sizeof(text), __VA_ARGS__)

static int64_t deadline(const tri_doctor_options *o) { return tri_deadline_after_ms((int64_t)(o->timeout * 1e3)); }

/* Cuts a program's words off after their first line. */
static char *first_line(char *text) {
  text += strspn(text, "\r\n ");
  text[strcspn(text, "\r\n")] = '\0';
  return text;
}

/* ---- the model's folder and the drives ---- */

static int64_t check_model(const tri_doctor_options *o, tri_findings *out) {
  tri_checkpoint *ckpt = NULL;
  tri_disk_figures disk;
  tri_error err = {0};
  int64_t bytes = 0;
  if (!o->model) return 0;
  tri_status st = tri_checkpoint_open(o->model, &ckpt, &err);
  for (size_t i = 0; st == TRI_OK && i < tri_checkpoint_num_tensors(ckpt); i++)
    bytes += (int64_t)tri_checkpoint_tensor(ckpt, i)->bytes;
  if (st == TRI_OK) st = tri_disk_rate_measure(ckpt, &disk, &err);
  tri_checkpoint_close(ckpt);
  if (st == TRI_OK) {
    tri_judge_disk(o->model, disk.bytes, disk.seconds, disk.direct, out);
    return bytes;
  }
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_FAIL, "disk");
  SAY(x->value, "%.250s", err.message[0] ? err.message : tri_status_text(st));
  SAY(x->advice, "Every host needs the model's folder, or a copy of it, under the same path.");
  return bytes;
}

static void check_drives(const tri_doctor_options *o, int64_t model_bytes, tri_findings *out) {
  char list[4096], *save = NULL;
  snprintf(list, sizeof list, "%s", o->nvme_path ? o->nvme_path : "");
  for (char *path = strtok_r(list, ",", &save); path; path = strtok_r(NULL, ",", &save)) {
    struct statvfs v;
    bool ok = !access(path, W_OK | X_OK) && !statvfs(path, &v);
    tri_judge_nvme(path, ok ? (int64_t)(v.f_bavail * v.f_frsize) : -1, model_bytes, out);
  }
}

/* ---- devices ---- */

static tri_finding *say_no_devices(const char *why, tri_findings *out) {
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_OK, "gpu");
  SAY(x->value, "none: %.200s", why);
  return x;
}

/* Returns how many devices the driver has. */
static int check_driver(const tri_doctor_options *o, tri_findings *out) {
  char *argv[] = {"nvidia-smi", (char *)(uintptr_t)tri_device_query, "--format=csv,noheader,nounits", NULL};
  char text[8192], *save = NULL;
  tri_running run;
  tri_error err = {0};
  int number = 0;
  if (tri_run_start(argv, &run, &err) != TRI_OK) return 0;
  int code = tri_run_end(&run, deadline(o), text, sizeof text);
  if (code == 127) {
    say_no_devices("there is no nvidia-smi", out);
    return 0;
  }
  for (char *line = strtok_r(text, "\n", &save); !code && line; line = strtok_r(NULL, "\n", &save)) {
    tri_device_facts d;
    if (number < TRI_DOCTOR_DEVICES && tri_device_read(line, &d)) tri_judge_device(number++, &d, out);
  }
  if (number) return number;
  tri_finding *x = tri_findings_add(out, TRI_LEVEL_FAIL, "gpu");
  SAY(x->value, "nvidia-smi ended with code %d: %.180s", code, first_line(text));
  SAY(x->advice, "The driver is installed and does not answer: look at the kernel's log for NVRM and Xid.");
  return 0;
}

/* NCCL's own function, of the library that a worker opens. */
static int nccl_version(void) {
  int version = 0, (*ask)(int *);
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  void *f = library ? dlsym(library, "ncclGetVersion") : NULL;
  memcpy(&ask, &f, sizeof ask);
  if (f && ask(&version)) version = 0;
  if (library) dlclose(library);
  return version;
}

/* Opens the first device as a worker does, which compares the versions of the driver and of the build. */
static void check_backend(tri_findings *out) {
  tri_backend *be = NULL;
  tri_error err = {0};
  tri_status st = tri_backend_create(&(tri_backend_config){.name = "cuda"}, &be, &err);
  bool lacks = st == TRI_OK && be->lacks;
  tri_level level = st == TRI_OK ? TRI_LEVEL_OK : TRI_LEVEL_FAIL;
  tri_finding *x = tri_findings_add(out, lacks ? TRI_LEVEL_WARN : level, "cuda");
  if (lacks) SAY(x->advice, "Trireme is not tested here: %.220s.", be->lacks);
  if (st == TRI_OK)
    SAY(x->value, "%.220s", be->about);
  else
    SAY(x->value, "%.250s", err.message[0] ? err.message : tri_status_text(st));
  if (st != TRI_OK)
    SAY(x->advice, "There are GPUs, but this build cannot use them; --backend cpu computes on the host.");
  tri_backend_destroy(be);
  int version = nccl_version();
  x = tri_findings_add(out, version ? TRI_LEVEL_OK : TRI_LEVEL_WARN, "nccl");
  if (version)
    SAY(x->value, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  else
    SAY(x->value, "libnccl.so.2 cannot be opened");
  if (!version) SAY(x->advice, "Ranks on several GPUs need NCCL: install libnccl2.");
}

/* ---- ports ---- */

/* SO_REUSEADDR: connections that are only closing down do not count as a server. */
static void check_port(int port, tri_findings *out) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  bool is_free = s >= 0 && !bind(s, (struct sockaddr *)&at, sizeof at);
  int why = errno;
  if (s >= 0) close(s);
  tri_finding *x = tri_findings_add(out, is_free ? TRI_LEVEL_OK : TRI_LEVEL_FAIL, "port");
  SAY(x->value, "%d%s%s", port, is_free ? " is free" : ": ", is_free ? "" : strerror(why));
  if (!is_free) SAY(x->advice, "Another program listens there (ss -ltnp says which): end it, or choose another port.");
}

static void check_ports(const tri_doctor_options *o, tri_findings *out) {
  char list[1024], *save = NULL;
  snprintf(list, sizeof list, "%s", o->ports ? o->ports : "");
  for (char *s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save)) check_port(atoi(s), out);
}

/* ---- MPI ---- */

static void check_mpirun(const tri_doctor_options *o, tri_findings *out) {
  char *argv[] = {"mpirun", "--version", NULL}, text[1024];
  tri_running run;
  tri_error err = {0};
  if (tri_run_start(argv, &run, &err) != TRI_OK) return;
  int code = tri_run_end(&run, deadline(o), text, sizeof text);
  tri_judge_mpirun(code == 127 ? NULL : first_line(text), out);
}

/* The model comes first, since memory and drives are compared with its size, and is reported after the host. */
void tri_doctor_check(const tri_doctor_options *o, tri_findings *out) {
  struct utsname host;
  tri_host_facts facts;
  uname(&host);
  SAY(out->host, "%s", host.nodename);
  tri_gather_host("", &facts);
  tri_findings model = {0};
  int64_t bytes = check_model(o, &model);
  tri_judge_host(&facts, bytes, out);
  for (int i = 0; i < model.count; i++) *tri_findings_add(out, TRI_LEVEL_OK, "") = model.list[i];
  check_drives(o, bytes, out);
  if (check_driver(o, out)) check_backend(out);
  check_ports(o, out);
  if (!strcmp(o->launcher, "mpirun")) check_mpirun(o, out);
}

/* A barrier passes only if both ranks have started, found each other and can send: what `trireme up` needs of MPI. */
int tri_doctor_mpi_rank(void) {
  tri_error err = {0};
  int argc = 0;
  char **argv = NULL;
  tri_comm *world = NULL;
  tri_status st = tri_mpi_init(&argc, &argv, &err);
  if (st == TRI_OK) st = tri_comm_mpi_world(&(tri_comm_config){.timeout_ms = 10000}, &world);
  if (st == TRI_OK) st = tri_comm_barrier(world);
  if (st == TRI_OK && world->rank == 0) printf("%d ranks have met\n", world->size);
  if (st != TRI_OK) printf("%s\n", err.message[0] ? err.message : tri_status_text(st));
  fflush(stdout);
  if (world) tri_comm_destroy(world);
  if (st == TRI_OK) tri_mpi_finalize();
  return tri_exit_code(st);
}
