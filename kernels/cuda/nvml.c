/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that the driver knows of a device beyond the CUDA runtime. NVML comes with the driver and is opened while the
 * program runs; these few of its functions have kept their form since version 11, so that a build needs no header of
 * it. What fails leaves a fact unknown: nothing but the log depends on them. */
#include <dlfcn.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

enum { MAX_LINKS = 18 };

typedef void *handle;
struct nvml {
  int (*init)(void), (*shutdown)(void);
  int (*driver)(char *out, unsigned cap);
  int (*by_pci)(const char *address, handle *out);
  int (*pcie_generation)(handle device, unsigned *out);
  int (*pcie_width)(handle device, unsigned *out);
  int (*link)(handle device, unsigned number, int *active);
};

static bool find(void *library, struct nvml *out) {
  const struct {
    const char *name;
    void *to;
  } functions[] = {{"nvmlInit_v2", &out->init},
                   {"nvmlShutdown", &out->shutdown},
                   {"nvmlSystemGetDriverVersion", &out->driver},
                   {"nvmlDeviceGetHandleByPciBusId_v2", &out->by_pci},
                   {"nvmlDeviceGetMaxPcieLinkGeneration", &out->pcie_generation},
                   {"nvmlDeviceGetMaxPcieLinkWidth", &out->pcie_width},
                   {"nvmlDeviceGetNvLinkState", &out->link}};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    void *f = dlsym(library, functions[i].name);
    if (!f) return false;
    memcpy(functions[i].to, &f, sizeof f);
  }
  return true;
}

static void ask(const struct nvml *n, const char *pci, tri_cuda_facts *out) {
  handle device;
  int active;
  if (n->driver(out->driver, sizeof out->driver)) out->driver[0] = 0;
  if (n->by_pci(pci, &device)) return;
  if (n->pcie_generation(device, &out->pcie_generation)) out->pcie_generation = 0;
  if (n->pcie_width(device, &out->pcie_width)) out->pcie_width = 0;
  for (unsigned i = 0; i < MAX_LINKS; i++) out->links += !n->link(device, i, &active) && active;
}

tri_cuda_facts tri_cuda_ask_driver(const char *pci) {
  tri_cuda_facts out = {0};
  struct nvml n;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return out;
  if (find(library, &n) && !n.init()) {
    ask(&n, pci, &out);
    n.shutdown();
  }
  dlclose(library);
  return out;
}
