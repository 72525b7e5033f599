#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words of comments and documents, and names in code, that have a plainer one: docs/glossary.md, CONTRIBUTING.md.

  words.py [TREE]      names each place, and what to write
  words.py --self-test
"""
import os
import re
import sys

FOLDERS = ("base", "text", "runtime", "kernels", "comm", "offload", "worker", "coordinator", "client", "tools")
GAP = r"(?:\s|\n \* )+"  # between the words of a comment

WORDS = [
    (r"\bbehind\b", "after (in order), or what it is behind of: a proxy, an interface"),
    (r"\b[Ii]n front of\b", "before"),
    (r"\b(?:Tells|Says) (?:whether|if)\b", "Returns whether"),
    (r"\b(?:[Nn]obody|[Ss]omebody|[Ww]hoever)\b", "the client, rank, process or user that it is"),
    (r"\bso-manieth\b", "every Nth"),
    (r"(?m)^(?:<{7}|>{7}) \w+", "one side of the merge that has left this"),
]
# Of comments alone: pages that others write have some left.
COMMENT_WORDS = [
    (r"\b(?:goes|go) on\b", "continues, or what it is queued on"),
    (r"\b(?:comes?|came) (?:back|again)\b", "returns, is repeated, is swapped in"),
    (r"\b[Bb]esides?\b", "next to (a place), concurrently with (in time), compared with, or in addition to"),
    (r"\b(?:is|are) told\b", "gets, learns of, is distinguished, is reported"),
]
# Names in the code of these folders. The protocol, JSON and client/trireme.h keep older ones.
NAMES = [
    (FOLDERS, r"\btri_(?:group|shards|exchange|product|floors|draw)(?:_\w*)?\b", "replica, dp_ranks, all2all, gemm, rooflines, sample"),
    (("runtime", "worker"), r"\b(?:\w+_)?lanes?(?:_\w+)?\b", "micro_batch"),
    (("runtime", "worker", "kernels"), r"\b(?:\w+_)?(?:draws?|drawn)(?:_\w+)?\b", "sample"),
    (("worker/schedule",), r"\b(?:\w+_)?(?:shards?|away)(?:_\w+)?\b", "dp_rank, swapped"),
]
# Where these words are the right ones.
RIGHT = [
    r"(?:left|leaves?|leave|stays?|lags?|fall\w*|falls?|hide\w*|hidden|is|are|wait|waits) behind",
    r"behind (?:a|an|one|the|this|another|its) (?:\w+ )?(?:proxy|Service|service|table|call|header|interface|driver|device|"
    r"thread's|NAT|balancer|cluster)",
    r"behind (?:zsock\.h|many|which|it to|closed doors)|who is behind it|the files? z\*\.c behind|is behind of|furthest behind|leaves? no \w+ behind",
    r"in front of (?:a|the|its|another) (?:\w+ )?(?:coordinator|proxy|cluster|gateway|deep one|batcher)|proxy in front of it",
]
right = re.compile("|".join("(?:%s)" % r.replace(" ", GAP) for r in RIGHT))


def hits(text, words=WORDS):
    for pattern, instead in words:
        for match in re.finditer(pattern.replace(" ", GAP), text):
            if not any(r.start() <= match.start() < r.end() for r in right.finditer(text)):
                yield match.start(), match.group(0), instead


def texts(path):
    """The parts of a file that people read: a document, or the comments of a source, each with its first line."""
    with open(path, encoding="utf8") as file:
        whole = file.read()
    if path.endswith(".md"):
        plain = re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group(0)), whole)
        return [(1, re.sub(r"(?m)^ {4}.*$", "", plain))]
    return [(whole.count("\n", 0, m.start()) + 1, m.group(0)) for m in re.finditer(r"/\*.*?\*/", whole, re.S)]


def code(whole):
    """A source without its comments, texts and includes, on the same lines."""
    blank = lambda m: "\n" * m.group(0).count("\n")
    return re.sub(r'/\*.*?\*/|//[^\n]*|#include[^\n]*|"(?:\\.|[^"\\\n])*"', blank, whole, flags=re.S)


def names(name, whole):
    plain = code(whole)
    for folders, pattern, instead in NAMES:
        if any(name.startswith(folder + "/") for folder in folders):
            for match in re.finditer(pattern, plain):
                yield plain.count("\n", 0, match.start()) + 1, match.group(0), instead


def files(tree):
    yield from ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
    for top in FOLDERS + ("docs",):
        for folder, _, names in os.walk(os.path.join(tree, top)):
            yield from (os.path.relpath(os.path.join(folder, name), tree) for name in sorted(names))


def check(tree):
    wrong = seen = 0
    for name in files(tree):
        is_source = name.split("/")[0] in FOLDERS and re.search(r"\.(c|h|cu|cuh)$", name)
        is_page = re.match(r"(README|CONTRIBUTING|CHANGELOG|docs/(?!decisions|performance-log).*)\.md$", name)
        if not is_source and not is_page:
            continue
        seen += 1
        if is_source:
            with open(os.path.join(tree, name), encoding="utf8") as file:
                for line, word, instead in names(name, file.read()):
                    print("%s:%d: '%s': %s" % (name, line, word, instead))
                    wrong += 1
        for line, text in texts(os.path.join(tree, name)):
            for at, word, instead in hits(text, WORDS + COMMENT_WORDS if is_source else WORDS):
                print("%s:%d: '%s': %s" % (name, line + text.count("\n", 0, at), " ".join(word.split()), instead))
                wrong += 1
    if not seen:
        sys.exit("nothing to read in %s" % tree)
    print("%d files, %d words" % (seen, wrong))
    return 1 if wrong else 0


def self_test():
    for text, count in (("/* Comes behind it. */", 1), ("/* in front\n * of it */", 1), ("/* Tells whether x. */", 1),
                        ("a server behind a proxy", 0), ("it is left behind", 0), ("Whoever asks, nobody answers", 2),
                        ("/* It goes\n * on beside it. */", 2), ("/* What comes back, clients are told. */", 2),
                        ("/* It continues next to it, and returns. */", 0)):
        found = list(hits(text, WORDS + COMMENT_WORDS))
        if len(found) != count:
            sys.exit("%s: %s" % (text, found))
    for name, text, count in (("comm/a.c", "tri_group_make(x); /* tri_group */", 1), ("worker/a.c", 'lane = num_lanes; "lane"', 2),
                              ("kernels/a.cu", "lane = drawn[0];", 1), ("tools/top/a.c", "draw(screen);", 0)):
        found = list(names(name, text))
        if len(found) != count:
            sys.exit("%s: %s: %s" % (name, text, found))
    print("every planted word was found")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        sys.exit(check(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")))
