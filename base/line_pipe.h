/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for a process that may stand still: those for which its pipe has no room wait here, and come in order. */
#ifndef TRI_BASE_LINE_PIPE_H
#define TRI_BASE_LINE_PIPE_H

#include <stdbool.h>

#include "base/buf.h"

/* Writes a line to a descriptor that does not block, or keeps it. Returns false where there is no reader any more, or
 * too much waits: it is dropped. */
bool tri_line_pipe_put(int fd, tri_buf *waiting, const char *line, size_t len);
/* Writes what waits, as far as there is room. Returns whether nothing is left. */
bool tri_line_pipe_flush(int fd, tri_buf *waiting);

#endif
