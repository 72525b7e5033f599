/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a file of inputs, as `embed --file` takes them. Members that are no fields may be the user's own (an id,
 * a title) and are copied to the answer as they are. A name close to a field's is refused instead: a slip would
 * otherwise turn into a default without a word. */
#include <string.h>

#include "client/cli/request.h"
#include "client/cli/embed_line.h"
#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/options/options.h"
#include "base/text.h"

enum { MAX_LINE = 4 << 20, MAX_IDS = 1 << 18 };

typedef struct line_reader {
  trireme_embed_request *r;
  bool classify;
  tri_buf *kept;
  uint32_t *ids;
  tri_error *err;
} line_reader;

static tri_status read_ids(line_reader *l, const char *key, const tri_json *v) {
  if (l->ids) return cli_wrong(l->err, key, "there once");
  tri_status st = cli_read_ids(v, key, MAX_IDS, &l->ids, &l->r->num_token_ids, l->err);
  l->r->token_ids = l->ids;
  return st;
}

/* len: NULL for a string that has no NUL. */
static tri_status read_string(line_reader *l, const char *key, const tri_json *v, const char **out, size_t *len) {
  *out = tri_json_as_str(v, len);
  return *out ? TRI_OK : cli_wrong(l->err, key, "a string");
}

static tri_status read_bool(line_reader *l, const char *key, const tri_json *v, bool *out) {
  return tri_json_as_bool(v, out) ? TRI_OK : cli_wrong(l->err, key, "true or false");
}

/* Keeps a member that is no field for the answer, unless it looks like one, or like a member of an answer. */
static tri_status keep(line_reader *l, const char *key, const tri_json *v) {
  static const char *const fields[] = {"text",       "text_pair",   "token_ids",  "model",    "pooling",
                                       "activation", "cache_salt",  "cache",      "truncate", "normalize",
                                       "priority",   "deadline_ms", "prompt_name"};
  bool taken = tri_has_word("line embedding scores tokens error activation prompt_tokens cached", key);
  int near = tri_nearest_name(key, fields, sizeof fields / sizeof *fields, sizeof *fields);
  if (near >= 0 && !taken)
    return tri_fail(l->err, TRI_UNKNOWN_FIELD, key, "there is no request field named \"%.60s\"; did you mean %s?", key,
                    fields[near]);
  if (taken || !l->kept)
    return tri_fail(l->err, TRI_UNKNOWN_FIELD, key, "there is no request field named \"%.60s\"", key);
  tri_text_add(l->kept, ",", 1);
  tri_json_add_string(l->kept, key, strlen(key));
  tri_text_add(l->kept, ":", 1);
  tri_json_add_value(l->kept, v, false);
  return l->kept->failed ? TRI_NO_MEMORY : TRI_OK;
}

/* Strings stay where the document has them. */
static tri_status read_field(void *ctx, const char *key, const tri_json *v) {
  line_reader *l = ctx;
  trireme_embed_request *r = l->r;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (!strcmp(key, "text")) return read_string(l, key, v, &r->text, &r->text_len);
  if (!strcmp(key, "text_pair")) return read_string(l, key, v, &r->text_pair, &r->text_pair_len);
  if (!strcmp(key, "token_ids")) return read_ids(l, key, v);
  if (!strcmp(key, "model")) return read_string(l, key, v, &r->model, NULL);
  if (!l->classify && !strcmp(key, "prompt_name")) return read_string(l, key, v, &r->prompt_name, NULL);
  if (!l->classify && !strcmp(key, "pooling")) return read_string(l, key, v, &r->pooling, NULL);
  if (l->classify && !strcmp(key, "activation")) return read_string(l, key, v, &r->activation, NULL);
  if (!strcmp(key, "cache_salt")) return read_string(l, key, v, &r->cache_salt, NULL);
  if (!strcmp(key, "cache")) {
    TRI_CHECK(read_bool(l, key, v, &r->no_cache));
    r->no_cache = !r->no_cache;
    return TRI_OK;
  }
  if (!strcmp(key, "truncate")) return read_bool(l, key, v, &r->truncate);
  if (!l->classify && !strcmp(key, "normalize")) {
    TRI_CHECK(read_bool(l, key, v, &r->normalize));
    r->keep_length = !r->normalize;
    return TRI_OK;
  }
  if (!strcmp(key, "priority")) return tri_json_read_int(v, key, &r->priority, l->err);
  if (!strcmp(key, "deadline_ms")) return tri_json_read_int(v, key, &r->deadline_ms, l->err);
  return keep(l, key, v);
}

tri_status cli_embed_line_parse(const trireme_embed_request *defaults, bool classify, const char *line, size_t len,
                                tri_buf *kept, cli_embed_line *out, tri_error *err) {
  *out = (cli_embed_line){.request = *defaults};
  line_reader l = {.r = &out->request, .classify = classify, .kept = kept, .err = err};
  tri_status st = TRI_OK;
  if (len > MAX_LINE) return tri_fail(err, TRI_TOO_LARGE, "", "the line is too long");
  TRI_TRY(cli_parse_line(line, len, &out->doc, err));
  if (tri_json_kind_of(tri_json_root(out->doc)) != TRI_JSON_OBJECT)
    TRI_TRY(tri_fail(err, TRI_INVALID_ARGUMENT, "", "a line must be a JSON object like {\"text\": \"...\"}"));
  TRI_TRY(tri_json_each(tri_json_root(out->doc), read_field, &l));
cleanup:
  out->ids = l.ids;
  if (st != TRI_OK) cli_embed_line_free(out);
  return st;
}

void cli_embed_line_free(cli_embed_line *l) {
  tri_free(l->ids);
  tri_json_free(l->doc);
  *l = (cli_embed_line){0};
}
