/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend is a shared module: one build serves machines with and without a driver. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/cuda/fill.h"
#include "base/file.h"

/* The driver's library: without it the module and the libraries that it brings need not be loaded. */
static bool has_driver(void) {
  void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver) dlclose(driver);
  return driver != NULL;
}

tri_status tri_backend_load_cuda(tri_backend *be, int device, tri_error *err) {
  static const char *const places[] = {"", "../lib/", "../lib/x86_64-linux-gnu/", "../lib64/"};
  char folder[PATH_MAX], path[PATH_MAX + 64], why[256] = "";
  void *module = NULL;
  tri_program_folder(folder);
  for (size_t i = 0; i < sizeof places / sizeof *places && !module; i++) {
    snprintf(path, sizeof path, "%s%s" TRI_CUDA_MODULE, folder, places[i]);
    if (access(path, R_OK)) continue;
    if (!has_driver()) return tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: no NVIDIA driver is installed");
    module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) snprintf(why, sizeof why, "%s", dlerror());
  }
  if (!module)
    return tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: %s",
                    why[0] ? why
                           : "this build has no module " TRI_CUDA_MODULE
                             ": build it with the CUDA toolkit, without -DTRIREME_CUDA=OFF");
  tri_cuda_fill_fn fill;
  *(void **)&fill = dlsym(module, TRI_CUDA_FILL);
  be->module = module;
  return fill ? fill(be, device, err)
              : tri_fail(err, TRI_UNSUPPORTED, "backend", "backend cuda: %s is not a module of this program", path);
}
