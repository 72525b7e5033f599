/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/gguf_files.h"
#include "base/hash.h"
#include "base/json/json.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/model/arch.h"
#include "runtime/model/folder.h"
#include "runtime/model/gguf_model.h"
#include "runtime/model/rope.h"

/* config.json and generation_config.json to a tri_model_config. One walk over the file's members looks each up in the
 * family's table (config_values.c) and stores it; what cannot be a row of a table is read after that by name. A value
 * of 0 means "not said" until `derive` has filled it in. */
enum { MAX_CONFIG_BYTES = 4 << 20, MAX_HEAD_DIM = 1024 };

struct reader {
  tri_model_config *c;
  tri_error *err;
};

/* null counts as absent: files write it for what has no value, whatever the key's type. A window of null is none, also
 * where the family has one by default. */
static tri_status read_key(void *ctx, const char *key, const tri_json *value) {
  struct reader *r = ctx;
  const tri_config_key *k = tri_config_key_find(r->c->arch, key);
  bool null = tri_json_kind_of(value) == TRI_JSON_NULL;
  if (k && null && k->field == offsetof(tri_model_config, attention.window)) r->c->attention.window = 0;
  return k && !null ? tri_config_set(r->c, k, value, r->err) : TRI_OK;
}

/* Fields of generation_config.json start as NaN or -1, which says that the model has no opinion and a request's own
 * default counts. */
#define GEN_UNSAID(context, type, name, option, least, most, def, absent, sampler, help) UNSAID_##absent(type, name)
#define UNSAID_FIXED(type, name)
#define UNSAID_OPEN(type, name)
#define UNSAID_MODEL(type, name) c->generation.name = UNSAID_##type;
#define UNSAID_F64 NAN
#define UNSAID_I64 (-1)

static tri_status check_class(const tri_arch *arch, const char *name, tri_error *err) {
  for (const char *const *n = arch->class_names; name && *n; n++)
    if (!strcmp(*n, name)) return TRI_OK;
  if (name && tri_arch_is_headless(arch, name)) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "architectures", "architecture \"%.60s\" of model_type %s is not supported",
                  name ? name : "?", arch->model_type);
}

/* Finds the family, unless it is known, and begins with its defaults. Encoders may name several classes, of which the
 * first counts. Factors that a table leaves at 0 become 1. */
static tri_status read_arch(const tri_json *root, const tri_arch *arch, tri_model_config *c, tri_error *err) {
  const char *type = tri_json_get_str(root, "model_type");
  if (!type) return tri_fail(err, TRI_INVALID_ARGUMENT, "model_type", "there is no model_type");
  if (!arch) arch = tri_arch_find(type);
  if (!arch)
    return tri_fail(err, TRI_UNSUPPORTED, "model_type",
                    "model_type \"%.60s\" is not supported: docs/models.md lists those that are", type);
  const tri_json *names = tri_json_get(root, "architectures");
  if (tri_json_kind_of(names) != TRI_JSON_NULL) {
    size_t n = tri_json_size(names);
    if (!tri_json_as_str(tri_json_at(names, 0), NULL) || (n > 1 && !arch->defaults.encoder))
      return tri_fail(err, TRI_INVALID_ARGUMENT, "architectures", "architectures must be a list of one class name");
    for (size_t i = 0; i < n; i++) TRI_CHECK(check_class(arch, tri_json_as_str(tri_json_at(names, i), NULL), err));
  }
  *c = arch->defaults;
  c->arch = arch;
  if (!c->attention.partial_rotary_factor) c->attention.partial_rotary_factor = 1;
  if (!c->attention.rope_theta) c->attention.rope_theta = 10000;
  if (!c->embed.scale) c->embed.scale = 1;
  if (!c->norm.residual_scale) c->norm.residual_scale = 1;
  if (!c->head.logit_scale) c->head.logit_scale = 1;
  if (!c->moe.scale) c->moe.scale = 1;
  if (!c->moe.num_groups) c->moe.num_groups = 1;
  c->bos_token_id = c->seq2seq.decoder_start_token_id = c->seq2seq.forced_bos_token_id = -1;
  TRI_SAMPLING_NUMBERS(GEN_UNSAID, )
  c->generation.num_beams = 1;
  c->generation.length_penalty = 1;
  return TRI_OK;
}

/* The first of some spellings that stands there, NULL without; anything but a string is refused. */
static tri_status read_name(const tri_json *root, const char *const *keys, const char **out, tri_error *err) {
  *out = NULL;
  for (; *keys; keys++) {
    const tri_json *v = tri_json_get(root, *keys);
    if (tri_json_kind_of(v) == TRI_JSON_NULL) continue;
    *out = tri_json_as_str(v, NULL);
    return *out ? TRI_OK : tri_fail(err, TRI_INVALID_ARGUMENT, *keys, "%s must be a string", *keys);
  }
  return TRI_OK;
}

/* Switches of encoder-decoder and pruned models: off, or another model than the one that these tables describe. */
static tri_status check_off(const tri_json *root, const tri_model_config *c, tri_error *err) {
  static const char *const switches[] = {"add_cross_attention", "is_encoder_decoder", "tie_encoder_decoder",
                                         "pruned_heads"};
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
    const tri_json *v = tri_json_get(root, switches[i]);
    tri_json_kind kind = tri_json_kind_of(v);
    bool on = false, expected = c->seq2seq.on && !strcmp(switches[i], "is_encoder_decoder");
    if (kind == TRI_JSON_NULL || (tri_json_as_bool(v, &on) && on == expected)) continue;
    if ((kind == TRI_JSON_OBJECT || kind == TRI_JSON_ARRAY) && !tri_json_size(v)) continue;
    return tri_fail(err, TRI_UNSUPPORTED, switches[i], "%s is not supported", switches[i]);
  }
  return TRI_OK;
}

static tri_status read_strings(const tri_json *root, tri_model_config *c, tri_error *err) {
  static const char *const dtypes[] = {"dtype", "torch_dtype", NULL};
  static const char *const acts[] = {"hidden_activation", "hidden_act", "activation_function", "activation", NULL};
  const char *dtype, *act;
  TRI_CHECK(read_name(root, dtypes, &dtype, err));
  TRI_CHECK(read_name(root, acts, &act, err));
  TRI_CHECK(check_off(root, c, err));
  if (act && !strcmp(act, "swiglu") && c->mlp.gated) act = "silu";
  if (dtype && !strncmp(dtype, "torch.", 6)) dtype += 6;
  if (dtype && !strcmp(dtype, "auto")) dtype = NULL; /* as stored, which the tensors say */
  if (dtype && !(tri_dtype_from_name(dtype, &c->dtype) && c->dtype <= TRI_BF16))
    return tri_fail(err, TRI_UNSUPPORTED, "dtype", "dtype \"%.40s\" is not supported: float32, float16 or bfloat16",
                    dtype);
  if (act && !tri_act_from_name(act, &c->mlp.act))
    return tri_fail(err, TRI_UNSUPPORTED, "hidden_act", "activation \"%.40s\" is not supported", act);
  return TRI_OK;
}

/* Heads of layers without a window: the size that is not given is that of the other layers. */
static tri_status complete_global_heads(tri_attention_config *a, tri_error *err) {
  if (!a->global_head_dim && !a->global_kv_heads && !a->global_heads) return TRI_OK;
  if (!a->global_heads) a->global_heads = a->num_heads;
  if (!a->global_head_dim) a->global_head_dim = a->head_dim;
  if (!a->global_kv_heads) a->global_kv_heads = a->num_kv_heads;
  if (a->global_heads % a->global_kv_heads)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_global_key_value_heads",
                    "%lld query heads are not a multiple of %lld KV heads", (long long)a->global_heads,
                    (long long)a->global_kv_heads);
  if (a->global_head_dim > MAX_HEAD_DIM)
    return tri_fail(err, TRI_OUT_OF_RANGE, "global_head_dim", "head size %lld, the limit is %d",
                    (long long)a->global_head_dim, MAX_HEAD_DIM);
  return TRI_OK;
}

/* Fills in what the file leaves to others (head_dim, intermediate size, scale, which layers are local), and checks
 * what later code divides by. */
static tri_status derive(tri_model_config *c, const tri_json *root, bool strict, tri_error *err) {
  const struct {
    const char *name;
    int64_t value;
  } needed[] = {{"hidden_size", c->hidden_size},
                {"num_hidden_layers", c->num_layers},
                {"num_attention_heads", c->attention.num_heads},
                {"vocab_size", c->vocab_size}};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (needed[i].value <= 0)
      return tri_fail(err, TRI_INVALID_ARGUMENT, needed[i].name, "there is no %s", needed[i].name);
  if (!c->attention.num_kv_heads) c->attention.num_kv_heads = c->attention.num_heads;
  if (c->attention.num_heads % c->attention.num_kv_heads)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_key_value_heads",
                    "%lld query heads are not a multiple of %lld KV heads", (long long)c->attention.num_heads,
                    (long long)c->attention.num_kv_heads);
  if (!c->attention.head_dim) {
    if (c->hidden_size % c->attention.num_heads)
      return tri_fail(err, TRI_OUT_OF_RANGE, "num_attention_heads", "hidden_size %lld is not a multiple of %lld heads",
                      (long long)c->hidden_size, (long long)c->attention.num_heads);
    c->attention.head_dim = c->hidden_size / c->attention.num_heads;
  }
  if (c->attention.head_dim > MAX_HEAD_DIM)
    return tri_fail(err, TRI_OUT_OF_RANGE, "head_dim", "head size %lld, the limit is %d",
                    (long long)c->attention.head_dim, MAX_HEAD_DIM);
  TRI_CHECK(complete_global_heads(&c->attention, err));
  if (!c->mlp.intermediate_size) c->mlp.intermediate_size = 4 * c->hidden_size;
  if (!c->attention.scale) c->attention.scale = 1 / sqrt((double)c->attention.head_dim);
  if (!c->embed.size) c->embed.size = c->hidden_size;
  c->embed.projected = c->embed.size != c->hidden_size;
  TRI_CHECK(tri_config_layer_kinds(c, root, err));
  return c->attention.position == TRI_POS_ROPE ? tri_rope_read(c, root, strict, err) : TRI_OK;
}

/* Takes the members away that are to be ignored. A name that the file does not have is none: one list of options serves
 * several models. */
static void drop_ignored(tri_json_doc *doc, const tri_opt_list *names) {
  for (size_t i = 0; i < names->count; i++)
    for (const char *at = names->items[i]; *at; at += strspn(at, ",")) {
      char name[128];
      size_t n = strcspn(at, ",");
      snprintf(name, sizeof name, "%.*s", (int)n, at);
      if (n < sizeof name) tri_json_drop(doc, name);
      at += n;
    }
}

/* Groups must be able to give as many experts as a token takes. */
static tri_status check_groups(const tri_moe *m, tri_error *err) {
  if (m->num_groups <= 1) return TRI_OK;
  int64_t size = m->num_experts / m->num_groups;
  if (m->num_experts % m->num_groups == 0 && m->top_groups <= m->num_groups && m->top_k <= m->top_groups * size &&
      m->group_best <= size)
    return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, "n_group", "%lld experts in %lld groups, %lld of them open, for %lld choices",
                  (long long)m->num_experts, (long long)m->num_groups, (long long)m->top_groups, (long long)m->top_k);
}

static const char modelopt_file[] = "hf_quant_config.json";

/* *file: which of the files is at fault.
 *
 * The order counts. `prepare` sees values as the file gives them, `derive` completes them, `finish` may replace what
 * was derived. Keys are judged when all of this is done, since a foreign key is harmless where it repeats what the
 * model has. */
static tri_status parse_docs(tri_json_doc *doc, const tri_json *generation, const tri_json *modelopt,
                             tri_config_rules rules, tri_model_config *out, const char **file, tri_error *err) {
  *file = "config.json";
  tri_model_config c = {0};
  char noted[TRI_UNKNOWN_KEYS];
  const tri_arch *text;
  const tri_json *root = tri_json_root(doc);
  if (tri_json_kind_of(root) != TRI_JSON_OBJECT) return tri_fail(err, TRI_CORRUPT, "config.json", "not an object");
  drop_ignored(doc, &rules.ignored);
  TRI_CHECK(tri_config_take_text(doc, rules.strict, &c, &text, err));
  if (text) drop_ignored(doc, &rules.ignored);
  memcpy(noted, c.unknown_keys, sizeof noted);
  TRI_CHECK(read_arch(root, text, &c, err));
  c.multimodal = text != NULL;
  memcpy(c.unknown_keys, noted, sizeof noted);
  struct reader r = {.c = &c, .err = err};
  TRI_CHECK(tri_json_each(root, read_key, &r));
  TRI_CHECK(read_strings(root, &c, err));
  TRI_CHECK(tri_stored_read(root, c.dtype, &c.stored, err));
  *file = modelopt_file;
  if (modelopt && c.stored.method == TRI_STORED_PLAIN)
    TRI_CHECK(tri_stored_read_modelopt(modelopt, c.dtype, &c.stored, err));
  *file = "config.json";
  TRI_CHECK(tri_config_special_ids(root, &c, err));
  if (c.arch->prepare) TRI_CHECK(c.arch->prepare(&c, root, err));
  TRI_CHECK(derive(&c, root, rules.strict, err));
  if (c.arch->finish) TRI_CHECK(c.arch->finish(&c, root, err));
  TRI_CHECK(tri_config_decoder_use(&c, root, err));
  if (c.head.has_pooler && c.head.pooling == TRI_POOL_NONE) c.head.pooling = TRI_POOL_FIRST;
  c.attention.has_qk_norm = c.attention.qk_norm != TRI_QK_NORM_NONE && c.attention.qk_norm != TRI_QK_NORM_BARE;
  if (c.moe.top_k > c.moe.num_experts || (c.moe.num_experts && !c.moe.top_k))
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_experts_per_tok", "%lld of %lld experts per token",
                    (long long)c.moe.top_k, (long long)c.moe.num_experts);
  if (c.moe.scale_input && c.moe.top_k != 1)
    return tri_fail(err, TRI_UNSUPPORTED, "num_experts_per_tok", "%lld experts per token are not supported, only 1",
                    (long long)c.moe.top_k);
  TRI_CHECK(check_groups(&c.moe, err));
  TRI_CHECK(tri_config_judge_keys(root, rules.strict, &c, err));
  *file = "generation_config.json";
  if (generation && tri_json_kind_of(generation) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_CORRUPT, "generation_config.json", "not an object");
  if (generation) TRI_CHECK(tri_config_generation(generation, &c, err));
  *file = "config.json";
  TRI_CHECK(tri_config_seq2seq(&c, err));
  *out = c;
  return TRI_OK;
}

tri_status tri_model_config_parse(const char *config, size_t config_len, const char *generation, size_t generation_len,
                                  tri_config_rules rules, tri_model_config *out, tri_error *err) {
  tri_status st;
  tri_json_doc *doc = NULL, *gen = NULL;
  const char *file;
  TRI_TRY(tri_json_parse_file(config, config_len, &doc, err));
  if (generation) TRI_TRY(tri_json_parse_file(generation, generation_len, &gen, err));
  TRI_TRY(parse_docs(doc, tri_json_root(gen), NULL, rules, out, &file, err));
cleanup:
  tri_json_free(doc);
  tri_json_free(gen);
  return st;
}

/* A file that a folder may have. */
static tri_status read_optional(const char *dir, const char *name, tri_json_doc **doc, tri_error *err) {
  char path[4096];
  tri_error why = {0};
  snprintf(path, sizeof path, "%s/%s", dir, name);
  tri_status st = tri_json_read_file(path, MAX_CONFIG_BYTES, doc, &why);
  return st == TRI_OK || st == TRI_NOT_FOUND ? TRI_OK : tri_fail(err, st, name, "%s", why.message);
}

/* A GGUF file, whose keys are the config. */
static tri_status load_gguf(const tri_gguf *g, const char *path, tri_config_rules rules, tri_model_config *out,
                            tri_error *err) {
  tri_error why = {0};
  tri_gguf_config made = {0};
  tri_status st;
  TRI_TRY(tri_gguf_config_make(g, path, &made, &why));
  TRI_TRY(tri_model_config_parse(made.text.data, made.text.len, NULL, 0, rules, out, &why));
  st = tri_gguf_config_finish(&made, out, &why);
cleanup:
  tri_buf_free(&made.text);
  if (st != TRI_OK) {
    tri_error_in_file(&why, path);
    tri_fail(err, st, why.field, "%s", why.message);
  }
  return st;
}

tri_status tri_model_config_load(const char *dir, tri_config_rules rules, tri_model_config *out, tri_error *err) {
  tri_status st;
  tri_json_doc *doc = NULL, *gen = NULL, *quant = NULL;
  const char *file;
  char path[TRI_MODEL_FOLDER];
  tri_gguf *g;
  if (access(dir, F_OK))
    return tri_fail(err, TRI_NOT_FOUND, "model",
                    "there is no folder %s: nothing is downloaded, the model must be a local folder or the name of one "
                    "in the Hugging Face cache",
                    dir);
  TRI_CHECK(tri_gguf_files_open(dir, path, &g, err));
  if (g) {
    st = load_gguf(g, path, rules, out, err);
    tri_gguf_close(g);
    return st;
  }
  TRI_TRY(tri_folder_check(dir, err));
  snprintf(path, sizeof path, "%s/config.json", dir);
  TRI_TRY(tri_json_read_file(path, MAX_CONFIG_BYTES, &doc, err));
  TRI_TRY(read_optional(dir, "generation_config.json", &gen, err));
  TRI_TRY(read_optional(dir, modelopt_file, &quant, err));
  st = parse_docs(doc, tri_json_root(gen), tri_json_root(quant), rules, out, &file, err);
  if (st == TRI_OK) st = tri_config_folder_use(dir, tri_json_root(doc), out, err);
  snprintf(path, sizeof path, "%s/%s", dir, file);
  if (st != TRI_OK) tri_error_in_file(err, path);
  if (st == TRI_OK && !out->encoder && tri_config_end_token(dir, out) != TRI_OK)
    st = tri_fail(err, TRI_NO_MEMORY, "eos_token", "no memory for the tokenizer's files in %s", dir);
cleanup:
  tri_json_free(doc);
  tri_json_free(gen);
  tri_json_free(quant);
  return st;
}

void tri_model_config_warn(const tri_model_config *c, const char *component) {
  if (c->multimodal)
    tri_log(TRI_LOG_INFO, component,
            "of a multimodal model (%s) the text part (%s) is served: images and sound are refused, and tensors of "
            "their towers and projectors are passed over",
            c->arch->multimodal_type, c->arch->model_type);
  if (c->attention.index_topk)
    tri_log(TRI_LOG_WARN, component,
            "sequences have at most %lld tokens (index_topk): up to these the sparse attention of model_type %s is "
            "that to all tokens, and longer ones are not supported",
            (long long)tri_model_config_length(c), c->arch->model_type);
  if (!c->unknown_keys[0]) return;
  tri_log(TRI_LOG_WARN, component,
          "config.json has unknown keys for model_type %s, which are ignored: %s (--strict-config refuses them)",
          c->arch->model_type, c->unknown_keys);
}

int64_t tri_model_config_length(const tri_model_config *c) {
  const int64_t limits[] = {c->sentence.max_seq_length, c->attention.index_topk};
  int64_t most = c->max_position_embeddings;
  for (int i = 0; i < 2; i++)
    if (limits[i] && limits[i] < most) most = limits[i];
  return most;
}

int64_t tri_model_config_width(const tri_model_config *c) {
  int dense = tri_num_dense(c);
  if (c->head.has_classifier) return c->head.num_labels;
  return dense ? c->sentence.dense[dense - 1].out : c->hidden_size;
}

uint64_t tri_model_config_hash(const tri_model_config *c) {
  const int64_t facts[] = {c->hidden_size,
                           c->num_layers,
                           c->attention.num_heads,
                           c->attention.num_kv_heads,
                           c->attention.head_dim,
                           c->mlp.intermediate_size,
                           c->vocab_size,
                           c->max_position_embeddings,
                           c->head.num_labels,
                           c->head.pooling,
                           c->head.has_pooler,
                           c->attention.causal,
                           tri_model_config_width(c),
                           c->attention.global_heads,
                           c->attention.global_kv_heads,
                           c->attention.global_head_dim,
                           c->attention.shared_kv_layers,
                           c->attention.value_dim,
                           c->mlp.shared_kv_size,
                           c->embed.layer_width};
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, c->arch->model_type, strlen(c->arch->model_type));
  return tri_hash_bytes(h, facts, sizeof facts);
}
