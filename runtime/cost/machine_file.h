/* SPDX-License-Identifier: Apache-2.0 */
/* The file of what workers have measured of this user's devices and disks, which `trireme plan` predicts with. */
#ifndef TRI_RUNTIME_COST_MACHINE_FILE_H
#define TRI_RUNTIME_COST_MACHINE_FILE_H

#include <limits.h>
#include <stdbool.h>

#include "base/dtype.h"
#include "base/status.h"

/* machine.json among the user's caches (tri_cache_file). */
void tri_machine_file_path(char out[PATH_MAX]);

/* "NVIDIA H200, sm_90, 132 SMs" of a backend's tactics_key: the device without its library. Empty: it has none. */
enum { TRI_MACHINE_NAME = 160 };
void tri_machine_name(const char *tactics_key, char out[TRI_MACHINE_NAME]);

typedef struct tri_machine_figures {
  double read_bytes_per_s, flops_per_s; /* the latter of products of one type */
} tri_machine_figures;

/* Returns whether the file has a device's figures for weights of a type. A file that is malformed anywhere has none,
 * and the log says which field of which file it is. */
bool tri_machine_file_find(const char *path, const char *device, tri_dtype type, tri_machine_figures *out);
/* Adds figures to those of a file, replacing the same device's and type's, or begins one. */
tri_status tri_machine_file_add(const char *path, const char *device, tri_dtype type, const tri_machine_figures *f,
                                tri_error *err);

/* The same of a disk by its name, as tri_disk_name has it. */
bool tri_machine_file_find_disk(const char *path, const char *disk, double *bytes_per_s);
tri_status tri_machine_file_add_disk(const char *path, const char *disk, double bytes_per_s, tri_error *err);

#endif
