/* SPDX-License-Identifier: Apache-2.0 */
/* The standard output of a program, where a full disk is an error like any other. */
#ifndef TRI_BASE_STANDARD_OUTPUT_H
#define TRI_BASE_STANDARD_OUTPUT_H

/* The last call of a main: returns code, or TRI_EXIT_FAILED in place of TRI_EXIT_OK where something that was printed
 * was not written, which one line on stderr says. */
int tri_stdout_end(const char *program, int code);
/* That line; why: an errno. A reader that has left (EPIPE) is no news to anybody: there is no line. */
void tri_stdout_tell(const char *program, int why);

#endif
