/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the library: a public struct becomes a message of the wire, is checked as far as its size and limits
 * say, numbered and sent. All numbers of a request with defaults and limits come from one table, TRI_SAMPLING_NUMBERS:
 * INIT gives each its default, PUT copies it, and for those that may be absent sets has_NAME. Most values are checked
 * by the coordinator, so that all clients get the same errors.
 *
 * c->out is filled in place and points into the program's memory until it is packed, within the same call. A number is
 * used up only by a request that was sent. One thread at a time may use a connection. */
#include "client/trireme.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

#include "client/internal.h"
#include "base/version.h"
#include "base/wait.h"

const char *trireme_version(void) { return TRIREME_VERSION; }
const char *trireme_server_version(const trireme *c) { return c->server_version; }
const char *trireme_endpoint(const trireme *c) { return c->endpoint; }
uint64_t trireme_max_message(const trireme *c) { return c->max_message; }

/* ---- requests ---- */

#define UNSET_F64 NAN
#define UNSET_I64 TRIREME_UNSET
#define INIT(context, type, name, option, least, most, def, absent, sampler, help) r->name = INIT_##absent(type, def);
#define INIT_FIXED(type, def) (def)
#define INIT_OPEN(type, def) UNSET_##type
#define INIT_MODEL(type, def) UNSET_##type

static void request_defaults(trireme_request *r) {
  *r = (trireme_request){.early_stopping = TRIREME_EARLY_UNSET, .logprobs = -1};
  TRI_SAMPLING_NUMBERS(INIT, )
}

void trireme_request_init_sized(trireme_request *r, size_t size) {
  trireme_request defaults;
  request_defaults(&defaults);
  tri_client_init_struct(r, size, &defaults, sizeof defaults);
}

static tri_wire_str wire_str(const char *s) { return (tri_wire_str){s, s ? strlen(s) : 0}; }

#define IS_SET_F64(x) (!isnan(x))
#define IS_SET_I64(x) ((x) != TRIREME_UNSET)
#define PUT(context, type, name, option, least, most, def, absent, sampler, help) PUT_##absent(type, name)
#define PUT_FIXED(type, name) p->name = r->name;
#define PUT_OPEN(type, name)                                                                                           \
  p->has_##name = IS_SET_##type(r->name);                                                                              \
  if (p->has_##name) p->name = r->name;
#define PUT_MODEL(type, name) PUT_OPEN(type, name)

static void put_numbers(const trireme_request *r, tri_sampling *p) { TRI_SAMPLING_NUMBERS(PUT, ) }

static trireme_result too_many(trireme_error *error, const char *field, size_t given, size_t most) {
  return tri_client_say(error, TRIREME_INVALID, TRI_OUT_OF_RANGE, field, "%s has %zu entries; at most %zu are allowed",
                        field, given, most);
}

static trireme_result put_request_id(const char *text, tri_request_id *out, trireme_error *error) {
  if (tri_request_id_parse(text, strlen(text), out)) return TRIREME_OK;
  return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "request_id",
                        "request_id must be 32 hexadecimal digits");
}

static trireme_result put_frame(const trireme_request *r, tri_wire_frame *f, trireme_error *error) {
  const char *names[] = {"json_begin", "json_separator", "json_end"};
  *f = (tri_wire_frame){wire_str(r->json_begin), wire_str(r->json_separator), wire_str(r->json_end), 0};
  const size_t lengths[] = {f->begin.len, f->separator.len, f->end.len};
  for (int i = 0; i < 3; i++)
    if (lengths[i] > TRI_WIRE_MAX_FRAME_TEXT)
      return tri_client_say(error, TRIREME_INVALID, TRI_TOO_LARGE, names[i], "%s has %zu bytes; allowed are %d",
                            names[i], lengths[i], TRI_WIRE_MAX_FRAME_TEXT);
  if (r->json_most < 0 || r->json_most > TRI_WIRE_MAX_FRAME_MOST)
    return tri_client_say(error, TRIREME_INVALID, TRI_OUT_OF_RANGE, "json_most",
                          "json_most is %lld; allowed are 0 to %d", (long long)r->json_most, TRI_WIRE_MAX_FRAME_MOST);
  if (r->json_most > 1 && !f->separator.len)
    return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "json_separator",
                          "json_most is %lld and there is no json_separator", (long long)r->json_most);
  f->most = (uint32_t)r->json_most;
  return TRIREME_OK;
}

static trireme_result put_lists(const trireme_request *r, tri_sampling *p, tri_arena *arena, trireme_error *error) {
  if (r->num_stop > TRI_WIRE_MAX_STOP) return too_many(error, "stop", r->num_stop, TRI_WIRE_MAX_STOP);
  if (r->num_stop_token_ids > TRI_WIRE_MAX_STOP_IDS)
    return too_many(error, "stop_token_ids", r->num_stop_token_ids, TRI_WIRE_MAX_STOP_IDS);
  if (r->num_logit_bias > TRI_WIRE_MAX_LOGIT_BIAS)
    return too_many(error, "logit_bias", r->num_logit_bias, TRI_WIRE_MAX_LOGIT_BIAS);
  if (r->allowed_token_ids) {
    tri_error err = {0};
    tri_status st = tri_sampling_check_allowed(r->num_allowed_token_ids, &err);
    if (st != TRI_OK) return tri_client_fail(error, TRIREME_INVALID, &err);
    p->allowed_token_ids = r->allowed_token_ids;
    p->num_allowed_token_ids = r->num_allowed_token_ids;
  }
  if (r->json_schema && r->json_object)
    return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "json_object",
                          "json_schema and json_object cannot both be asked for");
  if (r->json_schema_len > TRI_WIRE_MAX_CONSTRAINT)
    return too_many(error, "json_schema", r->json_schema_len, TRI_WIRE_MAX_CONSTRAINT);
  trireme_result framed = put_frame(r, &p->constraint.frame, error);
  if (framed != TRIREME_OK) return framed;
  if (r->json_object) p->constraint.kind = TRI_CONSTRAINT_JSON_OBJECT;
  if (r->json_schema) p->constraint.kind = TRI_CONSTRAINT_JSON_SCHEMA;
  if (r->json_schema) p->constraint.text = (tri_wire_str){r->json_schema, r->json_schema_len};
  for (size_t i = 0; i < r->num_stop; i++) p->stop[i] = (tri_wire_str){r->stop[i].s, r->stop[i].len};
  for (size_t i = 0; i < r->num_stop_token_ids; i++) p->stop_token_ids[i] = r->stop_token_ids[i];
  struct tri_wire_bias *bias = r->num_logit_bias ? tri_arena_alloc(arena, r->num_logit_bias, sizeof *bias) : NULL;
  if (r->num_logit_bias && !bias)
    return tri_client_say(error, TRIREME_NO_MEMORY, TRI_NO_MEMORY, "logit_bias", "no memory for logit_bias");
  for (size_t i = 0; i < r->num_logit_bias; i++)
    bias[i] = (struct tri_wire_bias){r->logit_bias[i].id, r->logit_bias[i].bias};
  p->logit_bias = bias;
  p->num_stop = (int)r->num_stop;
  p->num_stop_token_ids = (int)r->num_stop_token_ids;
  p->num_logit_bias = (int)r->num_logit_bias;
  return TRIREME_OK;
}

_Static_assert((int)TRIREME_EARLY_TRUE == (int)TRI_EARLY_TRUE && (int)TRIREME_EARLY_NEVER == (int)TRI_EARLY_NEVER,
               "the same names");

/* A request without an id gets a random one here: a connection that is made again attaches by it. */
static trireme_result put_submit(const trireme_request *r, tri_submit *s, tri_arena *arena, trireme_error *error) {
  tri_submit_init(s);
  tri_sampling *p = &s->sampling;
  s->model = wire_str(r->model);
  s->prompt = (tri_wire_str){r->prompt, r->prompt_len};
  s->token_ids = r->token_ids;
  s->num_token_ids = r->num_token_ids;
  s->add_special_tokens = !r->no_special_tokens;
  s->stream = !r->no_stream;
  s->cache = !r->no_cache;
  s->cache_salt = wire_str(r->cache_salt);
  s->caller = wire_str(r->caller);
  s->external_id = wire_str(r->external_id);
  s->on_disconnect = r->continue_on_disconnect ? TRI_DISCONNECT_CONTINUE : TRI_DISCONNECT_CANCEL;
  put_numbers(r, p);
  p->has_seed = r->has_seed;
  p->seed = r->seed;
  if ((unsigned)r->early_stopping > TRIREME_EARLY_UNSET)
    return tri_client_say(error, TRIREME_INVALID, TRI_OUT_OF_RANGE, "early_stopping",
                          "early_stopping is %d; allowed are 0 to %d", (int)r->early_stopping, TRIREME_EARLY_UNSET);
  p->has_early_stopping = r->early_stopping != TRIREME_EARLY_UNSET;
  if (p->has_early_stopping) p->early_stopping = (tri_early_stopping)r->early_stopping;
  p->logprobs = r->logprobs;
  p->ignore_eos = r->ignore_eos;
  p->echo = r->echo;
  p->skip_special_tokens = !r->keep_special_tokens;
  p->include_stop = r->include_stop;
  s->return_token_ids = r->return_token_ids;
  trireme_result st = put_lists(r, p, arena, error);
  if (st != TRIREME_OK) return st;
  s->has_request_id = true;
  if (r->request_id) return put_request_id(r->request_id, &s->request_id, error);
  if (getrandom(&s->request_id, sizeof s->request_id, 0) != sizeof s->request_id)
    return tri_client_say(error, TRIREME_FAILED, TRI_INTERNAL, NULL, "no random numbers: %s", strerror(errno));
  return TRIREME_OK;
}

/* An empty list is not sent, and the coordinator would ask for what seems to be missing. */
static trireme_result check_ids(const char *text, const uint32_t *ids, size_t count, trireme_error *error) {
  if (text || !ids || count) return TRIREME_OK;
  return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "token_ids", "token_ids is empty");
}

/* Numbers and sends c->out. */
static trireme_result send_out(trireme *c, uint64_t *id, trireme_error *error) {
  c->out->id = c->next_id;
  tri_status st = tri_client_msg_pack(c->out, &c->buf);
  if (st == TRI_TOO_LARGE)
    return tri_client_say(error, TRIREME_INVALID, st, NULL, "a request has at most %d bytes", TRI_WIRE_MAX_MESSAGE);
  if (st != TRI_OK) return tri_client_fail_status(error, st, &(tri_error){.status = st});
  trireme_result r = tri_client_send(c, tri_deadline_after_ms(c->send_ms), error);
  tri_client_show_ready(c, false);
  if (r) return r;
  if (id) *id = c->next_id;
  c->next_id++;
  return TRIREME_OK;
}

trireme_result trireme_submit(trireme *c, const trireme_request *given, uint64_t *id, trireme_error *error) {
  trireme_request r;
  request_defaults(&r);
  c->out->op = TRI_OP_SUBMIT;
  trireme_result st = tri_client_take_struct(&r, sizeof r, given, "trireme_request", error);
  if (st == TRIREME_OK) st = check_ids(r.prompt, r.token_ids, r.num_token_ids, error);
  if (st == TRIREME_OK) st = put_submit(&r, &c->out->submit, c->arena, error);
  return st != TRIREME_OK ? st : send_out(c, id, error);
}

void trireme_embed_request_init_sized(trireme_embed_request *r, size_t size) {
  const trireme_embed_request defaults = {.size = size};
  tri_client_init_struct(r, size, &defaults, sizeof defaults);
}

static trireme_result send_embed(trireme *c, tri_client_op op, const trireme_embed_request *given, uint64_t *id,
                                 trireme_error *error) {
  tri_embed_request *e = &c->out->embed;
  trireme_embed_request known = {0}, *r = &known;
  trireme_result st = tri_client_take_struct(r, sizeof *r, given, "trireme_embed_request", error);
  if (st != TRIREME_OK) return st;
  c->out->op = op;
  *e = (tri_embed_request){.model = wire_str(r->model),
                           .text = {r->text, r->text_len},
                           .text_pair = {r->text_pair, r->text_pair_len},
                           .token_ids = r->token_ids,
                           .num_token_ids = r->num_token_ids,
                           .has_normalize = r->normalize || r->keep_length,
                           .normalize = r->normalize,
                           .truncate = r->truncate,
                           .priority = r->priority,
                           .deadline_ms = r->deadline_ms,
                           .cache = !r->no_cache,
                           .cache_salt = wire_str(r->cache_salt),
                           .caller = wire_str(r->caller),
                           .external_id = wire_str(r->external_id),
                           .prompt_name = wire_str(r->prompt_name)};
  e->has_pooling = r->pooling != NULL;
  while (r->pooling && e->pooling < TRI_NUM_POOLINGS && strcmp(r->pooling, tri_pooling_names[e->pooling]) != 0)
    e->pooling++;
  if (e->pooling == TRI_NUM_POOLINGS)
    return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "pooling",
                          "pooling is \"%.40s\"; allowed are model, cls, mean and last", r->pooling);
  if (r->activation && !tri_activation_parse(r->activation, &e->activation))
    return tri_client_say(error, TRIREME_INVALID, TRI_INVALID_ARGUMENT, "activation",
                          "activation is \"%.40s\"; allowed are none, softmax and sigmoid", r->activation);
  st = check_ids(r->text, r->token_ids, r->num_token_ids, error);
  return st != TRIREME_OK ? st : send_out(c, id, error);
}

trireme_result trireme_embed(trireme *c, const trireme_embed_request *r, uint64_t *id, trireme_error *error) {
  return send_embed(c, TRI_OP_EMBED, r, id, error);
}
trireme_result trireme_classify(trireme *c, const trireme_embed_request *r, uint64_t *id, trireme_error *error) {
  return send_embed(c, TRI_OP_CLASSIFY, r, id, error);
}

trireme_result trireme_attach(trireme *c, const char *request_id, uint64_t offset, uint64_t *id, trireme_error *error) {
  c->out->op = TRI_OP_ATTACH;
  c->out->attach.offset = offset;
  trireme_result st = put_request_id(request_id, &c->out->attach.request_id, error);
  return st != TRIREME_OK ? st : send_out(c, id, error);
}

trireme_result trireme_cancel(trireme *c, uint64_t target, const char *request_id, uint64_t *id, trireme_error *error) {
  c->out->op = TRI_OP_CANCEL;
  c->out->cancel.has_request_id = request_id != NULL;
  c->out->cancel.has_target = request_id == NULL;
  c->out->cancel.target = target;
  trireme_result st = request_id ? put_request_id(request_id, &c->out->cancel.request_id, error) : TRIREME_OK;
  return st != TRIREME_OK ? st : send_out(c, id, error);
}

static trireme_result ask(trireme *c, tri_client_op op, uint64_t *id, trireme_error *error) {
  c->out->op = op;
  return send_out(c, id, error);
}

trireme_result trireme_ask_status(trireme *c, uint64_t *id, trireme_error *error) {
  return ask(c, TRI_OP_STATUS, id, error);
}
trireme_result trireme_ask_stats(trireme *c, uint64_t *id, trireme_error *error) {
  return ask(c, TRI_OP_STATS, id, error);
}
trireme_result trireme_ask_floors(trireme *c, uint64_t *id, trireme_error *error) {
  return ask(c, TRI_OP_ROOFLINES, id, error);
}
trireme_result trireme_ask_experts(trireme *c, uint64_t *id, trireme_error *error) {
  return ask(c, TRI_OP_EXPERTS, id, error);
}
trireme_result trireme_ask_models(trireme *c, uint64_t *id, trireme_error *error) {
  return ask(c, TRI_OP_MODELS, id, error);
}

trireme_result trireme_next_sized(trireme *c, int timeout_ms, trireme_event *out, size_t size, trireme_error *error) {
  int64_t deadline = timeout_ms < 0 ? TRI_NEVER : tri_deadline_after_ms(timeout_ms);
  trireme_event event;
  trireme_result r = tri_client_check_size(size, sizeof event, "trireme_event", error);
  if (r) return r;
  r = c->has_msg ? TRIREME_OK : tri_client_receive(c, deadline, error);
  /* To look costs system calls, and after one event there often is another. */
  tri_client_show_ready(c, r == TRIREME_OK);
  if (r) return r;
  if (c->msg->op == TRI_REPLY_HELLO)
    return tri_client_say(error, TRIREME_PROTOCOL, TRI_CORRUPT, "op", "a hello that was not asked for");
  r = tri_client_event(c, &event, error);
  c->has_msg = r == TRIREME_NO_MEMORY; /* then it is the next call's */
  if (r == TRIREME_OK) memcpy(out, &event, size);
  return r;
}
