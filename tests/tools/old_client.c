/* SPDX-License-Identifier: Apache-2.0 */
/* A client that is compiled against trireme.h as it is, and against one whose structs are shorter, by e2e/abi.sh: both
 * must do the same. It prints what it is told and looks for bytes written behind what it knows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trireme.h"

enum { GUARD = 0x5a, BEHIND = 64 };

#define GUARDED(type)                                                                                                  \
  struct {                                                                                                             \
    type s;                                                                                                            \
    unsigned char behind[BEHIND];                                                                                      \
  }

static void check(const unsigned char *behind, const char *what) {
  for (int i = 0; i < BEHIND; i++)
    if (behind[i] != GUARD) {
      printf("written behind %s\n", what);
      exit(1);
    }
}

int main(int argc, char **argv) {
  static GUARDED(trireme_config) config;
  static GUARDED(trireme_request) request;
  static GUARDED(trireme_embed_request) embed;
  static GUARDED(trireme_event) event;
  trireme_error error = {.message = ""};
  trireme *c = NULL;
  uint64_t id;
  if (argc < 2) return 2;
  memset(&config, GUARD, sizeof config);
  memset(&request, GUARD, sizeof request);
  memset(&embed, GUARD, sizeof embed);
  memset(&event, GUARD, sizeof event);
  trireme_config_init(&config.s);
  trireme_request_init(&request.s);
  trireme_embed_request_init(&embed.s);
  check(config.behind, "a config");
  check(request.behind, "a request");
  check(embed.behind, "an embed request");
  config.s.endpoint = argv[1];
  if (trireme_connect(&config.s, &c, &error) != TRIREME_OK) return printf("connect: %s\n", error.message);
  request.s.prompt = "a prompt";
  request.s.prompt_len = 8;
  request.s.n = 3;
  request.s.max_tokens = 2;
  request.s.logprobs = 2;
  if (trireme_submit(c, &request.s, &id, &error) != TRIREME_OK) return printf("submit: %s\n", error.message);
  if (trireme_ask_status(c, NULL, &error) != TRIREME_OK) return printf("status: %s\n", error.message);
  if (trireme_ask_floors(c, NULL, &error) != TRIREME_OK) return printf("floors: %s\n", error.message);
  embed.s.text = "a text";
  embed.s.text_len = 6;
  if (trireme_embed(c, &embed.s, NULL, &error) != TRIREME_OK) return printf("embed: %s\n", error.message);
  const trireme_event *e = &event.s;
  for (int ended = 0; ended < 4;) {
    if (trireme_next(c, 5000, &event.s, &error) != TRIREME_OK) return printf("next: %s\n", error.message);
    check(event.behind, "an event");
    for (size_t i = 0; e->kind == TRIREME_EVENT_TOKENS && i < e->tokens.num; i++) {
      const trireme_choice *k = e->tokens.choices[i];
      printf("tokens %u %u:%s\n", (unsigned)k->index, (unsigned)k->offset, k->text);
    }
    for (size_t i = 0; e->kind == TRIREME_EVENT_DONE && i < e->done.num; i++)
      printf("done %s\n", e->done.choices[i]->finish_reason);
    for (size_t i = 0; e->kind == TRIREME_EVENT_STATUS && i < e->status.num_groups; i++)
      printf("group %u %s\n", (unsigned)e->status.groups[i]->group, e->status.groups[i]->state);
    for (size_t i = 0; e->kind == TRIREME_EVENT_STATUS && i < e->status.num_ranks; i++)
      printf("rank %u %s\n", (unsigned)e->status.ranks[i]->rank, e->status.ranks[i]->host);
    for (size_t i = 0; e->kind == TRIREME_EVENT_FLOORS && i < e->floors.num; i++)
      printf("floors %g\n", e->floors.groups[i]->weight_bytes);
    if (e->kind == TRIREME_EVENT_ERROR) printf("error %s: %s\n", e->error.code, e->error.message);
    ended += e->kind != TRIREME_EVENT_TOKENS && e->kind != TRIREME_EVENT_ACCEPTED;
  }
  trireme_close(c);
  return 0;
}
