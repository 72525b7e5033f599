/* SPDX-License-Identifier: Apache-2.0 */
/* Values of JSON documents, written again. */
#ifndef TRI_CLIENT_CMD_JSON_VALUE_H
#define TRI_CLIENT_CMD_JSON_VALUE_H

#include "client/cmd/buf.h"
#include "base/json/json.h"

/* Appends a value as it is. spaced: with a space after commas and colons, as json.dumps of Python writes it. */
void cmd_json_value(cmd_buf *b, const tri_json *v, bool spaced);
/* Appends it as a member of the object that is open, without spaces. */
void cmd_json_member(cmd_buf *b, const char *key, const tri_json *v);

#endif
