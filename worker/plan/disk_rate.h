/* The rate at which streamed weights would come from a disk, before any has come. */
#ifndef TRI_WORKER_PLAN_DISK_RATE_H
#define TRI_WORKER_PLAN_DISK_RATE_H

#include "runtime/model/safetensors.h"
#include "worker/plan/disk_read.h"

/* Finds what a worker with its host to itself has left of the disk of a folder for packs, or else of the checkpoint's;
 * either may be NULL. Returns false where there is nothing. */
bool tri_disk_rate_kept(const tri_checkpoint *ckpt, const char *folder, double *bytes_per_s);

/* Reads the checkpoint's largest file for a moment. */
tri_status tri_disk_rate_measure(const tri_checkpoint *ckpt, tri_disk_figures *out, tri_error *err);

#endif
