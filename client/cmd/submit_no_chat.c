/* SPDX-License-Identifier: Apache-2.0 */
/* In place of submit_chat.c in a build without tokenizers, as of the client alone. */
#include "client/cmd/submit_file.h"

int submit_chat_open(const char *dir, trireme *c, int timeout_ms, submit_chat **out, tri_error *why) {
  (void)dir;
  (void)c;
  (void)timeout_ms;
  (void)out;
  tri_fail(why, TRI_UNSUPPORTED, "model", "this build has no tokenizers: --model takes a name, and no folder");
  return TRI_EXIT_OK;
}

void submit_chat_close(submit_chat *chat) { (void)chat; }

tri_status submit_chat_parse(submit_chat *chat, const cli_request *defaults, const tri_json *body, submit_slot *s,
                             submit_request *out, tri_error *err) {
  (void)chat;
  (void)defaults;
  (void)body;
  (void)s;
  (void)out;
  return tri_fail(err, TRI_UNSUPPORTED, "url", "this build has no tokenizers: it cannot render messages");
}

void submit_chat_free(submit_request *r) { (void)r; }

void submit_chat_choice(submit_slot *s, size_t index, const char *text, size_t len, submit_piece *piece,
                        const oai_tail *tail) {
  (void)s;
  (void)index;
  (void)text;
  (void)len;
  (void)piece;
  (void)tail;
}
