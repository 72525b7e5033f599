/* SPDX-License-Identifier: Apache-2.0 */
/* Other servers' words for options: each is an option of ours or is refused, and none hides one of ours. */
#include <check.h>
#include <string.h>

#include "coordinator/up/up.h"

Suite *suite_up_words(void);

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
  static char seen[512][64];
  size_t count = 0;
  for (size_t i = 0; i < tri_up_num_words; i++) {
    const tri_option_word *w = &tri_up_words[i];
    char all[512], *save = NULL;
    ck_assert_msg(!w->option || !w->why, "%s: an option and a refusal", w->words);
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
    for (const char *at = tri_up_words[i].why; at && (at = strstr(at, "--")); at += 2) {
      char name[64];
      snprintf(name, sizeof name, "%.*s", (int)strspn(at + 2, "abcdefghijklmnopqrstuvwxyz-"), at + 2);
      bool found = is_ours(name) || (!strncmp(name, "no-", 3) && is_ours(name + 3));
      for (size_t k = 0; k < sizeof own / sizeof *own; k++) found |= !strcmp(own[k], name);
      ck_assert_msg(found, "%s names --%s, which is not there", tri_up_words[i].words, name);
    }
  }
}
END_TEST

Suite *suite_up_words(void) {
  Suite *s = suite_create("up_words");
  TCase *c = tcase_create("up_words");
  tcase_add_test(c, words);
  tcase_add_test(c, refusals);
  suite_add_tcase(s, c);
  return s;
}
