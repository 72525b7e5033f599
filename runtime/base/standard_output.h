/* SPDX-License-Identifier: Apache-2.0 */
/* The standard output of a program, of which a full disk is told like any other failure. */
#ifndef TRI_RUNTIME_BASE_STANDARD_OUTPUT_H
#define TRI_RUNTIME_BASE_STANDARD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes all of it, as fwrite does. */
bool tri_stdout_write(const void *p, size_t n);
/* Flushes it. A later flush of the same stream would pass, so that the reason of the first failure is kept. */
bool tri_stdout_flush(void);
/* Keeps the reason (an errno) of a write that failed past the stream, or that could not be tried. */
void tri_stdout_failed(int why);
/* The last call of a main: returns code, or TRI_EXIT_FAILED in place of TRI_EXIT_OK where something that was printed
 * was not written, which one line says. A reader that has left (EPIPE) is no news to anybody: there is no line. */
int tri_stdout_end(const char *program, int code);

#endif
