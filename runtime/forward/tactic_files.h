/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tactics (kernels/gemm_tactics.h): a table that comes with the product, and what this user's machines
 * have measured, which comes first. */
#ifndef TRI_RUNTIME_FORWARD_TACTIC_FILES_H
#define TRI_RUNTIME_FORWARD_TACTIC_FILES_H

#include <limits.h>

#include "kernels/gemm_tactics.h"

/* ../share/trireme/cuda-gemm-tactics.txt, seen from the running program's folder; empty where that is not known. */
void tri_tactic_file_shipped(char out[PATH_MAX]);
/* tactics-KEY.txt among the user's caches (tri_cache_file), with the key in a form that suits a name. */
void tri_tactic_file_cache(const char *key, char out[PATH_MAX]);

/* Puts what the files have for the key, those of the second replacing those of the first. A file that is not there (or
 * an empty path) has none, and neither has one that is refused, which the log says. counts: how many each had. */
void tri_tactic_files_load(tri_tactics *c, const char *key, const char *shipped, const char *cache, int counts[2]);

/* Adds tactics to those of a file, or begins one; what they replace is gone. Replaced as a whole (tri_file_replace),
 * so that a reader never sees half of one; of two processes that add at the same time the later one wins. */
tri_status tri_tactic_file_add(const char *path, const char *key, const tri_tactics *measured, tri_error *err);

#endif
