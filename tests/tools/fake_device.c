/* In the place of the CUDA module: a backend "cuda" that computes with the reference's kernels on the host and says
 * that it has a device of its own. FAKE_DEVICE: its name ("none": it has none); without it every process of a host has
 * one by its number. FAKE_PCI: its address. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/fill.h"

__attribute__((visibility("default"))) tri_status tri_backend_fill_cuda(tri_backend *be, int device, tri_error *err) {
  const char *name = getenv("FAKE_DEVICE"), *pci = getenv("FAKE_PCI");
  if (be->deterministic) return tri_fail(err, TRI_UNSUPPORTED, "deterministic", "not this one");
  if (name)
    snprintf(be->device, sizeof be->device, "%s", strcmp(name, "none") ? name : "");
  else
    snprintf(be->device, sizeof be->device, "GPU-%d", device);
  if (pci) snprintf(be->pci, sizeof be->pci, "%s", pci);
  snprintf(be->about, sizeof be->about, "device %d: imitation", device);
  return TRI_OK;
}
