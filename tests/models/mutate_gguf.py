#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes GGUF files that differ by a seed: in what files may differ in, or broken in one field.

  mutate_gguf.py CHECKPOINTS OUT FIRST COUNT STEP

OUT/SEED has the file or the files of each of COUNT seeds, from FIRST on in steps of STEP, and `expect`: "right
CHECKPOINT", whose numbers OUT/SEED/twin has in a plain file, or "refused CHECKPOINT" with a pattern of what the error
must name in the next line. Even seeds are right: types of keys and tensors, orders, alignments and splits are drawn. Odd
seeds go through the list of broken fields, each in a file that is drawn in this way, too.
"""
import json
import os
import random
import struct
import sys

import make_gguf as mg

FOLDERS = ("llama", "mixtral_odd", "gemma2_odd", "deepseek_v2", "gpt_oss_odd", "gpt2_odd")
U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, ARRAY, U64, I64, F64 = range(13)
CODES = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q", I64: "q", F64: "d"}
HUGE = 1 << 60


class Model:
    """A file as lists: keys are [name, type, value], of an array (type, values); tensors are dictionaries."""

    read = {}  # tensors of the folders

    def __init__(self, folder):
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
            config = mg.normalize(json.load(f))
        self.arch, own, paired, gains = mg.ARCHS[config["model_type"]]
        if folder not in Model.read:
            Model.read[folder] = mg.make_tensors(config, folder, own, paired, gains, "F32", False)
        tensors = list(Model.read[folder])
        self.keys = [read_key(k) for k in mg.make_keys(config, self.arch, tensors, False)]
        self.tensors = [{"name": n, "shape": list(s), "x": x, "kind": "F32"} for n, s, x, _ in tensors]
        self.magic, self.version, self.alignment, self.parts = b"GGUF", 3, 32, 1
        self.layers = config["num_hidden_layers"]
        self.cut = self.num_keys = self.num_tensors = None
        self.part_keys = lambda i, n: [["split.no", U32, i], ["split.count", U32, n]]

    def key(self, name):
        return next(k for k in self.keys if k[0] == name)

    def of_arch(self, kinds):
        return [k for k in self.keys if k[0].startswith(self.arch + ".") and k[1] in kinds]


def read_key(raw):
    n = struct.unpack_from("<Q", raw)[0]
    name, kind, body = raw[8:8 + n].decode(), struct.unpack_from("<I", raw, 8 + n)[0], raw[12 + n:]
    value = body[8:].decode() if kind == TEXT else struct.unpack("<" + CODES[kind], body)[0]
    return [name, kind, value]


def put_value(kind, value):
    if isinstance(value, bytes):
        return value
    if kind == TEXT:
        return mg.text(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(put_value(inner, v) for v in items)
    return struct.pack("<" + CODES[kind], value)


def put_name(name):
    return struct.pack("<Q", len(name)) + name if isinstance(name, bytes) else mg.text(name)


def write_part(path, m, keys, tensors):
    infos, data = [], b""
    for t in tensors:
        number = mg.BLOCKS[t["kind"]][0]
        data += bytes(-len(data) % m.alignment)
        raw = mg.encode(t["x"], t["kind"])[0]
        dims = t.get("dims", list(reversed(t["shape"])))
        infos.append(put_name(t["name"]) + struct.pack(f"<I{len(dims)}QIQ", t.get("rank", len(dims)), *dims,
                                                       t.get("type", number), t.get("offset", len(data))))
        data += raw
    if m.shuffle_infos:
        m.shuffle_infos.shuffle(infos)
    counts = [len(infos) if m.num_tensors is None else m.num_tensors, len(keys) if m.num_keys is None else m.num_keys]
    head = m.magic + struct.pack("<IQQ", m.version, *counts)
    head += b"".join(put_name(n) + struct.pack("<I", kind) + put_value(kind, v) for n, kind, v in keys) + b"".join(infos)
    whole = head + bytes(-len(head) % m.alignment) + data
    if m.cut is not None:
        whole = whole[:m.cut(len(head), len(whole))]
    with open(path, "wb") as f:
        f.write(whole)


def write_model(folder, m):
    os.makedirs(folder, exist_ok=True)
    keys = list(m.keys)
    if m.alignment != 32:
        keys.append(["general.alignment", U32, m.alignment])
    if m.parts == 1:
        write_part(os.path.join(folder, "model.gguf"), m, keys, m.tensors)
        return
    for i in range(m.parts):
        mine = m.part_keys(i, m.parts) + ([["general.alignment", U32, m.alignment]] if i and m.alignment != 32 else [])
        path = os.path.join(folder, f"model-{i + 1:05d}-of-{m.parts:05d}.gguf")
        write_part(path, m, mine if i else keys + mine, m.tensors[i::m.parts])


# ---- what files may differ in ----

def other_type(key, draw):
    name, kind, value = key
    if kind == U32 and not name.startswith(("tokenizer", "general")):
        fits = [k for k in (U8, I8, U16, I16, U32, I32, U64, I64) if value < 1 << (8 * struct.calcsize(CODES[k]) - 1)]
        key[1] = draw.choice(fits)
    elif kind == F32 and draw.random() < 0.5:
        key[1] = F64


def vary(m, draw):
    for k in m.keys:
        other_type(k, draw)
    for name in ("attention.head_count_kv", "feed_forward_length"):
        k = next((k for k in m.keys if k[0] == f"{m.arch}.{name}"), None)
        if k and draw.random() < 0.3:
            k[1], k[2] = ARRAY, (U32, [k[2]] * m.layers)
    m.keys += [["general.name", TEXT, "a \u00e9"], ["general.tags", ARRAY, (TEXT, ["x", "", "yz"])],
               ["general.sizes", ARRAY, (I64, [-1, 2])]][:draw.randrange(4)]
    for t in m.tensors:
        kinds = ["F32"]
        plain = "inp" in t["name"] or "position" in t["name"] or t["name"].endswith("bias")
        if len(t["shape"]) >= 2 and not plain:
            kinds += ["BF16", "F16"] + (["Q8_0", "Q4_0", "Q4_1"] if t["shape"][-1] % 32 == 0 else [])
        t["kind"] = draw.choice(kinds)
    draw.shuffle(m.keys)
    draw.shuffle(m.tensors)
    m.alignment = draw.choice((8, 16, 32, 32, 64, 256, 4096))
    m.version = draw.choice((2, 3))
    m.parts = draw.choice((1, 1, 2, 3, 4))


# ---- one field broken: a function of the model, and what the error must name ----

BROKEN = []


def broken(f):
    BROKEN.append(f)
    return f


def in_one_file(m):
    m.parts = 1


def some(m, draw, least=1):
    in_one_file(m)
    return draw.choice([t for t in m.tensors if len(t["shape"]) >= least])


def header_fields():
    """Counts and versions, which no key names."""
    fields = [("magic", b"GGUX", "GGUF|safetensors|no "), ("version", 0, "version"), ("version", 1, "version"),
              ("version", 4, "version"), ("version", 0x03000000, "big-endian"), ("num_keys", HUGE, "keys"),
              ("num_tensors", HUGE, "tensors"), ("num_keys", 1 << 15, "header|name|keys"),
              ("num_tensors", 1 << 12, "header|name|tensor"), ("num_keys", 0, "header|name|tensor|architecture")]
    for name, value, pattern in fields:
        def change(m, draw, name=name, value=value, pattern=pattern):
            in_one_file(m)
            setattr(m, name, value)
            return pattern
        broken(change)


def keys_of_model():
    """Each key of the architecture with another type, each integer too large, and those that must be there left out."""
    def as_text(m, draw):
        k = draw.choice([k for k in m.of_arch((U8, I8, U16, I16, U32, I32, U64, I64, F32, F64)) if read_by_all(k[0])])
        k[1], k[2] = TEXT, "many"
        return k[0]

    def too_large(m, draw):
        names = ("block_count", "embedding_length", "context_length", "attention.head_count")
        k = m.key(f"{m.arch}.{draw.choice(names)}")
        k[1], k[2] = U64, 1 << 40
        return "num_hidden_layers|hidden_size|max_position_embeddings|num_attention_heads|heads|" + k[0]

    def beyond(m, draw):
        k = m.key(f"{m.arch}.{draw.choice(('block_count', 'embedding_length', 'attention.head_count'))}")
        k[1], k[2] = U64, (1 << 64) - 1
        return "num_hidden_layers|hidden_size|num_attention_heads|heads|" + k[0]

    def negative(m, draw):
        k = m.key(f"{m.arch}.{draw.choice(('block_count', 'embedding_length', 'attention.head_count'))}")
        k[1], k[2] = I32, -1
        return k[0]

    def a_float(m, draw):
        k = m.key(f"{m.arch}.{draw.choice(('block_count', 'embedding_length', 'context_length'))}")
        k[1], k[2] = F32, 3.0
        return k[0]

    def left_out(m, draw):
        name, member = draw.choice((("block_count", "num_hidden_layers"), ("embedding_length", "hidden_size"),
                                    ("attention.head_count", "num_attention_heads|heads|rotary|rope|head")))
        m.keys.remove(m.key(f"{m.arch}.{name}"))
        return member

    def not_a_number(m, draw):
        k = next(k for k in m.keys if k[0].endswith("_epsilon"))
        k[1], k[2] = F32, float("nan")
        return "eps|" + k[0]

    def differs(m, draw):
        k = m.key(f"{m.arch}.attention.head_count")
        k[1], k[2] = ARRAY, (U32, [k[2]] * (m.layers - 1) + [k[2] + 1])
        return k[0]

    def unknown(m, draw):
        m.keys.append([f"{m.arch}.a_new_switch", BOOL, True])
        return "a_new_switch"
    for f in (as_text, as_text, as_text, too_large, too_large, beyond, negative, a_float, left_out, left_out, left_out,
              not_a_number, differs, unknown):
        broken(f)


def read_by_all(name):
    return name.split(".", 1)[1] in ("block_count", "embedding_length", "context_length", "attention.head_count")


def keys_of_file():
    """Keys as the container has them."""
    def add(key, pattern):
        def change(m, draw):
            m.keys.append(key)
            return pattern
        broken(change)
    add(["a.key", 13, b""], "a.key|type")
    add(["a.key", ARRAY, struct.pack("<IQ", ARRAY, 1) + bytes(64)], "a.key")
    add(["a.key", ARRAY, struct.pack("<IQ", U32, HUGE)], "a.key")
    add(["a.key", ARRAY, struct.pack("<IQ", TEXT, 1 << 30)], "a.key|header")
    add(["a.key", ARRAY, struct.pack("<IQ", 77, 1) + bytes(8)], "a.key")
    add(["a.key", TEXT, struct.pack("<Q", HUGE)], "a.key")
    add([b"", U32, 1], "name")
    add([b"x" * 300, U32, 1], "name")
    add([b"a\0b", U32, 1], "name")

    def adapter(m, draw):
        m.key("general.type")[2] = "adapter"
        return "adapter"
    broken(adapter)

    def twice(m, draw):
        m.keys.append(list(draw.choice(m.keys)))
        return "two keys|split"
    broken(twice)
    for value in (0, 3, 1 << 24):
        def alignment(m, draw, value=value):
            in_one_file(m)
            m.alignment = 32
            m.keys.append(["general.alignment", U32, value])
            return "general.alignment"
        broken(alignment)

    def architecture(m, draw):
        m.key("general.architecture")[2] = draw.choice(("mamba", "", "llama\n"))
        return "general.architecture"
    broken(architecture)


def fields_of_tensors():
    def set_type(m, draw):
        t = some(m, draw)
        t["type"] = draw.choice((4, 9, 16, 31, 255, 0xffffffff))
        return "tensor " + t["name"]

    def set_rank(m, draw):
        some(m, draw)["rank"] = draw.choice((0, 5, 255, 0xffffffff))
        return "dimensions"

    def size_zero(m, draw):
        t = some(m, draw)
        t["dims"] = [0] + list(reversed(t["shape"]))[1:]
        return t["name"]

    def size_huge(m, draw):
        t = some(m, draw)
        t["dims"] = [1 << 40] + list(reversed(t["shape"]))[1:]
        return t["name"]

    def size_overflows(m, draw):
        t = some(m, draw)
        t["dims"] = [1 << 33, 1 << 33]
        return t["name"]

    def turned(m, draw):
        t = draw.choice([t for t in m.tensors if len(t["shape"]) == 2 and t["shape"][0] != t["shape"][1]])
        t["kind"], t["dims"] = "F32", list(t["shape"])
        return "tensor|vocab|" + t["name"]

    def no_blocks(m, draw):
        t = some(m, draw)
        t["type"], t["dims"] = 8, [24]
        return t["name"]

    def misaligned(m, draw):
        t = some(m, draw)
        t["offset"] = 4
        return "alignment|" + t["name"]

    def far(m, draw):
        t = some(m, draw)
        t["offset"] = draw.choice((1 << 50, (1 << 64) - m.alignment))
        return t["name"]

    def overlap(m, draw):
        in_one_file(m)
        a, b = draw.sample(m.tensors, 2)
        a["offset"] = b["offset"] = 0
        return "before the end|incomplete"

    def renamed(m, draw):
        t = draw.choice(m.tensors)
        t["name"] = "blk.0.attn_zz.weight"
        return "attn_zz|no tensor"

    def of_no_layer(m, draw):
        t = dict(draw.choice([t for t in m.tensors if t["name"].startswith("blk.0.")]))
        t["name"] = t["name"].replace("blk.0.", "blk.99.")
        m.tensors.append(t)
        return "99"

    def missing(m, draw):
        name = draw.choice(("token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight"))
        m.tensors.remove(next(t for t in m.tensors if t["name"] == name))
        return "no tensor|vocab_size"

    def twice(m, draw):
        t = draw.choice(m.tensors)
        m.tensors.append(dict(t))
        return "twice|two|more than once|" + t["name"].split(".")[-2]

    def in_the_header(m, draw):
        in_one_file(m)
        part = draw.random()
        m.cut = lambda head, whole: int(head * part)
        return "header|incomplete|bytes|GGUF|file"

    def in_the_data(m, draw):
        in_one_file(m)
        part = draw.random()
        m.cut = lambda head, whole: head + int((whole - head) * part)
        return "incomplete|beyond|larger"

    def no_part(m, draw):
        m.parts = 3
        m.remove = f"model-{draw.choice((2, 3)):05d}-of-00003.gguf"
        return m.remove

    def wrong_count(m, draw):
        m.parts = 2
        m.part_keys = lambda i, n: [["split.no", U32, i], ["split.count", U32, 3]]
        return "part|split|of-"
    for f in (set_type, set_type, set_rank, size_zero, size_huge, size_overflows, turned, no_blocks, misaligned, far,
              overlap, renamed, of_no_layer, missing, twice, in_the_header, in_the_data, no_part, wrong_count):
        broken(f)


header_fields()
keys_of_model()
keys_of_file()
fields_of_tensors()


def make(checkpoints, out, seed):
    draw = random.Random(seed)
    name = FOLDERS[(seed // 2) % len(FOLDERS)]
    m = Model(os.path.join(checkpoints, name))
    m.shuffle_infos, m.remove = draw, None
    folder = os.path.join(out, str(seed))
    vary(m, draw)
    expect = f"right {name}\n"
    if seed % 2:
        change = BROKEN[(seed // 2) % len(BROKEN)]
        expect = f"refused {name}\n{change(m, draw)}\n"
    write_model(folder, m)
    if m.remove:
        os.remove(os.path.join(folder, m.remove))
    if not seed % 2:
        plain = Model(os.path.join(checkpoints, name))
        plain.shuffle_infos = None
        plain.tensors = [{**t, "x": mg.encode(t["x"], t["kind"])[1], "kind": "F32"} for t in m.tensors]
        write_model(os.path.join(folder, "twin"), plain)
    with open(os.path.join(folder, "expect"), "w", encoding="utf-8") as f:
        f.write(expect)


if __name__ == "__main__":
    first, count, step = (int(a) for a in sys.argv[3:6])
    for s in range(first, first + count * step, step):
        make(sys.argv[1], sys.argv[2], s)
