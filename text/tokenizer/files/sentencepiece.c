/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's files. Text becomes ids as that library makes them; which special tokens stand around it, and where
 * ids are not the file's, is a matter of the families that have such files. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/files/files.h"
#include "text/tokenizer/files/model_proto.h"

typedef struct family {
  const char *types;         /* words */
  const char *single, *pair; /* tok_rules_around */
  const char *bos, *eos;     /* what the tokens around a text are called; NULL: as the file says */
  bool has_bos, has_eos;     /* where tokenizer_config.json does not say */
  bool legacy;       /* where it does not: each stretch between added tokens gets a space, not the first alone */
  bool fairseq;      /* ids 0..3 are <s>, <pad>, </s> and <unk>, others are one more than the file's, and <mask>
                        is the last */
  int64_t extra_ids; /* <extra_id_N> after the file's ids, the highest number first */
} family;

static const family families[] = {
    {.types = "llama mistral mixtral phi3", .single = "bAe", .pair = "bAebBe", .has_bos = true},
    {.types = "gemma gemma2 gemma3 gemma3_text", .single = "bAe", .pair = "bAebBe", .has_bos = true},
    {.types = "t5", .single = "Ae", .pair = "AeBe", .eos = "</s>", .has_eos = true, .legacy = true, .extra_ids = 100},
    {.types = "xlm-roberta",
     .single = "bAe",
     .pair = "bAeeBe",
     .bos = "<s>",
     .eos = "</s>",
     .has_bos = true,
     .has_eos = true,
     .legacy = true,
     .fairseq = true},
};

static tri_status find_family(const tok_release *release, const family **out, tri_error *err) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    *out = &families[i];
    if (tok_release_is(release, (*out)->types)) return TRI_OK;
  }
  return tri_fail(err, TRI_NOT_FOUND, "model_type",
                  "%s is of the family %.60s: the special tokens around its texts are not known", release->file,
                  release->types[0] ? release->types[0] : "(none)");
}

/* ---- pieces ---- */

typedef struct sentencepiece {
  const tok_model_proto *proto;
  tok_pieces pieces; /* the list is owned */
  tok_added_list added;
} sentencepiece;

static const tok_field pieces_field = {.path = "pieces"};

/* Copies the file's pieces to their ids. */
static tri_status place_pieces(sentencepiece *s, const family *f, tri_error *err) {
  static const tok_piece first[] = {{"<s>", 3, 0, TOK_PIECE_CONTROL},
                                    {"<pad>", 5, 0, TOK_PIECE_CONTROL},
                                    {"</s>", 4, 0, TOK_PIECE_CONTROL},
                                    {"<unk>", 5, 0, TOK_PIECE_UNKNOWN}};
  enum { OF_FILE = 3 }; /* <unk>, <s> and </s> of the file have ids of their own */
  const tok_model_proto *m = s->proto;
  tok_pieces *p = &s->pieces;
  size_t from = f->fairseq ? OF_FILE : 0, to = f->fairseq ? sizeof first / sizeof *first : 0;
  if (m->count < from) return tok_field_fail(&pieces_field, TRI_CORRUPT, err, "%zu tokens are too few", m->count);
  p->count = m->count - from + to;
  p->list = tri_calloc(p->count, sizeof *p->list);
  if (!p->list) return tok_field_no_memory(&pieces_field, err);
  if (to) memcpy(p->list, first, sizeof first);
  for (size_t i = from; i < m->count; i++) p->list[to + i - from] = m->pieces[i];
  return TRI_OK;
}

/* -1: it is no "<0x00>".."<0xFF>". */
static int byte_of(const tok_piece *p) {
  for (int b = 0; p->len == 6 && b < 256; b++) {
    char text[8];
    snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
    if (!memcmp(text, p->text, 6)) return b;
  }
  return -1;
}

static tri_status take_byte(tok_pieces *p, size_t id, const tok_field *f, tri_error *err) {
  int b = byte_of(&p->list[id]);
  if (!p->byte_fallback) return tok_field_fail(f, TRI_CORRUPT, err, "is a byte, but byte_fallback is false");
  if (b < 0) return tok_field_fail(f, TRI_CORRUPT, err, "%.40s is no byte", p->list[id].text);
  p->bytes[b] = (uint32_t)id;
  return TRI_OK;
}

/* Finds the unknown token and the bytes. */
static tri_status index_pieces(tok_pieces *p, tri_error *err) {
  p->unk = TOK_NO_ID;
  memset(p->bytes, 0xff, sizeof p->bytes);
  for (size_t i = 0; i < p->count; i++) {
    tok_field f = tok_field_at(&pieces_field, i);
    if (p->list[i].kind == TOK_PIECE_BYTE) TRI_CHECK(take_byte(p, i, &f, err));
    if (p->list[i].kind != TOK_PIECE_UNKNOWN) continue;
    if (p->unk != TOK_NO_ID) return tok_field_fail(&f, TRI_CORRUPT, err, "is a second unknown token");
    p->unk = (uint32_t)i;
  }
  if (p->unk == TOK_NO_ID) return tok_field_fail(&pieces_field, TRI_CORRUPT, err, "none is the unknown token");
  for (int b = 0; p->byte_fallback && b < 256; b++)
    if (p->bytes[b] == TOK_NO_ID) return tok_field_fail(&pieces_field, TRI_CORRUPT, err, "the byte %d is missing", b);
  return TRI_OK;
}

/* ---- added tokens ---- */

/* Control tokens are what templates of chats are made of: here they are recognised in text. */
static tri_status add_control(sentencepiece *s) {
  for (size_t i = 0; i < s->pieces.count; i++) {
    const tok_piece *p = &s->pieces.list[i];
    if (p->kind != TOK_PIECE_CONTROL && p->kind != TOK_PIECE_UNKNOWN) continue;
    if (p->len <= TOK_LONGEST_ADDED) TRI_CHECK(tok_added_list_put(&s->added, p->text, p->len, (uint32_t)i, true));
  }
  return TRI_OK;
}

static tri_status add_family(sentencepiece *s, const family *f, const tok_release *release) {
  int64_t extra = f->extra_ids;
  size_t end = s->pieces.count;
  if (f->fairseq) {
    TRI_CHECK(tok_added_list_put(&s->added, "<mask>", 6, (uint32_t)end, true));
    tok_added_list_at(&s->added, (uint32_t)end)->lstrip = true;
  }
  if (extra) tri_json_get_int(release->config, "extra_ids", &extra);
  if (extra > TOK_MAX_IDS / 2) extra = 0; /* no release has so many */
  for (int64_t i = 0; i < extra; i++) {
    char text[32];
    int n = snprintf(text, sizeof text, "<extra_id_%lld>", (long long)(extra - 1 - i));
    TRI_CHECK(tok_added_list_put(&s->added, text, (size_t)n, (uint32_t)(end + (size_t)i), true));
  }
  return TRI_OK;
}

/* An added token of another text than the file's gives the id that text, and the model does not make it any more: this
 * is how releases use ids that were kept free. */
static void rename_pieces(sentencepiece *s) {
  for (size_t i = 0; i < s->added.len; i++) {
    const tok_added *t = &s->added.data[i];
    if (t->id >= s->pieces.count) continue;
    tok_piece *p = &s->pieces.list[t->id];
    if (p->len == t->len && !memcmp(p->text, t->text, t->len)) continue;
    bool unknown = p->kind == TOK_PIECE_UNKNOWN;
    *p = (tok_piece){t->text, t->len, p->score, unknown ? TOK_PIECE_UNKNOWN : TOK_PIECE_CONTROL};
  }
}

static tri_status read_added(sentencepiece *s, const family *f, const tok_release *release, tri_error *err) {
  tri_status st;
  TRI_TRY(tok_added_list_init(&s->added));
  TRI_TRY(add_control(s));
  TRI_TRY(add_family(s, f, release));
  TRI_TRY(tok_added_list_read(&s->added, release, err));
  rename_pieces(s);
cleanup:
  return st == TRI_NO_MEMORY ? tok_field_no_memory(&pieces_field, err) : st;
}

/* ---- the tokenizer's parts ---- */

static tri_status make_normalizer(tri_tokenizer *t, const sentencepiece *s, const family *f, const tok_release *release,
                                  tri_error *err) {
  const tok_field map = {.path = "normalizer_spec.precompiled_charsmap"};
  const tok_model_proto *m = s->proto;
  tok_spacing spacing = {.add_space = tok_release_flag(release, "add_prefix_space", m->add_dummy_prefix),
                         .first_only = !tok_release_flag(release, "legacy", f->legacy),
                         .after = m->space_after,
                         .remove_extra = m->remove_extra_whitespaces,
                         .escape = m->escape_whitespaces};
  tri_status st;
  if (m->charsmap.len) TRI_TRY(tok_charsmap_copy(m->charsmap.s, m->charsmap.len, &map, &spacing.charsmap, err));
  TRI_TRY(tok_user_pieces_build(&spacing.user, &s->pieces, &pieces_field, err));
  tok_normalizer_add_spacing(&t->normalizer, spacing);
  spacing = (tok_spacing){0};
cleanup:
  tok_spacing_free(&spacing);
  return st;
}

static tri_status make_model(tri_tokenizer *t, const sentencepiece *s, tri_error *err) {
  enum { UNIGRAM = 1, BPE = 2 };
  uint64_t type = s->proto->model_type;
  if (type != UNIGRAM && type != BPE)
    return tri_fail(err, TRI_UNSUPPORTED, "trainer_spec.model_type",
                    "%llu is not supported: 1 (Unigram) and 2 (BPE) are", (unsigned long long)type);
  TRI_CHECK(tok_pieces_add(&s->pieces, &t->vocab, &pieces_field, err));
  TRI_CHECK(
      (type == BPE ? tok_bpe_pieces_create : tok_unigram_create)(&s->pieces, &t->vocab, &pieces_field, &t->model, err));
  t->model_type = type == BPE ? &tok_model_bpe_pieces : &tok_model_unigram;
  return TRI_OK;
}

static uint32_t id_of(const tri_tokenizer *t, const char *text, size_t len) {
  uint32_t id = TOK_NO_ID;
  tri_tokenizer_id(t, text, len, &id);
  return id;
}

static tri_status make_frame(tri_tokenizer *t, const tok_model_proto *m, const family *f, const tok_release *release,
                             tri_error *err) {
  const char *bos = tok_release_token(release, "bos_token", f->bos),
             *eos = tok_release_token(release, "eos_token", f->eos);
  tok_bytes first = bos ? (tok_bytes){bos, strlen(bos)} : m->bos_piece;
  tok_bytes last = eos ? (tok_bytes){eos, strlen(eos)} : m->eos_piece;
  if (!first.len) first = (tok_bytes){"<s>", 3};
  if (!last.len) last = (tok_bytes){"</s>", 4};
  bool has_first = tok_release_flag(release, "add_bos_token", f->has_bos);
  bool has_last = tok_release_flag(release, "add_eos_token", f->has_eos);
  return tok_rules_around(t, f->single, f->pair, has_first ? id_of(t, first.s, first.len) : TOK_NO_ID,
                          has_last ? id_of(t, last.s, last.len) : TOK_NO_ID, err);
}

#define SHOW_SPACES "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"}"
#define STRIP_FIRST ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
#define DECODER(more) "{\"type\":\"Sequence\",\"decoders\":[" SHOW_SPACES more "]}"

/* The space that was put before a text is taken away again. */
static tri_status make_decoder(tri_tokenizer *t, const tok_model_proto *m, tri_error *err) {
  bool space = !m->space_after && (m->add_dummy_prefix || m->remove_extra_whitespaces);
  if (m->denormalizes)
    return tri_fail(err, TRI_UNSUPPORTED, "denormalizer_spec.precompiled_charsmap", "a map is not supported");
  return tok_rules_decoder(t,
                           space ? DECODER(",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" STRIP_FIRST)
                                 : DECODER(",{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}"),
                           err);
}

static tri_status make_parts(tri_tokenizer *t, const tok_model_proto *proto, const family *f,
                             const tok_release *release, tri_error *err) {
  sentencepiece s = {.proto = proto, .pieces.byte_fallback = proto->byte_fallback};
  tri_status st;
  TRI_TRY(place_pieces(&s, f, err));
  TRI_TRY(read_added(&s, f, release, err));
  TRI_TRY(index_pieces(&s.pieces, err));
  TRI_TRY(make_normalizer(t, &s, f, release, err));
  TRI_TRY(make_model(t, &s, err));
  TRI_TRY(tok_added_vocab_take(&t->added, s.added.data, s.added.len, &t->vocab, &pieces_field, err));
  TRI_TRY(make_frame(t, proto, f, release, err));
  st = make_decoder(t, proto, err);
cleanup:
  tri_free(s.pieces.list);
  tok_added_list_free(&s.added);
  return st;
}

tri_status tok_sentencepiece_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release,
                                  tri_error *err) {
  tok_model_proto proto = {0};
  const family *f;
  tri_status st;
  TRI_TRY(find_family(release, &f, err));
  TRI_TRY(tok_model_proto_read(&proto, data, len, err));
  st = make_parts(t, &proto, f, release, err);
cleanup:
  tok_model_proto_free(&proto);
  return st;
}

tri_status tok_sentencepiece_take(tri_tokenizer *t, const tok_model_proto *proto, const tok_frame *frame,
                                  tri_error *err) {
  const tok_release release = {.file = "tokens"};
  const family f = {
      .single = "bAe", .pair = "bAebBe", .has_bos = frame->has_bos, .has_eos = frame->has_eos, .legacy = true};
  return make_parts(t, proto, &f, &release, err);
}
