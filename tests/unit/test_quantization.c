/* SPDX-License-Identifier: Apache-2.0 */
/* quantization_config: what each method's says of its weights, and the variants that are refused, each by its field. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model/config.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_quantization(void);

#define CT(format, weights)                                                                                            \
  "\"quant_method\":\"compressed-tensors\",\"format\":\"" format "\",\"config_groups\":{" weights "}"
#define GROUP(name, weights) "\"" name "\":{\"targets\":[\"Linear\"],\"weights\":{" weights "}}"
#define GPTQ "\"quant_method\":\"gptq\",\"bits\":4"
#define AWQ "\"quant_method\":\"awq\",\"bits\":4"

static tri_status parse(const char *dtype, const char *quantization, tri_stored *out, tri_error *err) {
  static tri_model_config c;
  char json[3000];
  tri_error_clear(err);
  snprintf(json, sizeof json,
           "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
           "\"vocab_size\":5,%s\"quantization_config\":%s%s%s}",
           dtype, quantization[0] == '"' ? "{" : "", quantization, quantization[0] == '"' ? "}" : "");
  tri_status st = tri_model_config_parse(json, strlen(json), NULL, 0, (tri_config_rules){0}, &c, err);
  *out = c.stored;
  return st;
}

/* The schemes as text: "8f 128x128" are FP8 numbers, 0 is the matrix's own size; '-' in front: zero points less one. */
static void write_schemes(const tri_stored *s, char *out, size_t size) {
  size_t n = (size_t)snprintf(out, size, "%s", s->zeros_less_one ? "- " : "");
  for (int i = 0; i < s->num_schemes; i++)
    n += (size_t)snprintf(out + n, size - n, "%s%d%s %dx%d", i ? ", " : "", s->schemes[i].bits,
                          s->schemes[i].is_float ? "f" : "", (int)s->schemes[i].rows, (int)s->schemes[i].cols);
}

START_TEST(what_is_read) {
  static const struct {
    const char *json;
    tri_stored_method method;
    const char *schemes;
  } cases[] = {
      {"null", TRI_STORED_PLAIN, ""},
      {"\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[128,128],\"activation_scheme\":\"dynamic\"",
       TRI_STORED_FP8, "8f 128x128"},
      {"\"quant_method\":\"fp8\",\"activation_scheme\":\"static\",\"ignored_layers\":[\"lm_head\"]", TRI_STORED_FP8,
       "8f 0x0, 8f 1x0"},
      {"\"quant_method\":\"fbgemm_fp8\",\"activation_scale_ub\":1200.0", TRI_STORED_FP8, "8f 1x0"},
      {"\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\",\"ignore\":[\"lm_head\"]", TRI_STORED_FP8, "8f 0x0"},
      {"\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\"", TRI_STORED_FP8, "8f 1x0"},
      {"\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8_PB_WO\"", TRI_STORED_FP8, "8f 128x128"},
      {"\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":[\"lm_head\"]", TRI_STORED_MXFP4, "4f 1x32"},
      {CT("float-quantized", GROUP("a", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"tensor\"")),
       TRI_STORED_COMPRESSED, "8f 0x0"},
      {CT("float-quantized",
          GROUP("a", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\",\"block_structure\":[128,128]")),
       TRI_STORED_COMPRESSED, "8f 128x128"},
      {CT("pack-quantized",
          GROUP("a", "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":128") "," GROUP(
              "b", "\"num_bits\":8,\"type\":\"int\",\"strategy\":\"channel\"")),
       TRI_STORED_COMPRESSED, "4 1x128, 8 1x0"},
      {GPTQ ",\"group_size\":128,\"desc_act\":true", TRI_STORED_GPTQ, "- 4 1x128"},
      {GPTQ ",\"group_size\":-1,\"checkpoint_format\":\"gptq\"", TRI_STORED_GPTQ, "- 4 1x0"},
      {GPTQ ",\"group_size\":32,\"checkpoint_format\":\"gptq_v2\"", TRI_STORED_GPTQ, "4 1x32"},
      {GPTQ ",\"group_size\":32,\"dynamic\":{\"-:.*lm_head\":{},\"+:.*down.*\":{\"bits\":8,\"group_size\":64}}",
       TRI_STORED_GPTQ, "- 4 1x32, 8 1x64"},
      {AWQ ",\"group_size\":64,\"version\":\"gemm\",\"zero_point\":true", TRI_STORED_AWQ, "4 1x64"},
      {"\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":128,\"version\":\"GEMM\"", TRI_STORED_AWQ, "4 1x128"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_stored s;
    char schemes[400];
    ck_assert_msg(parse("", cases[i].json, &s, &err) == TRI_OK, "case %zu: %s", i, err.message);
    write_schemes(&s, schemes, sizeof schemes);
    ck_assert_int_eq((int)s.method, (int)cases[i].method);
    ck_assert_str_eq(schemes, cases[i].schemes);
    ck_assert_int_eq((int)s.widened, TRI_BF16);
  }
}
END_TEST

START_TEST(what_is_refused) {
  static const struct {
    const char *json, *field;
    tri_status status;
  } cases[] = {
      {"{}", "quantization_config", TRI_UNSUPPORTED},
      {"[]", "quantization_config", TRI_UNSUPPORTED},
      {"\"quant_method\":3", "quantization_config", TRI_UNSUPPORTED},
      {"\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"", "quant_algo", TRI_UNSUPPORTED},
      {"\"quant_method\":\"modelopt\"", "quant_algo", TRI_UNSUPPORTED},
      {"\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"", "fmt", TRI_UNSUPPORTED},
      {"\"quant_method\":\"fp8\",\"weight_block_size\":[128]", "weight_block_size", TRI_INVALID_ARGUMENT},
      {"\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]", "weight_block_size", TRI_INVALID_ARGUMENT},
      {"\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":128", "bits", TRI_UNSUPPORTED},
      {"\"quant_method\":\"gptq\",\"bits\":\"4\"", "bits", TRI_INVALID_ARGUMENT},
      {GPTQ ",\"group_size\":0", "group_size", TRI_UNSUPPORTED},
      {GPTQ ",\"group_size\":-2", "group_size", TRI_UNSUPPORTED},
      {GPTQ ",\"checkpoint_format\":\"marlin\"", "checkpoint_format", TRI_UNSUPPORTED},
      {GPTQ ",\"is_marlin_format\":true", "is_marlin_format", TRI_UNSUPPORTED},
      {GPTQ ",\"pack_dtype\":\"int16\"", "pack_dtype", TRI_UNSUPPORTED},
      {GPTQ ",\"dynamic\":{\"+:.*\":{\"bits\":2}}", "bits", TRI_UNSUPPORTED},
      {"\"quant_method\":\"awq\",\"bits\":8", "bits", TRI_UNSUPPORTED},
      {AWQ ",\"version\":\"gemv\"", "version", TRI_UNSUPPORTED},
      {CT("nvfp4-pack-quantized", GROUP("a", "\"num_bits\":4,\"type\":\"float\"")), "format", TRI_UNSUPPORTED},
      {CT("marlin-24", GROUP("a", "\"num_bits\":4")), "format", TRI_UNSUPPORTED},
      {CT("float-quantized", GROUP("a", "\"num_bits\":4,\"type\":\"float\"")), "num_bits", TRI_UNSUPPORTED},
      {CT("pack-quantized", GROUP("a", "\"num_bits\":3,\"type\":\"int\"")), "num_bits", TRI_UNSUPPORTED},
      {CT("pack-quantized", GROUP("a", "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"token\"")), "strategy",
       TRI_UNSUPPORTED},
      {CT("float-quantized", GROUP("a", "\"num_bits\":8,\"type\":\"float\",\"strategy\":\"block\"")), "block_structure",
       TRI_INVALID_ARGUMENT},
      {CT("pack-quantized", "") ",\"quantization_status\":\"compressed\"", "config_groups", TRI_UNSUPPORTED},
      {CT("pack-quantized", GROUP("a", "\"num_bits\":4,\"type\":\"int\"")) ",\"quantization_status\":\"calibration\"",
       "quantization_status", TRI_UNSUPPORTED},
      {CT("pack-quantized", GROUP("a", "\"num_bits\":4")) ",\"sparsity_config\":{\"format\":\"sparse-24-bitmask\"}",
       "sparsity_config", TRI_UNSUPPORTED},
      {CT("pack-quantized", GROUP("a", "\"num_bits\":4")) ",\"transform_config\":{\"config_groups\":{\"r\":{}}}",
       "transform_config", TRI_UNSUPPORTED},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_stored s;
    tri_status st = parse("", cases[i].json, &s, &err);
    ck_assert_msg(st == cases[i].status && !strcmp(err.field, cases[i].field), "case %zu: %d, %s: %s", i, (int)st,
                  err.field, err.message);
  }
}
END_TEST

START_TEST(more_schemes_than_there_is_room_for) {
  char json[3000];
  tri_error err = {0};
  tri_stored s;
  size_t n = (size_t)snprintf(json, sizeof json, GPTQ ",\"dynamic\":{");
  for (int i = 0; i < TRI_MAX_SCHEMES; i++)
    n += (size_t)snprintf(json + n, sizeof json - n, "%s\"+:%d\":{\"group_size\":32}", i ? "," : "", i);
  snprintf(json + n, sizeof json - n, "}");
  ck_assert_int_eq(parse("", json, &s, &err), TRI_TOO_LARGE);
}
END_TEST

START_TEST(the_type_of_widened_weights) {
  tri_error err = {0};
  tri_stored s;
  ck_assert_int_eq(parse("\"dtype\":\"float16\",", AWQ, &s, &err), TRI_OK);
  ck_assert_int_eq((int)s.widened, TRI_F16);
  ck_assert_int_eq(parse("\"torch_dtype\":\"bfloat16\",", AWQ, &s, &err), TRI_OK);
  ck_assert_int_eq((int)s.widened, TRI_BF16);
  ck_assert_int_eq(parse("\"dtype\":\"float32\",", AWQ, &s, &err), TRI_OK);
  ck_assert_int_eq((int)s.widened, TRI_BF16);
}
END_TEST

START_TEST(what_auto_means) {
  tri_error err = {0};
  tri_stored fp8, gptq, plain;
  ck_assert_int_eq(parse("", "\"quant_method\":\"fp8\"", &fp8, &err), TRI_OK);
  ck_assert_int_eq(parse("", GPTQ, &gptq, &err), TRI_OK);
  ck_assert_int_eq(parse("", "null", &plain, &err), TRI_OK);
  ck_assert_int_eq((int)tri_stored_quantization(&fp8, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_FP8);
  ck_assert_int_eq((int)tri_stored_quantization(&fp8, TRI_QUANTIZE_AUTO, false), TRI_QUANTIZE_NONE);
  ck_assert_int_eq((int)tri_stored_quantization(&gptq, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_NONE);
  ck_assert_int_eq((int)tri_stored_quantization(&plain, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_NONE);
  for (int q = 0; q < TRI_QUANTIZE_AUTO; q++)
    ck_assert_int_eq((int)tri_stored_quantization(&fp8, (tri_quantization)q, q != TRI_QUANTIZE_FP8), q);
}
END_TEST

/* Q8_0 stays where all other tensors are numbers, and the backend takes narrow blocks. */
START_TEST(what_auto_means_for_blocks) {
  const uint64_t f32 = 1 << TRI_GGUF_BLOCK_F32, f16 = 1 << TRI_GGUF_BLOCK_F16, q8_0 = 1 << TRI_GGUF_BLOCK_Q8_0,
                 q6_k = 1 << TRI_GGUF_BLOCK_Q6_K;
  tri_stored s = {.method = TRI_STORED_GGUF, .blocks = f32 | f16 | q8_0};
  ck_assert_int_eq((int)tri_stored_quantization(&s, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_INT8);
  ck_assert_int_eq((int)tri_stored_quantization(&s, TRI_QUANTIZE_NONE, true), TRI_QUANTIZE_NONE);
  s.wide_blocks_only = true;
  ck_assert_int_eq((int)tri_stored_quantization(&s, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_NONE);
  s = (tri_stored){.method = TRI_STORED_GGUF, .blocks = f32 | q8_0 | q6_k};
  ck_assert_int_eq((int)tri_stored_quantization(&s, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_NONE);
  s.blocks = f32 | f16;
  ck_assert_int_eq((int)tri_stored_quantization(&s, TRI_QUANTIZE_AUTO, true), TRI_QUANTIZE_NONE);
}
END_TEST

/* A backend that takes wide blocks alone is told which others there are. */
START_TEST(blocks_that_are_widened) {
  static const struct {
    const char *fields;
    bool widened;
  } cases[] = {{"\"quant_method\":\"fp8\",\"weight_block_size\":[32,48]", true},
               {"\"quant_method\":\"fp8\",\"weight_block_size\":[32,128]", false},
               {"\"quant_method\":\"fp8\"", false},
               {"\"quant_method\":\"fbgemm_fp8\"", false},
               {GPTQ ",\"group_size\":64", false}};
  tri_error err = {0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_stored s;
    ck_assert_int_eq(parse("", cases[i].fields, &s, &err), TRI_OK);
    ck_assert(!tri_stored_widens_blocks(&s));
    s.wide_blocks_only = true;
    ck_assert_int_eq(tri_stored_widens_blocks(&s), cases[i].widened);
  }
}
END_TEST

static void write_file(const char *folder, const char *name, const char *text) {
  char path[2 * SCRATCH_BYTES];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "w");
  ck_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

/* ModelOpt's own file counts where config.json says nothing of it. */
START_TEST(a_file_of_modelopt) {
  static const char file
      [] = "hf_quant_config.json",
  start[] =
      "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,\"vocab_size\":5";
  static tri_model_config c;
  tri_error err = {0};
  char folder[SCRATCH_BYTES], json[300];
  scratch_make(folder);
  snprintf(json, sizeof json, "%s}", start);
  write_file(folder, "config.json", json);
  write_file(folder, file, "{\"quantization\":{\"quant_algo\":\"FP8_PB_WO\",\"kv_cache_quant_algo\":\"FP8\"}}");
  ck_assert_int_eq(tri_model_config_load(folder, (tri_config_rules){0}, &c, &err), TRI_OK);
  ck_assert(c.stored.method == TRI_STORED_FP8 && tri_stored_has_fp8(&c.stored) && c.stored.has_kv_scales);
  ck_assert(c.stored.num_schemes == 1 && c.stored.schemes[0].rows == 128 && c.stored.schemes[0].cols == 128);
  for (int i = 0; i < 3; i++) {
    static const char *const texts[] = {"[]", "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}", "{"};
    write_file(folder, file, texts[i]);
    ck_assert_int_ne(tri_model_config_load(folder, (tri_config_rules){0}, &c, &err), TRI_OK);
    ck_assert_msg(strstr(err.message, file) != NULL || !strcmp(err.field, file), "%s: %s", err.field, err.message);
    tri_error_clear(&err);
  }
  write_file(folder, file, "{\"quantization\":{\"quant_algo\":null,\"kv_cache_quant_algo\":\"FP8\"}}");
  ck_assert_int_eq(tri_model_config_load(folder, (tri_config_rules){0}, &c, &err), TRI_OK);
  ck_assert(c.stored.method == TRI_STORED_PLAIN && c.stored.has_kv_scales);
  write_file(folder, file, "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}");
  snprintf(json, sizeof json, "%s,\"quantization_config\":{\"quant_method\":\"fbgemm_fp8\"}}", start);
  write_file(folder, "config.json", json);
  ck_assert_int_eq(tri_model_config_load(folder, (tri_config_rules){0}, &c, &err), TRI_OK);
  ck_assert(c.stored.schemes[0].rows == 1 && !c.stored.has_kv_scales);
  scratch_remove(folder);
}
END_TEST

START_TEST(words_for_people) {
  tri_error err = {0};
  tri_stored s;
  char text[TRI_STORED_TEXT];
  ck_assert_int_eq(parse("", "\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]", &s, &err), TRI_OK);
  ck_assert_str_eq(tri_stored_text(&s, text), "FP8 (a scale for 128 x 128 weights)");
  ck_assert_int_eq(parse("", GPTQ ",\"group_size\":-1", &s, &err), TRI_OK);
  ck_assert_str_eq(tri_stored_text(&s, text), "GPTQ (integers of 4 bits, a scale for each row)");
}
END_TEST

Suite *suite_quantization(void) {
  Suite *s = suite_create("quantization");
  TCase *c = tcase_create("config");
  tcase_add_test(c, what_is_read);
  tcase_add_test(c, what_is_refused);
  tcase_add_test(c, more_schemes_than_there_is_room_for);
  tcase_add_test(c, the_type_of_widened_weights);
  tcase_add_test(c, what_auto_means);
  tcase_add_test(c, what_auto_means_for_blocks);
  tcase_add_test(c, blocks_that_are_widened);
  tcase_add_test(c, a_file_of_modelopt);
  tcase_add_test(c, words_for_people);
  suite_add_tcase(s, c);
  return s;
}
