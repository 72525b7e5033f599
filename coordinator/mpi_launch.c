/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mpi_launch.h"

#include "comm/comm.h"
#include "comm/wire/network.h"
#include "base/mem.h"
#include "base/start_watch.h"

/* The job's communicator lives as long as the process: MPI itself is such a state. */
static tri_comm *world;
/* Both functions stand in calls without a limit of their own when a process of the job does not come. */
static tri_start_watch watch;

/* Each worker has made its own pair, and says which the public key is. */
static tri_status receive_keys(uint32_t workers, tri_rank_keys *keys) {
  keys->replicas = 1;
  keys->ranks = workers;
  keys->texts = tri_calloc(workers, sizeof *keys->texts);
  if (!keys->texts) return TRI_NO_MEMORY;
  for (uint32_t r = 0; r < workers; r++) {
    TRI_CHECK(tri_comm_recv(world, keys->texts[r], TRI_Z_KEY, (int)r + 1, TRI_BOOT_TAG));
    keys->texts[r][TRI_Z_KEY - 1] = '\0';
  }
  return TRI_OK;
}

tri_status tri_mpi_launch_join(int *argc, char ***argv, double limit_s, const char *interface, bool *one_host,
                               tri_rank_keys *keys, tri_error *err) {
  static const tri_comm_config cc = {.messages_only = true, .policy = {.yield_us = 1000}, .timeout_ms = 60000};
  int local_rank, local_size;
  tri_status st;
  TRI_TRY(tri_start_watch_begin(&watch, limit_s, err));
  tri_start_watch_phase(&watch, "connect", NULL);
  TRI_TRY(tri_network_use(interface, "", err));
  TRI_TRY(tri_mpi_init(argc, argv, err));
  TRI_TRY(tri_comm_mpi_world(&cc, &world));
  TRI_TRY(tri_mpi_confine(world));
  if (world->rank != 0 || world->size < 2)
    return tri_fail(err, TRI_USAGE, "launch",
                    "with --launch mpi the coordinator is the first process, and workers follow: mpirun -n 1 "
                    "trireme-coordinator ... : -n N trireme-worker ...");
  TRI_TRY(tri_comm_mpi_local(world, &local_rank, &local_size));
  *one_host = local_size == world->size;
  TRI_TRY(receive_keys((uint32_t)world->size - 1, keys));
  tri_start_watch_phase(&watch, "model", NULL);
cleanup:
  return st == TRI_OK || err->status ? st
                                     : tri_fail(err, st, "mpi", "cannot join the MPI job: %s", tri_status_text(st));
}

tri_status tri_mpi_launch_hand_out(tri_boot *boot, tri_error *err) {
  tri_comm *alone;
  tri_start_watch_phase(&watch, "the workers' connect", NULL);
  tri_status st = tri_comm_broadcast(world, boot->endpoint, sizeof boot->endpoint, 0);
  if (st == TRI_OK) st = tri_comm_broadcast(world, boot->server_key, sizeof boot->server_key, 0);
  if (st == TRI_OK) st = tri_comm_split(world, 1, 0, NULL, &alone); /* the workers form a communicator of their own */
  tri_start_watch_end(&watch);
  return st == TRI_OK ? st : tri_fail(err, st, "mpi", "the workers did not join: %s", tri_status_text(st));
}

void tri_mpi_launch_leave(void) { tri_mpi_finalize(); }
