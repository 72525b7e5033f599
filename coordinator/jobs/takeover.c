/* SPDX-License-Identifier: Apache-2.0 */
/* Takeovers: a client that returns, or asks again under a request_id, is attached to the job that it has, and the
 * connection that had the stream before gets a message. Jobs of other owners are as unknown here as those that never
 * were.
 */
#include "coordinator/jobs/jobs_impl.h"

/* FNV-1a is enough: owners compare with requests of their own only. */
tri_status content_of(tri_core *c, const tri_client_msg *m, job_content *out) {
  const tri_submit *s = &m->submit;
  tri_client_msg rest = {.op = m->op, .submit = *s};
  rest.submit.has_request_id = false;
  rest.submit.prompt = (tri_wire_str){0};
  rest.submit.token_ids = NULL;
  rest.submit.num_token_ids = 0;
  rest.submit.external_id = (tri_wire_str){0}; /* asking again is another request over HTTP */
  TRI_CHECK(tri_client_msg_pack(&rest, &c->jobs->content));
  out->rest = tri_hash_bytes(TRI_HASH_SEED, c->jobs->content.data, c->jobs->content.len);
  out->prompt = s->prompt.s ? tri_hash_bytes(TRI_HASH_SEED, s->prompt.s, s->prompt.len)
                            : tri_hash_bytes(~TRI_HASH_SEED, s->token_ids, s->num_token_ids * sizeof *s->token_ids);
  return TRI_OK;
}

/* A stream that ends here without its last word says so. */
static void tell_former(tri_core *c, const job *j, const tri_peer *from, uint64_t client_id) {
  tri_error err = {0};
  bool same = j->client_id == client_id && tri_peer_equal(&j->peer, from);
  if (same || !j->attached || j->done_sent) return;
  tri_fail(&err, TRI_TAKEN_OVER, "request_id",
           "the stream of this request continues on another connection, which attached to it or submitted its "
           "request_id again");
  answer_error(c, &j->peer, j->client_id, &err);
}

/* The state of delivery alone is set back: all that the client lacks is sent again from what the choices have kept. An
 * offset beyond their tokens is of tokens that a restart has lost: those to come are passed over (ahead). */
static void adopt(tri_core *c, int64_t now, job *j, const tri_peer *from, uint64_t client_id, uint64_t offset) {
  tell_former(c, j, from, client_id);
  job_give(c, j, from, client_id);
  j->attached = true;
  j->stuck_ns = 0;
  j->said_ns = now;
  j->looks = 0;
  j->done_sent = false;
  j->accepted_sent = false;
  j->known = true;
  j->echo_sent = 0;
  j->echo_at = 0;
  j->scored.sent = offset ? j->scored.num : 0; /* a client that has tokens has had those before them */
  j->scored.ahead = offset ? j->num_prompt : 0;
  for (int64_t i = 0; i < j->sampling.n; i++) {
    job_choice *ch = &j->choices[i];
    ch->sent = offset < ch->num ? offset : ch->num;
    ch->ahead = offset - ch->sent;
    ch->sent_text = ch->sent ? ch->safe_after[ch->sent - 1] : 0;
  }
  job_mark(c, j);
}

void job_submit_again(tri_core *c, int64_t now, job *j, const tri_peer *from, const tri_client_msg *m) {
  tri_error err = {0};
  job_content content = {0};
  tri_status st = admission_check_id(c, from, m->id, j, &err);
  if (st != TRI_OK) {
    admission_count(c, &err);
    answer_error(c, from, m->id, &err);
    return;
  }
  st = content_of(c, m, &content);
  if (st == TRI_OK && content.prompt == j->content.prompt && content.rest == j->content.rest) {
    adopt(c, now, j, from, m->id, 0);
    return;
  }
  if (st != TRI_OK)
    tri_fail(&err, st, "", "the request cannot be compared with the one of the same request_id: %s",
             tri_status_text(st));
  else
    tri_fail(&err, TRI_INVALID_ARGUMENT, "request_id",
             "a job with this request_id is there already, and its %s another: a new request needs a request_id of its "
             "own",
             content.prompt != j->content.prompt ? "prompt is" : "sampling, or another field than the prompt, is");
  admission_count(c, &err);
  answer_error(c, from, m->id, &err);
}

/* An offset counts tokens of one choice. */
void job_attach(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m) {
  tri_error err = {0};
  job *j = job_find_request(c, from, &m->attach.request_id);
  if (admission_check_id(c, from, m->id, j, &err) != TRI_OK) {
    answer_error(c, from, m->id, &err);
    return;
  }
  if (j && (!m->attach.offset || j->sampling.n == 1)) {
    adopt(c, now, j, from, m->id, m->attach.offset);
    return;
  }
  if (j)
    tri_fail(&err, TRI_INVALID_ARGUMENT, "offset",
             "the job has %lld choices, and an offset is that of one: attach from 0 for all", (long long)j->sampling.n);
  else
    tri_fail(&err, TRI_NOT_FOUND, "request_id",
             "no such job of yours: it was never submitted here, it ended more than %lld s ago, or newer ones took its "
             "place",
             RETAIN_NS / 1000000000);
  answer_error(c, from, m->id, &err);
}
