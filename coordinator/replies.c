/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/replies.h"

#include "coordinator/core_impl.h"

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
