/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of the replicas: a list with too few slots, or with a name that does not exist, is refused before a
 * launcher tries, which takes longer and says more. */
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "comm/wire/network.h"
#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/host/mpirun_check.h"

static tri_status check_host(const char *name, tri_error *err) {
  struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int wrong = getaddrinfo(name, NULL, &wanted, &found);
  if (!wrong) freeaddrinfo(found);
  return wrong ? tri_fail(err, TRI_USAGE, "hosts",
                          "--hosts names \"%.100s\", which has no address: %s. Where ssh alone knows it: "
                          "--launcher-args \"--mca plm_rsh_agent ssh\"",
                          name, gai_strerror(wrong))
               : TRI_OK;
}

/* An agent that was named for the remote hosts may know names that the resolver does not. */
static bool has_agent(const tri_up_options *o) {
  return getenv("OMPI_MCA_plm_rsh_agent") || (o->launcher_args && strstr(o->launcher_args, "rsh_agent"));
}

static bool may_oversubscribe(const tri_up_options *o) {
  return getenv("OMPI_MCA_rmaps_base_oversubscribe") ||
         (o->launcher_args && strcasestr(o->launcher_args, "oversubscribe"));
}

static tri_status check_addresses(const tri_hosts *h, tri_error *err) {
  for (int i = 0; i < h->count; i++) TRI_CHECK(check_host(h->list[i].name, err));
  return TRI_OK;
}

static tri_status check_interface(const char *interface, tri_error *err) {
  tri_network n;
  if (!interface || tri_network_find(interface, &n)) return TRI_OK;
  return tri_fail(err, TRI_USAGE, "interface", "--interface \"%.100s\" names no network of this host", interface);
}

/* Reads the hosts of --hosts, or those of a Slurm job. With mpirun a job of one host is none: its ranks are here, where
 * they need no network. */
static tri_status list_hosts(tri_up *u, bool by_srun, const char *nodes, tri_error *err) {
  const tri_up_options *o = &u->opts;
  const char *tasks = getenv("SLURM_TASKS_PER_NODE");
  if (o->hosts) return tri_hosts_parse(o->hosts, &u->hosts, err);
  if (nodes) TRI_CHECK(tri_hosts_parse_slurm(nodes, tasks ? tasks : "", &u->hosts, err));
  if (!by_srun && u->hosts.count == 1) tri_hosts_free(&u->hosts);
  return TRI_OK;
}

static tri_status take_verdict(const tri_up *u, tri_mpirun_verdict v, tri_status st, const char *field, const char *why,
                               tri_error *err) {
  if (v == TRI_MPIRUN_MAY_FAIL) tri_log(TRI_LOG_WARN, u->called, "%s", why);
  return v == TRI_MPIRUN_FAILS ? tri_fail(err, st, field, "%s", why) : TRI_OK;
}

tri_status tri_up_check_mpirun(const tri_up *u, tri_error *err) {
  int world = tri_serve_layout_world(&u->layout);
  char host[256] = "", why[TRI_MPIRUN_WHY] = "";
  struct statvfs shm;
  tri_slurm_words job = tri_slurm_words_read();
  if (!strcmp(u->opts.launcher, "srun") || (world == 1 && !u->places)) return TRI_OK; /* without mpirun */
  gethostname(host, sizeof host - 1);
  TRI_CHECK(take_verdict(u, tri_mpirun_check_name(host, why), TRI_UNSUPPORTED, "hostname", why, err));
  if (!u->opts.hosts) TRI_CHECK(take_verdict(u, tri_mpirun_check_slurm(&job, host, why), TRI_USAGE, "slurm", why, err));
  if (u->places) return TRI_OK; /* how many ranks are here is the launcher's to say */
  int64_t room = statvfs("/dev/shm", &shm) ? -1 : (int64_t)(shm.f_bavail * shm.f_frsize);
  return take_verdict(u, tri_mpirun_check_shm(room, u->layout.replicas, world, why), TRI_NO_CAPACITY, "shm", why, err);
}

tri_status tri_up_place_replicas(tri_up *u, tri_error *err) {
  const tri_up_options *o = &u->opts;
  const tri_serve_options *v = &o->serve;
  const tri_serve_layout *y = &u->layout;
  int world = tri_serve_layout_world(y);
  bool by_srun = !strcmp(o->launcher, "srun");
  const char *nodes = getenv("SLURM_JOB_NODELIST");
  long long slots = 0;
  TRI_CHECK(list_hosts(u, by_srun, nodes, err));
  if (!u->hosts.count) return TRI_OK;
  if (!by_srun) TRI_CHECK(check_interface(v->interface, err));
  if (o->hosts && !by_srun && !has_agent(o)) TRI_CHECK(check_addresses(&u->hosts, err));
  u->places = tri_calloc((size_t)y->replicas * (size_t)world, sizeof *u->places);
  if (!u->places) return tri_fail(err, TRI_NO_MEMORY, "hosts", "no memory");
  bool more = o->hosts ? may_oversubscribe(o) : true; /* Slurm has its own opinion of what a job may start */
  tri_status st = tri_hosts_place(&u->hosts, y->replicas, world, more, u->places);
  for (int i = 0; i < u->hosts.count; i++) slots += u->hosts.list[i].slots;
  if (st == TRI_OK) return st;
  return tri_fail(err, TRI_USAGE, "hosts",
                  "--hosts \"%.100s\" has places for %lld ranks, but tensor-parallel %d x pipeline-parallel %d x "
                  "data-parallel %d needs %d",
                  o->hosts ? o->hosts : nodes, slots, v->tp, v->pp, y->dp * y->replicas, world * y->replicas);
}
