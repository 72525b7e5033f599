/* SPDX-License-Identifier: Apache-2.0 */
/* The report of the last replica that hung: the coordinator keeps it, `trireme doctor --last-hang` shows it. */
#ifndef TRI_BASE_LAST_HANG_H
#define TRI_BASE_LAST_HANG_H

#include <limits.h>
#include <stddef.h>

#include "base/status.h"

/* Writes it, in place of the one before, with a line first that has the time and the model. */
tri_status tri_last_hang_keep(const char *model, const char *report, size_t len, tri_error *err);
/* Reads it: *out is for tri_free. TRI_NOT_FOUND: none is kept. path: where it lies, or would; empty: nowhere. */
tri_status tri_last_hang_read(char path[PATH_MAX], char **out, size_t *len, tri_error *err);

#endif
