/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes: every function that can fail returns one, and sets its outputs only on TRI_OK.
 *
 * A tri_error travels with the code where a user outside the process must know why: it names the field or file
 * at fault and the limit it broke. The first place that knows fills it; callers add nothing but context. */
#ifndef TRI_BASE_STATUS_H
#define TRI_BASE_STATUS_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, code (the name in lower case), text for people */
#define TRI_STATUS_LIST(X)                                                                                             \
  X(OK, ok, "ok")                                                                                                      \
  X(INVALID_ARGUMENT, invalid_argument, "invalid argument")                                                            \
  X(OUT_OF_RANGE, out_of_range, "value out of range")                                                                  \
  X(UNKNOWN_FIELD, unknown_field, "unknown field")                                                                     \
  X(UNSUPPORTED, unsupported, "not supported")                                                                         \
  X(NOT_FOUND, not_found, "not found")                                                                                 \
  X(CORRUPT, corrupt, "malformed data")                                                                                \
  X(TOO_LARGE, too_large, "larger than its limit")                                                                     \
  X(NO_MEMORY, no_memory, "out of memory")                                                                             \
  X(NO_CAPACITY, no_capacity, "does not fit")                                                                          \
  X(IO, io, "input/output error")                                                                                      \
  X(TIMEOUT, timeout, "deadline passed")                                                                               \
  X(AGAIN, again, "nothing to do yet")                                                                                 \
  X(CLOSED, closed, "closed by the other side")                                                                        \
  X(PEER_LOST, peer_lost, "a peer is gone")                                                                            \
  X(DEVICE_LOST, device_lost, "the device has failed")                                                                 \
  X(PERMISSION, permission, "not permitted")                                                                           \
  X(DRAINING, draining, "shutting down, takes no new work")                                                            \
  X(TAKEN_OVER, taken_over, "another connection of the same client continues it")                                      \
  X(ABORTED, aborted, "aborted")                                                                                       \
  X(OVERFLOW, overflow, "arithmetic overflow")                                                                         \
  X(INTERNAL, internal, "internal error")                                                                              \
  X(USAGE, usage, "the options are wrong")                                                                             \
  X(COORDINATOR_LOST, coordinator_lost, "the coordinator is gone")

typedef enum tri_status {
#define X(name, code, text) TRI_##name,
  TRI_STATUS_LIST(X)
#undef X
      TRI_STATUS_COUNT
} tri_status;

/* Returns "INVALID_ARGUMENT". Never NULL. */
const char *tri_status_name(tri_status s);
/* Returns "invalid_argument", the name as messages carry it. Never NULL. */
const char *tri_status_code(tri_status s);
/* Returns whether a status says that what was asked for is wrong, and nothing else has failed. A lack of room may be
 * either. */
bool tri_status_is_refusal(tri_status s);
/* Returns the error with this code (len bytes, no NUL needed); TRI_INTERNAL where there is none. */
tri_status tri_status_of_code(const char *code, size_t len);
/* Returns "invalid argument". Never NULL. */
const char *tri_status_text(tri_status s);

#define TRI_ERROR_FIELD 96
#define TRI_ERROR_MESSAGE 1024 /* the longest is a refusal of memory (runtime/engine/ledger_refusal.h) */

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

/* Adds to the message of an error: what helps, or where it comes from, by code that knows more than the first place.
 * Does nothing where there is no message. */
void tri_error_add(tri_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Returns the field for a line that has it after the message: empty where it is a file that the message has
 * already, and for "memory", which is no option: what lacks it is said. */
const char *tri_error_field_beside(const tri_error *err);

/* Puts the path of the file that an error was found in before its message: code that looks at bytes does not know where
 * they come from. Does nothing when there is no message. */
void tri_error_in_file(tri_error *err, const char *path);

/* Returns the status of an expression that fails, from a function that has nothing to release. */
#define TRI_CHECK(expr)                                                                                                \
  do {                                                                                                                 \
    tri_status checked_ = (expr);                                                                                      \
    if (checked_ != TRI_OK) return checked_;                                                                           \
  } while (0)

/* Jumps to `cleanup:` where an expression fails, with its status in the local `st`. */
#define TRI_TRY(expr)                                                                                                  \
  do {                                                                                                                 \
    st = (expr);                                                                                                       \
    if (st != TRI_OK) goto cleanup;                                                                                    \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
