/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/model/arch.h"

/* All kinds come down to frequencies inv_freq[i] = theta^(-2i/dim), changed once here, and a factor on cos and sin.
 * Only what depends on a sequence's length is left for the step: DYNAMIC, which computes a base, and BY_LENGTH, which
 * chooses between two tables. */

/* The numbers a scaling section may carry; NaN where absent. */
struct params {
  double theta, factor, partial, low_freq, high_freq, original, attention, beta_fast, beta_slow, mscale, mscale_all_dim,
      q_scale, short_mscale, long_mscale;
  bool truncate;
  const tri_json *short_factor, *long_factor;
};

struct section {
  struct params *p;
  tri_model_config *c;
  bool strict;
  const char *name;
  tri_error *err;
};

static tri_status read_key(void *ctx, const char *key, const tri_json *value) {
  struct section *s = ctx;
  struct params *p = s->p;
  const struct {
    const char *name;
    double *to, min, max;
  } numbers[] = {
      {"rope_theta", &p->theta, 1, 1e12},
      {"factor", &p->factor, 1, 1e6},
      {"partial_rotary_factor", &p->partial, 0, 1},
      {"low_freq_factor", &p->low_freq, 1e-6, 1e6},
      {"high_freq_factor", &p->high_freq, 1e-6, 1e6},
      {"original_max_position_embeddings", &p->original, 2, 1e9},
      {"attention_factor", &p->attention, 1e-6, 1e6},
      {"beta_fast", &p->beta_fast, 1e-6, 1e6},
      {"beta_slow", &p->beta_slow, 1e-6, 1e6},
      {"mscale", &p->mscale, 0, 1e6},
      {"mscale_all_dim", &p->mscale_all_dim, 0, 1e6},
      {"llama_4_scaling_beta", &p->q_scale, 0, 1e3},
      {"short_mscale", &p->short_mscale, 1e-6, 1e6},
      {"long_mscale", &p->long_mscale, 1e-6, 1e6},
  };
  char field[TRI_ERROR_FIELD];
  snprintf(field, sizeof field, "%s.%.40s", s->name, key);
  if (!strcmp(key, "rope_type") || !strcmp(key, "type") || tri_json_kind_of(value) == TRI_JSON_NULL) return TRI_OK;
  bool foreign = !s->c->attention.has_rope_mscales && tri_has_word("short_mscale long_mscale", key);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !foreign; i++)
    if (!strcmp(key, numbers[i].name))
      return tri_config_read_number(field, value, numbers[i].min, numbers[i].max, numbers[i].to, s->err);
  if (!strcmp(key, "truncate"))
    return tri_json_as_bool(value, &p->truncate)
               ? TRI_OK
               : tri_fail(s->err, TRI_INVALID_ARGUMENT, field, "%s must be true or false", field);
  if (!strcmp(key, "short_factor") || !strcmp(key, "long_factor")) {
    *(key[0] == 's' ? &p->short_factor : &p->long_factor) = value;
    return TRI_OK;
  }
  if (s->c->attention.has_mrope && tri_has_word("mrope_section mrope_interleaved", key)) return TRI_OK;
  /* Words of other ways to stretch positions, and sections by kinds of layers. */
  static const char effects[] =
      "attn_factor extrapolation_factor alpha mixed_b short_mscale long_mscale mrope_section mrope_interleaved";
  bool known = tri_json_kind_of(value) == TRI_JSON_OBJECT || tri_json_kind_of(value) == TRI_JSON_ARRAY ||
               tri_has_word(effects, key);
  /* Some sections have the length again that the model has. */
  double length;
  if (!strcmp(key, "max_position_embeddings") && tri_json_as_num(value, &length) &&
      length == (double)s->c->max_position_embeddings)
    return TRI_OK;
  if (!s->strict && (tri_config_says_nothing(value) || !strcmp(key, "finetuned"))) return TRI_OK;
  if (known || s->strict) return tri_fail(s->err, TRI_UNKNOWN_FIELD, field, "%s is not understood", field);
  tri_config_note_key(s->c, field);
  return TRI_OK;
}

static tri_status read_factors(const tri_json *list, const char *name, int n, double *out, tri_error *err) {
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY || tri_json_size(list) != (size_t)n)
    return tri_fail(err, TRI_INVALID_ARGUMENT, name, "%s must be an array of %d numbers", name, n);
  for (int i = 0; i < n; i++)
    if (!tri_json_as_num(tri_json_at(list, (size_t)i), &out[i]) || !(out[i] >= 1e-6 && out[i] <= 1e6))
      return tri_fail(err, TRI_OUT_OF_RANGE, name, "%s[%d] must be a number from 1e-6 to 1e6", name, i);
  return TRI_OK;
}

/* Llama 3.1: waves longer than original/low_freq are stretched by the factor, those shorter than original/high_freq
 * stay, and between both lies a linear mixture. */
static void scale_llama3(tri_rope *r, int half, const struct params *p) {
  double low_wavelen = p->original / p->low_freq, high_wavelen = p->original / p->high_freq;
  for (int i = 0; i < half; i++) {
    double wavelen = 2 * M_PI / r->inv_freq[i];
    if (wavelen > low_wavelen) {
      r->inv_freq[i] = (float)(r->inv_freq[i] / p->factor);
    } else if (wavelen >= high_wavelen && p->high_freq > p->low_freq) {
      double smooth = (p->original / wavelen - p->low_freq) / (p->high_freq - p->low_freq);
      r->inv_freq[i] = (float)((1 - smooth) * r->inv_freq[i] / p->factor + smooth * r->inv_freq[i]);
    }
  }
}

/* GTE's NTK scaling (Su Jianlin, "NTK-RoPE", 2023, formula 6): a larger base, and each frequency over the factor's root
 * of half the dimensions. */
static void scale_ntk(tri_rope *r, int half, const struct params *p) {
  double all = pow(p->factor, 1.0 / half);
  for (int i = 0; i < half; i++) r->inv_freq[i] = (float)(1 / (pow(p->theta * p->factor, (double)i / half) * all));
}

static double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

/* YaRN, section 3.2 ("NTK-by-parts"): a dimension that turns more than beta_fast times over the original length stays,
 * one that turns fewer than beta_slow times is stretched by the factor; a ramp over the dimensions' numbers lies
 * between. low and high are where the formula for the number of turns gives these. */
static void scale_yarn(tri_rope *r, int half, const struct params *p, double theta) {
  double dim = 2.0 * half;
  double low = dim * log(p->original / (p->beta_fast * 2 * M_PI)) / (2 * log(theta));
  double high = dim * log(p->original / (p->beta_slow * 2 * M_PI)) / (2 * log(theta));
  if (p->truncate) {
    low = floor(low);
    high = ceil(high);
  }
  low = fmax(low, 0);
  high = fmin(high, dim - 1);
  if (low == high) high += 0.001; /* keeps the ramp finite */
  for (int i = 0; i < half; i++) {
    double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
    r->inv_freq[i] = (float)(r->inv_freq[i] / p->factor * ramp + r->inv_freq[i] * (1 - ramp));
  }
  if (!isnan(p->attention))
    r->attention_scale = (float)p->attention;
  else if (p->mscale > 0 && p->mscale_all_dim > 0)
    r->attention_scale = (float)(yarn_mscale(p->factor, p->mscale) / yarn_mscale(p->factor, p->mscale_all_dim));
  else
    r->attention_scale = (float)yarn_mscale(p->factor, 1);
}

static tri_status require(double v, const char *key, const char *type, tri_error *err) {
  return isnan(v) ? tri_fail(err, TRI_INVALID_ARGUMENT, key, "rope type %s needs %s", type, key) : TRI_OK;
}

/* LongRoPE: a factor for each frequency, from one list up to the original length and from another beyond it. mscales:
 * and for cos and sin, instead of one that follows from the lengths. */
static tri_status scale_longrope(tri_rope *r, int half, struct params *p, bool mscales, tri_error *err) {
  double short_f[TRI_MAX_ROTARY / 2], long_f[TRI_MAX_ROTARY / 2];
  TRI_CHECK(read_factors(p->short_factor, "rope_scaling.short_factor", half, short_f, err));
  TRI_CHECK(read_factors(p->long_factor, "rope_scaling.long_factor", half, long_f, err));
  for (int i = 0; i < half; i++) {
    r->inv_freq_long[i] = (float)(r->inv_freq[i] / long_f[i]);
    r->inv_freq[i] = (float)(r->inv_freq[i] / short_f[i]);
  }
  r->kind = TRI_ROPE_BY_LENGTH;
  if (!isnan(p->attention))
    r->attention_scale = (float)p->attention;
  else if (p->factor > 1)
    r->attention_scale = (float)sqrt(1 + log(p->factor) / log(p->original));
  r->attention_scale_long = r->attention_scale;
  if (!mscales) return TRI_OK;
  TRI_CHECK(require(p->short_mscale, "rope_scaling.short_mscale", "longrope", err));
  TRI_CHECK(require(p->long_mscale, "rope_scaling.long_mscale", "longrope", err));
  r->attention_scale = (float)p->short_mscale;
  r->attention_scale_long = (float)p->long_mscale;
  return TRI_OK;
}

/* Computes the tables of one kind. max_position_embeddings stands for the original length where the file does not have
 * it. */
static tri_status apply(const tri_model_config *c, tri_rope *r, const char *type, struct params *p, tri_error *err) {
  int half = r->rotary_dim / 2;
  bool original_given = !isnan(p->original);
  if (!original_given) p->original = (double)c->max_position_embeddings;
  for (int i = 0; i < half; i++) r->inv_freq[i] = (float)(1.0 / pow(p->theta, 2.0 * i / r->rotary_dim));

  bool ntk = c->attention.scales_by_ntk && !strcmp(type, "ntk");
  if (!ntk && !tri_has_word("default linear dynamic yarn longrope su llama3 proportional", type))
    return tri_fail(err, TRI_UNSUPPORTED, "rope_scaling.rope_type", "rope type \"%.40s\" is not supported", type);
  if (!strcmp(type, "default")) return TRI_OK;
  if (!strcmp(type, "proportional")) {
    if (!isnan(p->factor))
      return tri_fail(err, TRI_UNSUPPORTED, "rope_scaling.factor", "rope type proportional with a factor");
    for (int i = (int)(p->partial * half); i < half; i++) r->inv_freq[i] = 0;
    return TRI_OK;
  }
  if (!strcmp(type, "longrope") || !strcmp(type, "su")) {
    /* The extended context over the original one is the factor where both are known. */
    if (original_given) p->factor = (double)c->max_position_embeddings / p->original;
    TRI_CHECK(require(p->factor, "rope_scaling.factor", type, err));
    r->original_max_len = (int)p->original;
    return scale_longrope(r, half, p, c->attention.has_rope_mscales, err);
  }
  TRI_CHECK(require(p->factor, "rope_scaling.factor", type, err));
  if (ntk) {
    scale_ntk(r, half, p);
  } else if (!strcmp(type, "linear")) {
    for (int i = 0; i < half; i++) r->inv_freq[i] = (float)(r->inv_freq[i] / p->factor);
  } else if (!strcmp(type, "dynamic")) {
    if (r->rotary_dim < 4) /* the stretched base is a power of d / (d - 2) */
      return tri_fail(err, TRI_OUT_OF_RANGE, "rope_scaling.rope_type",
                      "rope type dynamic needs 4 rotary dimensions, not %d", r->rotary_dim);
    r->kind = TRI_ROPE_DYNAMIC;
    r->base = (float)p->theta;
    r->factor = (float)p->factor;
    r->original_max_len = (int)p->original;
  } else if (!strcmp(type, "llama3")) {
    TRI_CHECK(require(p->low_freq, "rope_scaling.low_freq_factor", type, err));
    TRI_CHECK(require(p->high_freq, "rope_scaling.high_freq_factor", type, err));
    if (p->high_freq < p->low_freq)
      return tri_fail(err, TRI_OUT_OF_RANGE, "rope_scaling.high_freq_factor",
                      "high_freq_factor %g must not be below low_freq_factor %g", p->high_freq, p->low_freq);
    scale_llama3(r, half, p);
  } else { /* yarn */
    scale_yarn(r, half, p, p->theta);
  }
  return TRI_OK;
}

/* Finds the section of a file; *name: what it is called. Files that carry both mean the same by them. */
static tri_status find_section(const tri_json *root, const tri_json **out, const char **name, tri_error *err) {
  const char *const names[] = {"rope_parameters", "rope_scaling"};
  *out = NULL;
  *name = names[0];
  for (int i = 0; i < 2 && !*out; i++) {
    const tri_json *section = tri_json_get(root, names[i]);
    if (tri_json_kind_of(section) == TRI_JSON_NULL) continue;
    if (tri_json_kind_of(section) != TRI_JSON_OBJECT)
      return tri_fail(err, TRI_INVALID_ARGUMENT, names[i], "%s must be an object", names[i]);
    *out = section;
    *name = names[i];
  }
  return TRI_OK;
}

/* Reads one table's numbers; section NULL: those of the default kind. */
static tri_status read_section(const struct section *s, const tri_json *section, const char **type) {
  *type = "default";
  if (!section) return TRI_OK;
  TRI_CHECK(tri_json_each(section, read_key, (void *)s));
  const tri_json *t = tri_json_get(section, "rope_type");
  if (tri_json_kind_of(t) == TRI_JSON_NULL) t = tri_json_get(section, "type");
  if (tri_json_kind_of(t) != TRI_JSON_NULL) *type = tri_json_as_str(t, NULL);
  if (!*type)
    return tri_fail(s->err, TRI_INVALID_ARGUMENT, "rope_scaling.rope_type", "%s.rope_type must be a string", s->name);
  if (s->c->attention.has_mrope && !strcmp(*type, "mrope")) *type = "default";
  return TRI_OK;
}

/* Some families keep the original length next to the section. */
static tri_status read_original(const tri_json *root, struct params *p, tri_error *err) {
  const tri_json *original = tri_json_get(root, "original_max_position_embeddings");
  if (isnan(p->original) && tri_json_kind_of(original) != TRI_JSON_NULL &&
      (!tri_json_as_num(original, &p->original) || !(p->original >= 2 && p->original <= 1e9)))
    return tri_fail(err, TRI_OUT_OF_RANGE, "original_max_position_embeddings",
                    "original_max_position_embeddings must be a number from 2 to 1e9");
  return TRI_OK;
}

/* Queries are scaled from the length on that positions are stretched from. */
static tri_status read_q_scale(tri_model_config *c, const struct params *p, const char *name, tri_error *err) {
  char field[TRI_ERROR_FIELD];
  tri_q_scale *s = &c->attention.q_scale;
  if (!(p->q_scale > 0)) return TRI_OK; /* NaN: it is not there */
  snprintf(field, sizeof field, "%s.%s", name,
           s->in_rope ? "original_max_position_embeddings" : "llama_4_scaling_beta");
  if (!s->in_rope)
    return tri_fail(err, TRI_UNSUPPORTED, field, "%s is not supported for model_type %s", field, c->arch->model_type);
  if (isnan(p->original))
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "llama_4_scaling_beta needs original_max_position_embeddings");
  if (p->original != floor(p->original))
    return tri_fail(err, TRI_OUT_OF_RANGE, field, "%s must be an integer from 2 to 1e9", field);
  s->beta = p->q_scale;
  s->every = (int64_t)p->original;
  return TRI_OK;
}

/* Elements of a head that rotate. A proportional table has the angles of the whole head, of which a part is not 0. */
static tri_status set_rotary_dim(const tri_model_config *c, int64_t head_dim, const char *type, double partial,
                                 tri_rope *r, tri_error *err) {
  if (!strcmp(type, "proportional")) partial = 1;
  r->rotary_dim = c->attention.rotary_dim ? (int)c->attention.rotary_dim : (int)((double)head_dim * partial);
  if (r->rotary_dim >= 2 && r->rotary_dim % 2 == 0 && r->rotary_dim <= TRI_MAX_ROTARY && r->rotary_dim <= head_dim)
    return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, "partial_rotary_factor",
                  "%d rotary dimensions of a head of %lld: must be even, at least 2 and at most %d", r->rotary_dim,
                  (long long)head_dim, TRI_MAX_ROTARY);
}

/* Returns the share of a head that a table's angles rotate where its section does not say. */
static double partial_of(const tri_attention_config *a, const tri_rope *r) {
  bool own = r == &a->local_rope && a->local_partial_rotary_factor > 0;
  return own ? a->local_partial_rotary_factor : a->partial_rotary_factor;
}

/* Makes a table of a section that may be NULL, for heads of so many elements. *theta: the base where the section has
 * none, then that of the table. */
static tri_status make_table(tri_model_config *c, const tri_json *root, const tri_json *section, const char *name,
                             bool strict, int64_t head_dim, double *theta, tri_rope *r, tri_error *err) {
  struct params p = {.theta = *theta,
                     .factor = NAN,
                     .partial = partial_of(&c->attention, r),
                     .low_freq = NAN,
                     .high_freq = NAN,
                     .original = NAN,
                     .attention = NAN,
                     .q_scale = NAN,
                     .short_mscale = NAN,
                     .long_mscale = NAN,
                     .beta_fast = 32,
                     .beta_slow = 1,
                     .truncate = true};
  const char *type;
  struct section s = {.p = &p, .c = c, .strict = strict, .name = name, .err = err};
  TRI_CHECK(read_section(&s, section, &type));
  TRI_CHECK(read_original(root, &p, err));
  TRI_CHECK(read_q_scale(c, &p, name, err));
  *theta = p.theta;
  r->kind = TRI_ROPE_FIXED;
  r->attention_scale = 1;
  TRI_CHECK(set_rotary_dim(c, head_dim, type, p.partial, r, err));
  return apply(c, r, type, &p, err);
}

/* The sections of the two kinds of layers. Before transformers 5 there is one, for the layers without a window, and the
 * others have the default kind with a base of their own or the same one. */
static tri_status split_section(const tri_json **all, const tri_json **local, const char *name, tri_error *err) {
  static const char *const kinds[] = {"full_attention", "sliding_attention"};
  const tri_json *parts[2];
  *local = NULL;
  for (int i = 0; i < 2; i++) parts[i] = tri_json_get(*all, kinds[i]);
  if (!parts[0] && !parts[1]) return TRI_OK;
  for (int i = 0; i < 2; i++)
    if (tri_json_kind_of(parts[i]) != TRI_JSON_OBJECT || tri_json_size(*all) != 2)
      return tri_fail(err, TRI_INVALID_ARGUMENT, name, "%s must have two objects, %s and %s, and nothing else", name,
                      kinds[0], kinds[1]);
  *all = parts[0];
  *local = parts[1];
  return TRI_OK;
}

/* A prompt's length may change the angles of the first table alone: the prefix cache asks that one
 * (worker/schedule/prefix_reuse.c). */
static tri_status read_local(tri_model_config *c, const tri_json *root, const tri_json *section, const char *name,
                             bool strict, tri_error *err) {
  tri_attention_config *a = &c->attention;
  if (!a->local_rope_theta) a->local_rope_theta = a->rope_theta;
  a->local_rope.interleaved = a->rope.interleaved;
  TRI_CHECK(make_table(c, root, section, name, strict, a->head_dim, &a->local_rope_theta, &a->local_rope, err));
  if (a->local_rope.kind != TRI_ROPE_FIXED)
    return tri_fail(err, TRI_UNSUPPORTED, name, "%s: angles of windowed layers must not depend on the length", name);
  return TRI_OK;
}

tri_status tri_rope_read(tri_model_config *c, const tri_json *root, bool strict, tri_error *err) {
  tri_attention_config *a = &c->attention;
  const tri_json *section, *local = NULL;
  const char *name;
  TRI_CHECK(find_section(root, &section, &name, err));
  if (section && a->has_local_rope) TRI_CHECK(split_section(&section, &local, name, err));
  int64_t head_dim = a->global_head_dim ? a->global_head_dim : a->head_dim;
  TRI_CHECK(make_table(c, root, section, name, strict, head_dim, &a->rope_theta, &a->rope, err));
  return a->has_local_rope ? read_local(c, root, local, name, strict, err) : TRI_OK;
}
