/* SPDX-License-Identifier: Apache-2.0 */
/* Other servers' words for options: each is an option of ours or is refused, and none hides one of ours. */
#include <check.h>
#include <string.h>

#include "coordinator/up/up.h"

Suite *suite_up_option_aliases(void);

static bool is_named(const tri_option *o, const char *name) {
  return !strcmp(o->name, name) || (o->alias && !strcmp(o->alias, name));
}

static bool is_ours(const char *name) {
  for (size_t i = 0; i < tri_serve_option_count; i++)
    if (is_named(&tri_serve_option_table[i], name)) return true;
  for (size_t i = 0; i < tri_gateway_option_count; i++)
    if (is_named(&tri_gateway_option_table[i], name)) return true;
  return false;
}

START_TEST(words) {
  static char seen[1024][64];
  size_t count = 0;
  for (size_t i = 0; i < tri_up_num_words; i++) {
    const tri_option_word *w = &tri_up_words[i];
    char all[512], *save = NULL;
    ck_assert_msg(!!w->option + !!w->why + !!w->instead <= 1, "%s: an option, a refusal or a warning", w->words);
    ck_assert_msg(!w->values || w->instead, "%s: nothing says what becomes of its value", w->words);
    ck_assert_msg(!w->option || is_ours(w->option), "%s: there is no option %s", w->words, w->option);
    snprintf(all, sizeof all, "%s", w->words);
    ck_assert_str_eq(all, w->words);
    for (char *word = strtok_r(all, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
      ck_assert_msg(!is_ours(word), "%s is an option of ours", word);
      for (size_t k = 0; k < count; k++) ck_assert_msg(strcmp(seen[k], word), "%s is there twice", word);
      ck_assert(count < sizeof seen / sizeof *seen);
      snprintf(seen[count++], sizeof seen[0], "%s", word);
    }
  }
  ck_assert(count > 100);
}
END_TEST

/* The options that a refusal names are there. */
START_TEST(refusals) {
  static const char *const own[] = {"launcher", "hosts"};
  for (size_t i = 0; i < tri_up_num_words; i++) {
    const char *text = tri_up_words[i].why ? tri_up_words[i].why : tri_up_words[i].instead;
    for (const char *at = text; at && (at = strstr(at, "--")); at += 2) {
      char name[64];
      snprintf(name, sizeof name, "%.*s", (int)strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-"), at + 2);
      bool found = is_ours(name) || (!strncmp(name, "no-", 3) && is_ours(name + 3));
      for (size_t k = 0; k < sizeof own / sizeof *own; k++) found |= !strcmp(own[k], name);
      ck_assert_msg(found, "%s names --%s, which is not there", tri_up_words[i].words, name);
    }
  }
}
END_TEST

/* The command lines that people paste. */
START_TEST(pasted_lines) {
  static const char *const lines[] = {
      "trireme-serve DIR --trust-remote-code --enforce-eager --swap-space 16 --disable-log-requests",
      "trireme-serve DIR --gpu-memory-utilization 0.95 --max-model-len 8192 --max-num-seqs 64 --dtype bfloat16",
      "trireme-serve --model DIR --host 0.0.0.0 --port 8000 --served-model-name a b --tensor-parallel-size 1 "
      "--distributed-executor-backend mp --enable-auto-tool-choice --tool-call-parser hermes",
      "trireme-serve DIR --enable-prefix-caching --enable-chunked-prefill --num-scheduler-steps 8 --block-size 16 "
      "--cuda-graph-sizes 1 2 4 8 --no-enable-log-requests --uvicorn-log-level warning",
      "trireme-serve DIR --task generate --runner=generate --guided-decoding-backend xgrammar --max-logprobs 20 "
      "--download-dir /models --hf-token x --seed 0 -O3",
      "trireme-serve -m DIR -c 4096 -np 4 -fa on --mlock --no-mmap -t 1 -tb 8 --numa distribute --no-webui",
  };
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    static tri_up u;
    char text[512], *save = NULL, *argv[64];
    int argc = 0;
    tri_options *opts = NULL;
    memset(&u, 0, sizeof u);
    snprintf(text, sizeof text, "%s", lines[i]);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) argv[argc++] = w;
    ck_assert_msg(tri_up_options_read(&u, argc, argv, &opts) == -1, "%s", lines[i]);
    ck_assert_int_eq(tri_options_num_args(opts) + (u.opts.serve.model != NULL), 1);
    tri_options_free(opts);
  }
}
END_TEST

Suite *suite_up_option_aliases(void) {
  Suite *s = suite_create("up_option_aliases");
  TCase *c = tcase_create("up_option_aliases");
  tcase_add_test(c, words);
  tcase_add_test(c, refusals);
  tcase_add_test(c, pasted_lines);
  suite_add_tcase(s, c);
  return s;
}
