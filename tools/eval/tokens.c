/* SPDX-License-Identifier: Apache-2.0 */
/* The text is made into tokens as a whole: pieces of it would have other tokens where they meet. A coordinator does so
 * with a prompt, which must fit into the model's context; for longer texts this program has the tokenizer itself. */
#include <errno.h>
#include <string.h>

#include "text/tokenizer/tokenizer.h"
#include "tools/eval/eval.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/model_folder.h"

static const char program[] = "trireme eval";
enum { MOST_TEXT = 1 << 30 };

int eval_read_text(const char *path, char **out, size_t *len) {
  bool is_input = !strcmp(path, "-");
  FILE *f = is_input ? stdin : fopen(path, "re");
  tri_buf text = {.max = MOST_TEXT};
  char part[16384];
  tri_status st = TRI_OK;
  if (!f) return cli_failed(program, "cannot open %s: %s", path, strerror(errno));
  for (size_t n; st == TRI_OK && (n = fread(part, 1, sizeof part, f)) > 0;) st = tri_buf_append(&text, part, n);
  int why = errno;
  bool unread = ferror(f) != 0;
  if (!is_input) fclose(f);
  if (st == TRI_OK && !unread && text.len) {
    *out = text.data;
    *len = text.len;
    return TRI_EXIT_OK;
  }
  tri_buf_free(&text);
  if (unread) return cli_failed(program, "cannot read %s: %s", path, strerror(why));
  if (st != TRI_OK) return cli_failed(program, "%s: %s", path, tri_status_text(st));
  return cli_usage(program, "%s is empty", path);
}

static tri_status copy(const uint32_t *from, size_t num, uint32_t **ids, size_t *out) {
  *ids = tri_malloc(num ? num : 1, sizeof **ids);
  if (!*ids) return TRI_NO_MEMORY;
  if (num) memcpy(*ids, from, num * sizeof **ids);
  *out = num;
  return TRI_OK;
}

/* ---- with the tokenizer of a folder ---- */

static tri_status encode(const tri_tokenizer *t, const char *text, size_t len, uint32_t **ids, size_t *num,
                         tri_error *err) {
  tri_tokenizer_scratch *scratch = NULL;
  const uint32_t *found = NULL;
  size_t count = 0;
  tri_status st;
  TRI_TRY(tri_tokenizer_scratch_create(t, &scratch));
  st = tri_tokenizer_encode(t, scratch, text, len, true, 0, &found, &count);
  if (st == TRI_NO_CAPACITY)
    tri_fail(err, st, "",
             "the text is too much work for a pattern of tokenizer.json, which looks far ahead everywhere");
  if (st == TRI_OK) st = copy(found, count, ids, num);
cleanup:
  tri_tokenizer_scratch_destroy(scratch);
  return st;
}

static int with_folder(const eval_side *s, const char *given, const char *text, size_t len, uint32_t **ids,
                       size_t *num) {
  char folder[TRI_MODEL_FOLDER];
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  bool other = false;
  tri_status st;
  TRI_TRY(tri_model_folder_find(given, folder, &err));
  TRI_TRY(tri_tokenizer_load_folder(folder, &t, &err));
  other = tri_tokenizer_hash(t) != s->tokenizer;
  if (!other) TRI_TRY(encode(t, text, len, ids, num, &err));
cleanup:
  tri_tokenizer_destroy(t);
  if (other) return eval_side_cannot(s, "the tokenizer.json in %.200s is not the one of the served model", given);
  if (st == TRI_OK) return TRI_EXIT_OK;
  cli_failed(program, "%s", err.message[0] ? err.message : tri_status_text(st));
  return tri_exit_code(st);
}

/* ---- by asking the cluster ---- */

/* Waits for the tokens of a request, which is of no use after that. */
static int take_tokens(eval_side *s, uint64_t id, uint32_t **ids, size_t *num) {
  trireme_error error = {0};
  trireme_event e;
  do {
    trireme_result r = cli_next(s->c, -1, &s->presence, &e, &error);
    if (r) return eval_side_fail(s, &error);
  } while (e.id != id);
  if (e.kind == TRIREME_EVENT_ERROR) {
    bool long_text = !strcmp(e.error.code, "no_capacity") && !strcmp(e.error.field, "prompt");
    int code = eval_side_refused(s, &e.error);
    if (long_text) fprintf(stderr, "A longer text needs the served model's folder: trireme eval DIR --text FILE\n");
    return code;
  }
  if (e.kind != TRIREME_EVENT_ACCEPTED || !e.accepted.token_ids)
    return eval_side_cannot(s, "it does not say what the text's tokens are; give the served model's folder");
  tri_status st = copy(e.accepted.token_ids, e.accepted.num_token_ids, ids, num);
  return st == TRI_OK ? TRI_EXIT_OK : cli_failed(program, "%s", tri_status_text(st));
}

/* Log probabilities are asked for since a request of them may leave no room for an answer; none of them is waited for.
 */
static int with_cluster(eval_side *s, const char *text, size_t len, uint32_t **ids, size_t *num) {
  trireme_error error = {0};
  trireme_request r;
  uint64_t id;
  trireme_request_init(&r);
  r.prompt = text;
  r.prompt_len = len;
  r.max_tokens = 0;
  r.prompt_logprobs = 0;
  r.return_token_ids = true;
  if (trireme_submit(s->c, &r, &id, &error)) return eval_side_fail(s, &error);
  int code = take_tokens(s, id, ids, num);
  if (!code) trireme_cancel(s->c, id, NULL, NULL, NULL);
  return code;
}

int eval_tokens(eval_side *s, const char *folder, const char *text, size_t len, uint32_t **ids, size_t *num) {
  if (!s->tokenizer) return eval_side_cannot(s, "the model served here, \"%.100s\", has no tokenizer", s->model);
  return folder ? with_folder(s, folder, text, len, ids, num) : with_cluster(s, text, len, ids, num);
}
