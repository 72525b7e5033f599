/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as text for people, or as one JSON object. */
#include <math.h>
#include <string.h>

#include "tools/eval/eval.h"
#include "base/json/json_writer.h"

typedef struct agreement {
  eval_forced forced;
  eval_greedy greedy;
} agreement;

static double share(size_t part, size_t all) { return all ? (double)part / (double)all : NAN; }

/* ---- JSON ---- */

static void json_side(tri_buf *j, const eval_side *s, double mean) {
  tri_json_put_word(j, "model", s->model);
  tri_json_put_word(j, "endpoint", s->endpoint);
  tri_json_put_num(j, "perplexity", exp(-mean));
  tri_json_put_num(j, "mean_logprob", mean);
}

static void json_agreement(tri_buf *j, const eval_plan *p, const agreement *a) {
  tri_json_open(j, "teacher_forced", '{');
  tri_json_put_uint(j, "positions", a->forced.positions);
  tri_json_put_uint(j, "same_top_token", a->forced.same_best);
  tri_json_put_num(j, "agreement", share(a->forced.same_best, a->forced.positions));
  tri_json_put_num(j, "mean_logprob_difference", a->forced.mean_difference);
  tri_json_put_num(j, "max_logprob_difference", a->forced.largest_difference);
  tri_text_add(j, "}", 1);
  if (!p->max_tokens) return;
  tri_json_open(j, "greedy", '{');
  tri_json_put_uint(j, "prompts", a->greedy.prompts);
  tri_json_put_uint(j, "prompt_tokens", p->prompt_tokens);
  tri_json_put_uint(j, "max_tokens", p->max_tokens);
  tri_json_put_uint(j, "tokens", a->greedy.tokens);
  tri_json_put_uint(j, "equal_tokens", a->greedy.equal);
  tri_json_put_num(j, "agreement", share(a->greedy.equal, a->greedy.tokens));
  tri_json_put_uint(j, "equal_continuations", a->greedy.whole);
  tri_text_add(j, "}", 1);
}

static void print_json(const eval_options *o, const eval_plan *p, const eval_side *sides, const double *means,
                       const agreement *a) {
  tri_buf j = {0};
  tri_json_open(&j, NULL, '{');
  tri_json_put_word(&j, "text", o->text);
  tri_json_put_uint(&j, "tokens", p->tokens);
  tri_json_put_uint(&j, "predicted_tokens", p->tokens - 1);
  tri_json_put_uint(&j, "window", p->window);
  tri_json_put_uint(&j, "stride", p->stride);
  tri_json_put_uint(&j, "windows", p->num_windows);
  json_side(&j, &sides[0], means[0]);
  if (a) {
    tri_json_open(&j, "against", '{');
    json_side(&j, &sides[1], means[1]);
    tri_text_add(&j, "}", 1);
    json_agreement(&j, p, a);
  }
  tri_text_add(&j, "}\n", 2);
  if (!j.failed) fwrite(j.data, 1, j.len, stdout);
  tri_buf_free(&j);
}

/* ---- text ---- */

static void print_agreement(const eval_plan *p, const agreement *a) {
  const eval_forced *f = &a->forced;
  const eval_greedy *g = &a->greedy;
  printf("\nTeacher-forced agreement, at %zu places of the text\n", f->positions);
  printf("Same top token    %10.2f %% (%zu)\n", 100 * share(f->same_best, f->positions), f->same_best);
  printf("Log probabilities %10.4f apart on average, %.4f at most (of the text's tokens)\n", f->mean_difference,
         f->largest_difference);
  if (!p->max_tokens) return;
  printf("\nGreedy agreement, of %zu continuations with %zu tokens after prompts of %zu\n", g->prompts, p->max_tokens,
         p->prompt_tokens);
  printf("Equal tokens      %10.2f %% (%zu of %zu), up to the first difference of each\n",
         100 * share(g->equal, g->tokens), g->equal, g->tokens);
  printf("Equal to the end  %10.2f %% (%zu)\n", 100 * share(g->whole, g->prompts), g->whole);
}

static void print_text(const eval_options *o, const eval_plan *p, const eval_side *sides, const double *means,
                       const agreement *a) {
  printf("Text              %s, %zu tokens in %zu windows of %zu, stride %zu\n", o->text, p->tokens, p->num_windows,
         p->window, p->stride);
  printf("Model             %s at %s\n", sides[0].model, sides[0].endpoint);
  printf("Perplexity        %10.4f over %zu tokens (mean log probability %.6f)\n", exp(-means[0]), p->tokens - 1,
         means[0]);
  if (!a) return;
  printf("Against           %s at %s\n", sides[1].model, sides[1].endpoint);
  printf("Perplexity        %10.4f over %zu tokens (mean log probability %.6f)\n", exp(-means[1]), p->tokens - 1,
         means[1]);
  print_agreement(p, a);
}

void eval_report(const eval_options *o, const eval_plan *p, const eval_side *sides, size_t num) {
  double means[2] = {0};
  agreement a = {0};
  for (size_t i = 0; i < num; i++) means[i] = eval_mean_logprob(&sides[i].scores, p->tokens);
  if (num == 2) {
    a.forced = eval_compare_scores(&sides[0].scores, &sides[1].scores, p->tokens);
    a.greedy =
        eval_compare_continuations(&sides[0].continuations, &sides[1].continuations, p->num_windows, p->max_tokens);
  }
  if (o->json)
    print_json(o, p, sides, means, num == 2 ? &a : NULL);
  else
    print_text(o, p, sides, means, num == 2 ? &a : NULL);
}
