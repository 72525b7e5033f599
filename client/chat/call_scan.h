/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a tool, byte by byte: a JSON object with a name and arguments, or a name before its arguments. */
#ifndef TRI_CLIENT_CHAT_CALL_SCAN_H
#define TRI_CLIENT_CHAT_CALL_SCAN_H

#include <stdbool.h>
#include <stddef.h>

#include "client/chat/call_arguments.h"

typedef enum call_form {
  CALL_OBJECT,         /* {"name": ..., "arguments": ...} */
  CALL_OBJECT_OR_NAME, /* the same, perhaps in a list; or NAME{...}, NAME[ARGS]{...} */
  CALL_NAME,           /* NAME>{...} */
  CALL_TAGS,           /* <function=NAME><parameter=KEY>VALUE</parameter>...</function>: call_tags.c */
} call_form;

typedef struct call_scan {
  call_form form;
  int state, kind; /* where it is, and what the value under way is */
  bool in_string, escaped;
  unsigned depth;               /* of brackets in a value that is not looked into */
  bool in_list;                 /* a list has begun */
  bool alone;                   /* the arguments stand after the name, without an object around them */
  bool has_name, has_arguments; /* the name is whole; some of the arguments have come */
  bool open;                    /* and not all of them */
  tri_buf word;                 /* of a key or a name that is not yet whole */
  tri_buf name;
  tri_buf arguments;   /* an object of JSON, as far as it has come: the owner takes it out */
  size_t pending;      /* the last bytes taken, of which nothing has come */
  call_arguments json; /* arguments, but of tags */
  tri_buf keys;        /* of the parameters that have come, a line each */
  /* Returns whether a parameter is text by the tool's schema, whatever it looks like. NULL: one that is JSON is none.
   */
  bool (*is_text)(void *ctx, const char *name, size_t len, const char *key, size_t key_len);
  /* Returns whether the tool's schema has such a parameter; NULL: each is one. */
  bool (*is_parameter)(void *ctx, const char *name, size_t len, const char *key, size_t key_len);
  void *ctx;
  tri_buf value; /* of a parameter */
  tri_buf rest;  /* bytes that were taken and lie after the call that has ended: they are to be read again */
} call_scan;

/* Begins the next call, and keeps the memory. in_list stays. */
void call_scan_begin(call_scan *s, call_form form);
void call_scan_free(call_scan *s);
/* Takes the next byte. *step says whether the call continues, has ended with this byte, or is none. TRI_OK or
 * TRI_NO_MEMORY. */
tri_status call_scan_byte(call_scan *s, char c, call_step *step);
/* The same of a call of tags alone. */
tri_status call_tags_byte(call_scan *s, char c, call_step *step);
/* The answer has ended: a call of tags ends with it, unless it stands in a value. */
tri_status call_tags_finish(call_scan *s, call_step *step);
tri_status call_tags_close(call_scan *s);
/* The call has ended: appends what makes an object of the arguments that have come. */
tri_status call_scan_close(call_scan *s);

static inline bool call_is_blank(char c) { return json_is_blank(c); }

#endif
