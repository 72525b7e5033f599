#include "runtime/base/topo.h"

#include <hwloc.h>

static int load(hwloc_topology_t *topology, hwloc_cpuset_t *allowed) {
  if (hwloc_topology_init(topology)) return -1;
  *allowed = hwloc_bitmap_alloc();
  /* What the process may use, which a batch system or mpirun may have narrowed. */
  if (!*allowed || hwloc_topology_load(*topology) || hwloc_get_cpubind(*topology, *allowed, HWLOC_CPUBIND_PROCESS)) {
    hwloc_bitmap_free(*allowed);
    hwloc_topology_destroy(*topology);
    return -1;
  }
  return 0;
}

int tri_topo_num_cores(void) {
  hwloc_topology_t topology;
  hwloc_cpuset_t allowed;
  if (load(&topology, &allowed)) return 1;
  int n = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
  if (n < 1) n = hwloc_bitmap_weight(allowed);
  hwloc_bitmap_free(allowed);
  hwloc_topology_destroy(topology);
  return n > 0 ? n : 1;
}

tri_status tri_topo_assign(int index, int count, int threads, int *cores, int *oversubscribed) {
  hwloc_topology_t topology;
  hwloc_cpuset_t allowed;
  for (int i = 0; i < threads; i++) cores[i] = -1;
  *oversubscribed = 0;
  if (load(&topology, &allowed)) return TRI_OK; /* no topology: no pinning */
  int n = hwloc_get_nbobjs_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE);
  /* When mpirun bound each process by itself, the mask is this process's own share. */
  int total = 0, all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
  int shared = n == all;
  total = shared ? count * threads : threads;
  if (n < 1 || total > n) {
    *oversubscribed = total > n;
  } else {
    int first = shared ? index * threads : 0;
    for (int i = 0; i < threads; i++) {
      hwloc_obj_t core = hwloc_get_obj_inside_cpuset_by_type(topology, allowed, HWLOC_OBJ_CORE, (unsigned)(first + i));
      if (core) cores[i] = hwloc_bitmap_first(core->cpuset);
    }
  }
  hwloc_bitmap_free(allowed);
  hwloc_topology_destroy(topology);
  return TRI_OK;
}
