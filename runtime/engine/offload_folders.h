/* SPDX-License-Identifier: Apache-2.0 */
/* The folders for packs that --nvme-path names: one, or several on drives of their own, with commas between them.
 * A name that has a comma is refused, and told from a list by what is there. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_FOLDERS_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_FOLDERS_H

#include "offload/stripes.h"

/* Real paths in the order of their bytes, however they were given: a pack's files are locked in this order, and another
 * order of the same folders has the same pack. */
typedef struct tri_offload_folders {
  char *list[TRI_STRIPES_MAX_FILES];
  int count;
} tri_offload_folders;

/* TRI_INVALID_ARGUMENT with the folder: it is not there, it is named twice, it has no name, its name has a comma, or it
 * is one too many. */
tri_status tri_offload_folders_make(const char *list, tri_offload_folders *out, tri_error *err);
/* Fails as that does. */
tri_status tri_offload_folders_check(const char *list, tri_error *err);
void tri_offload_folders_free(tri_offload_folders *f);

#endif
