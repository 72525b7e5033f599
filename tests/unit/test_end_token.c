/* SPDX-License-Identifier: Apache-2.0 */
/* The end-of-sequence token that tokenizer_config.json names: where its id is found, and that others stay. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/served_model.h"
#include "base/log.h"
#include "runtime/model/config.h"

Suite *suite_end_token(void);

#define FOLDER TRI_TEST_SCRATCH "/end_token"
#define CONFIG(more) "{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":4,\"n_head\":8,\"vocab_size\":509" more "}"

/* Files of a folder; NULL: it is not there. ids: those that end an answer. */
static const struct folder {
  const char *config, *generation, *tokenizer_config, *tokenizer;
  int num;
  uint32_t ids[3];
} folders[] = {
    {CONFIG(""), NULL, NULL, NULL, 0, {0}},
    {CONFIG(",\"eos_token_id\":7"), NULL, NULL, NULL, 1, {7}},
    {CONFIG(",\"eos_token_id\":7"), NULL, "{\"eos_token\":null}", NULL, 1, {7}},
    /* the id stands in tokenizer_config.json itself, */
    {CONFIG(",\"eos_token_id\":7"),
     NULL,
     "{\"added_tokens_decoder\":{\"8\":{\"content\":\"<a>\"},\"9\":{\"content\":\"<e>\"}},\"eos_token\":\"<e>\","
     "\"model_max_length\":1000000000000000019884624838656}",
     "{",
     2,
     {7, 9}},
    {CONFIG(",\"eos_token_id\":9"),
     NULL,
     "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<e>\"}},\"eos_token\":{\"content\":\"<e>\"}}",
     NULL,
     1,
     {9}},
    {CONFIG(""),
     "{\"eos_token_id\":[5,6]}",
     "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<e>\"}},\"eos_token\":\"<e>\"}",
     NULL,
     3,
     {5, 6, 9}},
    /* or in tokenizer.json: among the added tokens, or in the vocabulary of a model */
    {CONFIG(""),
     NULL,
     "{\"eos_token\":\"<e>\"}",
     "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":3,\"content\":\"<a>\"},{\"id\":4,\"content\":\"<e>\"}],\"model\":{"
     "}}",
     1,
     {4}},
    {CONFIG(""),
     NULL,
     "{\"eos_token\":\"<e>\"}",
     "{\"added_tokens\":[],\"model\":{\"type\":\"BPE\",\"vocab\":{\"<e>\":0,\"a\":1}}}",
     1,
     {0}},
    {CONFIG(""),
     NULL,
     "{\"eos_token\":\"</s>\"}",
     "{\"model\":{\"vocab\":[[\"<pad>\",0.0],[\"</s>\",0.0]]},\"added_tokens\":[{\"id\":0,\"content\":\"<pad>\"}]}",
     1,
     {1}},
    /* <|end|> ends an answer, but of channels a message */
    {CONFIG(""),
     NULL,
     "{\"eos_token\":\"<|end|>\"}",
     "{\"added_tokens\":[{\"id\":4,\"content\":\"<|end|>\"}]}",
     1,
     {4}},
    {CONFIG(""),
     "{\"eos_token_id\":6}",
     "{\"eos_token\":\"<|end|>\"}",
     "{\"added_tokens\":[{\"id\":4,\"content\":\"<|end|>\"},{\"id\":5,\"content\":\"<|channel|>\"}]}",
     1,
     {6}},
    {CONFIG(""),
     NULL,
     "{\"eos_token\":\"<|return|>\"}",
     "{\"added_tokens\":[{\"id\":4,\"content\":\"<|return|>\"},{\"id\":5,\"content\":\"<|channel|>\"}]}",
     1,
     {4}},
    /* a token that there is not, or that the model cannot generate; files that cannot be read */
    {CONFIG(",\"eos_token_id\":7"),
     NULL,
     "{\"eos_token\":\"<x>\"}",
     "{\"added_tokens\":[{\"id\":4,\"content\":\"<e>\"}]}",
     1,
     {7}},
    {CONFIG(""), NULL, "{\"eos_token\":\"<e>\"}", "{\"added_tokens\":[{\"id\":509,\"content\":\"<e>\"}]}", 0, {0}},
    {CONFIG(",\"eos_token_id\":7"), NULL, "{\"eos_token\":", "{}", 1, {7}},
    {CONFIG(",\"eos_token_id\":7"), NULL, "{\"eos_token\":\"<e>\"}", "[1, {", 1, {7}},
};

static void put(const char *name, const char *text) {
  char path[512];
  snprintf(path, sizeof path, FOLDER "/%s", name);
  unlink(path);
  if (!text) return;
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  ck_assert_int_eq(fclose(f), 0);
}

START_TEST(of_any_file) {
  const struct folder *f = &folders[_i];
  tri_model_config c;
  tri_error err = {0};
  ck_assert(!mkdir(FOLDER, 0755) || errno == EEXIST);
  put("config.json", f->config);
  put("generation_config.json", f->generation);
  put("tokenizer_config.json", f->tokenizer_config);
  put("tokenizer.json", f->tokenizer);
  ck_assert_msg(tri_model_config_load(FOLDER, (tri_config_rules){0}, &c, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(c.num_eos_token_ids, f->num);
  for (int i = 0; i < f->num; i++) ck_assert_uint_eq(c.eos_token_ids[i], f->ids[i]);
}
END_TEST

/* A start of a model whose answers nothing ends is told. */
START_TEST(a_start_without_one) {
  static const char log[] = FOLDER "/log";
  for (int with = 0; with < 2; with++) {
    tri_serve_options o = {.model = FOLDER};
    tri_served_model m = {.max_prompt = 0};
    tri_error err = {0};
    char text[4096] = "";
    ck_assert(!mkdir(FOLDER, 0755) || errno == EEXIST);
    put("config.json", with ? CONFIG(",\"eos_token_id\":7") : CONFIG(""));
    put("tokenizer_config.json", NULL);
    put("tokenizer.json", NULL);
    fflush(stderr);
    int saved = dup(2), fd = open(log, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert(saved >= 0 && fd >= 0 && dup2(fd, 2) == 2);
    tri_log_setup(TRI_LOG_WARN, "coordinator");
    tri_status st = tri_served_model_open(&o, &m, &err);
    fflush(stderr);
    ck_assert(dup2(saved, 2) == 2 && lseek(fd, 0, SEEK_SET) == 0);
    ck_assert(read(fd, text, sizeof text - 1) >= 0);
    close(saved);
    close(fd);
    ck_assert_msg(st == TRI_OK, "%s", err.message);
    ck_assert_msg((strstr(text, "names no end-of-sequence token") != NULL) == !with, "%s", text);
    tri_served_model_close(&m);
  }
}
END_TEST

Suite *suite_end_token(void) {
  Suite *s = suite_create("end_token");
  TCase *c = tcase_create("files");
  tcase_add_loop_test(c, of_any_file, 0, sizeof folders / sizeof *folders);
  tcase_add_test(c, a_start_without_one);
  suite_add_tcase(s, c);
  return s;
}
