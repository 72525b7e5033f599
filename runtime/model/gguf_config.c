/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a GGUF file become the text of a config.json. What that text cannot say is set in the config afterwards:
 * gains that are stored whole, divisors of rotary frequencies, and the forms of the tensors. */
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/gguf_files.h"
#include "base/json/json_writer.h"
#include "base/mem.h"
#include "runtime/model/gguf_model.h"

enum { KEY = 320, MOST_FACTORS = TRI_MAX_ROTARY / 2 };

/* Keys of all architectures. */
static const tri_gguf_key keys[] = {
    TRI_GGUF_KEY("block_count", "num_hidden_layers", INT),
    TRI_GGUF_KEY("embedding_length", "hidden_size", INT),
    TRI_GGUF_KEY("feed_forward_length", "intermediate_size", INT),
    TRI_GGUF_KEY("context_length", "max_position_embeddings", INT),
    TRI_GGUF_KEY("attention.head_count", "num_attention_heads", INT),
    TRI_GGUF_KEY("attention.head_count_kv", "num_key_value_heads", INT),
    TRI_GGUF_KEY("attention.key_length", "head_dim", INT),
    TRI_GGUF_KEY("attention.layer_norm_rms_epsilon", "rms_norm_eps", NUMBER),
    TRI_GGUF_KEY("rope.freq_base", "rope_theta", NUMBER),
    TRI_GGUF_KEY("vocab_size", NULL, INT),
    {0},
};
/* Keys that the functions below read. */
static const char *const read_keys[] = {"attention.value_length",
                                        "attention.sliding_window",
                                        "expert_weights_norm",
                                        "rope.dimension_count",
                                        "rope.scaling.type",
                                        "rope.scaling.factor",
                                        "rope.scaling.original_context_length",
                                        "rope.scaling.finetuned",
                                        "rope.scaling.attn_factor",
                                        "rope.scaling.yarn_beta_fast",
                                        "rope.scaling.yarn_beta_slow"};

/* Facts that the tensors of all files show. */
struct facts {
  bool has_output, has_q_bias, has_mlp_bias, has_q_norm, has_f16, has_qkv, has_k_up, has_second_norm;
  bool routes[TRI_MAX_LAYERS]; /* layers with experts */
  uint64_t vocab, blocks;      /* blocks: a bit for each type by its number */
  tri_gguf_factors freqs, longs, shorts;
};

struct maker {
  const tri_gguf *g;
  const tri_gguf_arch *arch;
  struct facts facts;
  tri_buf text;
  tri_error *err;
};

/* ---- tensors ---- */

static tri_status read_factors(const char *path, const tri_gguf_tensor *t, tri_gguf_factors *out, tri_error *err) {
  uint8_t bytes[4 * MOST_FACTORS];
  if (t->block->id != TRI_GGUF_BLOCK_F32 || t->rank != 1 || t->shape[0] > MOST_FACTORS)
    return tri_fail(err, TRI_CORRUPT, t->name, "tensor %s must be a vector of F32 with at most %d elements", t->name,
                    MOST_FACTORS);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : pread(fd, bytes, (size_t)t->bytes, (off_t)t->offset);
  if (fd >= 0) close(fd);
  if (n != (ssize_t)t->bytes) return tri_fail(err, TRI_IO, t->name, "cannot read tensor %s", t->name);
  out->count = (int)t->shape[0];
  for (int i = 0; i < out->count; i++) {
    uint32_t bits = bytes[4 * i] | (uint32_t)bytes[4 * i + 1] << 8 | (uint32_t)bytes[4 * i + 2] << 16 |
                    (uint32_t)bytes[4 * i + 3] << 24;
    memcpy(&out->x[i], &bits, sizeof bits);
    if (!(out->x[i] >= 1e-6f && out->x[i] <= 1e6f))
      return tri_fail(err, TRI_OUT_OF_RANGE, t->name, "tensor %s: element %d must be from 1e-6 to 1e6", t->name, i);
  }
  return TRI_OK;
}

static void note_router(struct facts *f, const char *name) {
  if (strncmp(name, "blk.", 4) || !tri_text_ends_with(name, ".ffn_gate_inp.weight")) return;
  long layer = strtol(name + 4, NULL, 10);
  if (layer >= 0 && layer < TRI_MAX_LAYERS) f->routes[layer] = true;
}

static void note_presence(struct facts *f, const char *name) {
  const struct {
    const char *name;
    bool *is;
  } tensors[] = {{"output.weight", &f->has_output},
                 {"blk.0.attn_q.bias", &f->has_q_bias},
                 {"blk.0.ffn_down.bias", &f->has_mlp_bias},
                 {"blk.0.attn_q_norm.weight", &f->has_q_norm},
                 {"blk.0.attn_qkv.weight", &f->has_qkv},
                 {"blk.0.attn_k_b.weight", &f->has_k_up},
                 {"blk.0.attn_norm_2.weight", &f->has_second_norm}};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if (!strcmp(name, tensors[i].name)) *tensors[i].is = true;
}

static tri_status look_at(struct facts *f, const char *path, const tri_gguf *g, tri_error *err) {
  for (size_t i = 0; i < g->num_tensors; i++) {
    const tri_gguf_tensor *t = &g->tensors[i];
    f->blocks |= 1ull << t->block->id;
    if (t->block->id == TRI_GGUF_BLOCK_F16 && t->rank > 1) f->has_f16 = true;
    note_presence(f, t->name);
    note_router(f, t->name);
    if (!strcmp(t->name, "token_embd.weight") && t->rank == 2) f->vocab = t->shape[1];
    if (!strcmp(t->name, "rope_freqs.weight")) TRI_CHECK(read_factors(path, t, &f->freqs, err));
    if (!strcmp(t->name, "rope_factors_long.weight")) TRI_CHECK(read_factors(path, t, &f->longs, err));
    if (!strcmp(t->name, "rope_factors_short.weight")) TRI_CHECK(read_factors(path, t, &f->shorts, err));
  }
  return TRI_OK;
}

static tri_status look_at_all(struct maker *m, const char *path) {
  char part[TRI_MODEL_FOLDER];
  int count;
  TRI_CHECK(tri_gguf_files_count(m->g, path, &count, m->err));
  TRI_CHECK(look_at(&m->facts, path, m->g, m->err));
  for (int i = 1; i < count; i++) {
    tri_gguf *g = NULL;
    tri_gguf_files_part(path, i, count, part);
    TRI_CHECK(tri_gguf_open(part, &g, m->err));
    tri_status st = look_at(&m->facts, part, g, m->err);
    tri_gguf_close(g);
    TRI_CHECK(st);
  }
  return TRI_OK;
}

/* ---- keys ---- */

static const tri_gguf_value *find(const struct maker *m, const char *key) {
  char name[KEY];
  snprintf(name, sizeof name, "%s.%s", m->arch->name, key);
  return tri_gguf_find(m->g, name);
}

static tri_status wrong_value(const struct maker *m, const tri_gguf_value *v, const char *what) {
  return tri_fail(m->err, TRI_UNSUPPORTED, v->name, "%s must be %s", v->name, what);
}

/* A number that layers may have each of their own: all must have the same. *found false: the key is not there. */
static tri_status read_number(const struct maker *m, const char *key, double *out, bool *found) {
  const tri_gguf_value *v = find(m, key);
  double x;
  *found = v && v->count;
  if (!*found) return TRI_OK;
  for (uint64_t i = 0; i < v->count; i++) {
    if (!tri_gguf_item_number(v, i, &x) || !(x >= 0 && x <= FLT_MAX))
      return wrong_value(m, v, "a number that is not negative");
    if (!i) *out = x;
    if (x != *out) return wrong_value(m, v, "the same in all layers");
  }
  return TRI_OK;
}

static tri_status put_switch(struct maker *m, const tri_gguf_key *k) {
  char key[KEY];
  bool on = false;
  const tri_gguf_value *v = find(m, k->from);
  snprintf(key, sizeof key, "%s.%s", m->arch->name, k->from);
  if (v && !tri_gguf_bool(m->g, key, &on)) return wrong_value(m, v, "true or false");
  tri_json_add_key(&m->text, k->to);
  tri_text_printf(&m->text, "%s", on ? "true" : "false");
  return TRI_OK;
}

static tri_status check_heads(const struct maker *m, const tri_gguf_key *k) {
  double x, heads = 0;
  bool found, has;
  TRI_CHECK(read_number(m, "attention.head_count", &heads, &has));
  TRI_CHECK(read_number(m, k->from, &x, &found));
  return found && x != heads ? wrong_value(m, find(m, k->from), "attention.head_count in this architecture") : TRI_OK;
}

static tri_status put_key(struct maker *m, const tri_gguf_key *k) {
  double x;
  bool found;
  const tri_gguf_value *v = find(m, k->from);
  if (k->kind == TRI_GGUF_HEADS) return check_heads(m, k);
  if (!k->to) return TRI_OK;
  if (!v && k->absent) tri_text_printf(&m->text, ",\"%s\":%s", k->to, k->absent);
  if (!v) return TRI_OK;
  if (k->kind == TRI_GGUF_SWITCH) return put_switch(m, k);
  TRI_CHECK(read_number(m, k->from, &x, &found));
  if (!found) return TRI_OK;
  bool is_float = v->type == TRI_GGUF_F32 || v->type == TRI_GGUF_F64;
  bool is_int = k->kind == TRI_GGUF_INT || k->kind == TRI_GGUF_COUNT;
  if (is_int && (is_float || x > 1e15)) return wrong_value(m, v, "an integer");
  if (k->kind == TRI_GGUF_INT && x == 0) {
    if (k->absent) tri_text_printf(&m->text, ",\"%s\":%s", k->to, k->absent);
    return TRI_OK;
  }
  tri_json_add_key(&m->text, k->to);
  if (is_int)
    tri_text_printf(&m->text, "%.0f", x);
  else
    tri_json_add_float(&m->text, (float)x, "null"); /* 9.9999997e-06 is 1e-5 */
  return TRI_OK;
}

static bool is_in(const tri_gguf_key *k, const char *key) {
  for (; k->from; k++)
    if (!strcmp(k->from, key)) return true;
  return false;
}

/* A key of the architecture that is not understood may be a feature of the model. */
static tri_status check_known(const struct maker *m) {
  size_t len = strlen(m->arch->name);
  for (size_t i = 0; i < m->g->num_keys; i++) {
    const char *name = m->g->keys[i].name, *key = name + len + 1;
    if (strncmp(name, m->arch->name, len) || name[len] != '.') continue;
    bool known = is_in(keys, key) || is_in(m->arch->keys, key);
    for (size_t k = 0; k < sizeof read_keys / sizeof *read_keys; k++) known = known || !strcmp(read_keys[k], key);
    if (!known)
      return tri_fail(m->err, TRI_UNKNOWN_FIELD, name, "the key %s is not understood of the architecture %s", name,
                      m->arch->name);
  }
  return TRI_OK;
}

static tri_status check_type(const struct maker *m) {
  static const char key[] = "general.type";
  const char *type;
  size_t len;
  if (!tri_gguf_text(m->g, key, &type, &len) || tri_gguf_is(m->g, key, "model")) return TRI_OK;
  return tri_fail(m->err, TRI_UNSUPPORTED, key, "the file has a %.*s, and no model", (int)(len < 40 ? len : 40), type);
}

static tri_status read_or(const struct maker *m, const char *key, const char *otherwise, double *out) {
  bool found;
  *out = 0;
  TRI_CHECK(read_number(m, key, out, &found));
  return found ? TRI_OK : read_number(m, otherwise, out, &found);
}

/* Sizes of latent attention: newer files have those of the cache, and the heads' in keys that end with _mla. */
static tri_status put_latent_sizes(struct maker *m) {
  double key, value, rotary = 0;
  bool found;
  TRI_CHECK(read_or(m, "attention.key_length_mla", "attention.key_length", &key));
  TRI_CHECK(read_or(m, "attention.value_length_mla", "attention.value_length", &value));
  TRI_CHECK(read_number(m, "rope.dimension_count", &rotary, &found));
  if (!(key > rotary && rotary > 0 && value > 0 && key < 1e9 && value < 1e9))
    return tri_fail(m->err, TRI_UNSUPPORTED, "attention.key_length",
                    "%s.attention.key_length and .value_length must be sizes of heads, and more than "
                    "rope.dimension_count",
                    m->arch->name);
  tri_json_put_uint(&m->text, "qk_nope_head_dim", (uint64_t)(key - rotary));
  tri_json_put_uint(&m->text, "v_head_dim", (uint64_t)value);
  return TRI_OK;
}

/* Runs of experts. Early files of DeepSeek-V3 do not name its 8, of which a token may use 4: its family does. The
 * experts are then 256, which are those of no other model without such runs. */
static tri_status put_groups(struct maker *m, bool sigmoid) {
  enum { DEEPSEEK_V3 = 256 };
  double groups = 0, used = 0, experts = 0;
  bool found, has_used;
  TRI_CHECK(read_number(m, "expert_count", &experts, &found));
  TRI_CHECK(read_number(m, "expert_group_count", &groups, &found));
  TRI_CHECK(read_number(m, "expert_group_used_count", &used, &has_used));
  if (!found && sigmoid && experts == DEEPSEEK_V3) return TRI_OK;
  if (groups < 1) groups = used = 1;
  if (groups > 4096 || used < 1 || used > groups)
    return tri_fail(m->err, TRI_OUT_OF_RANGE, "expert_group_used_count",
                    "%s.expert_group_used_count must be from 1 to expert_group_count, which is at most 4096",
                    m->arch->name);
  tri_json_put_uint(&m->text, "n_group", (uint64_t)groups);
  tri_json_put_uint(&m->text, "topk_group", (uint64_t)used);
  if (!sigmoid && groups > 1) tri_json_put_word(&m->text, "topk_method", "group_limited_greedy");
  return TRI_OK;
}

static tri_status put_latent(struct maker *m, const char *type) {
  TRI_CHECK(put_latent_sizes(m));
  return put_groups(m, m->arch->sigmoid_type && !strcmp(type, m->arch->sigmoid_type));
}

/* Values as long as keys, and how much of a head rotates. */
static tri_status put_head(struct maker *m, const char *type) {
  double key = 0, value, rotary, hidden = 0, heads = 0;
  bool has_key, has, found;
  TRI_CHECK(read_number(m, "attention.key_length", &key, &has_key));
  TRI_CHECK(read_number(m, "embedding_length", &hidden, &has));
  TRI_CHECK(read_number(m, "attention.head_count", &heads, &has));
  if (!has_key && heads > 0) key = hidden / heads;
  /* A family's own size counts in folders alone. */
  if (!has_key && key >= 1 && key == floor(key) && tri_config_key_find(tri_arch_find(type), "head_dim"))
    tri_json_put_uint(&m->text, "head_dim", (uint64_t)key);
  TRI_CHECK(read_number(m, "attention.value_length", &value, &found));
  if (found && value != key) return wrong_value(m, find(m, "attention.value_length"), "attention.key_length");
  TRI_CHECK(read_number(m, "rope.dimension_count", &rotary, &found));
  if (found && key > 0) tri_json_put_num(&m->text, "partial_rotary_factor", rotary / key);
  if (!m->arch->scaled_by_width || key <= 0) return TRI_OK;
  double layers = 0;
  TRI_CHECK(read_number(m, "block_count", &layers, &has));
  double scalar = layers == m->arch->scaled_by_width && heads > 0 ? hidden / heads : key, scale;
  TRI_CHECK(read_number(m, "attention.scale", &scale, &found));
  if (found && scale > 0) scalar = 1 / (scale * scale);
  tri_json_put_num(&m->text, "query_pre_attn_scalar", scalar);
  return TRI_OK;
}

static void put_factors(struct maker *m, const char *key, const tri_gguf_factors *f) {
  tri_json_open(&m->text, key, '[');
  for (int i = 0; i < f->count; i++) {
    if (i) tri_text_add(&m->text, ",", 1);
    tri_json_add_float(&m->text, f->x[i], "null");
  }
  tri_text_add(&m->text, "]", 1);
}

/* A number of rope.scaling, where it is there. */
static tri_status put_scaling(struct maker *m, const char *from, const char *to) {
  double x;
  bool found;
  TRI_CHECK(read_number(m, from, &x, &found));
  if (!found) return TRI_OK;
  tri_json_add_key(&m->text, to);
  tri_json_add_float(&m->text, (float)x, "null");
  return TRI_OK;
}

/* DeepSeek's files have a tenth of mscale_all_dim, which mscale is, too, in all its models. */
static tri_status put_mscale(struct maker *m) {
  double tenth;
  bool found;
  if (!m->arch->latent) return TRI_OK;
  TRI_CHECK(read_number(m, "rope.scaling.yarn_log_multiplier", &tenth, &found));
  if (!found) return TRI_OK;
  tri_json_add_key(&m->text, "mscale");
  tri_json_add_float(&m->text, (float)(10 * tenth), "null");
  tri_json_add_key(&m->text, "mscale_all_dim");
  tri_json_add_float(&m->text, (float)(10 * tenth), "null");
  return TRI_OK;
}

static tri_status put_rope(struct maker *m) {
  char key[KEY];
  const char *type;
  size_t len;
  double factor = 1;
  bool has, longrope = m->facts.longs.count && m->facts.shorts.count;
  snprintf(key, sizeof key, "%s.rope.scaling.type", m->arch->name);
  bool named = tri_gguf_text(m->g, key, &type, &len) && !tri_gguf_is(m->g, key, "none");
  TRI_CHECK(read_number(m, "rope.scaling.attn_factor", &factor, &has));
  if (factor != 1 && !longrope) return wrong_value(m, find(m, "rope.scaling.attn_factor"), "1");
  if (longrope) {
    TRI_CHECK(put_scaling(m, "rope.scaling.original_context_length", "original_max_position_embeddings"));
    tri_json_open(&m->text, "rope_scaling", '{');
    tri_json_put_word(&m->text, "rope_type", "longrope");
    put_factors(m, "short_factor", &m->facts.shorts);
    put_factors(m, "long_factor", &m->facts.longs);
  } else if (named) {
    tri_json_open(&m->text, "rope_scaling", '{');
    tri_json_put_text(&m->text, "rope_type", type, len);
    TRI_CHECK(put_scaling(m, "rope.scaling.factor", "factor"));
    TRI_CHECK(put_scaling(m, "rope.scaling.original_context_length", "original_max_position_embeddings"));
    TRI_CHECK(put_scaling(m, "rope.scaling.yarn_beta_fast", "beta_fast"));
    TRI_CHECK(put_scaling(m, "rope.scaling.yarn_beta_slow", "beta_slow"));
    if (m->arch->exact_yarn) tri_text_printf(&m->text, ",\"truncate\":false");
    TRI_CHECK(put_mscale(m));
  } else {
    return TRI_OK;
  }
  tri_text_add(&m->text, "}", 1);
  return TRI_OK;
}

/* An answer ends at the end of the text or of the turn. */
static void put_ids(struct maker *m) {
  static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
  uint64_t id;
  bool any = false;
  if (tri_gguf_uint(m->g, "tokenizer.ggml.bos_token_id", &id)) tri_json_put_uint(&m->text, "bos_token_id", id);
  tri_json_open(&m->text, "eos_token_id", '[');
  for (int i = 0; i < 2; i++) {
    if (!tri_gguf_uint(m->g, ends[i], &id)) continue;
    tri_text_printf(&m->text, "%s%llu", any ? "," : "", (unsigned long long)id);
    any = true;
  }
  tri_text_add(&m->text, "]", 1);
}

/* Layers of a model with experts that have none. */
static tri_status put_dense_layers(struct maker *m) {
  double layers = 0;
  bool has, any = false;
  TRI_CHECK(read_number(m, "block_count", &layers, &has));
  tri_json_open(&m->text, "mlp_only_layers", '[');
  for (int i = 0; i < TRI_MAX_LAYERS && i < layers; i++) {
    if (m->facts.routes[i]) continue;
    tri_text_printf(&m->text, "%s%d", any ? "," : "", i);
    any = true;
  }
  tri_text_add(&m->text, "]", 1);
  return TRI_OK;
}

/* Switches that tensors show and files have no key for. */
static tri_status put_switches(struct maker *m, const char *type, bool has_experts) {
  char key[KEY];
  bool llama = !strcmp(type, "llama"), renormalizes = m->arch->renormalizes;
  if (m->facts.has_q_bias && llama) tri_text_printf(&m->text, ",\"attention_bias\":true");
  if (m->facts.has_mlp_bias && llama) tri_text_printf(&m->text, ",\"mlp_bias\":true");
  if (!strcmp(type, "glm4"))
    tri_text_printf(&m->text, ",\"attention_bias\":%s", m->facts.has_q_bias ? "true" : "false");
  if (!strcmp(type, "stablelm"))
    tri_text_printf(&m->text, ",\"use_qkv_bias\":%s", m->facts.has_q_bias ? "true" : "false");
  if (!strcmp(type, "falcon"))
    tri_text_printf(&m->text, ",\"new_decoder_architecture\":true,\"num_ln_in_parallel_attn\":%d",
                    m->facts.has_second_norm ? 2 : 1);
  if (m->facts.has_q_norm && !strcmp(type, "cohere")) tri_text_printf(&m->text, ",\"use_qk_norm\":true");
  if (!has_experts || m->arch->moe_type) return TRI_OK; /* Mixtral has experts in all layers, and renormalizes */
  snprintf(key, sizeof key, "%s.expert_weights_norm", m->arch->name);
  tri_gguf_bool(m->g, key, &renormalizes);
  tri_text_printf(&m->text, ",\"norm_topk_prob\":%s", renormalizes ? "true" : "false");
  return m->arch->may_be_dense ? put_dense_layers(m) : TRI_OK;
}

/* The family. */
static tri_status type_of(const struct maker *m, double experts, double window, const char **type) {
  enum { SOFTMAX = 1, SIGMOID = 2 };
  const tri_gguf_arch *a = m->arch;
  double gating = SOFTMAX;
  bool has;
  *type = a->model_type;
  if (experts > 0 && a->moe_type)
    *type = a->moe_type;
  else if (window > 0 && a->window_type)
    *type = a->window_type;
  if (!a->sigmoid_type) return TRI_OK;
  TRI_CHECK(read_number(m, "expert_gating_func", &gating, &has));
  if (gating != SOFTMAX && gating != SIGMOID)
    return wrong_value(m, find(m, "expert_gating_func"), "1, a softmax, or 2, a sigmoid");
  if (gating == SIGMOID) *type = a->sigmoid_type;
  return TRI_OK;
}

static tri_status make_text(struct maker *m) {
  const tri_gguf_arch *a = m->arch;
  double experts = 0, window = 0;
  const char *type;
  bool has;
  TRI_CHECK(read_number(m, "expert_count", &experts, &has));
  TRI_CHECK(read_number(m, "attention.sliding_window", &window, &has));
  const tri_gguf_value *v = find(m, "attention.sliding_window");
  if (v && window > 0 && !a->has_window) return wrong_value(m, v, "0 in this architecture");
  TRI_CHECK(type_of(m, experts, window, &type));
  tri_text_printf(&m->text, "{");
  tri_json_put_word(&m->text, "model_type", type);
  for (const tri_gguf_key *k = keys; k->from; k++)
    if (!is_in(a->keys, k->from)) TRI_CHECK(put_key(m, k));
  for (const tri_gguf_key *k = a->keys; k->from; k++) TRI_CHECK(put_key(m, k));
  if (a->members) tri_text_printf(&m->text, ",%s", a->members);
  if (window > 0) tri_json_put_uint(&m->text, "sliding_window", (uint64_t)window);
  if (m->facts.vocab) tri_json_put_uint(&m->text, "vocab_size", m->facts.vocab);
  TRI_CHECK(put_switches(m, type, experts > 0));
  tri_text_printf(&m->text, ",\"tie_word_embeddings\":%s", m->facts.has_output ? "false" : "true");
  TRI_CHECK(a->latent ? put_latent(m, type) : put_head(m, type));
  TRI_CHECK(put_rope(m));
  put_ids(m);
  tri_text_printf(&m->text, "}");
  return m->text.failed ? tri_fail(m->err, TRI_NO_MEMORY, "model", "no memory for the config") : TRI_OK;
}

/* ---- the whole ---- */

tri_status tri_gguf_config_make(const tri_gguf *g, const char *path, tri_gguf_config *out, tri_error *err) {
  struct maker m = {.g = g, .err = err};
  tri_status st;
  TRI_TRY(check_type(&m));
  m.arch = tri_gguf_arch_of(g, err);
  if (!m.arch) return TRI_UNSUPPORTED;
  TRI_TRY(check_known(&m));
  TRI_TRY(look_at_all(&m, path));
  TRI_TRY(make_text(&m));
  *out = (tri_gguf_config){.text = m.text, .freqs = m.facts.freqs, .arch = m.arch};
  /* Numbers of 16 bits stay what they are, and blocks in the same files become that type. */
  out->stored = (tri_stored){.method = TRI_STORED_GGUF, .widened = m.facts.has_f16 ? TRI_F16 : TRI_BF16};
  out->stored.blocks = m.facts.blocks;
  out->stored.fused_qkv = m.facts.has_qkv;
  out->stored.split_kv_up = m.facts.has_k_up;
  return TRI_OK;
cleanup:
  tri_buf_free(&m.text);
  return st;
}

tri_status tri_gguf_config_finish(const tri_gguf_config *from, tri_model_config *c, tri_error *err) {
  tri_rope *r = &c->attention.rope;
  if (from->freqs.count && (r->kind != TRI_ROPE_FIXED || from->freqs.count != r->rotary_dim / 2))
    return tri_fail(err, TRI_CORRUPT, "rope_freqs.weight", "rope_freqs.weight has %d divisors for %d frequencies",
                    from->freqs.count, r->rotary_dim / 2);
  for (int i = 0; i < from->freqs.count; i++) r->inv_freq[i] /= from->freqs.x[i];
  if (from->arch->gains_of_one) c->norm.weight_offset = 0;
  c->tensors = from->arch->rules;
  c->stored = from->stored;
  return TRI_OK;
}
