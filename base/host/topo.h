/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's cores. topo.c is the only user of hwloc. */
#ifndef TRI_BASE_HOST_TOPO_H
#define TRI_BASE_HOST_TOPO_H

#include <stdbool.h>

#include "base/status.h"

/* Cores that this process may run on (its affinity mask). At least 1. */
int tri_topo_num_cores(void);

/* Cores for `threads` threads of process `index` among `count` on this host: cores[i] is an operating system core
 * number, or -1 for all where the processes want more threads than there are cores (then nothing is pinned, and
 * *oversubscribed is 1). */
tri_status tri_topo_assign(int index, int count, int threads, int *cores, int *oversubscribed);

/* A device's PCI address as the kernel writes it ("0000:1b:00.0"), from what CUDA or NVML say: in capitals, with more
 * leading zeros, or without the domain. False: it is no such address. */
enum { TRI_PCI_ADDRESS = 16 };
bool tri_topo_pci_address(const char *text, char out[TRI_PCI_ADDRESS]);

/* The numbers of a list like "0-3,8-11", in order and with a newline at the end or not; -1: it is none, or has more
 * than cap. */
int tri_topo_read_list(const char *text, int *numbers, int cap);

/* The cores of the NUMA node that a PCI device hangs on, as far as this process may run on them: operating system
 * numbers, with hardware threads counted one by one. sysfs is "/sys", or a test's imitation. 0: not known, or none. */
int tri_topo_cores_near(const char *sysfs, const char *address, int *cores, int cap);

/* Binds every thread of this process, and those that they start later, to a set of cores. False: it could not. */
bool tri_topo_bind(const int *cores, int count);

#endif
