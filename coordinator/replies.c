/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that need no job. */
#include "coordinator/state.h"
#include "base/version.h"

/* A message has room for a whole status, which is not cleared here. */
static void fill_error(tri_server_msg *m, uint64_t id, const tri_error *err) {
  m->op = TRI_REPLY_ERROR;
  m->id = id;
  m->error.code = wire_str(tri_status_code(err->status));
  m->error.message = wire_str(err->message);
  m->error.field = wire_str(err->field);
}

tri_status reply_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err) {
  tri_server_msg m;
  if (!to->len) return TRI_OK; /* of a job that was restored, whose client has not come yet */
  fill_error(&m, id, err);
  return c->cfg.io.to_client(c->cfg.io.ctx, to, &m);
}

void answer_error(const tri_core *c, const tri_peer *to, uint64_t id, const tri_error *err) {
  tri_server_msg m;
  if (!to->len) return; /* likewise */
  fill_error(&m, id, err);
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}

void reply_hello(const tri_core *c, const tri_peer *to, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_HELLO, .id = id, .hello = {wire_str(TRIREME_VERSION), TRI_WIRE_MAX_MESSAGE}};
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}

void reply_models(const tri_core *c, const tri_peer *to, uint64_t id) {
  tri_wire_str names[TRI_CORE_MAX_NAMES];
  uint32_t index, num = 0;
  const group *g = group_pick(c, &index);
  names[num++] = wire_str(c->cfg.model_name);
  for (uint32_t i = 0; i < c->cfg.num_other_names && num < TRI_CORE_MAX_NAMES; i++)
    names[num++] = wire_str(c->cfg.other_names[i]);
  tri_server_msg m = {.op = TRI_REPLY_MODELS,
                      .id = id,
                      .models = {num, names, g ? g->max_model_len : (uint64_t)c->cfg.max_prompt,
                                 c->cfg.tokenizer ? tri_tokenizer_hash(c->cfg.tokenizer) : 0}};
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}
