/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
  const char *name, *code, *text;
} words[] = {
#define X(name, code, text) [TRI_##name] = {#name, #code, text},
    TRI_STATUS_LIST(X)
#undef X
};

const char *tri_status_name(tri_status s) { return (unsigned)s < TRI_STATUS_COUNT ? words[s].name : "UNKNOWN_STATUS"; }

const char *tri_status_code(tri_status s) { return (unsigned)s < TRI_STATUS_COUNT ? words[s].code : "unknown_status"; }

tri_status tri_status_of_code(const char *code, size_t len) {
  for (int i = TRI_OK + 1; i < TRI_STATUS_COUNT; i++)
    if (strlen(words[i].code) == len && !memcmp(words[i].code, code, len)) return (tri_status)i;
  return TRI_INTERNAL;
}

const char *tri_status_text(tri_status s) { return (unsigned)s < TRI_STATUS_COUNT ? words[s].text : "unknown status"; }

bool tri_status_is_refusal(tri_status s) {
  switch (s) {
  case TRI_INVALID_ARGUMENT:
  case TRI_OUT_OF_RANGE:
  case TRI_UNKNOWN_FIELD:
  case TRI_UNSUPPORTED:
  case TRI_NOT_FOUND:
  case TRI_CORRUPT:
  case TRI_TOO_LARGE:
  case TRI_PERMISSION: return true;
  default: return false;
  }
}

void tri_error_clear(tri_error *err) {
  if (!err) return;
  err->status = TRI_OK;
  err->field[0] = err->message[0] = '\0';
}

/* Returns whether a message begins with the field, alone or after a file, is about "the FIELD", or names it as an
 * option. Fields have _ where options have -. */
static bool names_option(const tri_error *err) {
  char option[TRI_ERROR_FIELD + 4], noun[TRI_ERROR_FIELD + 8], key[TRI_ERROR_FIELD + 8];
  size_t len = strlen(err->field);
  const char *after = err->message + len;
  snprintf(option, sizeof option, "--%s", err->field);
  snprintf(noun, sizeof noun, " the %s ", err->field);
  snprintf(key, sizeof key, ": %s: ", err->field);
  for (char *c = option; *c; c++)
    if (*c == '_') *c = '-';
  bool begins = !strncmp(err->message, err->field, len) && strchr(" :,;", *after);
  return len && (begins || strstr(err->message, option) || strstr(err->message, noun) || strstr(err->message, key));
}

const char *tri_error_field_beside(const tri_error *err) {
  bool said = (strchr(err->field, '/') && strstr(err->message, err->field)) || names_option(err);
  return said || !strcmp(err->field, "memory") ? "" : err->field;
}

void tri_error_in_file(tri_error *err, const char *path) {
  enum { MOST = TRI_ERROR_MESSAGE / 2 }; /* of a longer path the end: it has the file's name */
  char before[MOST + 8];
  size_t len = strlen(path), room;
  if (!err || !err->message[0]) return;
  snprintf(before, sizeof before, "%s%s: ", len > MOST ? "..." : "", path + (len > MOST ? len - MOST : 0));
  len = strlen(before);
  room = sizeof err->message - len - 1;
  memmove(err->message + len, err->message, room);
  memcpy(err->message, before, len);
  err->message[len + room] = '\0';
}

void tri_error_add(tri_error *err, const char *fmt, ...) {
  if (!err || !err->message[0]) return;
  size_t len = strlen(err->message);
  va_list args;
  va_start(args, fmt);
  vsnprintf(err->message + len, sizeof err->message - len, fmt, args);
  va_end(args);
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
