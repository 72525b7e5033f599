#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizer_files and the corpora of the fuzzers of these formats: small tokenizers in files other than
tokenizer.json, and what the libraries that read them answer (pip install sentencepiece tiktoken mistral-common tokenizers;
made with 0.2.3, 0.14.0, 1.13.1 and 0.23.3). Run it from the root of the repository."""
import base64
import json
import os
import random
import re
import sys
import tempfile

import sentencepiece
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from sentencepiece import sentencepiece_model_pb2 as model_pb2
from tiktoken._educational import bpe_train
from tokenizers import decoders

OUT = "tests/data/tokenizer_files"
CORPUS = "tests/fuzz/corpus"

LETTERS = "[^\\r\\n\\p{L}\\p{N}]?"
UPPER, LOWER = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}", "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
NO_HAN = "&&[^\\p{Han}]"
TEKKEN = f"{LETTERS}[{UPPER}]*[{LOWER}]+|{LETTERS}[{UPPER}]+[{LOWER}]*|\\p{{N}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n/]*|{SPACES}"
KIMI = (f"[\\p{{Han}}]+|{LETTERS}[{UPPER}{NO_HAN}]*[{LOWER}{NO_HAN}]+{ENDINGS}?|{LETTERS}[{UPPER}{NO_HAN}]+[{LOWER}{NO_HAN}]*{ENDINGS}?"
        f"|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|{SPACES}")
LLAMA = f"{ENDINGS}|{LETTERS}\\p{{L}}+|\\p{{N}}{{1,3}}| ?[^\\s\\p{{L}}\\p{{N}}]+[\\r\\n]*|{SPACES}"

# ---- texts ----

PARTS = ["hello", "world", "The", "don't", "I'LL", "it’s", "WE'VE", "'ſ", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "\u00a0", "\u3000",
         "\u200b", "\u200d", "\u2028", "\x1c", "0", "12", "345", "1234567890", "٣٤", "Ⅷ", "½", "é", "e\u0301", "\u212b", "ﬁ", "①", "Ａ", "ａｂｃ",
         "ß", "İ", "ı", "ſ", "日本語", "中文字符", "々", "한국어", "\u1100\u1161\u11a8", "ไทย", "हिन्दी", "العربية", "שָׁ", "😀", "👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇩🇪",
         "𝒳", "𐍈", "\u0301\u0302", "\0", "\x01", "\x7f", "\ufeff", "\ufffd", "▁", "▁▁", "<", ">", "|", "__", "--", "...", "—", "'", "``", "\\", "//",
         "#", "a", "b", "ab", "abc", "bcd", "aaaaaaaa", "X", "ABC", "def f(x):", "    return", "{}", "();", "€"]
FIXED = ["", " ", "  ", "\n", "hello world", " hello  world ", "Hello, world!", "I'm he'll we've don't IT'S", "abcd abcabcd", "a" * 300, "-" * 257,
         "日本語中文字符" * 9, "\0", "a\0b", "1234567890", "\u0301", "e\u0301\u0302", "👩‍👩‍👧🏳️‍🌈", "▁", "▁a ▁", "\t\n  x", "x  \n", "ﬁ①Ａ", "<unk>", "a<s> b</s>",
         " </s>a", "<|im_start|>user\nhi<|im_end|>", "[INST] hi[/INST]", "<mask> a <mask>", "<extra_id_0> <extra_id_99>x", "<|eot_id|>", "<SPECIAL_21>"]


def random_text(r):
    if r.random() < 0.05:
        return r.choice("aA0 \n-é日") * r.randrange(1, 200)
    out = []
    for _ in range(r.randrange(1, 25)):
        kind = r.random()
        if kind < 0.75:
            out.append(r.choice(PARTS))
        elif kind < 0.92:
            out.append("".join(chr(r.randrange(97, 123)) for _ in range(r.randrange(1, 9))))
        else:
            c = r.randrange(0x110000) if kind < 0.96 else r.randrange(0x300, 0x3100)
            out.append(chr(c) if not 0xD800 <= c < 0xE000 else "A")
        if r.random() < 0.3:
            out.append(" ")
    return "".join(out)


def training_text():
    r = random.Random(7)
    words = ["the", "and", "hello", "world", "return", "tokens", "of", "text", "12", "100", "don't", "we've", "日本語", "中文", "文字", "é", "naïve", "😀"]
    lines = [" ".join(r.choice(words) for _ in range(r.randrange(3, 12))) for _ in range(300)]
    return lines + [re.sub("[\0\n\r]", " ", random_text(r)) for _ in range(200)]


# ---- byte pairs ----

def byte_ranks(pattern, size):
    ranks = bpe_train("\n".join(training_text()), size, pattern, visualise=None)
    return sorted(ranks, key=ranks.get)


def split_at(specials, text):
    """Text between special tokens, and these."""
    return re.split("(" + "|".join(re.escape(s) for s in sorted(specials, key=len, reverse=True)) + ")", text)


class Bytes:
    """A file of byte pairs; before: the ids that come before the ranks; bos: an id or None."""

    def __init__(self, ranks, pattern, specials, before, bos):
        self.model = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks={b: i for i, b in enumerate(ranks)}, special_tokens={})
        self.specials, self.before, self.bos, self.size = specials, before, bos, len(ranks)

    def encode(self, text):
        ids = []
        for part in split_at(self.specials, text):
            ids += [self.specials[part]] if part in self.specials else [i + self.before for i in self.model.encode(part, disallowed_special=())]
        return ids

    def around(self, ids):
        return ids if self.bos is None else [self.bos] + ids

    def decode(self, ids):
        special = set(self.specials.values())
        return self.model.decode([i - self.before for i in ids if i not in special])

    def random_ids(self, r):
        return [self.before + r.randrange(self.size) for _ in range(r.randrange(1, 9))]


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


def save(name, files):
    for file, data in files.items():
        write(f"{OUT}/{name}/{file}", data if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False))


def tekken(name, version, num_special, listed):
    size = 420
    ranks = byte_ranks(TEKKEN, size)
    vocab = [{"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": b.decode(errors="ignore") or None} for i, b in enumerate(ranks)]
    cut = 10  # tokens that the file has and the sizes leave out
    config = {"pattern": TEKKEN, "num_vocab_tokens": size, "default_vocab_size": size - cut + num_special,
              "default_num_special_tokens": num_special, "version": version}
    file = {"config": config, "vocab": vocab}
    if listed:
        file["special_tokens"] = [{"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(listed)]
        file["image"] = {"image_patch_size": 16, "max_image_size": 1540}
    save(name, {"tekken.json": file, "config.json": {"model_type": "mistral"}})
    theirs = Tekkenizer.from_file(f"{OUT}/{name}/tekken.json")
    specials = {t["token_str"]: t["rank"] for t in theirs._all_special_tokens}
    mine = Bytes(ranks[:size - cut], TEKKEN, specials, num_special, theirs.bos_id)
    for text in FIXED + [random_text(random.Random(i)) for i in range(200)]:
        if not any(s in text for s in specials):
            assert theirs.encode(text, True, False) == mine.around(mine.encode(text)), text
    return mine


def tik(name, file, model_type, pattern, names, bos, decoder):
    ranks = byte_ranks(pattern, 400)
    specials = {t: len(ranks) + i for i, t in enumerate(names)}
    lines = "".join(f"{base64.b64encode(b).decode()} {i}\n" for i, b in enumerate(ranks))
    save(name, {file: lines.encode(), "config.json": {"model_type": model_type}})
    for k, (text, special) in decoder.items():
        specials = {t: i for t, i in specials.items() if i != len(ranks) + k}
        specials[text] = len(ranks) + k
    if decoder:
        entries = {str(len(ranks) + k): {"content": t, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": s}
                   for k, (t, s) in decoder.items()}
        save(name, {"tokenizer_config.json": {"added_tokens_decoder": entries}})
    shown = {len(ranks) + k for k, (_, special) in decoder.items() if not special}
    mine = Bytes(ranks, pattern, specials, 0, None if bos is None else specials[bos])
    mine.shown = shown
    return mine


# ---- SentencePiece ----

RULES = "0041\t0061\nFF21\t0061\n0061 0062\t0078 0020 0079\n0061 0062 0063\t007A\n00A0\t0020\n3000\t0020\n0009\t0020\n0301\t\nFB01\t0066 0069\n0020 0301\t0020\n"


class Pieces:
    def __init__(self, name, file, config, options, model_type, tokenizer_config=None, fairseq=False, single="bA", first_only=True, extra=0, added=None):
        with tempfile.TemporaryDirectory() as tmp:
            write(f"{tmp}/in", "\n".join(training_text()))
            rules = {}
            if options.pop("rules", False):
                write(f"{tmp}/rules", RULES)
                rules = {"normalization_rule_tsv": f"{tmp}/rules"}
            sentencepiece.SentencePieceTrainer.train(
                input=f"{tmp}/in", model_prefix=f"{tmp}/m", minloglevel=2, hard_vocab_limit=False, num_threads=1,
                **{"normalization_rule_name": "identity", "character_coverage": 0.98, "vocab_size": 480, **options, **rules})
            self.proto = open(f"{tmp}/m.model", "rb").read()
        m = model_pb2.ModelProto()
        m.ParseFromString(self.proto)
        m.trainer_spec.ClearField("input")
        m.trainer_spec.ClearField("model_prefix")
        m.normalizer_spec.ClearField("normalization_rule_tsv")
        self.proto = m.SerializeToString()
        files = {file: self.proto, "config.json": config}
        if tokenizer_config:
            files["tokenizer_config.json"] = tokenizer_config
        if added:
            files["added_tokens.json"] = added
        save(name, files)
        self.fairseq, self.single, self.first_only, self.model = fairseq, single, first_only, m
        self.sp = sentencepiece.SentencePieceProcessor(model_proto=self.proto)
        m2 = model_pb2.ModelProto()
        m2.CopyFrom(m)
        m2.normalizer_spec.add_dummy_prefix = False
        self.inner = sentencepiece.SentencePieceProcessor(model_proto=m2.SerializeToString())
        n = len(m.pieces)
        self.special = {p.piece: i for i, p in enumerate(m.pieces) if p.type in (2, 3)}
        if fairseq:
            self.special = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "<mask>": n + 1,
                            **{p.piece: i + 1 for i, p in enumerate(m.pieces) if p.type == 3 and i > 2}}
        self.special.update({f"<extra_id_{i}>": n + extra - 1 - i for i in range(extra)})
        self.special.update(added or {})
        self.texts = {i: t for t, i in self.special.items()}

    def plain(self, text, start):
        ids = (self.sp if start or not self.first_only else self.inner).encode(text)
        return [i + 1 if i > 2 else 3 for i in ids] if self.fairseq else ids

    def encode(self, text):
        ids, at = [], 0
        parts = split_at(self.special, text)
        for k, part in enumerate(parts):
            if part in self.special:
                ids.append(self.special[part])
            elif part:
                if self.fairseq and k + 1 < len(parts) and parts[k + 1] == "<mask>":
                    part = part.rstrip()
                ids += self.plain(part, at == 0)
            at += len(part)
        return ids

    def around(self, ids):
        bos, eos = self.special.get("<s>", self.special.get("<bos>")), self.special.get("</s>")
        return ([bos] if "b" in self.single else []) + ids + ([eos] if "e" in self.single else [])

    def decode(self, ids):
        m = self.model
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        if not m.trainer_spec.treat_whitespace_as_suffix and (m.normalizer_spec.add_dummy_prefix or m.normalizer_spec.remove_extra_whitespaces):
            steps.append(decoders.Strip(" ", 1, 0))
        pieces = [m.pieces[i - self.fairseq].piece for i in ids if i not in self.texts]
        return decoders.Sequence(steps).decode(pieces)

    def random_ids(self, r):
        return [r.randrange(self.fairseq, len(self.model.pieces)) for _ in range(r.randrange(1, 9))]


def made():
    control = [f"<c{i}>" for i in range(3)]
    yield "tekken_v3", tekken("tekken_v3", "v3", 24, None)
    yield "tekken_v13", tekken("tekken_v13", "v13", 24, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>", "[THINK]", "<|im_start|>"])
    reserved = [f"<|reserved_token_{400 + i}|>" for i in range(256)]
    yield "tiktoken_kimi", tik("tiktoken_kimi", "tiktoken.model", "kimi_k2", KIMI, reserved, None,
                               {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 9: ("<|im_start|>", False)})
    llama = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(4)), "<|start_header_id|>",
             "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(5, 251))]
    yield "tiktoken_llama", tik("tiktoken_llama", "tokenizer.model", "llama", LLAMA, llama, "<|begin_of_text|>", {})
    user = ["<|im_start|>", "ab", "abc", "bcd", "▁▁", "😀", "\u0301"]
    yield "spm_unigram_t5", Pieces("spm_unigram_t5", "spiece.model", {"model_type": "t5"},
                                   {"rules": True, "user_defined_symbols": user, "pad_id": 3}, "t5", single="Ae", first_only=False, extra=100)
    yield "spm_unigram_xlmr", Pieces("spm_unigram_xlmr", "sentencepiece.bpe.model", {"model_type": "xlm-roberta"},
                                     {"rules": True, "remove_extra_whitespaces": True}, "x", fairseq=True, single="bAe", first_only=False)
    yield "spm_unigram_bytes", Pieces("spm_unigram_bytes", "tokenizer.model", {"model_type": "mistral"},
                                      {"byte_fallback": True, "vocab_size": 700, "remove_extra_whitespaces": False, "control_symbols": control,
                                       "user_defined_symbols": ["hello", "lo w"]}, "m", {"legacy": True}, first_only=False)
    yield "spm_bpe_llama", Pieces("spm_bpe_llama", "tokenizer.model", {"model_type": "llama"},
                                  {"model_type": "bpe", "byte_fallback": True, "vocab_size": 700, "remove_extra_whitespaces": False,
                                   "allow_whitespace_only_pieces": True, "split_digits": True}, "l",
                                  {"legacy": False, "add_bos_token": True}, added={"<|im_start|>": 700, "<|im_end|>": 701})
    yield "spm_bpe_user", Pieces("spm_bpe_user", "tokenizer.model", {"model_type": "llama"},
                                 {"model_type": "bpe", "rules": True, "user_defined_symbols": user}, "l", {"legacy": True}, first_only=False)
    yield "spm_bpe_gemma", Pieces("spm_bpe_gemma", "tokenizer.model", {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}},
                                  {"model_type": "bpe", "byte_fallback": True, "vocab_size": 700, "add_dummy_prefix": False, "split_by_whitespace": False,
                                   "bos_piece": "<bos>", "remove_extra_whitespaces": False, "control_symbols": control}, "g")
    yield "spm_bpe_after", Pieces("spm_bpe_after", "tokenizer.model", {"model_type": "llama"},
                                  {"model_type": "bpe", "treat_whitespace_as_suffix": True}, "l", {"legacy": True, "add_bos_token": False}, single="A",
                                  first_only=False)


def is_shown(t, ids):
    """Decoded text is compared where no token is left out that the libraries show, or the other way about."""
    return not isinstance(t, Bytes) or not set(ids) & getattr(t, "shown", set())


def expected(t):
    r = random.Random(11)
    cases = []
    for text in FIXED + [random_text(r) for _ in range(60)]:
        ids = t.encode(text)
        case = {"text": text, "ids": t.around(ids), "ids_plain": ids}
        if is_shown(t, ids):
            case["decoded"] = t.decode(ids)
        cases.append(case)
    for _ in range(60):
        ids = t.random_ids(r)
        if is_shown(t, ids):
            cases.append({"ids": ids, "decoded": t.decode(ids)})
    return cases


def corpora():
    """Small ones: each allocation that reading one makes is failed once."""
    ranks = [bytes([i]) for i in range(256)] + [b"ab", b"he", b"ll", b"hell", "é".encode()]
    vocab = [{"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": None} for i, b in enumerate(ranks)]
    config = {"pattern": TEKKEN, "default_vocab_size": 264, "default_num_special_tokens": 4, "version": "v3"}
    write(f"{CORPUS}/tokenizer_tekken/first", json.dumps({"config": config, "vocab": vocab}))
    config["version"] = "v13"
    special = [{"rank": 0, "token_str": "<s>"}, {"rank": 1, "token_str": "</s>"}]
    write(f"{CORPUS}/tokenizer_tekken/listed", json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
    write(f"{CORPUS}/tokenizer_tekken/no_list", json.dumps({"config": config, "vocab": []}))
    config["pattern"] = "\\s+|\\S"
    write(f"{CORPUS}/tokenizer_tekken/short", json.dumps({"config": config, "vocab": vocab[:3], "special_tokens": special}))
    lines = "".join(f"{base64.b64encode(b).decode()} {i}\n" for i, b in enumerate(ranks))
    write(f"{CORPUS}/tokenizer_tiktoken/kimi", "kimi_k2\n" + lines)
    write(f"{CORPUS}/tokenizer_tiktoken/llama", "llama\n" + lines)
    write(f"{CORPUS}/tokenizer_tiktoken/reversed", "llama\n" + "\r\n".join(reversed(lines.split("\n"))))
    write(f"{CORPUS}/tokenizer_tiktoken/bad", "kimi_k25\nIQ== 0\nIQ== 0\nIg== 7\n")
    for name, family, kind, fallback in (("t5", "t5", 1, False), ("xlmr", "xlm-roberta", 1, False), ("llama", "llama", 2, True),
                                         ("mistral", "mistral", 1, True), ("gemma", "gemma3", 2, False)):
        m = model_pb2.ModelProto()
        pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), ("ab", 0, 4), ("he", -1, 1), ("llo", -3, 1), ("l", -2, 1), ("▁", -2.5, 1),
                  ("▁hello", -4, 1), ("o", -3, 1), ("lo", -2, 1), ("h", -3, 1), ("e", -3, 1), ("1", -2, 1)]
        pieces += [(f"<0x{i:02X}>", 0, 6) for i in range(256)] if fallback else []
        for text, score, type in pieces:
            m.pieces.add(piece=text, score=score, type=type)
        m.trainer_spec.model_type = kind
        m.trainer_spec.byte_fallback = fallback
        m.normalizer_spec.remove_extra_whitespaces = name != "llama"
        if name == "t5":
            full = model_pb2.ModelProto()
            full.ParseFromString(open(f"{OUT}/spm_unigram_t5/spiece.model", "rb").read())
            m.normalizer_spec.precompiled_charsmap = full.normalizer_spec.precompiled_charsmap
        write(f"{CORPUS}/tokenizer_sentencepiece/{name}", family.encode() + b"\n" + m.SerializeToString())


def main():
    made_now = list(made())
    for name, t in made_now:
        write(f"{OUT}/{name}/expected.json", json.dumps(expected(t), ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")
    corpora()


if __name__ == "__main__":
    main()
