/* SPDX-License-Identifier: Apache-2.0 */
/* The requests of a benchmark: those of a file, or random tokens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/buf.h"
#include "base/mem.h"

/* ---- a file ---- */

int bench_prompts_open(bench_run *b) {
  const char *path = b->o->prompt_file;
  if (!path) return TRI_EXIT_OK;
  b->prompts.file = fopen(path, "re");
  return b->prompts.file ? TRI_EXIT_OK : cli_failed("trireme bench", "cannot open %s: %s", path, strerror(errno));
}

static tri_status add_generate(const bench_run *b, bench_prompts *p, size_t *room, const char *line, size_t len,
                               tri_error *err) {
  cli_request defaults;
  tri_json_doc *doc = NULL;
  cli_request_init(&defaults);
  defaults.r.max_tokens = b->o->random_output_len;
  defaults.r.ignore_eos = b->o->ignore_eos;
  defaults.r.temperature = b->o->temperature;
  TRI_CHECK(tri_array_reserve(&p->generate, p->num_generate, room, 1, sizeof *p->generate));
  cli_request *q = &p->generate[p->num_generate];
  cli_request_init(q);
  tri_status st = cli_parse_line(line, len, &doc, err);
  if (st == TRI_OK) st = cli_request_json(&defaults, tri_json_root(doc), NULL, q, err);
  if (st == TRI_OK)
    p->num_generate++; /* its lists point into the array, which may still move: send_generate sets them again */
  else
    cli_request_free(q);
  tri_json_free(doc);
  return st;
}

static tri_status add_embed(const bench_run *b, bench_prompts *p, size_t *room, const char *line, size_t len,
                            tri_error *err) {
  trireme_embed_request defaults;
  trireme_embed_request_init(&defaults);
  TRI_CHECK(tri_array_reserve(&p->embed, p->num_embed, room, 1, sizeof *p->embed));
  TRI_CHECK(cli_embed_line_parse(&defaults, b->classify, line, len, NULL, &p->embed[p->num_embed], err));
  p->num_embed++;
  return TRI_OK;
}

/* Reads no more lines than there are requests: a large file costs what is used of it. */
int bench_prompts_read(bench_run *b, size_t most) {
  bench_prompts *p = &b->prompts;
  char *line = NULL;
  size_t cap = 0, number = 0, room = 0;
  int code = TRI_EXIT_OK;
  if (!p->file) return TRI_EXIT_OK;
  for (ssize_t n; !code && p->num_generate + p->num_embed < most && (n = getline(&line, &cap, p->file)) >= 0;) {
    tri_error err = {0};
    number++;
    if (strspn(line, " \t\r\n") == (size_t)n) continue;
    tri_status st =
        b->encoder ? add_embed(b, p, &room, line, (size_t)n, &err) : add_generate(b, p, &room, line, (size_t)n, &err);
    if (st == TRI_NO_MEMORY)
      code = cli_failed("trireme bench", "%s", tri_status_text(st));
    else if (st != TRI_OK)
      code = cli_usage("trireme bench", "%s:%zu: %s", b->o->prompt_file, number, err.message);
  }
  if (!code && ferror(p->file))
    code = cli_failed("trireme bench", "cannot read %s: %s", b->o->prompt_file, strerror(errno));
  free(line); /* getline's */
  fclose(p->file);
  p->file = NULL;
  if (!code && !p->num_generate && !p->num_embed)
    code = cli_usage("trireme bench", "%s holds no prompts", b->o->prompt_file);
  return code;
}

void bench_prompts_free(bench_prompts *p) {
  for (size_t i = 0; i < p->num_generate; i++) cli_request_free(&p->generate[i]);
  for (size_t i = 0; i < p->num_embed; i++) cli_embed_line_free(&p->embed[i]);
  tri_free(p->generate);
  tri_free(p->embed);
  if (p->file) fclose(p->file);
  *p = (bench_prompts){0};
}

/* ---- sending ---- */

/* Draws over the whole vocabulary, special tokens included. */
static void draw_ids(bench_run *b, const bench_request *r, uint64_t *random) {
  for (uint32_t i = 0; i < r->input_len; i++)
    b->ids[i] = (uint32_t)(tri_splitmix64(random) % (b->vocab_size ? b->vocab_size : 1));
}

static trireme_result send_embed(bench_run *b, size_t i, const bench_request *r, uint64_t *random, uint64_t *id,
                                 trireme_error *error) {
  trireme_embed_request q;
  if (b->prompts.num_embed) {
    q = b->prompts.embed[i % b->prompts.num_embed].request;
  } else {
    trireme_embed_request_init(&q);
    q.no_cache = true; /* a second run has the same texts */
    draw_ids(b, r, random);
    q.token_ids = b->ids;
    q.num_token_ids = r->input_len;
  }
  return b->classify ? trireme_classify(b->c, &q, id, error) : trireme_embed(b->c, &q, id, error);
}

static trireme_result send_generate(bench_run *b, const bench_load *l, size_t i, uint64_t *random, uint64_t *id,
                                    trireme_error *error) {
  const bench_request *r = &l->requests[i];
  const uint32_t *chat;
  trireme_request q;
  if (b->prompts.num_generate) {
    cli_request *from = &b->prompts.generate[i % b->prompts.num_generate];
    /* The array has stopped growing by now. */
    if (from->r.num_stop) from->r.stop = from->stops;
    if (from->r.num_stop_token_ids) from->r.stop_token_ids = from->stop_ids;
    q = from->r;
    q.request_id = NULL; /* a prompt that is used twice is two requests */
    q.no_stream = false;
  } else {
    trireme_request_init(&q);
    q.no_cache = true; /* a second run has the same prompts */
    draw_ids(b, r, random);
    q.token_ids = b->ids;
    q.num_token_ids = r->input_len;
    if ((chat = bench_chat_ask(b, l, i, &q.num_token_ids))) q.token_ids = chat;
    q.max_tokens = b->o->random_output_len;
    q.ignore_eos = b->o->ignore_eos;
    q.temperature = b->o->temperature;
    q.has_seed = true;
    q.seed = b->o->seed + i;
  }
  return trireme_submit(b->c, &q, id, error);
}

trireme_result bench_send(bench_run *b, const bench_load *l, size_t i, uint64_t *random, uint64_t *id,
                          trireme_error *error) {
  if (b->encoder) return send_embed(b, i, &l->requests[i], random, id, error);
  return send_generate(b, l, i, random, id, error);
}
