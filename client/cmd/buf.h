/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, also JSON: of the command, and of the gateway. */
#ifndef TRI_CLIENT_CMD_BUF_H
#define TRI_CLIENT_CMD_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct cmd_buf {
  char *data; /* NUL-terminated once anything was added */
  size_t len, cap;
  bool failed; /* memory was out: what is there is incomplete */
} cmd_buf;
void cmd_buf_free(cmd_buf *b);
void cmd_buf_add(cmd_buf *b, const char *s, size_t len);
void cmd_buf_printf(cmd_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Adds a quoted JSON string; bytes that are not UTF-8 become U+FFFD. */
void cmd_buf_json(cmd_buf *b, const char *s, size_t len);
/* How many bytes from s on are UTF-8. */
size_t cmd_utf8_prefix(const char *s, size_t len);
/* `"key":` with a comma before it unless an object or array has just begun. */
void cmd_buf_key(cmd_buf *b, const char *key);
void cmd_buf_num(cmd_buf *b, double x); /* shortest text that reads back; null when not finite */
/* The shortest text that reads back as the same float32; `otherwise` when not finite. */
void cmd_buf_float(cmd_buf *b, float x, const char *otherwise);
/* Opens an object or array, '{' or '[': a member, or an element where key is NULL. */
void cmd_json_open(cmd_buf *b, const char *key, char bracket);
/* Members of the object that is open. */
void cmd_json_text(cmd_buf *b, const char *key, const char *s, size_t len);
void cmd_json_word(cmd_buf *b, const char *key, const char *s);
void cmd_json_num(cmd_buf *b, const char *key, double x);
void cmd_json_uint(cmd_buf *b, const char *key, uint64_t x);
void cmd_json_error(cmd_buf *b, const char *code, const char *field, const char *message);

#endif
