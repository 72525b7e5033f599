/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of calls, and the sizes of structs by which versions of the header are distinguished.
 *
 * A struct only grows at its end, and its first member is its size as the program was compiled. A smaller one is put
 * over the defaults, so that members it does not know have theirs; a larger one comes from a newer header and is
 * refused, since it may ask for what this library cannot do. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "base/version.h"

static trireme_result result_of(tri_status st) {
  switch (st) {
  case TRI_OK: return TRIREME_OK;
  case TRI_TIMEOUT:
  case TRI_AGAIN: return TRIREME_TIMEOUT;
  case TRI_INVALID_ARGUMENT:
  case TRI_OUT_OF_RANGE:
  case TRI_UNKNOWN_FIELD:
  case TRI_TOO_LARGE: return TRIREME_INVALID;
  case TRI_PERMISSION: return TRIREME_REFUSED;
  case TRI_CLOSED: return TRIREME_CLOSED;
  case TRI_CORRUPT: return TRIREME_PROTOCOL;
  case TRI_NO_MEMORY: return TRIREME_NO_MEMORY;
  case TRI_ABORTED: return TRIREME_INTERRUPTED;
  default: return TRIREME_FAILED;
  }
}

static void set_code(trireme_error *error, tri_status st) {
  snprintf(error->code, sizeof error->code, "%s", tri_status_code(st));
}

trireme_result tri_client_fail(trireme_error *error, trireme_result r, const tri_error *err) {
  if (!error) return r;
  set_code(error, err->status);
  snprintf(error->field, sizeof error->field, "%s", err->field);
  snprintf(error->message, sizeof error->message, "%.*s", (int)sizeof error->message - 1,
           err->message[0] ? err->message : tri_status_text(err->status));
  return r;
}

trireme_result tri_client_say(trireme_error *error, trireme_result r, tri_status code, const char *field,
                              const char *fmt, ...) {
  if (!error) return r;
  set_code(error, code);
  snprintf(error->field, sizeof error->field, "%s", field ? field : "");
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(error->message, sizeof error->message, fmt, ap);
  va_end(ap);
  return r;
}

trireme_result tri_client_fail_status(trireme_error *error, tri_status st, const tri_error *err) {
  tri_error e = *err;
  if (e.status == TRI_OK) e.status = st;
  return tri_client_fail(error, result_of(st), &e);
}

_Static_assert(sizeof(trireme_error) == 32 + 96 + 400 && sizeof(trireme_string) == 2 * sizeof(size_t) &&
                   sizeof(trireme_logit_bias) == 8,
               "these have no size of their own and never change");

void tri_client_init_struct(void *to, size_t size, const void *defaults, size_t known) {
  memset(to, 0, size);
  memcpy(to, defaults, size < known ? size : known);
  memcpy(to, &size, size < sizeof size ? size : sizeof size);
}

trireme_result tri_client_check_size(size_t size, size_t known, const char *type, trireme_error *error) {
  if (size > sizeof size && size <= known) return TRIREME_OK;
  return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "size",
                        "the size of a %s is said to be %zu; version %s of this library knows up to %zu: its *_init "
                        "was not called, or the program was compiled for a newer version",
                        type, size, TRIREME_VERSION, known);
}

trireme_result tri_client_take_struct(void *to, size_t known, const void *from, const char *type,
                                      trireme_error *error) {
  size_t size;
  memcpy(&size, from, sizeof size);
  trireme_result r = tri_client_check_size(size, known, type, error);
  if (r == TRIREME_OK) memcpy(to, from, size);
  return r;
}
