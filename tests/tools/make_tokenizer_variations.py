#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizers/variations.json: small tokenizers with one part each changed, and what the Hugging Face
tokenizers library (pip install tokenizers; made with 0.23.3) answers. Run it from the root of the repository."""
import json
import random

from tokenizers import Tokenizer

rng = random.Random(20)

LETTERS = list("abcdefghijklmnopqrstuvwxyzABCHT0123456789.,!?'-_<>#\n\t ▁éßя中ﬁ")
WORDS = ["th", "the", "in", "ing", "er", "an", "and", "do", "not", "don", "▁t", "▁th", "▁the", "▁a", "▁and", "▁▁", "##s", "##t", "##e",
         "##ing", "##er", "##n", "##a", "##o", "##h", "##d", "s", "he", "é", "12", "▁中", "ver", "never", "n't", "'s", "##́"]
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def vocabulary(*more):
    tokens = ["<unk>", "<s>", "</s>"] + LETTERS + WORDS
    for group in more:
        tokens += group
    return list(dict.fromkeys(tokens))


def bpe(tokens, **options):
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [[w[:k], w[k:]] for w in WORDS for k in range(1, len(w)) if w[:k] in vocab and w[k:] in vocab]
    return {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": merges, **options}


def affixed(prefix, suffix):
    tokens = vocabulary([p + c + s for c in "abcdehinort" for p in ("", prefix) for s in ("", suffix)])
    merges = []
    for a, b in (("t", "h"), ("th", "e"), ("i", "n"), ("in", "g"), ("a", "n"), ("an", "d"), ("o", "n"), ("d", "on"), ("e", "r")):
        for start in ("", prefix):
            for end in ("", suffix):
                left, right = start + a, prefix + b + end
                joined = start + a + b + end
                if left in tokens and right in tokens:
                    merges.append([left, right])
                    tokens.append(joined)
    tokens = list(dict.fromkeys(tokens))
    return {**bpe(tokens), "merges": merges, "continuing_subword_prefix": prefix or None, "end_of_word_suffix": suffix or None}


def unigram(tokens, byte_fallback=False):
    scores = random.Random(3)
    vocab = [[t, 0.0 if i < 3 else -20.0 if t in BYTES else -round(scores.uniform(2, 9), 3)] for i, t in enumerate(tokens)]
    return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": byte_fallback}


def wordpiece(prefix="##", limit=100):
    vocab = {t: i for i, t in enumerate(vocabulary())}
    return {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": prefix, "max_input_chars_per_word": limit,
            "vocab": vocab}


MODELS = {
    "bpe": bpe(vocabulary(["<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>"])),
    "bpe_fused": bpe(vocabulary(), fuse_unk=True),
    "bpe_no_unk": bpe(vocabulary(), unk_token=None),
    "bpe_whole_words": bpe(vocabulary(["nevermore", "thething"]), ignore_merges=True),
    "bpe_bytes": bpe(vocabulary(BYTES), byte_fallback=True, fuse_unk=True),
    "bpe_some_bytes": bpe(vocabulary(BYTES[:0xe0]), byte_fallback=True),
    "bpe_suffix": affixed("", "</w>"),
    "bpe_prefix": affixed("##", ""),
    "bpe_both": affixed("##", "</w>"),
    "unigram": unigram(vocabulary(["<0xC3>", "<0xA9>", "<0xE2>", "<0x82>", "<0xAC>"])),
    "unigram_bytes": unigram(vocabulary(BYTES), True),
    "unigram_some_bytes": unigram(vocabulary(BYTES[:0xe0]), True),
    "unigram_twice": {**unigram(vocabulary()), "vocab": unigram(vocabulary())["vocab"] + [["the", -1.0], ["a", -30.0]]},
    "wordpiece": wordpiece(),
    "wordpiece_short": wordpiece(limit=3),
    "wordpiece_no_prefix": wordpiece(""),
    "wordpiece_odd_prefix": wordpiece("##e"),
}

METASPACE = [{"prepend_scheme": s, "split": b} for s in ("first", "always", "never") for b in (True, False)]
METASPACE = [{"type": "Metaspace", "replacement": "▁", **m} for m in METASPACE]
LEGACY = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True, "str_rep": "▁"}
BERT = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}


def norm(kind, **fields):
    return {"type": kind, **fields}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def norms(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


def pres(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def decs(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


def strip(start, stop, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


NORMALIZERS = [
    norm("NFC"), norm("NFD"), norm("NFKC"), norm("NFKD"), norm("Lowercase"), norm("StripAccents"), norm("Nmt"), norm("ByteLevel"),
    norms(norm("NFD"), norm("StripAccents")), norm("Strip", strip_left=True, strip_right=True),
    norm("Strip", strip_left=True, strip_right=False), norm("Strip", strip_left=False, strip_right=True),
    norm("Prepend", prepend="▁"), replace(" ", "▁"), replace("aa", "a"), replace("the", ""), replace("\\s+", " ", "Regex"),
    norm("BertNormalizer", **BERT), norm("BertNormalizer", **{**BERT, "strip_accents": False}),
    norm("BertNormalizer", **{**BERT, "lowercase": False}), norm("BertNormalizer", **{**BERT, "clean_text": False}),
    norm("BertNormalizer", **{**BERT, "handle_chinese_chars": False}),
    norms(norm("Prepend", prepend="▁"), replace(" ", "▁")),
]
PRETOKENIZERS = METASPACE + [
    LEGACY, pres(norm("WhitespaceSplit"), METASPACE[0]), pres(norm("WhitespaceSplit"), METASPACE[2]), norm("BertPreTokenizer"),
    norm("Whitespace"), norm("WhitespaceSplit"), norm("Digits", individual_digits=True), norm("Digits", individual_digits=False),
    norm("CharDelimiterSplit", delimiter="e"), BYTE_LEVEL, {**BYTE_LEVEL, "use_regex": False},
    *[norm("Punctuation", behavior=b) for b in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")],
]
LLAMA = decs(replace("▁", " "), norm("ByteFallback"), norm("Fuse"), strip(1, 0))
DECODERS = METASPACE[::2] + [
    None, LLAMA, norm("ByteFallback"), norm("Fuse"), decs(norm("ByteFallback"), replace("[a-e]+", "-", "Regex")),
    decs(norm("Fuse"), replace("[a-e]+\\s*", "-", "Regex")), decs(norm("Fuse"), replace("the", "THE"), replace("aba", "x")),
    decs(norm("Fuse"), strip(2, 0, "▁")), strip(1, 0, "▁"), decs(norm("ByteFallback"), METASPACE[2]), decs(norm("Fuse"), METASPACE[2]),
    norm("WordPiece", prefix="##", cleanup=True), norm("WordPiece", prefix="##", cleanup=False),
    norm("WordPiece", prefix="", cleanup=True), decs(norm("ByteFallback"), norm("Fuse"), norm("WordPiece", prefix="##", cleanup=True)),
    norm("BPEDecoder", suffix="e"), decs(norm("BPEDecoder", suffix="s"), norm("Fuse")), BYTE_LEVEL,
    decs(norm("ByteFallback"), BYTE_LEVEL), decs(BYTE_LEVEL, replace(" ", "_"), strip(1, 0, "_")), replace("", "-"), decs(),
]
POST = [
    norm("BertProcessing", sep=["</s>", 2], cls=["<s>", 1]),
    norm("RobertaProcessing", sep=["</s>", 2], cls=["<s>", 1], trim_offsets=True, add_prefix_space=True),
    norm("Sequence", processors=[BYTE_LEVEL, norm("BertProcessing", sep=["</s>", 2], cls=["<s>", 1])]),
]

TEXTS = ["", " ", "the thing", " the  thing ", "don't do not.", "the\tend\n\nand  12 ", "été ﬁn", "中文 the", "▁the▁a", "thethe", "never.",
         "nevermore thething", "<s>the <s> ing</s>", "x😀yЯz", "A HAT, İ!", "a\u0301\u0323 \u00a0\u3000b\u200b", "€é", "½①Ⅷ", "_a-b_c"]
PIECES = ["the", " ", "  ", "\n", "▁", "é", "e\u0301", "中", "12", ".", "don't", "<s>", "XX", "xx", "s", "nd", "😀", "я", "ver"]


def added(i, content, **flags):
    token = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**token, **flags}


def texts(count):
    return TEXTS + ["".join(rng.choice(PIECES) for _ in range(rng.randint(2, 12))) for _ in range(count)]


def answers(model, parts, chosen, decode):
    """Both kinds of answers for one tokenizer; an id list is decoded with special tokens left out."""
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "model": MODELS[model], **parts}))
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    names = [tokenizer.id_to_token(i) for i in range(size)]
    byte_like = [i for i in range(size) if names[i].startswith("<0x")]
    encoded = [[t, tokenizer.encode(t, add_special_tokens=True).ids] for t in chosen]
    decoded = []
    for _ in range(decode):
        ids = [rng.choice(byte_like) if byte_like and rng.random() < 0.5 else rng.randrange(size) for _ in range(rng.randint(0, 14))]
        decoded.append([ids, tokenizer.decode(ids, skip_special_tokens=True)])
    # The test joins the parts with the model's text, which is in the file once.
    return {"model": model, "parts": json.dumps(parts, ensure_ascii=False, separators=(",", ":"))[1:-1], "encoded": encoded,
            "decoded": decoded}


def main():
    special = [added(i, t, special=True) for i, t in enumerate(["<unk>", "<s>", "</s>"])]

    def parts(**changed):
        return {"added_tokens": special, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None, **changed}

    out = []
    for model in MODELS:
        split = norm("Whitespace") if model.startswith(("wordpiece", "bpe_")) else METASPACE[2]
        decoder = norm("BPEDecoder", suffix="</w>") if MODELS[model].get("end_of_word_suffix") else norm("ByteFallback")
        out.append(answers(model, parts(pre_tokenizer=split, decoder=decoder), texts(6), 4))
        out.append(answers(model, parts(), texts(2), 0))
    for n in NORMALIZERS:
        out.append(answers("bpe", parts(normalizer=n), texts(2), 0))
        out.append(answers("unigram", parts(normalizer=n, pre_tokenizer=METASPACE[0]), rng.sample(TEXTS, 8), 0))
    for p in PRETOKENIZERS:
        out.append(answers("bpe", parts(pre_tokenizer=p), texts(4), 0))
    for d in DECODERS:
        out.append(answers("bpe_bytes" if d == LLAMA else "bpe", parts(decoder=d), [], 20))
    for p in POST:
        out.append(answers("wordpiece", parts(post_processor=p), ["the", ""], 0))
    for _ in range(12):
        names = rng.sample(["<sep>", "XX", "the", "  ", "\n", "é", "e\u0301nd", "▁the", "<a", "<ab>", "s"], 6)
        first = len(MODELS["bpe"]["vocab"])
        names = [n for n in names if n not in MODELS["bpe"]["vocab"]]
        tokens = [added(first + i, n, **{k: rng.random() < 0.4 for k in ("single_word", "lstrip", "rstrip", "normalized")})
                  for i, n in enumerate(names)]
        n = rng.choice([None, norm("NFC"), norm("Lowercase"), norms(norm("Prepend", prepend="▁"), replace(" ", "▁"))])
        out.append(answers("bpe", parts(added_tokens=special + tokens, normalizer=n), texts(8), 3))

    def compact(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    models = ",\n".join(f"{json.dumps(k)}:{compact(compact(v))}" for k, v in MODELS.items())
    variations = ",\n".join(compact(v) for v in out)
    with open("tests/data/tokenizers/variations.json", "w", encoding="utf-8") as f:
        f.write(f'{{"models":{{\n{models}\n}},\n"variations":[\n{variations}\n]}}\n')


main()
