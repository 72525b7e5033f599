/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on stderr: `[TIME] LEVEL rank component: text`, one write(2) each, so that lines of several ranks never
 * mix. Where they are not read a line waits 100 ms once, and then lines are dropped and counted: a reader that stands
 * still stops no thread that logs. On a terminal the levels WARN and ERROR have colours. The threshold, the rank,
 * whether the time is wanted and whether there are colours are set once in main, before any thread starts: with the
 * count of lost lines they are the only process-wide state in Trireme. */
#ifndef TRI_BASE_LOG_H
#define TRI_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

typedef enum tri_log_level { TRI_LOG_ERROR, TRI_LOG_WARN, TRI_LOG_INFO, TRI_LOG_DEBUG } tri_log_level;

/* Colours: where stderr is a terminal, NO_COLOR is not set and TERM is something else than "dumb".
 * who: "3" for a rank, "1:3" for one of the second of several replicas, "-" for a process without one. Copied (at most
 * 15 bytes). */
void tri_log_setup(tri_log_level threshold, const char *who);
/* For processes that stay: lines begin with the time, in UTC, with milliseconds. */
void tri_log_with_time(bool on);
tri_log_level tri_log_threshold(void);

/* Makes one line of words from outside, for what is read line by line and for terminals: control bytes become spaces.
 */
void tri_plain_line(char *text, size_t len);

void tri_log(tri_log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
