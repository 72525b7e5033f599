/* SPDX-License-Identifier: Apache-2.0 */
/* The client protocol as tables (comm/wire/pack.h): a field is a row here and a member in client.h, and both directions
 * of the wire follow from the row. Offsets of a table count from the message, or from the member that `base` names.
 *
 * A table cannot say what two fields mean together: the *_finish functions check that after a message has been read. */
#include "comm/wire/client.h"

#include <string.h>

#include "comm/wire/embed.h"
#include "comm/wire/pack.h"
#include "comm/wire/sampling.h"

enum { MAX_NAME = 256 };

/* ---- requests ---- */

static const char *const on_disconnect_names[] = {
    [TRI_DISCONNECT_CANCEL] = "cancel", [TRI_DISCONNECT_CONTINUE] = "continue"};
static const char *const no_messages[] = {"chat templates are for clients to apply: send prompt or token_ids"};

static const tri_field submit_fields[] = {
    {TRI_F(TRI_FT_RID, "request_id", tri_submit, request_id), .has = offsetof(tri_submit, has_request_id) + 1},
    {TRI_F(TRI_FT_STR, "model", tri_submit, model), .flags = TRI_FF_OMIT, .max = MAX_NAME},
    {TRI_F(TRI_FT_TEXT, "prompt", tri_submit, prompt), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "token_ids", tri_submit, token_ids), .count_offset = offsetof(tri_submit, num_token_ids),
     .flags = TRI_FF_OMIT},
    TRI_SAMPLING_FIELDS(tri_submit),
    {TRI_F(TRI_FT_U64, "seed", tri_submit, sampling.seed), .has = offsetof(tri_submit, sampling.has_seed) + 1},
    {TRI_CUSTOM("stop", tri_submit, sampling, tri_codec_stop), .flags = TRI_FF_OMIT},
    {TRI_CUSTOM("top_logprobs", tri_submit, sampling, tri_codec_top_logprobs), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_BOOL, "add_special_tokens", tri_submit, add_special_tokens), .flags = TRI_FF_OMIT, .def = 1},
    {TRI_F(TRI_FT_BOOL, "stream", tri_submit, stream), .flags = TRI_FF_OMIT, .def = 1},
    {TRI_F(TRI_FT_BOOL, "cache", tri_submit, cache), .flags = TRI_FF_OMIT, .def = 1},
    {TRI_F(TRI_FT_STR, "cache_salt", tri_submit, cache_salt), .flags = TRI_FF_OMIT, .max = TRI_WIRE_MAX_CACHE_SALT},
    {TRI_F(TRI_FT_STR, "caller", tri_submit, caller), .flags = TRI_FF_OMIT, .max = TRI_WIRE_MAX_CALLER},
    {TRI_F(TRI_FT_STR, "external_id", tri_submit, external_id), .flags = TRI_FF_OMIT, .max = TRI_WIRE_MAX_EXTERNAL_ID},
    {TRI_F(TRI_FT_BOOL, "return_token_ids", tri_submit, return_token_ids), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_ENUM, "on_disconnect", tri_submit, on_disconnect), .flags = TRI_FF_OMIT, .def = TRI_DISCONNECT_CANCEL,
     .names = on_disconnect_names, .num_names = 2},
    {TRI_CUSTOM("best_of", tri_submit, sampling, tri_codec_neutral), .flags = TRI_FF_OMIT, .def = 1},
    {TRI_CUSTOM("messages", tri_submit, sampling, tri_codec_neutral), .flags = TRI_FF_OMIT, .names = no_messages},
};

static const tri_field hello_fields[] = {
    {TRI_F(TRI_FT_STR, "client", tri_client_msg, hello.client), .flags = TRI_FF_OMIT, .max = MAX_NAME}};

static const tri_field attach_fields[] = {
    {TRI_F(TRI_FT_RID, "request_id", tri_client_msg, attach.request_id), .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_U64, "offset", tri_client_msg, attach.offset)},
};

static const tri_field cancel_fields[] = {
    {TRI_F(TRI_FT_RID, "request_id", tri_client_msg, cancel.request_id),
     .has = offsetof(tri_client_msg, cancel.has_request_id) + 1},
    {TRI_F(TRI_FT_U64, "target", tri_client_msg, cancel.target),
     .has = offsetof(tri_client_msg, cancel.has_target) + 1},
};

#define EMBED_REQUEST_FIELDS                                                                                           \
  {TRI_F(TRI_FT_STR, "model", tri_embed_request, model), .flags = TRI_FF_OMIT, .max = MAX_NAME},                       \
      {TRI_F(TRI_FT_TEXT, "text", tri_embed_request, text), .flags = TRI_FF_OMIT},                                     \
      {TRI_F(TRI_FT_TEXT, "text_pair", tri_embed_request, text_pair), .flags = TRI_FF_OMIT},                           \
      {TRI_F(TRI_FT_IDS, "token_ids", tri_embed_request, token_ids),                                                   \
       .count_offset = offsetof(tri_embed_request, num_token_ids), .flags = TRI_FF_OMIT},                              \
      {TRI_F(TRI_FT_BOOL, "truncate", tri_embed_request, truncate), .flags = TRI_FF_OMIT},                             \
      {TRI_F(TRI_FT_BOOL, "cache", tri_embed_request, cache), .flags = TRI_FF_OMIT, .def = 1},                         \
      {TRI_F(TRI_FT_STR, "cache_salt", tri_embed_request, cache_salt), .flags = TRI_FF_OMIT,                           \
       .max = TRI_WIRE_MAX_CACHE_SALT},                                                                                \
      {TRI_F(TRI_FT_STR, "caller", tri_embed_request, caller), .flags = TRI_FF_OMIT, .max = TRI_WIRE_MAX_CALLER},      \
      {TRI_F(TRI_FT_STR, "external_id", tri_embed_request, external_id), .flags = TRI_FF_OMIT,                         \
       .max = TRI_WIRE_MAX_EXTERNAL_ID},                                                                               \
      {TRI_F(TRI_FT_I64, "priority", tri_embed_request, priority), .flags = TRI_FF_OMIT, .min = TRI_LEAST_PRIORITY,    \
       .max = TRI_MOST_PRIORITY},                                                                                      \
  {                                                                                                                    \
    TRI_F(TRI_FT_I64, "deadline_ms", tri_embed_request, deadline_ms), .flags = TRI_FF_OMIT,                            \
                                                                      .max = TRI_MOST_DEADLINE_MS                      \
  }

static const tri_field embed_fields[] = {
    EMBED_REQUEST_FIELDS,
    {TRI_F(TRI_FT_STR, "prompt_name", tri_embed_request, prompt_name), .flags = TRI_FF_OMIT, .max = MAX_NAME},
    {TRI_F(TRI_FT_ENUM, "pooling", tri_embed_request, pooling), .has = offsetof(tri_embed_request, has_pooling) + 1,
     .names = tri_pooling_names, .num_names = TRI_NUM_POOLINGS},
    {TRI_F(TRI_FT_BOOL, "normalize", tri_embed_request, normalize),
     .has = offsetof(tri_embed_request, has_normalize) + 1},
};

static const tri_field classify_fields[] = {
    EMBED_REQUEST_FIELDS,
    {TRI_CUSTOM("activation", tri_embed_request, activation, tri_codec_activation), .flags = TRI_FF_OMIT},
};

#define REQUEST(op_, fields, base_, size_)                                                                             \
  { op_, {TRI_FIELDS(fields), .strict = true, .nil_is_absent = true}, base_, size_ }
static const tri_message requests[] = {
    [TRI_OP_HELLO] = REQUEST("hello", hello_fields, 0, sizeof(((tri_client_msg *)0)->hello)),
    [TRI_OP_SUBMIT] = REQUEST("submit", submit_fields, offsetof(tri_client_msg, submit), 0),
    [TRI_OP_ATTACH] = REQUEST("attach", attach_fields, 0, sizeof(((tri_client_msg *)0)->attach)),
    [TRI_OP_CANCEL] = REQUEST("cancel", cancel_fields, 0, sizeof(((tri_client_msg *)0)->cancel)),
    [TRI_OP_STATUS] = {.op = "status", .table.strict = true},
    [TRI_OP_STATS] = {.op = "stats", .table.strict = true},
    [TRI_OP_MODELS] = {.op = "models", .table.strict = true},
    [TRI_OP_EMBED] = REQUEST("embed", embed_fields, offsetof(tri_client_msg, embed), 0),
    [TRI_OP_CLASSIFY] = REQUEST("classify", classify_fields, offsetof(tri_client_msg, embed), 0),
    [TRI_OP_ROOFLINES] = {.op = "floors", .table.strict = true},
    [TRI_OP_EXPERTS] = {.op = "experts", .table.strict = true},
};
static const tri_protocol request_protocol = {requests, sizeof requests / sizeof *requests, "id",
                                              offsetof(tri_client_msg, hello)};

void tri_submit_init(tri_submit *s) {
  s->has_request_id = false;
  s->request_id = (tri_request_id){0};
  s->model = s->prompt = (tri_wire_str){0};
  s->token_ids = NULL;
  s->num_token_ids = 0;
  tri_sampling_init(&s->sampling);
  s->add_special_tokens = s->stream = s->cache = true;
  s->return_token_ids = false;
  s->cache_salt = s->caller = s->external_id = (tri_wire_str){0};
  s->on_disconnect = TRI_DISCONNECT_CANCEL;
}

void tri_embed_request_init(tri_embed_request *e) { *e = (tri_embed_request){.cache = true}; }

static bool is_visible(const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (text[i] <= ' ' || text[i] > '~') return false;
  return true;
}

/* Both stand in lines of the log. */
static tri_status check_names(tri_unpacker *d, tri_wire_str caller, tri_wire_str external_id) {
  bool caller_is_wrong = !is_visible(caller.s, caller.len);
  if (!caller_is_wrong && is_visible(external_id.s, external_id.len)) return TRI_OK;
  const char *field = caller_is_wrong ? "caller" : "external_id";
  return tri_fail(d->err, TRI_INVALID_ARGUMENT, field, "%s has other bytes than visible characters of ASCII", field);
}

static tri_status submit_finish(tri_unpacker *d, tri_submit *s) {
  TRI_CHECK(check_names(d, s->caller, s->external_id));
  if (!s->prompt.s && !s->token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "prompt", "a submit needs a prompt or token_ids");
  if (s->prompt.s && s->token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "token_ids", "prompt and token_ids exclude each other");
  if (s->token_ids && !s->num_token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "token_ids", "token_ids is empty");
  return tri_sampling_finish(d, &s->sampling, d->extra);
}

static tri_status embed_request_finish(tri_unpacker *d, const tri_embed_request *e) {
  TRI_CHECK(check_names(d, e->caller, e->external_id));
  if (!e->text.s && !e->token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "text", "text (or token_ids) is missing");
  if (e->text.s && e->token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "token_ids", "text and token_ids exclude each other");
  if (e->text.s && !e->text.len) return tri_fail(d->err, TRI_INVALID_ARGUMENT, "text", "text is empty");
  if (e->text_pair.s && !e->text.s)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "text_pair", "text_pair belongs to a text");
  if (e->prompt_name.s && !e->text.s)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "prompt_name", "prompt_name belongs to a text");
  if (e->text_pair.s && !e->text_pair.len)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "text_pair", "text_pair is empty");
  if (e->token_ids && !e->num_token_ids)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "token_ids", "token_ids is empty");
  return TRI_OK;
}

/* Defaults come before the fields, as absent ones leave members alone; seq_early is what an error can be addressed with
 * before the rest of the message has been understood. */
tri_status tri_client_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_client_msg *out, uint64_t *id,
                                 tri_error *err) {
  tri_sampling_extra extra = {0};
  tri_unpacker d = {.arena = arena, .err = err, .extra = &extra};
  tri_envelope e;
  *id = 0;
  TRI_CHECK(tri_envelope_read(&d, &request_protocol, data, len, &e, id));
  out->op = (tri_client_op)e.op;
  out->id = e.seq;
  if (out->op == TRI_OP_SUBMIT) tri_submit_init(&out->submit);
  if (out->op == TRI_OP_EMBED || out->op == TRI_OP_CLASSIFY) tri_embed_request_init(&out->embed);
  TRI_CHECK(tri_message_read(&d, &request_protocol, &e, out));
  if (out->op == TRI_OP_EMBED || out->op == TRI_OP_CLASSIFY) return embed_request_finish(&d, &out->embed);
  if (out->op == TRI_OP_SUBMIT) return submit_finish(&d, &out->submit);
  if (out->op == TRI_OP_CANCEL && out->cancel.has_request_id == out->cancel.has_target)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "request_id",
                    "a cancel names either request_id or target, the id of an earlier submit");
  return TRI_OK;
}

tri_status tri_client_msg_pack(const tri_client_msg *m, tri_buf *out) {
  return tri_message_write(&request_protocol, m->op, m->id, m, out);
}

/* ---- replies ---- */

static const char *const tri_finish_names[4] = {[TRI_FINISH_STOP] = "stop",
                                                [TRI_FINISH_LENGTH] = "length",
                                                [TRI_FINISH_ABORT] = "abort",
                                                [TRI_FINISH_ERROR] = "error"};
const char *tri_finish_name(tri_finish f) { return (unsigned)f < 4 ? tri_finish_names[f] : "error"; }

/* Per token [logprob, binary ids, binary logprobs of them]; ids must have come before, which says how many there are.
 */
static tri_status read_logprobs(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_choice_tokens *c = at;
  if (v->kind != TRI_V_ARRAY || v->count != c->num_ids)
    return tri_fail(d->err, TRI_CORRUPT, f->name, "%s must be an array as long as ids, after them", f->name);
  if (!v->count) return TRI_OK;
  tri_token_logprobs *all = tri_arena_alloc(d->arena, v->count, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) {
    tri_value part[4];
    size_t n;
    if (!tri_unpack_next(u, &part[0]) || part[0].kind != TRI_V_ARRAY || part[0].count != 3 ||
        !tri_unpack_next(u, &part[1]) || part[1].kind != TRI_V_FLOAT || !tri_unpack_next(u, &part[2]) ||
        part[2].kind != TRI_V_BIN || !tri_unpack_next(u, &part[3]))
      return tri_fail(d->err, TRI_CORRUPT, f->name, "an element of %s must be [number, binary, binary]", f->name);
    TRI_CHECK(tri_read_ids(d, f->name, u, &part[2], &all[i].top_ids, &n));
    TRI_CHECK(tri_read_floats(d, f->name, &part[3], n, &all[i].top_logprobs));
    all[i].logprob = (float)part[1].f;
    all[i].num_top = (int)n;
    all[i].text = (tri_wire_str){0};
    all[i].top_texts = NULL;
  }
  c->logprobs = all;
  return TRI_OK;
}

static void write_logprobs(tri_pack *p, const void *at) {
  const tri_choice_tokens *c = at;
  tri_pack_array(p, (uint32_t)c->num_ids);
  for (size_t i = 0; i < c->num_ids; i++) {
    const tri_token_logprobs *l = &c->logprobs[i];
    tri_pack_array(p, 3);
    tri_pack_f32(p, l->logprob);
    tri_pack_bin(p, l->top_ids, (size_t)l->num_top * sizeof *l->top_ids);
    tri_pack_bin(p, l->top_logprobs, (size_t)l->num_top * sizeof *l->top_logprobs);
  }
}

/* Per token an array of its text and those of the alternatives; logprobs must have come before. */
static tri_status read_texts(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_choice_tokens *c = at;
  if (v->kind != TRI_V_ARRAY || v->count != c->num_ids || (v->count && !c->logprobs))
    return tri_fail(d->err, TRI_CORRUPT, f->name, "%s must be an array as long as logprobs, after them", f->name);
  for (uint32_t i = 0; i < v->count; i++) {
    tri_token_logprobs *l = (tri_token_logprobs *)&c->logprobs[i]; /* read_logprobs's */
    tri_value e, part;
    if (!tri_unpack_next(u, &e) || e.kind != TRI_V_ARRAY || e.count != 1 + (uint32_t)l->num_top)
      return tri_fail(d->err, TRI_CORRUPT, f->name, "an element of %s must be an array of %d", f->name, 1 + l->num_top);
    tri_wire_str *all = tri_arena_alloc(d->arena, e.count, sizeof *all);
    if (!all) return TRI_NO_MEMORY;
    for (uint32_t k = 0; k < e.count; k++) {
      if (!tri_unpack_next(u, &part) || (part.kind != TRI_V_BIN && part.kind != TRI_V_STR))
        return tri_fail(d->err, TRI_CORRUPT, f->name, "a text of %s must be binary", f->name);
      all[k] = (tri_wire_str){part.s, part.len};
    }
    l->text = all[0];
    l->top_texts = all + 1;
  }
  return TRI_OK;
}

static void write_texts(tri_pack *p, const void *at) {
  const tri_choice_tokens *c = at;
  tri_pack_array(p, (uint32_t)c->num_ids);
  for (size_t i = 0; i < c->num_ids; i++) {
    const tri_token_logprobs *l = &c->logprobs[i];
    tri_pack_array(p, 1 + (uint32_t)l->num_top);
    tri_pack_bin(p, l->text.s, l->text.len);
    for (int k = 0; k < l->num_top; k++) tri_pack_bin(p, l->top_texts[k].s, l->top_texts[k].len);
  }
}

static bool has_texts(const void *at) {
  const tri_choice_tokens *c = at;
  return c->logprobs && c->num_ids && c->logprobs[0].text.s;
}
static const tri_codec choice_texts = {read_texts, write_texts, has_texts};

static bool has_logprobs(const void *at) { return ((const tri_choice_tokens *)at)->logprobs != NULL; }
static const tri_codec choice_logprobs = {read_logprobs, write_logprobs, has_logprobs};

static const tri_field choice_fields[] = {
    {TRI_F(TRI_FT_U32, "index", tri_choice_tokens, index)},
    {TRI_F(TRI_FT_U64, "offset", tri_choice_tokens, offset)},
    {TRI_F(TRI_FT_STR, "text", tri_choice_tokens, text), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "ids", tri_choice_tokens, ids), .count_offset = offsetof(tri_choice_tokens, num_ids),
     .flags = TRI_FF_OMIT},
    {TRI_CUSTOM_ALL("logprobs", choice_logprobs), .flags = TRI_FF_OMIT},
    {TRI_CUSTOM_ALL("token_texts", choice_texts), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_BOOL, "of_prompt", tri_choice_tokens, of_prompt), .flags = TRI_FF_OMIT},
};
static const tri_fields choice_table = {TRI_FIELDS(choice_fields)};

static const tri_field done_choice_fields[] = {
    {TRI_F(TRI_FT_ENUM, "finish_reason", struct tri_done_choice, reason), .names = tri_finish_names, .num_names = 4,
     .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_STR, "text", struct tri_done_choice, text), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "completion_tokens", struct tri_done_choice, completion_tokens)},
    {TRI_F(TRI_FT_U64, "stop_string", struct tri_done_choice, stop_string),
     .has = offsetof(struct tri_done_choice, has_stop_string) + 1},
    {TRI_F(TRI_FT_U64, "stop_token_id", struct tri_done_choice, stop_token_id),
     .has = offsetof(struct tri_done_choice, has_stop_token_id) + 1},
};
static const tri_fields done_choice_table = {TRI_FIELDS(done_choice_fields)};

/* Rows of S_ are figures: none is required, so that a client reads the replies of older and newer coordinators. */
#define S_U64(S, m)                                                                                                    \
  { TRI_F(TRI_FT_U64, #m, S, m) }
#define S_U32(S, m)                                                                                                    \
  { TRI_F(TRI_FT_U32, #m, S, m) }
#define S_F64(S, m)                                                                                                    \
  { TRI_F(TRI_FT_F64, #m, S, m) }
#define S_STR(S, m)                                                                                                    \
  { TRI_F(TRI_FT_STR, #m, S, m), .flags = TRI_FF_OMIT }

#define S_I64(S, m)                                                                                                    \
  { TRI_F(TRI_FT_I64, #m, S, m) }
#define S_LAYER(S, m) S_U64(S, m)
#define S_ROW(S, type, m, json) S_##type(S, m),

static const tri_field replica_fields[] = {TRI_REPLICA_STATUS_FIELDS(S_ROW, tri_replica_status)};
static const tri_fields replica_table = {TRI_FIELDS(replica_fields)};

static const tri_field rank_fields[] = {TRI_RANK_STATUS_FIELDS(S_ROW, tri_rank_status)};
static const tri_fields rank_table = {TRI_FIELDS(rank_fields)};

static const tri_field caller_fields[] = {TRI_CALLER_STATUS_FIELDS(S_ROW, tri_caller_status)};
static const tri_fields caller_table = {TRI_FIELDS(caller_fields)};

/* The scalars are the rows of comm/wire/status_fields.h. "groups" is the name of replicas on the wire. */
static const tri_field status_fields[] = {
    TRI_STATUS_FIELDS(S_ROW, tri_cluster_status) /* and their parts: */
    {TRI_F(TRI_FT_RECORDS, "groups", tri_cluster_status, replicas),
     .count_offset = offsetof(tri_cluster_status, num_replicas), .max_count = TRI_STATUS_MAX_REPLICAS,
     .elem_size = sizeof(tri_replica_status), .sub = &replica_table},
    {TRI_F(TRI_FT_RECORDS, "ranks", tri_cluster_status, ranks), .count_offset = offsetof(tri_cluster_status, num_ranks),
     .max_count = TRI_STATUS_MAX_RANKS, .elem_size = sizeof(tri_rank_status), .sub = &rank_table},
    {TRI_F(TRI_FT_RECORDS, "callers", tri_cluster_status, callers),
     .count_offset = offsetof(tri_cluster_status, num_callers), .max_count = TRI_STATUS_MAX_CALLERS,
     .elem_size = sizeof(tri_caller_status), .sub = &caller_table},
};

#define SUM_ROW(S, type, m, json) {TRI_F(TRI_FT_##type, #m, S, sum.m)},
static const tri_field replica_rooflines_fields[] = {{TRI_F(TRI_FT_U32, "group", tri_replica_rooflines, replica)},
                                                     S_U32(tri_replica_rooflines, ranks),
                                                     S_U32(tri_replica_rooflines, measured),
                                                     TRI_ROOFLINES_FIELDS(SUM_ROW, tri_replica_rooflines)};
static const tri_fields replica_rooflines_table = {TRI_FIELDS(replica_rooflines_fields)};
static const tri_field rooflines_fields[] = {
    {TRI_F(TRI_FT_RECORDS, "groups", tri_cluster_rooflines, replicas),
     .count_offset = offsetof(tri_cluster_rooflines, num_replicas), .max_count = TRI_STATUS_MAX_REPLICAS,
     .elem_size = sizeof(tri_replica_rooflines), .sub = &replica_rooflines_table, .flags = TRI_FF_REQUIRED},
};

#define R_F(type_, name_, m)                                                                                           \
  { TRI_F(type_, name_, tri_server_msg, m) }
#define R_STR(name_, m)                                                                                                \
  { TRI_F(TRI_FT_STR, name_, tri_server_msg, m), .flags = TRI_FF_OMIT }

static const tri_field r_hello_fields[] = {R_STR("version", hello.version),
                                           R_F(TRI_FT_U64, "max_message", hello.max_message)};
static const tri_field r_accepted_fields[] = {
    {TRI_F(TRI_FT_RID, "request_id", tri_server_msg, accepted.request_id), .flags = TRI_FF_REQUIRED},
    R_F(TRI_FT_U64, "prompt_tokens", accepted.prompt_tokens),
    R_F(TRI_FT_BOOL, "existing", accepted.existing),
    {TRI_F(TRI_FT_BOOL, "token_ids_only", tri_server_msg, accepted.token_ids_only), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_BOOL, "cached", tri_server_msg, accepted.cached), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "token_ids", tri_server_msg, accepted.token_ids),
     .count_offset = offsetof(tri_server_msg, accepted.num_token_ids), .flags = TRI_FF_OMIT},
};
static const tri_field r_tokens_fields[] = {
    {TRI_F(TRI_FT_RECORDS, "choices", tri_server_msg, tokens.choices),
     .count_offset = offsetof(tri_server_msg, tokens.num), .elem_size = sizeof(tri_choice_tokens), .sub = &choice_table,
     .flags = TRI_FF_REQUIRED},
};
static const tri_field r_done_fields[] = {
    {TRI_F(TRI_FT_RECORDS, "choices", tri_server_msg, done.choices),
     .count_offset = offsetof(tri_server_msg, done.num_choices), .max_count = TRI_WIRE_MAX_N,
     .elem_size = sizeof(struct tri_done_choice), .sub = &done_choice_table, .flags = TRI_FF_REQUIRED},
    R_F(TRI_FT_U64, "prompt_tokens", done.prompt_tokens),
    R_F(TRI_FT_U64, "completion_tokens", done.completion_tokens),
    R_F(TRI_FT_F64, "queue_ms", done.queue_ms),
    R_F(TRI_FT_F64, "first_token_ms", done.first_token_ms),
    R_F(TRI_FT_F64, "total_ms", done.total_ms),
    R_F(TRI_FT_U32, "preemptions", done.preemptions),
    {TRI_F(TRI_FT_U64, "cached_tokens", tri_server_msg, done.cached_tokens), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_BOOL, "timed_out", tri_server_msg, done.timed_out), .flags = TRI_FF_OMIT},
    R_F(TRI_FT_U64, "seed", done.seed),
};
static const tri_field r_error_fields[] = {R_STR("code", error.code), R_STR("message", error.message),
                                           R_STR("field", error.field)};
static const tri_field r_stats_fields[] = {R_STR("text", stats)};
static const tri_field r_experts_fields[] = {R_STR("json", experts)};
static const tri_field r_models_fields[] = {
    {TRI_F(TRI_FT_TEXTS, "models", tri_server_msg, models.names), .count_offset = offsetof(tri_server_msg, models.num),
     .flags = TRI_FF_REQUIRED},
    R_F(TRI_FT_U64, "max_model_len", models.max_model_len),
    R_F(TRI_FT_U64, "tokenizer", models.tokenizer),
};

#define E_TIMES                                                                                                        \
  S_U64(tri_embed_reply, prompt_tokens), S_F64(tri_embed_reply, queue_ms), S_F64(tri_embed_reply, total_ms), {         \
    TRI_F(TRI_FT_BOOL, "cached", tri_embed_reply, cached), .flags = TRI_FF_OMIT                                        \
  }
#define E_TEXTS(m) TRI_F(TRI_FT_TEXTS, #m, tri_embed_reply, m), .count_offset = offsetof(tri_embed_reply, num_##m)
/* Values have their labels before them, by which their number is checked. */
static const tri_field r_embedding_fields[] = {
    {TRI_CUSTOM_ALL("embedding", tri_codec_values), .flags = TRI_FF_REQUIRED},
    E_TIMES,
};
static const tri_field r_scores_fields[] = {
    {E_TEXTS(labels), .flags = TRI_FF_REQUIRED},
    {E_TEXTS(tokens), .flags = TRI_FF_OMIT},
    {TRI_CUSTOM_ALL("scores", tri_codec_values), .flags = TRI_FF_REQUIRED},
    {TRI_CUSTOM("activation", tri_embed_reply, activation, tri_codec_activation), .flags = TRI_FF_REQUIRED},
    E_TIMES,
};

#define REPLY(op_, fields, base_, member)                                                                              \
  { op_, {TRI_FIELDS(fields)}, base_, sizeof(((tri_server_msg *)0)->member) }
static const tri_message replies[] = {
    [TRI_REPLY_HELLO] = REPLY("hello", r_hello_fields, 0, hello),
    [TRI_REPLY_ACCEPTED] = REPLY("accepted", r_accepted_fields, 0, accepted),
    [TRI_REPLY_TOKENS] = REPLY("tokens", r_tokens_fields, 0, tokens),
    [TRI_REPLY_DONE] = REPLY("done", r_done_fields, 0, done),
    [TRI_REPLY_ERROR] = REPLY("error", r_error_fields, 0, error),
    [TRI_REPLY_STATUS] = REPLY("status", status_fields, offsetof(tri_server_msg, status), status),
    [TRI_REPLY_STATS] = REPLY("stats", r_stats_fields, 0, stats),
    [TRI_REPLY_MODELS] = REPLY("models", r_models_fields, 0, models),
    [TRI_REPLY_ROOFLINES] = REPLY("floors", rooflines_fields, offsetof(tri_server_msg, rooflines), rooflines),
    [TRI_REPLY_EMBEDDING] = REPLY("embedding", r_embedding_fields, offsetof(tri_server_msg, embed), embed),
    [TRI_REPLY_SCORES] = REPLY("scores", r_scores_fields, offsetof(tri_server_msg, embed), embed),
    [TRI_REPLY_EXPERTS] = REPLY("experts", r_experts_fields, 0, experts),
};
static const tri_protocol reply_protocol = {replies, sizeof replies / sizeof *replies, "id",
                                            offsetof(tri_server_msg, hello)};

tri_status tri_server_msg_pack(const tri_server_msg *m, tri_buf *out) {
  if (m->op == TRI_REPLY_DONE && m->done.num_choices > TRI_WIRE_MAX_N) return TRI_INVALID_ARGUMENT;
  if (m->op == TRI_REPLY_STATUS &&
      (m->status.num_replicas > TRI_STATUS_MAX_REPLICAS || m->status.num_ranks > TRI_STATUS_MAX_RANKS ||
       m->status.num_callers > TRI_STATUS_MAX_CALLERS))
    return TRI_INVALID_ARGUMENT;
  if (m->op == TRI_REPLY_ROOFLINES && m->rooflines.num_replicas > TRI_STATUS_MAX_REPLICAS) return TRI_INVALID_ARGUMENT;
  return tri_message_write(&reply_protocol, m->op, m->id, m, out);
}

tri_status tri_server_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_server_msg *out, tri_error *err) {
  tri_unpacker d = {.arena = arena, .err = err};
  tri_envelope e;
  TRI_CHECK(tri_envelope_read(&d, &reply_protocol, data, len, &e, NULL));
  out->op = (tri_server_op)e.op;
  out->id = e.seq;
  TRI_CHECK(tri_message_read(&d, &reply_protocol, &e, out));
  return out->op == TRI_REPLY_SCORES ? tri_embed_reply_finish(&d, &out->embed) : TRI_OK;
}
