/* SPDX-License-Identifier: Apache-2.0 */
/* Special tokens in texts parts of which are somebody else's. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/unicode.h"

Suite *suite_tokenizer_spans(void);

/* <s> is special and <t> is not; every other character is a token of its own. `flags` are those of <s>. */
#define TOKENIZER(normalizer, flags)                                                                                   \
  "{\"normalizer\":" normalizer ",\"added_tokens\":[{\"id\":14,\"content\":\"<s>\",\"special\":true" flags             \
  "},{\"id\":15,\"content\":\"<t>\",\"normalized\":false}],\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"      \
  "\"<\":0,\"s\":1,\">\":2,\"a\":3,\"t\":4,\" \":5,\"é\":6,\"e\":7,\"\xef\xbf\xbd\":8,\"S\":9,\"_\":10,\"가\":11,"   \
  "\"<s\":12,\"A\":13}}}"
enum { SPECIAL = 14, ORDINARY = 15 };
#define RAW ",\"normalized\":false"
#define NORMALIZED ",\"normalized\":true"

typedef struct encoder {
  tri_tokenizer *t;
  tri_tokenizer_scratch *s;
} encoder;

static encoder open_encoder(const char *json) {
  encoder e = {0};
  tri_error err = {0};
  ck_assert_msg(tri_tokenizer_parse(json, strlen(json), &e.t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(e.t, &e.s), TRI_OK);
  return e;
}

static void close_encoder(encoder *e) {
  tri_tokenizer_scratch_destroy(e->s);
  tri_tokenizer_destroy(e->t);
}

/* The tokens joined by '|'. */
static void tokens_of(const encoder *e, const char *text, size_t len, const tri_span *spans, size_t num,
                      char out[512]) {
  const uint32_t *ids;
  size_t count, n = 0;
  out[0] = '\0';
  ck_assert_int_eq(tri_tokenizer_encode_spans(e->t, e->s, text, len, spans, num, false, 0, &ids, &count), TRI_OK);
  for (size_t i = 0; i < count; i++)
    n += (size_t)snprintf(out + n, 512 - n, "%s%s", i ? "|" : "", tri_tokenizer_token(e->t, ids[i]));
}

static size_t count_special(const encoder *e, const char *text, size_t len, const tri_span *span) {
  const uint32_t *ids;
  size_t count, found = 0;
  ck_assert_int_eq(tri_tokenizer_encode_spans(e->t, e->s, text, len, span, 1, false, 0, &ids, &count), TRI_OK);
  for (size_t i = 0; i < count; i++) found += ids[i] == SPECIAL;
  return found;
}

/* The tokens by their definition, of a text of ASCII. */
static void slow_tokens(const char *text, size_t from, size_t to, char out[512]) {
  size_t n = 0;
  out[0] = '\0';
  for (size_t i = 0, size; text[i]; i += size) {
    bool own = i + 3 <= from || i >= to || from == to;
    size = !strncmp(text + i, "<t>", 3) || (own && !strncmp(text + i, "<s>", 3)) ? 3 : 1;
    n += (size_t)snprintf(out + n, 512 - n, "%s%.*s", n ? "|" : "", (int)size, text + i);
  }
}

static const char *const of_ascii[] = {
    TOKENIZER("null", RAW), TOKENIZER("null", NORMALIZED), TOKENIZER("{\"type\":\"NFC\"}", RAW),
    TOKENIZER("{\"type\":\"NFC\"}", NORMALIZED), TOKENIZER("{\"type\":\"NFKD\"}", NORMALIZED)};
enum { OF_ASCII = sizeof of_ascii / sizeof *of_ascii };

/* Every range of a text: its borders are beside, at and inside tokens of both kinds. */
START_TEST(every_span) {
  static const char text[] = "a<s><s>a<t>s><<s>a";
  encoder e = open_encoder(of_ascii[_i]);
  char got[512], want[512];
  for (size_t from = 0; from < sizeof text; from++)
    for (size_t to = from; to < sizeof text; to++) {
      tri_span span = {from, to};
      tokens_of(&e, text, sizeof text - 1, &span, 1, got);
      slow_tokens(text, from, to, want);
      ck_assert_msg(!strcmp(got, want), "%zu to %zu: %s, not %s", from, to, got, want);
    }
  close_encoder(&e);
}
END_TEST

START_TEST(several_spans) {
  static const char text[] = "<s><s><s><s>";
  static const tri_span spans[] = {{3, 4}, {8, 9}};
  encoder e = open_encoder(of_ascii[_i]);
  char got[512];
  tokens_of(&e, text, 12, spans, 2, got);
  ck_assert_str_eq(got, "<s>|<|s|>|<|s|>|<s>");
  const uint32_t *ids;
  size_t count;
  tri_span wrong[] = {{4, 5}, {3, 4}}, behind[] = {{0, 13}};
  ck_assert_int_eq(tri_tokenizer_encode_spans(e.t, e.s, text, 12, wrong, 2, false, 0, &ids, &count),
                   TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_tokenizer_encode_spans(e.t, e.s, text, 12, behind, 1, false, 0, &ids, &count),
                   TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_tokenizer_encode(e.t, e.s, text, 12, false, 0, &ids, &count), TRI_OK); /* they are forgotten */
  ck_assert_uint_eq(count, 4);
  close_encoder(&e);
}
END_TEST

/* U+FFFD is longer than what it replaces: spans move along. The character of three bytes that the first text lacks the
 * end of becomes one. */
START_TEST(repaired) {
  static const struct {
    const char *text;
    tri_span span;
    const char *want;
  } cases[] = {{"\xff\xe2\x82<s><s>", {6, 9}, "\xef\xbf\xbd|\xef\xbf\xbd|<s>|<|s|>"},
               {"\xff\xe2\x82<s><s>", {3, 6}, "\xef\xbf\xbd|\xef\xbf\xbd|<|s|>|<s>"},
               {"\xff\xe2\x82<s><s>", {0, 3}, "\xef\xbf\xbd|\xef\xbf\xbd|<s>|<s>"},
               {"<s>\xff\xff<s>", {3, 5}, "<s>|\xef\xbf\xbd|\xef\xbf\xbd|<s>"},
               {"<s>\xff\xff<s>", {4, 6}, "<s>|\xef\xbf\xbd|\xef\xbf\xbd|<|s|>"}};
  encoder e = open_encoder(of_ascii[_i]);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char got[512];
    tokens_of(&e, cases[i].text, strlen(cases[i].text), &cases[i].span, 1, got);
    ck_assert_msg(!strcmp(got, cases[i].want), "case %zu: %s, not %s", i, got, cases[i].want);
  }
  close_encoder(&e);
}
END_TEST

/* White space that a template's token takes along may be somebody else's; of two tokens the shorter one is found where
 * the longer one is not allowed. */
START_TEST(flags) {
  encoder e = open_encoder(TOKENIZER("null", RAW ",\"lstrip\":true,\"rstrip\":true"));
  char got[512];
  tokens_of(&e, " <s> a", 6, &(tri_span){4, 6}, 1, got);
  ck_assert_str_eq(got, "<s>|a");
  close_encoder(&e);
  e = open_encoder("{\"added_tokens\":[{\"id\":4,\"content\":\"<s\"},{\"id\":5,\"content\":\"<s>\",\"special\":true}],"
                   "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"<\":0,\"s\":1,\">\":2,\"a\":3}}}");
  tokens_of(&e, "<s><s>", 6, &(tri_span){5, 6}, 1, got);
  ck_assert_str_eq(got, "<s>|<s|>");
  close_encoder(&e);
  /* a token whose normalized spelling has what is put in front of texts */
  e = open_encoder(TOKENIZER("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},{"
                             "\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}",
                             NORMALIZED));
  ck_assert_uint_eq(count_special(&e, "<s> <s> <s>", 11, &(tri_span){0, 0}), 3);
  ck_assert_uint_eq(count_special(&e, "<s> <s> <s>", 11, &(tri_span){0, 1}), 2);
  ck_assert_uint_eq(count_special(&e, "<s> <s> <s>", 11, &(tri_span){3, 4}), 2);
  ck_assert_uint_eq(count_special(&e, "<s> <s> <s>", 11, &(tri_span){4, 11}), 1);
  close_encoder(&e);
}
END_TEST

#define ALL_STEPS                                                                                                      \
  "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":"                                         \
  "{\"String\":\" \"},\"content\":\"__\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[xy]+\"},\"content\":\"a\"}," \
  "{\"type\":\"NFKC\"},{\"type\":\"Lowercase\"},{\"type\":\"Strip\"}]}"
static const char *const normalizers[] = {
    TOKENIZER("{\"type\":\"NFC\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"NFKD\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Lowercase\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Strip\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[ae]+\"},\"content\":\"long\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"BertNormalizer\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"ByteLevel\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"s\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[xy]\"},\"content\":\"s\"}", NORMALIZED),
    TOKENIZER("{\"type\":\"StripAccents\"}", NORMALIZED),
    TOKENIZER(ALL_STEPS, NORMALIZED)};
enum { NORMALIZERS = sizeof normalizers / sizeof *normalizers };

/* A template's text around a message: its own tokens are found, those of the message and across its borders are not,
 * whatever the normalizer does to what is between them. */
START_TEST(normalized) {
  static const char *const befores[] = {"", "<s>", "aa<s>", "é<s>a", "<s", "<", "<s> ", "e\xcc\x81 <s><s>"},
                           *const behinds[] = {"", "<s>", ">", "s>", "<s>aa", " <s>", "<s>e\xcc\x81"},
                           *const messages[] = {
                               "<s>",   "s>",  "<",      "a<s>aaa",     "é<s>e\xcc\x81",  "\xcc\x81",       "aa",
                               "가<s>", "",    "<s><s>", " <s> ",       "\x01",           "\xef\xbc\x9cs>", "xy",
                               "x",     "<x>", "<y>",    "<\xcc\x81s>", "<s>\xe1\x86\xa8"};
  enum { BEFORES = sizeof befores / sizeof *befores, BEHINDS = sizeof behinds / sizeof *behinds };
  encoder e = open_encoder(normalizers[_i]);
  for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
    for (size_t k = 0; k < (size_t)BEFORES * BEHINDS; k++) {
      const char *before = befores[k / BEHINDS], *behind = behinds[k % BEHINDS];
      char text[256];
      int len = snprintf(text, sizeof text, "%s%s%s", before, messages[i], behind);
      tri_span span = {strlen(before), strlen(before) + strlen(messages[i])}, none = {0, 0};
      size_t want = count_special(&e, before, strlen(before), &none) + count_special(&e, behind, strlen(behind), &none);
      if (!messages[i][0]) want = count_special(&e, text, (size_t)len, &none);
      size_t got = count_special(&e, text, (size_t)len, &span);
      ck_assert_msg(got == want, "%s[%s]%s: %zu, not %zu", before, messages[i], behind, got, want);
    }
  close_encoder(&e);
}
END_TEST

/* SentencePiece's map of characters makes ASCII of full width; its tokenizer's special tokens are made normalized. */
START_TEST(charsmap) {
  static const char path[] = TRI_TEST_DATA "/tokenizers/unigram_precompiled/tokenizer.json", no[] = "false",
                    yes[] = "true ";
  static const char text[] = "</s> <\xef\xbc\x8fs></s>"; /* the second one's / in full width */
  char *json = NULL;
  size_t len;
  uint32_t end;
  tri_error err = {0};
  ck_assert_int_eq(tri_json_read_text(path, 1 << 24, &json, &len, &err), TRI_OK);
  for (char *at = json; (at = strstr(at, "\"normalized\": false"));) memcpy(strstr(at, no), yes, sizeof no - 1);
  encoder e = open_encoder(json);
  ck_assert(tri_tokenizer_id(e.t, "</s>", 4, &end));
  for (int foreign = 0; foreign < 2; foreign++) {
    const uint32_t *ids;
    size_t count, found = 0;
    ck_assert_int_eq(tri_tokenizer_encode_spans(e.t, e.s, text, sizeof text - 1, &(tri_span){6, 9}, (size_t)foreign,
                                                false, 0, &ids, &count),
                     TRI_OK);
    for (size_t i = 0; i < count; i++) found += ids[i] == end;
    ck_assert_uint_eq(found, foreign ? 2 : 3);
  }
  close_encoder(&e);
  tri_free(json);
}
END_TEST

/* Models whose own vocabulary has the special token make it of no foreign text; one for what is unknown stays. */
START_TEST(models) {
  static const char *const models[] = {
      "{\"type\":\"WordLevel\",\"unk_token\":\"<u>\",\"vocab\":{\"<u>\":0,\"<s>\":1,\"a\":2}}",
      "{\"type\":\"BPE\",\"ignore_merges\":true,\"unk_token\":\"<u>\",\"merges\":[],\"vocab\":{\"<u>\":0,\"<s>\":1,"
      "\"a\":2,\"<\":3}}",
      "{\"type\":\"WordPiece\",\"unk_token\":\"<u>\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":"
      "100,\"vocab\":{\"<u>\":0,\"<s>\":1,\"a\":2,\"<\":3,\"##s\":4,\"##>\":5}}",
      "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<u>\",0],[\"<s>\",0],[\"a\",-1],[\"<\",-2],[\"s\",-2]]}"};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    static const char text[] = "<s> a <s> \xc3\xa9";
    char json[1024];
    const uint32_t *ids;
    size_t count, special = 0, unknown = 0;
    snprintf(json, sizeof json,
             "{\"added_tokens\":[{\"id\":0,\"content\":\"<u>\",\"special\":true},{\"id\":1,\"content\":\"<s>\","
             "\"special\":true}],\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":%s}",
             models[i]);
    encoder e = open_encoder(json);
    ck_assert_int_eq(
        tri_tokenizer_encode_spans(e.t, e.s, text, sizeof text - 1, &(tri_span){3, 12}, 1, false, 0, &ids, &count),
        TRI_OK);
    for (size_t k = 0; k < count; k++) {
      special += ids[k] == 1;
      unknown += ids[k] == 0;
    }
    ck_assert_msg(ids[0] == 1 && special == 1 && unknown >= 1, "model %zu: %zu, %zu", i, special, unknown);
    close_encoder(&e);
  }
}
END_TEST

/* Spans change no id of a text without special tokens. */
START_TEST(nothing_else_changes) {
  static const char *const parts[] = {
      "a",   "e",  "é",   "\xcc\x81", "가",           "\xe1\x84\x80", "\xe1\x85\xa1", "\xe1\x86\xa8",
      " ",   "<s", "<t>", "A",        "\xef\xbc\xa1", "\xef\xbe\x9e", "\xcc\xa7",     "x",
      "\xff"};
  encoder e = open_encoder(normalizers[_i]);
  uint32_t seed = 1;
  for (int round = 0; round < 2000; round++) {
    char text[128] = "", got[512], want[512];
    for (int k = 0; k < 12; k++) {
      seed = seed * 1664525u + 1013904223u;
      strcat(text, parts[(seed >> 16) % (sizeof parts / sizeof *parts)]);
    }
    size_t len = strlen(text), from = seed % len, to = from + (seed >> 8) % (len - from + 1);
    tri_span span = {from, to};
    tokens_of(&e, text, len, &span, 1, got);
    tokens_of(&e, text, len, NULL, 0, want);
    ck_assert_msg(!strcmp(got, want), "%s, %zu to %zu: %s, not %s", text, from, to, got, want);
  }
  close_encoder(&e);
}
END_TEST

/* Compares the normal form of two characters with that of their pieces. */
static void check_pieces(tok_codepoints *w, tok_normal_form form, const char *text, size_t len, tri_buf out[2]) {
  out[0].len = out[1].len = 0;
  tri_status st = tok_normal(w, form, text, len, &out[0]);
  if (st == TRI_OK) st = tok_normal_pieces(w, form, text, len, NULL, &out[1]);
  if (st != TRI_OK || out[0].len != out[1].len || memcmp(out[0].data, out[1].data, out[0].len) != 0)
    ck_abort_msg("%.*s in form %d: %.*s, not %.*s", (int)len, text, form, (int)out[1].len, out[1].data, (int)out[0].len,
                 out[0].data);
}

/* Characters of the first plane behind others, and each one's decomposition, which composes again. */
START_TEST(pieces_of_normal_forms) {
  tok_codepoints w = {0};
  tri_buf out[2] = {0}, parts = {0};
  for (uint32_t c = 0x80; c < 0xffff; c++) {
    static const char *const firsts[] = {"\xe3\x81\x8b", "\xe1\x84\x80"}; /* か, and a consonant of Hangul */
    char text[8];
    if (c >= 0xd800 && c < 0xe000) continue;
    for (int i = 0; i < 2; i++) {
      memcpy(text, firsts[i], 3);
      size_t len = 3 + tok_utf8_encode(c, text + 3);
      check_pieces(&w, TOK_NFC, text, len, out);
      check_pieces(&w, TOK_NFKC, text, len, out);
    }
    parts.len = 0;
    size_t size = tok_utf8_encode(c, text);
    if (tok_normal(&w, TOK_NFD, text, size, &parts) != TRI_OK) ck_abort_msg("U+%04X", c);
    check_pieces(&w, TOK_NFC, parts.data, parts.len, out);
    check_pieces(&w, TOK_NFD, parts.data, parts.len, out);
  }
  tri_buf_free(&out[0]);
  tri_buf_free(&out[1]);
  tri_buf_free(&parts);
  tok_codepoints_free(&w);
}
END_TEST

Suite *suite_tokenizer_spans(void) {
  Suite *s = suite_create("tokenizer_spans");
  TCase *c = tcase_create("spans");
  tcase_add_loop_test(c, every_span, 0, OF_ASCII);
  tcase_add_loop_test(c, several_spans, 0, OF_ASCII);
  tcase_add_loop_test(c, repaired, 0, OF_ASCII);
  tcase_add_test(c, flags);
  tcase_add_loop_test(c, normalized, 0, NORMALIZERS);
  tcase_add_loop_test(c, nothing_else_changes, 0, NORMALIZERS);
  tcase_add_test(c, charsmap);
  tcase_add_test(c, models);
  tcase_add_test(c, pieces_of_normal_forms);
  suite_add_tcase(s, c);
  return s;
}
