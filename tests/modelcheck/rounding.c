/* SPDX-License-Identifier: Apache-2.0 */
/* Limits: what the reference's own error is, which ours may be 1.5 times. rounding.json says that of the 16-bit types,
 * expected.safetensors of float32, where it was measured. */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/json/json.h"
#include "tests/modelcheck/modelcheck.h"

enum { MAX_BYTES = 1 << 20 };

/* Where the reference happens to be exact, no more is demanded than of float32. */
static const double most_exact = 1e-11, share = 1.5;

static bool is_number(double v) { return v >= 0 && v <= 1e300; }

static tri_status wrong(const char *type, const char *key, const char *what, tri_error *err) {
  char field[TRI_ERROR_FIELD];
  snprintf(field, sizeof field, "%s%s%s", type ? type : "", type ? "." : "", key);
  return tri_fail(err, TRI_CORRUPT, field, "rounding.json: %s must be %s", field, what);
}

/* The worst of a list with one number for each prompt; null, where the reference overflowed, says nothing. -1 where all
 * are null. */
static tri_status read_worst(struct mc_check *c, const tri_json *type, const char *key, double *worst, tri_error *err) {
  const tri_json *list = tri_json_get(type, key);
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->exp.num_prompts)
    return wrong(c->rounding.type, key, "a list with an entry for each prompt", err);
  *worst = -1;
  for (int i = 0; i < c->exp.num_prompts; i++) {
    double v;
    if (tri_json_kind_of(tri_json_at(list, (size_t)i)) == TRI_JSON_NULL) continue;
    if (!tri_json_as_num(tri_json_at(list, (size_t)i), &v) || !is_number(v))
      return wrong(c->rounding.type, key, "numbers from 0 on, or null", err);
    *worst = v > *worst ? v : *worst;
  }
  return TRI_OK;
}

static tri_status read_beams(struct mc_check *c, const tri_json *type, tri_error *err) {
  const tri_json *list = tri_json_get(type, "beams");
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)c->exp.num_prompts)
    return wrong(c->rounding.type, "beams", "a list with an entry for each prompt", err);
  for (int i = 0; i < c->exp.num_prompts; i++) {
    int64_t found;
    if (!tri_json_as_int(tri_json_at(list, (size_t)i), &found) || found < 0 || found > MC_SEARCHES)
      return wrong(c->rounding.type, "beams", "numbers of searches", err);
    c->rounding.missed += MC_SEARCHES - (int)found;
  }
  return TRI_OK;
}

/* [step, token, gap], ... of each prompt. */
static tri_status read_close(struct mc_check *c, const tri_json *root, tri_error *err) {
  struct mc_rounding *r = &c->rounding;
  const tri_json *lists = tri_json_get(root, "close");
  size_t total = 0, n = (size_t)c->exp.num_prompts;
  if (tri_json_kind_of(lists) != TRI_JSON_ARRAY || tri_json_size(lists) != n)
    return wrong(NULL, "close", "a list with an entry for each prompt", err);
  for (size_t i = 0; i < n; i++) total += tri_json_size(tri_json_at(lists, i));
  r->close = tri_calloc(total + 1, sizeof *r->close);
  if (!r->close) return tri_fail(err, TRI_NO_MEMORY, "close", "no memory for %zu tokens", total);
  for (size_t i = 0; i < n; i++) {
    const tri_json *list = tri_json_at(lists, i);
    if (tri_json_kind_of(list) != TRI_JSON_ARRAY) return wrong(NULL, "close", "a list of lists", err);
    for (size_t k = 0; k < tri_json_size(list); k++) {
      const tri_json *t = tri_json_at(list, k);
      int64_t step, token;
      double gap;
      if (tri_json_size(t) != 3 || !tri_json_as_int(tri_json_at(t, 0), &step) || step < 0 ||
          step >= c->exp.num_greedy || !tri_json_as_int(tri_json_at(t, 1), &token) || token < 0 || token > UINT32_MAX ||
          !tri_json_as_num(tri_json_at(t, 2), &gap) || !is_number(gap))
        return wrong(NULL, "close", "of [step, token, gap]", err);
      r->close[r->num_close++] = (struct mc_close){(int)i, (int)step, (uint32_t)token, gap};
    }
  }
  return TRI_OK;
}

/* Whether the reference was measured doing what is asked for here. */
static bool is_wanted(const struct mc_check *c) {
  const struct mc_args *a = &c->a;
  bool same_kv = a->kv_dtype == TRI_F32 || a->kv_dtype == a->dtype;
  return (a->dtype == TRI_F16 || a->dtype == TRI_BF16) && same_kv && !c->rounds;
}

tri_status mc_rounding_read(struct mc_check *c, bool seq2seq, tri_error *err) {
  struct mc_rounding *r = &c->rounding;
  tri_json_doc *doc = NULL;
  char path[4200];
  tri_status st = TRI_OK;
  snprintf(path, sizeof path, "%s/rounding.json", c->dir);
  if (!is_wanted(c) || access(path, F_OK)) return TRI_OK;
  TRI_TRY(tri_json_read_file(path, MAX_BYTES, &doc, err));
  const tri_json *root = tri_json_root(doc), *type;
  r->type = c->a.dtype == TRI_F16 ? "float16" : "bfloat16";
  type = tri_json_get(root, r->type);
  if (tri_json_kind_of(type) != TRI_JSON_OBJECT) TRI_TRY(wrong(NULL, r->type, "an object", err));
  TRI_TRY(read_worst(c, type, "nmse", &r->nmse, err));
  if (tri_json_kind_of(tri_json_get(type, "hidden")) != TRI_JSON_NULL &&
      (!tri_json_as_num(tri_json_get(type, "hidden"), &r->hidden) || !is_number(r->hidden)))
    TRI_TRY(wrong(r->type, "hidden", "a number from 0 on", err));
  if (c->exp.num_greedy) TRI_TRY(read_worst(c, type, "max_abs", &r->max_abs, err));
  if (seq2seq) TRI_TRY(read_beams(c, type, err));
  if (c->exp.num_greedy) TRI_TRY(read_close(c, root, err));
  r->known = true;
cleanup:
  tri_json_free(doc);
  return st;
}

double mc_limit(const struct mc_check *c) {
  const struct mc_args *a = &c->a;
  if (a->limit > 0) return a->limit;
  /* FP8 has three bits of fraction, w8a8 rounds twice. */
  if (c->rounds) return a->quantization == TRI_QUANTIZE_INT8 ? 5e-2 : 1e-1;
  if (c->rounding.known && c->rounding.nmse >= 0) return fmax(share * c->rounding.nmse, most_exact);
  if (a->dtype == TRI_BF16 || a->kv_dtype == TRI_BF16) return 1e-2;
  if (a->dtype == TRI_F16 || a->kv_dtype == TRI_F16) return 1e-4;
  return fmax((1 + share) * c->exp.own_error, most_exact); /* two runs in float32 differ by what both err */
}

bool mc_hidden_right(const struct mc_check *c, double worst) {
  double usual = 10 * mc_limit(c); /* early layers are smaller than what grows out of them */
  double limit = c->rounding.known ? fmax(share * c->rounding.hidden, usual) : usual;
  if (worst <= limit) return true;
  printf("layers: worst nmse %.2e (limit %.0e)   <-- wrong\n", worst, limit);
  return false;
}

bool mc_greedy_right(const struct mc_check *c, int prompt, int same, uint32_t token) {
  const struct mc_rounding *r = &c->rounding;
  if (same == c->exp.compared[prompt]) return true;
  if (!r->known) return false;
  for (int i = 0; i < r->num_close; i++) {
    const struct mc_close *x = &r->close[i];
    if (x->prompt != prompt || x->step != same || x->token != token) continue;
    bool near = x->gap <= 2 * r->max_abs; /* either logit may have moved */
    printf("prompt %d: token %d may be another where the reference's lead is at most %.2g; it is %.2g%s\n", prompt,
           same, 2 * r->max_abs, x->gap, near ? "" : "   <-- wrong");
    return near;
  }
  printf("prompt %d: token %d is %u, which is far from the reference's   <-- wrong\n", prompt, same, token);
  return false;
}

bool mc_beams_right(const struct mc_check *c, int missed) {
  return missed <= (c->rounding.known ? share * c->rounding.missed : 0);
}
