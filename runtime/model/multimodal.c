/* SPDX-License-Identifier: Apache-2.0 */
/* The text part of a multimodal folder. Its config stands in `text_config`, between the numbers of the towers that read
 * images and sound; its tensors have longer names, and the towers' are in the same files. */
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/text.h"
#include "runtime/model/arch.h"

/* Released folders have either of the first two, or `model.`, before the names of the model's tensors; a head has
 * `language_model.` or nothing. */
static const char *const prefixes[] = {
    "model.language_model.", "language_model.model.", "language_model.", "model.", "", NULL};

const char *tri_tensor_prefix(const tri_model_config *c, int i) {
  const char *const plain[] = {c->arch->prefix, "", NULL};
  return (c->multimodal ? prefixes : plain)[i];
}

/* Towers, what brings their states to the text part's width, and draft layers, with or without `model.` before them. */
static const char *const others[] = {
    "vision_tower.",        "vision_model.", "visual.",      "multi_modal_projector.", "mm_projector.",
    "vit_large_projector.", "audio_tower.",  "embed_audio.", "embed_vision.",          "mtp."};

bool tri_tensor_is_passed_over(const tri_model_config *c, const char *name) {
  static const char model[] = "model.";
  if (!c->multimodal) return false;
  if (!strncmp(name, model, sizeof model - 1)) name += sizeof model - 1;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (!strncmp(name, others[i], strlen(others[i]))) return true;
  return false;
}

/* ---- the config ---- */

/* Both levels may say these; the head is the whole folder's, and so is whether it is tied. */
static const char kept[] = "dtype torch_dtype bos_token_id eos_token_id pad_token_id quantization_config "
                           "compression_config transformers_version",
                  outer_first[] = "tie_word_embeddings";
/* These are about the towers and the places of images in a text. */
static const char of_towers[] =
    "text_config vision_config audio_config image_token_index image_token_id video_token_id audio_token_id "
    "boi_token_index eoi_token_index boi_token_id eoi_token_id boa_token_id eoa_token_id boa_token_index "
    "eoa_token_index vision_start_token_id "
    "vision_end_token_id vision_token_id mm_tokens_per_image vision_soft_tokens_per_image spatial_merge_size "
    "vision_feature_layer vision_feature_select_strategy projector_hidden_act multimodal_projector_bias "
    "projection_hidden_size projector_bias understand_projector_stride ignore_index media_placeholder_token_id "
    "use_unified_vision_chunk video_placeholder";

struct outer {
  tri_model_config *notes;
  bool strict;
  tri_error *err;
};

static tri_status judge_outer(void *ctx, const char *key, const tri_json *v) {
  const struct outer *o = ctx;
  bool known = key[0] == '_' || tri_has_word(kept, key) || tri_has_word(outer_first, key) ||
               tri_has_word(of_towers, key) || tri_config_key_is_note(key);
  if (known || tri_config_says_nothing(v)) return TRI_OK;
  if (o->strict)
    return tri_fail(o->err, TRI_UNKNOWN_FIELD, key,
                    "\"%.60s\" in addition to text_config is not understood and could change the result", key);
  tri_config_note_key(o->notes, key);
  return TRI_OK;
}

/* Returns whether folders of this kind have text parts of a family. */
static bool has_text_of(const tri_arch *a, const char *type, const char *name) {
  if (!a || !a->multimodal_type || strcmp(a->multimodal_type, type) != 0) return false;
  return !name || !strcmp(a->multimodal_class, name);
}

/* Folders from before text_config have the text part's keys between the towers', which are taken away. */
static void take_flat(tri_json_doc *doc, const char *type, const char *name, const tri_arch **out) {
  char key[64];
  for (const tri_arch *const *a = tri_arch_list; *a && !*out; a++)
    if ((*a)->multimodal_flat && has_text_of(*a, type, name)) *out = *a;
  for (const char *at = of_towers; *out && *at; at += strspn(at, " ")) {
    size_t n = strcspn(at, " ");
    snprintf(key, sizeof key, "%.*s", (int)n, at);
    tri_json_drop(doc, key);
    at += n;
  }
}

tri_status tri_config_take_text(tri_json_doc *doc, bool strict, tri_model_config *notes, const tri_arch **out,
                                tri_error *err) {
  const tri_json *root = tri_json_root(doc), *text = tri_json_get(root, "text_config");
  const char *type = tri_json_get_str(root, "model_type"), *inner = text ? tri_json_get_str(text, "model_type") : NULL;
  const char *name = tri_json_as_str(tri_json_at(tri_json_get(root, "architectures"), 0), NULL);
  const tri_arch *arch = inner ? tri_arch_find(inner) : NULL;
  *out = NULL;
  if (!type || tri_arch_find(type)) return TRI_OK;
  if (tri_json_kind_of(text) != TRI_JSON_OBJECT) {
    take_flat(doc, type, name, out);
    return TRI_OK;
  }
  if (!has_text_of(arch, type, name))
    return tri_fail(err, TRI_UNSUPPORTED, "text_config.model_type",
                    "a multimodal model of model_type \"%.60s\" (%.60s) with a text part of \"%.60s\" is not "
                    "supported: docs/models.md lists those that are",
                    type, name ? name : "no class", inner ? inner : "?");
  struct outer o = {.notes = notes, .strict = strict, .err = err};
  TRI_CHECK(tri_json_each(root, judge_outer, &o));
  *out = arch;
  if (tri_json_narrow(doc, "text_config", kept, outer_first) == TRI_OK) return TRI_OK;
  return tri_fail(err, TRI_NO_MEMORY, "text_config", "no memory");
}
