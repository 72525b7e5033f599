/* SPDX-License-Identifier: Apache-2.0 */
/* The rate at which streamed weights would come from a disk, before any has come. */
#ifndef TRI_RUNTIME_COST_DISK_RATE_H
#define TRI_RUNTIME_COST_DISK_RATE_H

#include <limits.h>

#include "runtime/model/safetensors.h"
#include "runtime/cost/disk_read.h"

typedef struct tri_disk_rate {
  double bytes_per_s; /* of all disks together, each of which gives as much of every part as its folders have */
  int num_disks;
  char slowest[PATH_MAX]; /* folder of the disk that the others wait for; empty: it is not known, or there is none */
} tri_disk_rate;

/* Finds what a worker with its host to itself has left of the disks of folders for packs (offload_folders.h), or else
 * of the checkpoint's; either may be NULL. Returns false where there is nothing. */
bool tri_disk_rate_kept(const tri_checkpoint *ckpt, const char *folders, tri_disk_rate *out);

/* Reads the checkpoint's largest file for a moment. */
tri_status tri_disk_rate_measure(const tri_checkpoint *ckpt, tri_disk_figures *out, tri_error *err);

#endif
