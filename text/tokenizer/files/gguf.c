/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE ("gpt2") becomes the text of a tokenizer.json, whose reader is the only one. The pattern that cuts
 * text into words is not in the file: `pre` names it, and one that is not known is refused, since another pattern would
 * give other ids without a word. Pieces with scores ("llama") become what a SentencePiece file has. */
#include "text/tokenizer/files/gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/xxh3.h"
#include "text/tokenizer/files/files.h"

/* ---- keys ---- */

#define KEY "tokenizer.ggml."

typedef struct tables {
  const tri_gguf *g;
  const tri_gguf_value *tokens, *types, *scores, *merges; /* tokens are there, types and scores as many where needed */
} tables;

static tri_status wrong(const char *key, const char *what, tri_error *err) {
  return tri_fail(err, TRI_CORRUPT, key, "%s %s", key, what);
}

/* An array with a value for each token. */
static tri_status find_table(const tables *t, const char *key, bool texts, const tri_gguf_value **out, tri_error *err) {
  *out = tri_gguf_find(t->g, key);
  const tri_gguf_value *v = *out;
  if (v && (!v->is_array || (v->type == TRI_GGUF_STRING) != texts)) return wrong(key, "is no array of its kind", err);
  if (v && t->tokens && v != t->tokens && !texts && v->count != t->tokens->count)
    return wrong(key, "has not as many values as there are tokens", err);
  return TRI_OK;
}

static tri_status find_tables(tables *t, tri_error *err) {
  TRI_CHECK(find_table(t, KEY "tokens", true, &t->tokens, err));
  if (!t->tokens) return tri_fail(err, TRI_NOT_FOUND, KEY "tokens", "the file has no tokens");
  if (!t->tokens->count || t->tokens->count > TOK_MAX_IDS)
    return tri_fail(err, TRI_TOO_LARGE, KEY "tokens", "%llu tokens, the limits are 1 and %d",
                    (unsigned long long)t->tokens->count, TOK_MAX_IDS);
  TRI_CHECK(find_table(t, KEY "token_type", false, &t->types, err));
  TRI_CHECK(find_table(t, KEY "scores", false, &t->scores, err));
  return find_table(t, KEY "merges", true, &t->merges, err);
}

/* Kinds have the numbers of SentencePiece's; a file without them has normal tokens alone. */
static tok_piece_kind kind_of(const tables *t, uint64_t id) {
  uint64_t kind = TOK_PIECE_NORMAL;
  if (t->types) tri_gguf_item_uint(t->types, id, &kind);
  return kind >= TOK_PIECE_NORMAL && kind <= TOK_PIECE_BYTE ? (tok_piece_kind)kind : TOK_PIECE_NORMAL;
}

static bool flag(const tables *t, const char *key, bool otherwise) {
  tri_gguf_bool(t->g, key, &otherwise);
  return otherwise;
}

/* A special token's id; TOK_NO_ID: there is none. */
static uint32_t id_of(const tables *t, const char *key) {
  uint64_t id;
  return tri_gguf_uint(t->g, key, &id) && id < t->tokens->count ? (uint32_t)id : TOK_NO_ID;
}

/* ---- byte-level BPE ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define NO_LETTER "[^\\r\\n\\p{L}\\p{N}]?"
#define NO_HAN(set) "[" set "&&[^\\p{Han}]]"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(digits) CONTRACTIONS "|" NO_LETTER "\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES

#define BYTE_LEVEL(splits)                                                                                             \
  "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":" splits "}"

/* A pre-tokenizer. Without patterns text is cut as GPT-2 does. */
typedef struct splitter {
  const char *names; /* words */
  const char *patterns[3];
  const char *list; /* of pre-tokenizers as tokenizer.json has it, where patterns cannot say it; else NULL */
  bool digits;      /* each of them alone, before all else */
  bool nfc;         /* text is composed first */
  bool whole_words; /* a word that is a token stays one */
  bool adds_bos;    /* where the file does not say */
} splitter;

static const splitter splitters[] = {
    {.names = "gpt-2 phi-2 olmo mpt"},
    {.names = "smollm starcoder refact command-r codeshell", .digits = true},
    {.names = "llama-bpe llama-v3 llama3", .patterns = {LLAMA3("\\p{N}{1,3}")}, .whole_words = true, .adds_bos = true},
    {.names = "dbrx glm4 chatglm-bpe", .patterns = {LLAMA3("\\p{N}{1,3}")}},
    {.names = "kimi-k2", /* as tiktoken, which does not cut a word that is a token */
     .patterns = {"[\\p{Han}]+|" NO_LETTER NO_HAN(UPPER) "*" NO_HAN(LOWER) "+" CONTRACTIONS "?|" NO_LETTER NO_HAN(
         UPPER) "+" NO_HAN(LOWER) "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
     .whole_words = true},
    {.names = "bloom poro-chat gpt3-finnish",
     .patterns = {" ?[^(\\s|.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c)]+"}},
    {.names = "falcon",
     .list = "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}," BYTE_LEVEL(
         "true") ","
                 "{\"type\":\"Digits\",\"individual_digits\":false},{\"type\":\"Split\",\"pattern\":{\"Regex\":"
                 "\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}"},
    {.names = "qwen2 deepseek-r1-qwen", .patterns = {LLAMA3("\\p{N}")}, .nfc = true},
    {.names = "stablelm2", .patterns = {LLAMA3("\\p{N}")}},
    {.names = "tekken",
     .patterns = {NO_LETTER UPPER "*" LOWER "+|" NO_LETTER UPPER "+" LOWER
                                  "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
     .whole_words = true,
     .adds_bos = true},
    {.names = "gpt-4o llama4",
     .patterns = {NO_LETTER UPPER "*" LOWER "+" CONTRACTIONS "?|" NO_LETTER UPPER "+" LOWER "*" CONTRACTIONS
                                  "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES}},
    {.names = "deepseek-v3",
     .patterns = {"\\p{N}{1,3}", "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
                  "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                  "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES}},
};

static const splitter *find_splitter(const tables *t, tri_error *err) {
  static const char key[] = KEY "pre";
  const char *name = "";
  size_t len = 0;
  char word[64];
  tri_gguf_text(t->g, key, &name, &len);
  snprintf(word, sizeof word, "%.*s", (int)(len < sizeof word ? len : sizeof word - 1), name);
  for (size_t i = 0; i < sizeof splitters / sizeof *splitters; i++)
    if (*word && tri_has_word(splitters[i].names, word)) return &splitters[i];
  tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.60s\" is not known, by which text is cut into words", key, word);
  return NULL;
}

static void add_splitter(tri_buf *b, const splitter *s) {
  tri_text_printf(b, ",\"normalizer\":%s,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[",
                  s->nfc ? "{\"type\":\"NFC\"}" : "null");
  if (s->list) {
    tri_text_printf(b, "%s]}", s->list);
    return;
  }
  if (s->digits) tri_text_printf(b, "{\"type\":\"Digits\",\"individual_digits\":true},");
  for (int i = 0; i < 3 && s->patterns[i]; i++) {
    tri_text_printf(b, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
    tri_json_add_string(b, s->patterns[i], strlen(s->patterns[i]));
    tri_text_printf(b, "},\"behavior\":\"Isolated\",\"invert\":false},");
  }
  tri_text_printf(b, "%s]}", s->patterns[0] ? BYTE_LEVEL("false") : BYTE_LEVEL("true"));
}

/* Tokens that are found in text as they stand there. */
static void add_added(tri_buf *b, const tables *t) {
  size_t at = 0;
  bool any = false;
  tri_text_printf(b, "{\"added_tokens\":[");
  for (uint64_t id = 0; id < t->tokens->count; id++) {
    const char *s;
    size_t len;
    tri_gguf_next_text(t->tokens, &at, &s, &len);
    tok_piece_kind kind = kind_of(t, id);
    bool special = kind == TOK_PIECE_CONTROL || kind == TOK_PIECE_UNKNOWN;
    if ((!special && kind != TOK_PIECE_USER) || !len) continue;
    tri_text_printf(b, "%s{\"id\":%llu,\"content\":", any ? "," : "", (unsigned long long)id);
    tri_json_add_string(b, s, len);
    tri_text_printf(b, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}",
                    special ? "true" : "false");
    any = true;
  }
  tri_text_printf(b, "]");
}

static void add_model(tri_buf *b, const tables *t, const splitter *s) {
  size_t at = 0, len;
  const char *text;
  tri_text_printf(b,
                  ",\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,"
                  "\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                  "\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\",\"fuse_unk\":false,"
                  "\"byte_fallback\":false,\"ignore_merges\":%s,\"vocab\":{",
                  s->whole_words ? "true" : "false");
  for (uint64_t id = 0; id < t->tokens->count; id++) {
    tri_gguf_next_text(t->tokens, &at, &text, &len);
    if (id) tri_text_add(b, ",", 1);
    tri_json_add_string(b, text, len);
    tri_text_printf(b, ":%llu", (unsigned long long)id);
  }
  tri_text_printf(b, "},\"merges\":[");
  at = 0;
  for (uint64_t i = 0; i < t->merges->count; i++) {
    tri_gguf_next_text(t->merges, &at, &text, &len);
    if (i) tri_text_add(b, ",", 1);
    tri_json_add_string(b, text, len);
  }
  tri_text_printf(b, "]}}");
}

/* The first token and the last one around a text. */
static void add_frame(tri_buf *b, uint32_t bos, uint32_t eos) {
  tri_text_printf(b, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
  const char *first = bos != TOK_NO_ID ? "{\"SpecialToken\":{\"id\":\"b\",\"type_id\":0}}," : "";
  const char *last = eos != TOK_NO_ID ? ",{\"SpecialToken\":{\"id\":\"e\",\"type_id\":0}}" : "";
  tri_text_printf(b,
                  "%s{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}%s],\"pair\":[%s{\"Sequence\":{\"id\":\"A\","
                  "\"type_id\":0}}%s,%s{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}%s],\"special_tokens\":{",
                  first, last, first, last, first, last);
  if (bos != TOK_NO_ID) tri_text_printf(b, "\"b\":{\"id\":\"b\",\"ids\":[%u],\"tokens\":[\"b\"]}", bos);
  if (eos != TOK_NO_ID)
    tri_text_printf(b, "%s\"e\":{\"id\":\"e\",\"ids\":[%u],\"tokens\":[\"e\"]}", bos != TOK_NO_ID ? "," : "", eos);
  tri_text_printf(b, "}}");
}

static tri_status read_bytes(const tables *t, tri_tokenizer **out, tri_error *err) {
  tri_buf b = {0};
  const splitter *s = find_splitter(t, err);
  if (!s) return TRI_UNSUPPORTED;
  if (!t->merges) return wrong(KEY "merges", "is missing", err);
  uint32_t bos = flag(t, KEY "add_bos_token", s->adds_bos) ? id_of(t, KEY "bos_token_id") : TOK_NO_ID;
  uint32_t eos = flag(t, KEY "add_eos_token", false) ? id_of(t, KEY "eos_token_id") : TOK_NO_ID;
  add_added(&b, t);
  add_splitter(&b, s);
  add_frame(&b, bos, eos);
  add_model(&b, t, s);
  tri_status st = b.failed ? tri_fail(err, TRI_NO_MEMORY, KEY "tokens", "no memory for the tokenizer")
                           : tri_tokenizer_parse(b.data, b.len, out, err);
  tri_buf_free(&b);
  return st;
}

/* ---- pieces ---- */

/* Files of Gemma have their unknown token among the control tokens, and name it by a key. */
static void name_unknown(const tables *t, tok_model_proto *m) {
  uint32_t unknown = id_of(t, KEY "unknown_token_id");
  for (size_t id = 0; id < m->count; id++)
    if (m->pieces[id].kind == TOK_PIECE_UNKNOWN) return;
  if (unknown != TOK_NO_ID) m->pieces[unknown].kind = TOK_PIECE_UNKNOWN;
}

/* User pieces have spaces where those of a tokenizer.model have U+2581, which spaces of a text have become when they
 * are looked for. */
static tri_status mark_spaces(tok_model_proto *m, tri_error *err) {
  static const char mark[] = "\xe2\x96\x81";
  size_t room = 0, used = 0;
  for (size_t id = 0; id < m->count; id++)
    if (m->pieces[id].kind == TOK_PIECE_USER && !tri_size_add(room, m->pieces[id].len, &room)) return TRI_OVERFLOW;
  if (!tri_size_mul(room, sizeof mark - 1, &room)) return TRI_OVERFLOW;
  m->texts = tri_malloc(room + 1, 1);
  if (!m->texts) return tri_fail(err, TRI_NO_MEMORY, KEY "tokens", "no memory for the tokenizer");
  for (size_t id = 0; id < m->count; id++) {
    tok_piece *p = &m->pieces[id];
    size_t first = used;
    if (p->kind != TOK_PIECE_USER || !memchr(p->text, ' ', p->len)) continue;
    for (size_t i = 0; i < p->len; i++) {
      bool is_space = p->text[i] == ' ';
      memcpy(m->texts + used, is_space ? mark : p->text + i, is_space ? sizeof mark - 1 : 1);
      used += is_space ? sizeof mark - 1 : 1;
    }
    p->text = m->texts + first;
    p->len = used - first;
  }
  return TRI_OK;
}

static tri_status take_pieces(const tables *t, tok_model_proto *m, tri_error *err) {
  size_t at = 0;
  m->pieces = tri_calloc((size_t)t->tokens->count, sizeof *m->pieces);
  if (!m->pieces) return tri_fail(err, TRI_NO_MEMORY, KEY "tokens", "no memory for the tokenizer");
  m->count = (size_t)t->tokens->count;
  for (size_t id = 0; id < m->count; id++) {
    tok_piece *p = &m->pieces[id];
    double score = 0;
    tri_gguf_next_text(t->tokens, &at, &p->text, &p->len);
    p->kind = kind_of(t, id);
    if (!p->len || memchr(p->text, 0, p->len) || tri_utf8_prefix(p->text, p->len) != p->len)
      return tri_fail(err, TRI_CORRUPT, KEY "tokens", KEY "tokens[%zu] is empty or no UTF-8", id);
    if (t->scores && !tri_gguf_item_number(t->scores, id, &score))
      return tri_fail(err, TRI_CORRUPT, KEY "scores", KEY "scores[%zu] is no number", id);
    p->score = (float)score;
    if (p->score != p->score) return tri_fail(err, TRI_CORRUPT, KEY "scores", KEY "scores[%zu] is no number", id);
    m->byte_fallback |= p->kind == TOK_PIECE_BYTE;
  }
  name_unknown(t, m);
  return mark_spaces(m, err);
}

static tok_bytes text_of(const tok_model_proto *m, uint32_t id) {
  return id == TOK_NO_ID ? (tok_bytes){0} : (tok_bytes){m->pieces[id].text, m->pieces[id].len};
}

/* Two quantizations of one model have the same tokenizer: no other key counts. */
static uint64_t hash_of(const tri_gguf *g) {
  uint64_t h = 0;
  for (size_t i = 0; i < g->num_keys; i++) {
    const tri_gguf_value *v = &g->keys[i];
    if (!strncmp(v->name, KEY, sizeof KEY - 1)) h = h * 31 + tri_xxh3(v->data, v->bytes);
  }
  return h;
}

static tri_status read_pieces(const tables *t, tri_tokenizer **out, tri_error *err) {
  enum { BPE = 2 };
  tok_model_proto m = {.model_type = BPE, .escape_whitespaces = true};
  tok_frame frame = {.has_bos = flag(t, KEY "add_bos_token", true), .has_eos = flag(t, KEY "add_eos_token", false)};
  tri_tokenizer *made = NULL;
  tri_status st;
  if (!t->scores) return wrong(KEY "scores", "is missing", err);
  TRI_TRY(take_pieces(t, &m, err));
  m.add_dummy_prefix = flag(t, KEY "add_space_prefix", true);
  m.bos_piece = text_of(&m, id_of(t, KEY "bos_token_id"));
  m.eos_piece = text_of(&m, id_of(t, KEY "eos_token_id"));
  frame.has_bos = frame.has_bos && m.bos_piece.len;
  frame.has_eos = frame.has_eos && m.eos_piece.len;
  made = tri_calloc(1, sizeof *made);
  st = made ? tok_vocab_init(&made->vocab) : TRI_NO_MEMORY;
  if (st != TRI_OK) TRI_TRY(tri_fail(err, st, KEY "tokens", "no memory for the tokenizer"));
  TRI_TRY(tok_sentencepiece_take(made, &m, &frame, err));
  made->hash = hash_of(t->g);
  *out = made;
  made = NULL;
cleanup:
  tri_tokenizer_destroy(made);
  tok_model_proto_free(&m);
  return st;
}

tri_status tok_gguf_read(const tri_gguf *g, tri_tokenizer **out, tri_error *err) {
  static const char key[] = KEY "model";
  tables t = {.g = g};
  const char *name = "";
  size_t len = 0;
  if (!tri_gguf_text(g, key, &name, &len)) return tri_fail(err, TRI_NOT_FOUND, key, "the file has no tokenizer");
  TRI_CHECK(find_tables(&t, err));
  if (tri_gguf_is(g, key, "gpt2")) return read_bytes(&t, out, err);
  if (tri_gguf_is(g, key, "llama")) return read_pieces(&t, out, err);
  return tri_fail(err, TRI_UNSUPPORTED, key, "%s \"%.*s\" is not read: gpt2 and llama are", key,
                  (int)(len < 40 ? len : 40), name);
}
