/* Log lines on stderr: `LEVEL rank component: text`, one write(2) each, so that lines of several ranks never mix.
 * The threshold and the rank are the only process-wide state in Trireme: set once in main, before any thread starts. */
#ifndef TRI_BASE_LOG_H
#define TRI_BASE_LOG_H

typedef enum tri_log_level { TRI_LOG_ERROR, TRI_LOG_WARN, TRI_LOG_INFO, TRI_LOG_DEBUG } tri_log_level;

/* who: "3" for a rank, "-" for a process without one. Copied (at most 15 bytes). */
void tri_log_setup(tri_log_level threshold, const char *who);
tri_log_level tri_log_threshold(void);

void tri_log(tri_log_level level, const char *component, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
