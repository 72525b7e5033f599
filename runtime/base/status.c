#include "runtime/base/status.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const names[] = {
#define X(name, text) [TRI_##name] = #name,
    TRI_STATUS_LIST(X)
#undef X
};

static const char *const texts[] = {
#define X(name, text) [TRI_##name] = text,
    TRI_STATUS_LIST(X)
#undef X
};

const char *tri_status_name(tri_status s) { return (unsigned)s < TRI_STATUS_COUNT ? names[s] : "UNKNOWN_STATUS"; }

const char *tri_status_text(tri_status s) { return (unsigned)s < TRI_STATUS_COUNT ? texts[s] : "unknown status"; }

void tri_error_clear(tri_error *err) {
  if (!err) return;
  err->status = TRI_OK;
  err->field[0] = err->message[0] = '\0';
}

tri_status tri_fail(tri_error *err, tri_status s, const char *field, const char *fmt, ...) {
  if (!err || err->status != TRI_OK) return s;
  err->status = s;
  snprintf(err->field, sizeof err->field, "%s", field ? field : "");
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(err->message, sizeof err->message, fmt, ap);
  va_end(ap);
  return s;
}
