/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files as models: the config that keys make, the names of tensors, and what is refused by its name. That the
 * weights are right is a matter of tests/modelcheck/gguf.sh. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/gguf_files.h"
#include "runtime/model/arch.h"
#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"
#include "tests/unit/gguf_file.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_gguf_model(void);

static char dir[SCRATCH_BYTES], path[SCRATCH_BYTES + 32];
static gguf_file f;

static void make_dir(void) {
  scratch_make(dir);
  snprintf(path, sizeof path, "%s/model.gguf", dir);
}

static void remove_dir(void) {
  gguf_file_free(&f);
  scratch_remove(dir);
}

/* Sizes of a small llama without tensors. */
static void put_keys(const char *arch) {
  static const struct {
    const char *key;
    uint32_t value;
  } sizes[] = {{"block_count", 2},          {"embedding_length", 64},       {"feed_forward_length", 96},
               {"attention.head_count", 4}, {"attention.head_count_kv", 2}, {"context_length", 512},
               {"rope.dimension_count", 16}};
  char key[64];
  gguf_key_text(&f, "general.architecture", arch);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    snprintf(key, sizeof key, "%s.%s", arch, sizes[i].key);
    gguf_key_uint(&f, key, sizes[i].value);
  }
  snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
  gguf_key_float(&f, key, 9.9999997e-06f);
  gguf_tensor(&f, "token_embd.weight", 100, 64, TRI_GGUF_BLOCK_Q8_0);
}

static tri_status load(tri_model_config *c, tri_error *err) {
  *err = (tri_error){0};
  gguf_file_write(&f, path);
  return tri_model_config_load(path, (tri_config_rules){0}, c, err);
}

START_TEST(test_config) {
  tri_model_config c;
  tri_error err;
  put_keys("llama");
  gguf_key_uint(&f, "tokenizer.ggml.bos_token_id", 1);
  gguf_key_uint(&f, "tokenizer.ggml.eos_token_id", 2);
  gguf_key_uint(&f, "tokenizer.ggml.eot_token_id", 7);
  ck_assert_msg(load(&c, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert_str_eq(c.arch->model_type, "llama");
  ck_assert(c.num_layers == 2 && c.hidden_size == 64 && c.mlp.intermediate_size == 96 && c.vocab_size == 100);
  ck_assert(c.attention.num_heads == 4 && c.attention.num_kv_heads == 2 && c.attention.head_dim == 16);
  ck_assert(c.max_position_embeddings == 512 && c.norm.eps == 1e-5 && c.head.tie_word_embeddings);
  ck_assert(c.bos_token_id == 1 && c.num_eos_token_ids == 2 && c.eos_token_ids[0] == 2 && c.eos_token_ids[1] == 7);
  char text[TRI_STORED_TEXT];
  ck_assert_str_eq(tri_stored_text(&c.stored, text), "GGUF: Q8_0");
  ck_assert(c.stored.method == TRI_STORED_GGUF && c.stored.widened == TRI_BF16);
  /* The folder alone does, too. */
  ck_assert_msg(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s", err.message);
  gguf_tensor(&f, "output.weight", 100, 64, TRI_GGUF_BLOCK_F16);
  ck_assert_int_eq(load(&c, &err), TRI_OK);
  ck_assert(!c.head.tie_word_embeddings && c.stored.widened == TRI_F16);
}
END_TEST

START_TEST(test_families) {
  tri_model_config c;
  tri_error err;
  put_keys("llama");
  gguf_key_uint(&f, "llama.expert_count", 8);
  gguf_key_uint(&f, "llama.expert_used_count", 2);
  ck_assert_msg(load(&c, &err) == TRI_OK, "%s", err.message);
  ck_assert(!strcmp(c.arch->model_type, "mixtral") && c.moe.num_experts == 8 && c.moe.top_k == 2);
  gguf_file_free(&f);
  put_keys("llama");
  gguf_key_uint(&f, "llama.attention.sliding_window", 128);
  ck_assert_msg(load(&c, &err) == TRI_OK, "%s", err.message);
  ck_assert(!strcmp(c.arch->model_type, "mistral") && c.attention.window == 128);
  gguf_file_free(&f);
  put_keys("gemma3");
  gguf_key_uint(&f, "gemma3.attention.sliding_window", 128);
  gguf_key_float(&f, "gemma3.rope.freq_base", 1e6f);
  ck_assert_msg(load(&c, &err) == TRI_OK, "%s", err.message);
  ck_assert(!strcmp(c.arch->model_type, "gemma3_text") && c.norm.weight_offset == 0 && c.attention.global_every == 6);
  ck_assert(c.attention.scale == 0.25 && c.attention.rope_theta == 1e6 && c.attention.local_rope_theta == 1e4);
  ck_assert(c.head.tie_word_embeddings && fabs(c.embed.scale - 8) < 1e-12);
}
END_TEST

/* The same sizes with one more key each; {0} ends. */
struct key {
  const char *name;
  uint32_t value;
};

static void put_more(const char *arch, const struct key *keys) {
  char name[96];
  put_keys(arch);
  for (; keys->name; keys++) {
    snprintf(name, sizeof name, "%s.%s", arch, keys->name);
    gguf_key_uint(&f, name, keys->value);
  }
}

static void put_number(const char *name, float x) { gguf_key_float(&f, name, x); }

/* Loads, and frees the file. */
static void must_load(tri_model_config *c, const char *type) {
  tri_error err;
  tri_status st = load(c, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert_str_eq(c->arch->model_type, type);
  gguf_file_free(&f);
}

START_TEST(test_gpt_oss) {
  tri_model_config c;
  put_more("gpt-oss", (const struct key[]){{"attention.key_length", 24},
                                           {"attention.value_length", 24},
                                           {"attention.sliding_window", 32},
                                           {"expert_count", 8},
                                           {"expert_used_count", 3},
                                           {"expert_feed_forward_length", 40},
                                           {"rope.scaling.original_context_length", 4096},
                                           {0}});
  gguf_key_text(&f, "gpt-oss.rope.scaling.type", "yarn");
  put_number("gpt-oss.rope.scaling.factor", 32);
  put_number("gpt-oss.rope.freq_base", 150000);
  must_load(&c, "gpt_oss");
  ck_assert(c.tensors && c.tensors != c.arch->tensors && tri_rule_next(&c, NULL) == c.tensors);
  ck_assert(c.moe.num_experts == 8 && c.moe.top_k == 3 && c.moe.intermediate_size == 40 && c.moe.expert_bias);
  ck_assert(c.attention.head_dim == 24 && c.attention.window == 32 && c.attention.has_sinks);
  ck_assert(c.layer_flags[0] & TRI_LAYER_LOCAL && !(c.layer_flags[1] & TRI_LAYER_LOCAL));
  /* Yarn mixes between the dimensions that the numbers of turns give, which are not rounded. */
  double turns = 2 * log(150000), low = 16 * log(4096 / (32 * 2 * M_PI)) / turns,
         high = 16 * log(4096 / (2 * M_PI)) / turns;
  double ramp = (4 - low) / (high - low), fifth = pow(150000, -8.0 / 16) * (ramp / 32 + 1 - ramp);
  ck_assert(fabs(c.attention.rope.inv_freq[4] / fifth - 1) < 1e-5);
}
END_TEST

static const struct key latent[] = {{"attention.q_lora_rank", 20},      {"attention.kv_lora_rank", 24},
                                    {"attention.key_length", 40},       {"attention.value_length", 24},
                                    {"attention.key_length_mla", 28},   {"attention.value_length_mla", 12},
                                    {"leading_dense_block_count", 1},   {"expert_count", 8},
                                    {"expert_used_count", 2},           {"expert_shared_count", 2},
                                    {"expert_feed_forward_length", 32}, {0}};

START_TEST(test_latent_attention) {
  tri_model_config c;
  put_more("deepseek2", latent);
  must_load(&c, "deepseek_v2");
  ck_assert(c.mla.rank == 24 && c.mla.q_rank == 20 && c.mla.nope_dim == 12 && c.mla.rope_dim == 16 &&
            c.mla.v_dim == 12);
  ck_assert(c.moe.num_experts == 8 && c.moe.top_k == 2 && c.moe.num_groups == 1 && c.moe.scale == 1);
  ck_assert(c.moe.intermediate_size == 32 && c.moe.shared_size == 64 && !c.moe.renormalize && !c.stored.split_kv_up);
  ck_assert(!(c.layer_flags[0] & TRI_LAYER_SPARSE) && c.layer_flags[1] & TRI_LAYER_SPARSE);
  double plain = c.attention.scale;
  put_more("deepseek2", latent);
  gguf_key_uint(&f, "deepseek2.expert_gating_func", 2);
  gguf_key_uint(&f, "deepseek2.expert_group_count", 4);
  gguf_key_uint(&f, "deepseek2.expert_group_used_count", 2);
  gguf_key_bool(&f, "deepseek2.expert_weights_norm", true);
  put_number("deepseek2.expert_weights_scale", 2.5f);
  gguf_key_text(&f, "deepseek2.rope.scaling.type", "yarn");
  put_number("deepseek2.rope.scaling.factor", 40);
  gguf_key_uint(&f, "deepseek2.rope.scaling.original_context_length", 64);
  put_number("deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
  gguf_tensor(&f, "blk.0.attn_k_b.weight", 96, 12, TRI_GGUF_BLOCK_F32);
  must_load(&c, "deepseek_v3");
  ck_assert(c.moe.num_groups == 4 && c.moe.top_groups == 2 && c.moe.renormalize && fabs(c.moe.scale - 2.5) < 1e-6);
  ck_assert(c.stored.split_kv_up && c.attention.rope.attention_scale == 1);
  ck_assert(fabs(c.attention.scale / plain - pow(0.1 * log(40) + 1, 2)) < 1e-6);
}
END_TEST

/* Older files: sizes of heads in the keys that are now the cache's, no query latent, and no groups. */
START_TEST(test_early_latent_attention) {
  tri_model_config c;
  static const struct key keys[] = {{"attention.kv_lora_rank", 24},
                                    {"attention.key_length", 28},
                                    {"attention.value_length", 12},
                                    {"expert_gating_func", 2},
                                    {"expert_count", 256},
                                    {"expert_used_count", 8},
                                    {0}};
  put_more("deepseek2", keys);
  must_load(&c, "deepseek_v3");
  ck_assert(c.mla.nope_dim == 12 && c.mla.v_dim == 12 && c.mla.q_rank == 0 && !c.mla.low_rank_q);
  ck_assert(c.moe.num_groups == 8 && c.moe.top_groups == 4 && !c.moe.has_shared);
}
END_TEST

START_TEST(test_layer_norm_families) {
  static const struct {
    const char *arch, *type;
  } archs[] = {{"gpt2", "gpt2"}, {"bloom", "bloom"},   {"gptneox", "gpt_neox"},
               {"phi2", "phi"},  {"falcon", "falcon"}, {"stablelm", "stablelm"}};
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
    char name[96];
    tri_model_config c;
    const char *arch = archs[i].arch;
    bool rotates = i > 1, groups = i > 2;
    gguf_key_text(&f, "general.architecture", arch);
    for (const struct key *k = (const struct key[]){{"block_count", 2},
                                                    {"embedding_length", 64},
                                                    {"feed_forward_length", 96},
                                                    {"attention.head_count", 4},
                                                    {"context_length", 512},
                                                    {0}};
         k->name; k++) {
      snprintf(name, sizeof name, "%s.%s", arch, k->name);
      gguf_key_uint(&f, name, k->value);
    }
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch);
    gguf_key_uint(&f, name, groups ? 2 : 4);
    snprintf(name, sizeof name, "%s.attention.layer_norm_epsilon", arch);
    gguf_key_float(&f, name, 3e-5f);
    snprintf(name, sizeof name, "%s.rope.dimension_count", arch);
    if (rotates) gguf_key_uint(&f, name, 16);
    gguf_tensor(&f, "token_embd.weight", 100, 64, TRI_GGUF_BLOCK_F32);
    must_load(&c, archs[i].type);
    ck_assert_msg(fabs(c.norm.eps - 3e-5) < 1e-9 && c.mlp.intermediate_size == 96 && c.hidden_size == 64, "%s", arch);
    ck_assert_msg(c.attention.num_kv_heads == (groups ? 2 : 4) && !c.unknown_keys[0], "%s: %s", arch, c.unknown_keys);
    ck_assert_msg(c.max_position_embeddings == 512, "%s", arch);
    if (rotates) ck_assert_msg(c.attention.rope.rotary_dim == 16, "%s: %d", arch, c.attention.rope.rotary_dim);
  }
}
END_TEST

START_TEST(test_switches) {
  tri_model_config c;
  put_keys("stablelm");
  gguf_key_bool(&f, "stablelm.use_parallel_residual", true);
  gguf_tensor(&f, "blk.0.attn_q.bias", 64, 0, TRI_GGUF_BLOCK_F32);
  must_load(&c, "stablelm");
  ck_assert(c.norm.parallel_residual && c.norm.one_norm && c.attention.bias);
  put_keys("stablelm");
  must_load(&c, "stablelm");
  ck_assert(!c.norm.parallel_residual && !c.attention.bias && c.attention.rope.rotary_dim == 16);
  put_keys("falcon");
  gguf_key_text(&f, "falcon.tensor_data_layout", "jploski");
  must_load(&c, "falcon");
  ck_assert(c.norm.parallel_residual && c.norm.one_norm && !c.norm.named && c.attention.num_kv_heads == 2);
  put_keys("falcon");
  gguf_tensor(&f, "blk.0.attn_norm_2.weight", 64, 0, TRI_GGUF_BLOCK_F32);
  must_load(&c, "falcon");
  ck_assert(c.norm.named && !c.norm.one_norm);
  put_keys("phi2");
  gguf_tensor(&f, "blk.0.attn_qkv.weight", 128, 64, TRI_GGUF_BLOCK_F32);
  must_load(&c, "phi");
  ck_assert(c.stored.fused_qkv);
  put_keys("glm4");
  must_load(&c, "glm4");
  ck_assert(!c.attention.bias && c.attention.rope.interleaved && c.attention.rope.rotary_dim == 16);
}
END_TEST

static void refuse(tri_status want, const char *field) {
  tri_model_config c;
  tri_error err;
  tri_status st = load(&c, &err);
  ck_assert_msg(st == want && !strcmp(err.field, field), "%s: %s (%s), not %s of %s", err.field, err.message,
                tri_status_name(st), tri_status_name(want), field);
  ck_assert_msg(strstr(err.message, path), "%s does not name the file", err.message);
  gguf_file_free(&f);
}

START_TEST(test_refusals) {
  put_keys("mamba");
  refuse(TRI_UNSUPPORTED, "general.architecture");
  put_keys("llama");
  gguf_key_uint(&f, "llama.a_new_switch", 1);
  refuse(TRI_UNKNOWN_FIELD, "llama.a_new_switch");
  put_keys("llama");
  gguf_key_text(&f, "general.type", "adapter");
  refuse(TRI_UNSUPPORTED, "general.type");
  put_keys("qwen2");
  gguf_key_uint(&f, "qwen2.attention.sliding_window", 128);
  refuse(TRI_UNSUPPORTED, "qwen2.attention.sliding_window");
  put_keys("llama");
  gguf_key_uint(&f, "llama.attention.key_length", 16);
  gguf_key_uint(&f, "llama.attention.value_length", 24);
  refuse(TRI_UNSUPPORTED, "llama.attention.value_length");
  put_keys("llama");
  gguf_key_float(&f, "llama.rope.scaling.attn_factor", 1.2f);
  refuse(TRI_UNSUPPORTED, "llama.rope.scaling.attn_factor");
  put_keys("llama");
  gguf_key_float(&f, "llama.rope.freq_base", NAN); /* JSON has none, and the default is no answer */
  refuse(TRI_UNSUPPORTED, "llama.rope.freq_base");
  put_keys("llama");
  gguf_key(&f, "llama.rope.freq_base", TRI_GGUF_F64);
  gguf_put(&f.keys, 0x7e37e43c8800759cull, 8); /* 1e300, of which no float is left */
  refuse(TRI_UNSUPPORTED, "llama.rope.freq_base");
  put_keys("llama");
  gguf_key_float(&f, "llama.rope.freq_base", -1e4f);
  refuse(TRI_UNSUPPORTED, "llama.rope.freq_base");
  put_keys("llama");
  gguf_key_text(&f, "llama.rope.scaling.type", "to come");
  refuse(TRI_UNSUPPORTED, "rope_scaling.rope_type");
  put_keys("llama");
  gguf_tensor(&f, "rope_freqs.weight", 8, 0, TRI_GGUF_BLOCK_F32); /* of zeros */
  refuse(TRI_OUT_OF_RANGE, "rope_freqs.weight");
}
END_TEST

START_TEST(test_refusals_of_architectures) {
  for (int i = 0; i < 2; i++) { /* read from folders alone, with the reason */
    tri_model_config c;
    tri_error err;
    put_keys(i ? "bert" : "t5");
    ck_assert_int_eq(load(&c, &err), TRI_UNSUPPORTED);
    ck_assert_msg(strstr(err.message, i ? "tokenizer" : "encoder-decoder"), "%s", err.message);
    gguf_file_free(&f);
  }
  put_more("deepseek2", latent);
  gguf_key_uint(&f, "deepseek2.expert_gating_func", 3);
  refuse(TRI_UNSUPPORTED, "deepseek2.expert_gating_func");
  put_more("deepseek2", latent);
  gguf_key_uint(&f, "deepseek2.expert_group_count", 2);
  gguf_key_uint(&f, "deepseek2.expert_group_used_count", 3);
  refuse(TRI_OUT_OF_RANGE, "expert_group_used_count");
  put_more("deepseek2", latent + 6); /* no sizes of heads */
  refuse(TRI_UNSUPPORTED, "attention.key_length");
  put_more("deepseek2", latent);
  gguf_key_uint(&f, "deepseek2.nextn_predict_layers", 1);
  refuse(TRI_UNKNOWN_FIELD, "deepseek2.nextn_predict_layers");
  put_keys("gpt2"); /* two heads of keys for four of queries */
  refuse(TRI_UNSUPPORTED, "gpt2.attention.head_count_kv");
  put_keys("stablelm");
  gguf_key_uint(&f, "stablelm.use_parallel_residual", 1);
  refuse(TRI_UNSUPPORTED, "stablelm.use_parallel_residual");
  put_keys("gptneox");
  gguf_key_uint(&f, "gptneox.attention.sliding_window", 16);
  refuse(TRI_UNSUPPORTED, "gptneox.attention.sliding_window");
}
END_TEST

START_TEST(test_layers_that_differ) {
  tri_model_config c;
  tri_error err;
  for (uint64_t second = 96; second <= 128; second += 32) {
    gguf_key_text(&f, "general.architecture", "llama");
    gguf_key_uint(&f, "llama.block_count", 2);
    gguf_key_uint(&f, "llama.embedding_length", 64);
    gguf_key_uint(&f, "llama.attention.head_count", 4);
    gguf_key_array(&f, "llama.feed_forward_length", TRI_GGUF_I32, 2);
    gguf_put(&f.keys, 96, 4);
    gguf_put(&f.keys, second, 4);
    gguf_tensor(&f, "token_embd.weight", 100, 64, TRI_GGUF_BLOCK_F32);
    if (second == 96) {
      ck_assert_msg(load(&c, &err) == TRI_OK && c.mlp.intermediate_size == 96, "%s", err.message);
      gguf_file_free(&f);
    } else {
      refuse(TRI_UNSUPPORTED, "llama.feed_forward_length");
    }
  }
}
END_TEST

START_TEST(test_names) {
  tri_checkpoint *c;
  tri_error err = {0};
  put_keys("llama");
  gguf_tensor(&f, "blk.1.attn_q.weight", 64, 64, TRI_GGUF_BLOCK_Q5_0);
  gguf_tensor(&f, "blk.1.attn_k.weight", 32, 64, TRI_GGUF_BLOCK_F16);
  gguf_tensor(&f, "blk.1.attn_v.weight", 32, 64, TRI_GGUF_BLOCK_BF16);
  gguf_tensor(&f, "rope_freqs.weight", 8, 0, TRI_GGUF_BLOCK_F32);
  gguf_file_write(&f, path);
  ck_assert_msg(tri_checkpoint_open(path, &c, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(tri_checkpoint_num_tensors(c), 4);
  const tri_st_tensor *q = tri_checkpoint_find(c, "layers.1.self_attn.q_proj.weight");
  const tri_st_tensor *k = tri_checkpoint_find(c, "layers.1.self_attn.k_proj.weight");
  const tri_st_tensor *v = tri_checkpoint_find(c, "layers.1.self_attn.v_proj.weight");
  ck_assert(q && k && v && tri_checkpoint_find(c, "embed_tokens.weight"));
  ck_assert(q->block && !strcmp(q->block->name, "Q5_0") && q->paired == 16 && q->bytes == 64 * 2 * 22);
  ck_assert(!k->block && k->dtype == TRI_F16 && k->paired == 16 && k->shape[0] == 32 && k->shape[1] == 64);
  ck_assert(v->dtype == TRI_BF16 && !v->paired);
  tri_checkpoint_close(c);
  gguf_tensor(&f, "blk.0.ssm_in.weight", 32, 64, TRI_GGUF_BLOCK_F16);
  gguf_file_write(&f, path);
  ck_assert_int_eq(tri_checkpoint_open(path, &c, &err), TRI_UNSUPPORTED);
  ck_assert_str_eq(err.field, "blk.0.ssm_in.weight");
}
END_TEST

START_TEST(test_experts) {
  tri_checkpoint *c;
  tri_error err = {0};
  put_keys("qwen3moe");
  gguf_key_array(&f, "general.languages", TRI_GGUF_STRING, 0);
  gguf_put_text(&f.tensors, "blk.0.ffn_up_exps.weight", 24);
  gguf_put(&f.tensors, 3, 4);
  gguf_put(&f.tensors, 64, 8);
  gguf_put(&f.tensors, 96, 8);
  gguf_put(&f.tensors, 4, 8);
  gguf_put(&f.tensors, TRI_GGUF_BLOCK_Q8_0, 4);
  gguf_put(&f.tensors, f.data, 8);
  f.num_tensors++;
  f.data += 4 * 96 * 2 * 34;
  gguf_file_write(&f, path);
  ck_assert_msg(tri_checkpoint_open(path, &c, &err) == TRI_OK, "%s", err.message);
  const tri_st_tensor *first = tri_checkpoint_find(c, "layers.0.mlp.experts.0.up_proj.weight");
  const tri_st_tensor *last = tri_checkpoint_find(c, "layers.0.mlp.experts.3.up_proj.weight");
  ck_assert(first && last && !tri_checkpoint_find(c, "layers.0.mlp.experts.4.up_proj.weight"));
  ck_assert(last->rank == 2 && last->shape[0] == 96 && last->shape[1] == 64 && last->bytes == 96 * 2 * 34);
  ck_assert_uint_eq(last->offset, first->offset + 3 * first->bytes);
  tri_checkpoint_close(c);
}
END_TEST

/* Of architectures with tables of their own tensors keep their names, and heads of three dimensions become rows. */
START_TEST(test_own_names) {
  tri_checkpoint *c;
  tri_error err = {0};
  put_keys("deepseek2");
  gguf_put_text(&f.tensors, "blk.0.attn_k_b.weight", 21);
  gguf_put(&f.tensors, 3, 4);
  gguf_put(&f.tensors, 32, 8);
  gguf_put(&f.tensors, 24, 8);
  gguf_put(&f.tensors, 4, 8);
  gguf_put(&f.tensors, TRI_GGUF_BLOCK_Q8_0, 4);
  gguf_put(&f.tensors, f.data, 8);
  f.num_tensors++;
  f.data += 4 * 24 * 34;
  gguf_file_write(&f, path);
  ck_assert_msg(tri_checkpoint_open(path, &c, &err) == TRI_OK, "%s", err.message);
  const tri_st_tensor *t = tri_checkpoint_find(c, "blk.0.attn_k_b.weight");
  ck_assert(t && t->rank == 2 && t->shape[0] == 96 && t->shape[1] == 32 && t->bytes == 96 * 34);
  tri_checkpoint_close(c);
}
END_TEST

START_TEST(test_missing_part) {
  tri_checkpoint *c;
  tri_model_config config;
  tri_error err = {0};
  put_keys("llama");
  gguf_key_uint(&f, "split.count", 2);
  snprintf(path, sizeof path, "%s/m-00001-of-00002.gguf", dir);
  gguf_file_write(&f, path);
  ck_assert_int_eq(tri_checkpoint_open(path, &c, &err), TRI_NOT_FOUND);
  ck_assert_msg(strstr(err.message, "m-00002-of-00002.gguf"), "%s", err.message);
  ck_assert_int_eq(load(&config, &err), TRI_NOT_FOUND);
  ck_assert_msg(strstr(err.message, "m-00002-of-00002.gguf"), "%s", err.message);
}
END_TEST

Suite *suite_gguf_model(void) {
  Suite *s = suite_create("gguf_model");
  TCase *c = tcase_create("gguf_model");
  tcase_add_checked_fixture(c, make_dir, remove_dir);
  tcase_add_test(c, test_config);
  tcase_add_test(c, test_families);
  tcase_add_test(c, test_gpt_oss);
  tcase_add_test(c, test_latent_attention);
  tcase_add_test(c, test_early_latent_attention);
  tcase_add_test(c, test_layer_norm_families);
  tcase_add_test(c, test_switches);
  tcase_add_test(c, test_refusals);
  tcase_add_test(c, test_refusals_of_architectures);
  tcase_add_test(c, test_layers_that_differ);
  tcase_add_test(c, test_names);
  tcase_add_test(c, test_experts);
  tcase_add_test(c, test_own_names);
  tcase_add_test(c, test_missing_part);
  suite_add_tcase(s, c);
  return s;
}
