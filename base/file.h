/* SPDX-License-Identifier: Apache-2.0 */
/* Whole small files: found next to the program, read, and replaced so that a half of one is never seen. */
#ifndef TRI_BASE_FILE_H
#define TRI_BASE_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Opens /dev/null as descriptors 0 to 2 where they are closed: files that are opened later would have these numbers,
 * and be read and written in their place, also by children. writable: for a program that stays; else what is written to
 * the output fails, as it does on a closed one. Before anything else is opened. */
void tri_file_open_standard(bool writable);

/* The folder of the running program, with a slash at its end; empty where that cannot be found out. */
void tri_program_folder(char out[PATH_MAX]);

/* $XDG_CACHE_HOME/trireme/NAME; without that variable, in ~/.cache. Empty: there is no such folder. */
void tri_cache_file(const char *name, char out[PATH_MAX]);

/* The same in $XDG_STATE_HOME, or ~/.local/state: what is kept of an earlier run for people. */
void tri_state_file(const char *name, char out[PATH_MAX]);

/* The bytes of a file with a zero after them; free *out with tri_free. TRI_NOT_FOUND: there is none, and nothing is
 * said in *err. TRI_TOO_LARGE: more than `most` bytes. */
tri_status tri_file_read(const char *path, size_t most, char **out, size_t *len, tri_error *err);

/* Returns true when a file's first bytes say that it is a Git LFS pointer: a few lines that a clone has instead of a
 * large file that was not fetched. */
bool tri_file_is_lfs_pointer(const void *bytes, size_t len);

/* Writes all of it; false: errno says why. No copy stays behind, unlike with stdio. */
bool tri_file_write_all(int fd, const void *data, size_t len);
/* Makes the folders above a path, for this user alone. Returns why the last of them is not there (an errno), or 0. */
int tri_file_make_folders(const char *path);
/* Writes a file next to the path and gives it its name. The folders above it are made where they are missing, for this
 * user alone. On failure what was there stays. */
tri_status tri_file_replace(const char *path, const void *data, size_t len, tri_error *err);
/* The same without waiting for the disk, for threads that must not and what can be found out again: a failure of the
 * machine may leave an empty file. */
tri_status tri_file_replace_soon(const char *path, const void *data, size_t len, tri_error *err);

#endif
