/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that hold something else than a model that can be served: the message names it and the way out. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/config.h"
#include "runtime/model/folder.h"
#include "runtime/model/safetensors.h"

Suite *suite_folder(void);

static const char dir[] = TRI_TEST_SCRATCH "/folder";

static void put(const char *name, const char *text) {
  char path[4096];
  mkdir(dir, 0700);
  snprintf(path, sizeof path, "%s/%s", dir, name);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

static void take_away(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", dir, name);
  unlink(path);
}

static void expect(tri_status st, const tri_error *err, const char *words, const char *more) {
  ck_assert_msg(st == TRI_UNSUPPORTED, "%s: %s", tri_status_text(st), err->message);
  ck_assert_msg(strstr(err->message, words) && strstr(err->message, more), "%s", err->message);
  ck_assert_uint_lt(strlen(err->message), TRI_ERROR_MESSAGE - 1); /* nothing was cut off */
}

START_TEST(test_adapter) {
  tri_model_config c;
  tri_error err = {0};
  put("adapter_config.json", "{\"base_model_name_or_path\":\"meta-llama/Llama-3.1-8B\",\"peft_type\":\"LORA\"}");
  expect(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err), &err, "adapter (LoRA) of meta-llama/Llama-3.1-8B",
         "merge_and_unload");
  put("adapter_config.json", "not JSON");
  put("config.json", "{}"); /* of the model below it, perhaps */
  err = (tri_error){0};
  expect(tri_model_config_load(dir, (tri_config_rules){0}, &c, &err), &err, "adapter (LoRA) of another model",
         "merge_and_unload");
  take_away("adapter_config.json");
  take_away("config.json");
}
END_TEST

START_TEST(test_gguf) {
  tri_model_config c;
  tri_checkpoint *ckpt;
  tri_error err = {0};
  char path[4096];
  put("llama-q4_k_m.gguf", "GGUF");
  put("config.json", "{}");
  expect(tri_checkpoint_open(dir, &ckpt, &err), &err, "a GGUF file", "/llama-q4_k_m.gguf");
  take_away("config.json");
  take_away("llama-q4_k_m.gguf");
  put("model.bin", "");
  err = (tri_error){0};
  snprintf(path, sizeof path, "%s/model.bin", dir);
  expect(tri_model_config_load(path, (tri_config_rules){0}, &c, &err), &err, "is a file", "folder");
  take_away("model.bin");
}
END_TEST

START_TEST(test_other_weights) {
  static const struct {
    const char *file, *words;
  } cases[] = {{"pytorch_model.bin", "weights in pytorch_model.bin, PyTorch's pickle"},
               {"pytorch_model-00001-of-00002.bin", "PyTorch's pickle"},
               {"consolidated.00.pth", "PyTorch's pickle"},
               {"tf_model.h5", "TensorFlow"},
               {"flax_model.msgpack", "Flax"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_checkpoint *ckpt;
    tri_error err = {0};
    put(cases[i].file, "");
    expect(tri_checkpoint_open(dir, &ckpt, &err), &err, cases[i].words, "save_pretrained");
    ck_assert(!tri_folder_is_bare(dir));
    take_away(cases[i].file);
  }
  tri_checkpoint *ckpt;
  tri_error err = {0};
  put("README.md", "");
  ck_assert(tri_folder_is_bare(dir));
  put("model-00001-of-00002.safetensors", ""); /* of a download that broke off */
  ck_assert(!tri_folder_is_bare(dir));
  take_away("model-00001-of-00002.safetensors");
  ck_assert_int_eq(tri_checkpoint_open(dir, &ckpt, &err), TRI_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "neither model.safetensors"));
  err = (tri_error){0};
  ck_assert_int_eq(tri_checkpoint_open(TRI_TEST_SCRATCH "/nowhere", &ckpt, &err), TRI_NOT_FOUND);
}
END_TEST

START_TEST(test_quantized) {
  static const struct {
    const char *key, *method, *way;
  } cases[] = {{"quantization_config", "bitsandbytes", ".dequantize()"},
               {"compression_config", "bitsandbytes", ".dequantize()"},
               {"quantization_config", "hqq", "bfloat16 one"},
               {"quantization_config", "a method to come",
                "fp8, fbgemm_fp8, modelopt, mxfp4, compressed-tensors, gptq and awq"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char json[500];
    tri_model_config c;
    tri_error err = {0};
    snprintf(json, sizeof json,
             "{\"model_type\":\"llama\",\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
             "\"vocab_size\":5,\"%s\":{\"quant_method\":\"%s\",\"bits\":4}}",
             cases[i].key, cases[i].method);
    expect(tri_model_config_parse(json, strlen(json), NULL, 0, (tri_config_rules){0}, &c, &err), &err, cases[i].method,
           cases[i].way);
    ck_assert_str_eq(err.field, cases[i].key);
  }
}
END_TEST

START_TEST(test_tokenizers) {
  static const char *const names[] = {"vocab.json", "vocab.txt"};
  put("README.md", "");
  ck_assert_ptr_null(tri_folder_other_tokenizer(dir));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    put(names[i], "");
    ck_assert_str_eq(tri_folder_other_tokenizer(dir), names[i]);
    take_away(names[i]);
  }
}
END_TEST

Suite *suite_folder(void) {
  Suite *suite = suite_create("folder");
  TCase *t = tcase_create("folder");
  tcase_add_test(t, test_adapter);
  tcase_add_test(t, test_gguf);
  tcase_add_test(t, test_other_weights);
  tcase_add_test(t, test_quantized);
  tcase_add_test(t, test_tokenizers);
  suite_add_tcase(suite, t);
  return suite;
}
