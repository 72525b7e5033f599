/* SPDX-License-Identifier: Apache-2.0 */
/* From the wire's replies to the library's events: texts get their NUL, everything lives in the event's arena.
 *
 * Arrays of numbers and ids are not copied: they stay where unpacking has put them. So an event is valid until the next
 * one is taken in. A failed allocation of a text is only noted (c->no_memory) and counts
 * at the end; the message stays in c->msg, and the next call tries again. */
#include "client/internal.h"

static const char *text(trireme *c, tri_wire_str s) {
  if (!s.s || !s.len) return "";
  const char *copy = tri_arena_strndup(c->arena, s.s, s.len);
  c->no_memory |= !copy; /* the event is none then: its length says otherwise */
  return copy ? copy : "";
}

static void *room(trireme *c, size_t n, size_t size) { return tri_arena_alloc(c->arena, n ? n : 1, size); }

/* Returns an array of pointers to the n elements of `all`, which is how arrays of structs are handed out, so that the
 * structs can grow; NULL without memory, or without `all`. */
static const void *pointers(trireme *c, const void *all, size_t n, size_t size) {
  const void **at = room(c, n, sizeof *at);
  if (!all || !at) return NULL;
  for (size_t i = 0; i < n; i++) at[i] = (const char *)all + i * size;
  return at;
}

/* A coordinator without a tokenizer sends ids alone: such tokens have no text. */
static bool logprobs_of(trireme *c, const tri_choice_tokens *in, trireme_choice *out) {
  if (!in->logprobs || !in->num_ids) return true;
  trireme_logprobs *l = room(c, in->num_ids, sizeof *l);
  out->logprobs = pointers(c, l, in->num_ids, sizeof *l);
  if (!out->logprobs) return false;
  for (size_t k = 0; k < in->num_ids; k++) {
    const tri_token_logprobs *from = &in->logprobs[k];
    size_t n = (size_t)from->num_top;
    l[k] = (trireme_logprobs){
        .logprob = from->logprob, .num_top = n, .top_ids = from->top_ids, .top_logprobs = from->top_logprobs};
    if (!from->text.s) continue;
    trireme_string *texts = room(c, n, sizeof *texts);
    if (!texts) return false;
    for (size_t i = 0; i < n; i++) texts[i] = (trireme_string){text(c, from->top_texts[i]), from->top_texts[i].len};
    l[k].text = text(c, from->text);
    l[k].text_len = from->text.len;
    l[k].top_texts = texts;
  }
  return true;
}

static bool tokens_event(trireme *c, trireme_event *e) {
  uint32_t n = c->msg->tokens.num;
  trireme_choice *out = room(c, n, sizeof *out);
  e->tokens.num = n;
  e->tokens.choices = pointers(c, out, n, sizeof *out);
  if (!e->tokens.choices) return false;
  for (uint32_t i = 0; i < n; i++) {
    const tri_choice_tokens *in = &c->msg->tokens.choices[i];
    out[i] = (trireme_choice){.index = in->index,
                              .offset = in->offset,
                              .text = text(c, in->text),
                              .text_len = in->text.len,
                              .ids = in->ids,
                              .num_ids = in->num_ids,
                              .of_prompt = in->of_prompt};
    if (!logprobs_of(c, in, &out[i])) return false;
  }
  return true;
}

/* The wire leaves the number out where nothing of that kind has ended the choice; the event has -1 for it. */
static int64_t stop_of(bool has, uint64_t x) { return has && x <= UINT32_MAX ? (int64_t)x : -1; }

static bool done_event(trireme *c, trireme_event *e) {
  const tri_done *d = &c->msg->done;
  trireme_finished *out = room(c, d->num_choices, sizeof *out);
  e->done.choices = pointers(c, out, d->num_choices, sizeof *out);
  if (!e->done.choices) return false;
  for (uint32_t i = 0; i < d->num_choices; i++)
    out[i] = (trireme_finished){.finish_reason = tri_finish_name(d->choices[i].reason),
                                .text = text(c, d->choices[i].text),
                                .text_len = d->choices[i].text.len,
                                .completion_tokens = d->choices[i].completion_tokens,
                                .stop_string = stop_of(d->choices[i].has_stop_string, d->choices[i].stop_string),
                                .stop_token_id = stop_of(d->choices[i].has_stop_token_id, d->choices[i].stop_token_id)};
  e->done.num = d->num_choices;
  e->done.prompt_tokens = d->prompt_tokens;
  e->done.completion_tokens = d->completion_tokens;
  e->done.queue_ms = d->queue_ms;
  e->done.first_token_ms = d->first_token_ms;
  e->done.total_ms = d->total_ms;
  e->done.preemptions = d->preemptions;
  e->done.cached_tokens = d->cached_tokens;
  e->done.timed_out = d->timed_out;
  e->done.seed = d->seed;
  return true;
}

/* Members of a public struct from those of the wire's of the same names. */
#define COPY(from, type, name, json) .name = COPY_##type((from)->name),
#define COPY_U32(x) x
#define COPY_U64(x) x
#define COPY_I64(x) x
#define COPY_F64(x) x
#define COPY_LAYER(x) x
#define COPY_STR(x) text(c, x)

static bool status_event(trireme *c, trireme_event *e) {
  const tri_cluster_status *s = &c->msg->status;
  trireme_group_status *groups = room(c, s->num_replicas, sizeof *groups);
  trireme_rank_status *ranks = room(c, s->num_ranks, sizeof *ranks);
  const void *group_pointers = pointers(c, groups, s->num_replicas, sizeof *groups);
  const void *rank_pointers = pointers(c, ranks, s->num_ranks, sizeof *ranks);
  trireme_caller_status *callers = room(c, s->num_callers, sizeof *callers);
  const void *caller_pointers = pointers(c, callers, s->num_callers, sizeof *callers);
  if (!group_pointers || !rank_pointers || !caller_pointers) return false;
  for (uint32_t i = 0; i < s->num_replicas; i++)
    groups[i] = (trireme_group_status){TRI_REPLICA_STATUS_FIELDS(COPY, &s->replicas[i])};
  for (uint32_t i = 0; i < s->num_ranks; i++)
    ranks[i] = (trireme_rank_status){TRI_RANK_STATUS_FIELDS(COPY, &s->ranks[i])};
  for (uint32_t i = 0; i < s->num_callers; i++)
    callers[i] = (trireme_caller_status){TRI_CALLER_STATUS_FIELDS(COPY, &s->callers[i])};
  e->status = (trireme_status){.num_groups = s->num_replicas,
                               .groups = group_pointers,
                               .num_ranks = s->num_ranks,
                               .ranks = rank_pointers,
                               .num_callers = s->num_callers,
                               .callers = caller_pointers,
                               TRI_STATUS_FIELDS(COPY, s)};
  return true;
}

static const char *const *texts(trireme *c, const tri_wire_str *in, uint32_t n) {
  const char **out = room(c, n, sizeof *out);
  for (uint32_t i = 0; out && i < n; i++) out[i] = text(c, in[i]);
  return out;
}

static bool models_event(trireme *c, trireme_event *e) {
  e->models.num = c->msg->models.num;
  e->models.names = texts(c, c->msg->models.names, c->msg->models.num);
  e->models.max_model_len = c->msg->models.max_model_len;
  e->models.tokenizer = c->msg->models.tokenizer;
  return e->models.names != NULL;
}

static bool floors_event(trireme *c, trireme_event *e) {
  const tri_cluster_rooflines *f = &c->msg->rooflines;
  trireme_group_floors *out = room(c, f->num_replicas, sizeof *out);
  e->floors.groups = pointers(c, out, f->num_replicas, sizeof *out);
  if (!e->floors.groups) return false;
  for (uint32_t i = 0; i < f->num_replicas; i++) {
    const tri_replica_rooflines *g = &f->replicas[i];
    out[i] = (trireme_group_floors){
        .group = g->replica, .ranks = g->ranks, .measured = g->measured, TRI_ROOFLINES_FIELDS(COPY, &g->sum)};
  }
  e->floors.num = f->num_replicas;
  return true;
}

static void embedding_event(const trireme *c, trireme_event *e) {
  const tri_embed_reply *r = &c->msg->embed;
  e->embedding.values = r->values;
  e->embedding.num = r->num_values;
  e->embedding.prompt_tokens = r->prompt_tokens;
  e->embedding.queue_ms = r->queue_ms;
  e->embedding.total_ms = r->total_ms;
  e->embedding.cached = r->cached;
}

/* One row for the text, or one for each of its tokens, which are named then. */
static bool scores_event(trireme *c, trireme_event *e) {
  const tri_embed_reply *r = &c->msg->embed;
  const char *activation = tri_activation_name(r->activation);
  e->scores.values = r->values;
  e->scores.num_labels = r->num_labels;
  e->scores.labels = texts(c, r->labels, r->num_labels);
  e->scores.num_rows = r->num_tokens ? r->num_tokens : 1;
  e->scores.tokens = r->num_tokens ? texts(c, r->tokens, r->num_tokens) : NULL;
  e->scores.activation = activation ? activation : "";
  e->scores.prompt_tokens = r->prompt_tokens;
  e->scores.queue_ms = r->queue_ms;
  e->scores.total_ms = r->total_ms;
  e->scores.cached = r->cached;
  return e->scores.labels && (e->scores.tokens || !r->num_tokens);
}

static const trireme_event_kind kinds[] = {
    [TRI_REPLY_ACCEPTED] = TRIREME_EVENT_ACCEPTED,   [TRI_REPLY_TOKENS] = TRIREME_EVENT_TOKENS,
    [TRI_REPLY_DONE] = TRIREME_EVENT_DONE,           [TRI_REPLY_ERROR] = TRIREME_EVENT_ERROR,
    [TRI_REPLY_STATUS] = TRIREME_EVENT_STATUS,       [TRI_REPLY_STATS] = TRIREME_EVENT_STATS,
    [TRI_REPLY_MODELS] = TRIREME_EVENT_MODELS,       [TRI_REPLY_ROOFLINES] = TRIREME_EVENT_FLOORS,
    [TRI_REPLY_EMBEDDING] = TRIREME_EVENT_EMBEDDING, [TRI_REPLY_SCORES] = TRIREME_EVENT_SCORES,
    [TRI_REPLY_EXPERTS] = TRIREME_EVENT_EXPERTS,
};

trireme_result tri_client_event(trireme *c, trireme_event *out, trireme_error *error) {
  const tri_server_msg *m = c->msg;
  bool ok = true;
  c->no_memory = false;
  *out = (trireme_event){.id = m->id, .kind = kinds[m->op]};
  switch (m->op) {
  case TRI_REPLY_HELLO: break;
  case TRI_REPLY_ACCEPTED:
    tri_request_id_format(&m->accepted.request_id, out->accepted.request_id);
    out->accepted.prompt_tokens = m->accepted.prompt_tokens;
    out->accepted.existing = m->accepted.existing;
    out->accepted.token_ids_only = m->accepted.token_ids_only;
    out->accepted.cached = m->accepted.cached;
    out->accepted.token_ids = m->accepted.token_ids;
    out->accepted.num_token_ids = m->accepted.num_token_ids;
    break;
  case TRI_REPLY_TOKENS: ok = tokens_event(c, out); break;
  case TRI_REPLY_DONE: ok = done_event(c, out); break;
  case TRI_REPLY_ERROR:
    tri_client_copy(out->error.code, sizeof out->error.code, m->error.code);
    tri_client_copy(out->error.field, sizeof out->error.field, m->error.field);
    tri_client_copy(out->error.message, sizeof out->error.message, m->error.message);
    break;
  case TRI_REPLY_STATUS: ok = status_event(c, out); break;
  case TRI_REPLY_STATS:
    out->stats.text = text(c, m->stats);
    out->stats.text_len = m->stats.len;
    break;
  case TRI_REPLY_MODELS: ok = models_event(c, out); break;
  case TRI_REPLY_ROOFLINES: ok = floors_event(c, out); break;
  case TRI_REPLY_EMBEDDING: embedding_event(c, out); break;
  case TRI_REPLY_SCORES: ok = scores_event(c, out); break;
  case TRI_REPLY_EXPERTS:
    out->experts.json = text(c, m->experts);
    out->experts.json_len = m->experts.len;
    break;
  }
  return ok && !c->no_memory ? TRIREME_OK
                             : tri_client_say(error, TRIREME_NO_MEMORY, TRI_NO_MEMORY, NULL, "no memory for an event");
}
