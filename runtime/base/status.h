/* Status codes: every function that can fail returns one, and sets its outputs only on TRI_OK.
 *
 * A tri_error travels beside the code where somebody outside the process has to be told why: it names the field or file
 * at fault and the limit it broke. The first place that knows fills it; callers add nothing but context. */
#ifndef TRI_RUNTIME_BASE_STATUS_H
#define TRI_RUNTIME_BASE_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, text for people */
#define TRI_STATUS_LIST(X)                                                                                             \
  X(OK, "ok")                                                                                                          \
  X(INVALID_ARGUMENT, "invalid argument")                                                                              \
  X(OUT_OF_RANGE, "value out of range")                                                                                \
  X(UNKNOWN_FIELD, "unknown field")                                                                                    \
  X(UNSUPPORTED, "not supported")                                                                                      \
  X(NOT_FOUND, "not found")                                                                                            \
  X(CORRUPT, "malformed data")                                                                                         \
  X(TOO_LARGE, "larger than its limit")                                                                                \
  X(NO_MEMORY, "out of memory")                                                                                        \
  X(NO_CAPACITY, "does not fit")                                                                                       \
  X(IO, "input/output error")                                                                                          \
  X(TIMEOUT, "deadline passed")                                                                                        \
  X(AGAIN, "nothing to do yet")                                                                                        \
  X(CLOSED, "closed by the other side")                                                                                \
  X(PEER_LOST, "a peer is gone")                                                                                       \
  X(DEVICE_LOST, "the device has failed")                                                                              \
  X(PERMISSION, "not permitted")                                                                                       \
  X(DRAINING, "shutting down, takes no new work")                                                                      \
  X(ABORTED, "aborted")                                                                                                \
  X(OVERFLOW, "arithmetic overflow")                                                                                   \
  X(INTERNAL, "internal error")                                                                                        \
  X(USAGE, "the options are wrong")

typedef enum tri_status {
#define X(name, text) TRI_##name,
  TRI_STATUS_LIST(X)
#undef X
      TRI_STATUS_COUNT
} tri_status;

/* "INVALID_ARGUMENT"; the wire carries this name in lower case. Never NULL. */
const char *tri_status_name(tri_status s);
/* "invalid argument". Never NULL. */
const char *tri_status_text(tri_status s);

#define TRI_ERROR_FIELD 96
#define TRI_ERROR_MESSAGE 400

typedef struct tri_error {
  tri_status status;
  char field[TRI_ERROR_FIELD];     /* config key, flag, tensor or request field; may be empty */
  char message[TRI_ERROR_MESSAGE]; /* one sentence, with the numbers */
} tri_error;

/* Fills *err (which may be NULL) and returns s, so that `return tri_fail(err, TRI_..., "field", "...")` reads as one
 * statement. An error that is already set is kept: the first place that knew wins. field may be NULL. */
tri_status tri_fail(tri_error *err, tri_status s, const char *field, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

void tri_error_clear(tri_error *err);

/* Puts the path of the file that an error was found in before its message: code that looks at bytes does not know where
 * they come from. Does nothing when there is no message. */
void tri_error_in_file(tri_error *err, const char *path);

/* `cleanup:`-label helper: evaluates expr into the local `st` and jumps when it is not TRI_OK. */
#define TRI_TRY(expr)                                                                                                  \
  do {                                                                                                                 \
    st = (expr);                                                                                                       \
    if (st != TRI_OK) goto cleanup;                                                                                    \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
