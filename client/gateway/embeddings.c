/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/embeddings: one embed for each input.
 *
 * Each vector becomes JSON when it arrives, as its floats lie in the event; vectors may arrive in any order and are
 * written in that of the inputs, each freed when it has been copied into the answer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/gateway/tasks.h"
#include "base/mem.h"

typedef struct embedding_request {
  trireme_embed_request r;
  oai_inputs input;
  bool base64, normalize, cache;
  int64_t dimensions; /* TRIREME_UNSET: as many as the model has */
} embedding_request;

typedef struct embeddings {
  gw_task task; /* the exchange's state begins with it */
  embedding_request q;
  tri_buf texts; /* of the request */
  oai_ignored ignored;
  tri_buf *vectors; /* [inputs], as JSON */
  uint64_t prompt_tokens;
  size_t kept; /* bytes of the vectors */
} embeddings;

static void free_embeddings(gw_task *task) {
  embeddings *s = (embeddings *)task;
  for (size_t i = 0; s->vectors && i < s->q.input.num; i++) tri_buf_free(&s->vectors[i]);
  tri_free(s->vectors);
  oai_inputs_free(&s->q.input);
  tri_buf_free(&s->texts);
  tri_buf_free(&task->body);
  tri_free(s);
}

static void leave(gw_exchange *x) { gw_task_leave(x->state); }

static tri_status take_format(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  embedding_request *q = request;
  const char *s = tri_json_as_str(v, NULL);
  q->base64 = s && !strcmp(s, "base64");
  return q->base64 || (s && !strcmp(s, "float")) ? TRI_OK : oai_wrong(err, f, "\"float\" or \"base64\"");
}

#define Q(m) .offset = offsetof(embedding_request, m)
static const oai_field fields[] = {
    {"input", oai_take_inputs, Q(input)},       {"model", oai_take_name, Q(r.model)},
    {"encoding_format", take_format, 0},        {"dimensions", oai_take_int, Q(dimensions)},
    {"normalize", oai_take_bool, Q(normalize)}, {"prompt_name", oai_take_name, Q(r.prompt_name)},
    {"priority", oai_take_int, Q(r.priority)},  {"deadline_ms", oai_take_int, Q(r.deadline_ms)},
    {"truncate", oai_take_bool, Q(r.truncate)}, {"cache_salt", oai_take_name, Q(r.cache_salt)},
    {"cache", oai_take_bool, Q(cache)},         {"truncate_prompt_tokens", oai_take_unsupported, 0},
};
#undef Q
static const oai_field_table tables[] = {OAI_TABLE(fields), {0}};

/* Little-endian floats, as clients of OpenAI's API expect. */
static void add_base64(tri_buf *b, const float *values, size_t num) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned char *s = (const unsigned char *)values;
  size_t len = num * sizeof *values;
  tri_text_add(b, "\"", 1);
  for (size_t i = 0; i < len; i += 3) {
    size_t have = len - i < 3 ? len - i : 3;
    unsigned bits = (unsigned)s[i] << 16;
    if (have > 1) bits |= (unsigned)s[i + 1] << 8;
    if (have > 2) bits |= s[i + 2];
    char four[4] = {digits[bits >> 18], digits[bits >> 12 & 63], digits[bits >> 6 & 63], digits[bits & 63]};
    if (have < 3) four[3] = '=';
    if (have < 2) four[2] = '=';
    tri_text_add(b, four, 4);
  }
  tri_text_add(b, "\"", 1);
}

/* JSON has neither infinities nor NaN: null stands for them. */
static void add_floats(tri_buf *b, const float *values, size_t num) {
  tri_text_add(b, "[", 1);
  for (size_t i = 0; i < num; i++) {
    if (i) tri_text_add(b, ",", 1);
    tri_json_add_float(b, values[i], "null");
  }
  tri_text_add(b, "]", 1);
}

static void respond(gw_exchange *x) {
  embeddings *s = x->state;
  char lines[GW_ANSWER_LINES];
  tri_buf b = {0};
  tri_json_open(&b, NULL, '{');
  tri_json_put_word(&b, "object", "list");
  tri_json_open(&b, "data", '[');
  for (size_t i = 0; i < s->q.input.num; i++) {
    tri_json_open(&b, NULL, '{');
    tri_json_put_word(&b, "object", "embedding");
    tri_json_put_uint(&b, "index", i);
    tri_json_add_key(&b, "embedding");
    tri_text_add(&b, s->vectors[i].data, s->vectors[i].len);
    tri_text_add(&b, "}", 1);
    b.failed = b.failed || s->vectors[i].failed;
    tri_buf_free(&s->vectors[i]);
  }
  tri_text_add(&b, "]", 1);
  tri_json_put_word(&b, "model", s->q.r.model ? s->q.r.model : x->g->name);
  tri_json_open(&b, "usage", '{');
  tri_json_put_uint(&b, "prompt_tokens", s->prompt_tokens);
  tri_json_put_uint(&b, "total_tokens", s->prompt_tokens);
  tri_text_add(&b, "}}", 2);
  gw_answer_lines(x->g, x->conn, &s->ignored, lines);
  gw_respond_json(x->conn, &b, lines);
  gw_exchange_close(x);
}

static void on_event(gw_exchange *x, gw_job *j, const trireme_event *e) {
  embeddings *s = x->state;
  if (e->kind == TRIREME_EVENT_ERROR) {
    oai_error error = gw_error_of(&e->error, "input");
    return gw_exchange_fail(x, &error);
  }
  if (e->kind != TRIREME_EVENT_EMBEDDING)
    return gw_exchange_fail(x, &(oai_error){500, "internal", "", "the coordinator answered something else"});
  if (s->q.dimensions != TRIREME_UNSET && (uint64_t)s->q.dimensions != e->embedding.num) {
    char why[120];
    snprintf(why, sizeof why, "dimensions is %" PRId64 ", and the model has %zu", s->q.dimensions, e->embedding.num);
    return gw_exchange_fail(x, &(oai_error){400, "unsupported", "dimensions", why});
  }
  s->prompt_tokens += e->embedding.prompt_tokens;
  if (s->q.base64)
    add_base64(&s->vectors[j->index], e->embedding.values, e->embedding.num);
  else
    add_floats(&s->vectors[j->index], e->embedding.values, e->embedding.num);
  s->kept += s->vectors[j->index].len;
  if (s->kept > GW_MAX_KEPT)
    return gw_exchange_fail(x, &(oai_error){400, "too_large", "input",
                                            "the answer has more than 64 MiB: ask for fewer inputs, or for base64"});
  if (gw_exchange_go_on(x) && !gw_exchange_has_more(x)) respond(x);
}

static trireme_result send(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error) {
  embeddings *s = x->state;
  const oai_input *in = &s->q.input.items[index];
  s->q.r.text = in->text;
  s->q.r.text_len = in->len;
  s->q.r.token_ids = in->ids;
  s->q.r.num_token_ids = in->num_ids;
  return trireme_embed(x->g->client, &s->q.r, id, error);
}

static void submit(gw_exchange *x) {
  embeddings *s = x->state;
  char first[GW_HEX_ID];
  if (!gw_exchange_make_room(x, s->q.input.num))
    return gw_exchange_fail(x, &(oai_error){503, "no_memory", "", "out of memory"});
  if (!gw_id_draw(first)) return gw_exchange_fail(x, &(oai_error){503, "internal", "", "no random numbers"});
  snprintf(x->id, sizeof x->id, "embd-%s", first);
  s->q.r.caller = x->caller;
  s->q.r.external_id = x->external_id[0] ? x->external_id : x->id; /* its jobs have no numbers that a client chooses */
  gw_exchange_begin(x, s->q.input.num);
}

/* Sets defaults, reads the fields and puts them into the request of libtrireme; texts lie in the document still. */
static tri_status read_request(embeddings *s, const tri_json *object, tri_error *err) {
  embedding_request *q = &s->q;
  *q = (embedding_request){.normalize = true, .cache = true, .dimensions = TRIREME_UNSET};
  trireme_embed_request_init(&q->r);
  TRI_CHECK(oai_fields_read(tables, object, q, &s->ignored, err));
  if (!q->input.num) return tri_fail(err, TRI_INVALID_ARGUMENT, "input", "input is missing");
  if (q->dimensions != TRIREME_UNSET && q->dimensions < 1)
    return tri_fail(err, TRI_OUT_OF_RANGE, "dimensions", "dimensions is %" PRId64 "; it must be 1 or more",
                    q->dimensions);
  q->r.normalize = q->normalize;
  q->r.keep_length = !q->normalize;
  q->r.no_cache = !q->cache;
  return TRI_OK;
}

/* Copies the texts, which the document is not needed for any more. */
static tri_status keep_texts(embeddings *s, tri_error *err) {
  trireme_embed_request *r = &s->q.r;
  size_t model = r->model ? strlen(r->model) : 0, salt = r->cache_salt ? strlen(r->cache_salt) : 0;
  size_t name = r->prompt_name ? strlen(r->prompt_name) : 0;
  size_t n = oai_kept_text(r->model, model) + oai_kept_text(r->cache_salt, salt) + oai_kept_text(r->prompt_name, name) +
             oai_kept_inputs(&s->q.input);
  if (tri_buf_reserve(&s->texts, n) != TRI_OK) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  oai_keep_text(&s->texts, &r->model, model);
  oai_keep_text(&s->texts, &r->cache_salt, salt);
  oai_keep_text(&s->texts, &r->prompt_name, name);
  oai_keep_inputs(&s->texts, &s->q.input);
  return TRI_OK;
}

static tri_status run(gw_task *task, tri_tokenizer_scratch *scratch, tri_error *err) {
  embeddings *s = (embeddings *)task;
  const oai_inputs *in = &s->q.input;
  tri_json_doc *doc = NULL;
  tri_status st;
  (void)scratch;
  TRI_TRY(gw_parse_body(&task->body, &doc, err));
  TRI_TRY(read_request(s, tri_json_root(doc), err));
  TRI_TRY(keep_texts(s, err));
  size_t of_inputs = oai_inputs_bytes(in) + in->num * (sizeof *s->vectors + sizeof(gw_job));
  TRI_TRY(gw_task_keep(task, sizeof *s + s->texts.cap + of_inputs, err));
  s->vectors = tri_calloc(in->num, sizeof *s->vectors);
  if (!s->vectors) st = tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
cleanup:
  tri_json_free(doc);
  return st;
}

static void ready(gw_task *task) {
  if (gw_exchange_has_coordinator(task->x)) submit(task->x);
}

void gw_embeddings(gateway *g, http_conn *c) {
  static const gw_kind kind = {on_event, leave, NULL, send};
  embeddings *s = tri_calloc(1, sizeof *s);
  if (!s) return gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
  s->ignored.allowed = !g->o.http.reject_unknown_fields;
  s->task = (gw_task){.plain = true, .run = run, .ready = ready, .free = free_embeddings};
  gw_task_start(g, c, &kind, s, &s->task);
}
