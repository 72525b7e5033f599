#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Circles of source files: those of which each calls the next one, and the last the first.

Such files are one unit that was cut up: they are read, tested and changed together only. A file should hold a whole
subject, and call what lies below it.

  circles.py BUILD       reads the object files of a build: which functions each defines, and which it refers to
  circles.py --self-test

Fails on a circle that ALLOWED does not name, and on a name there that is none any more.
"""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("base", "text", "runtime", "kernels", "comm", "offload", "worker", "coordinator", "client", "tools")

# The files of a circle, and why it is one.
ALLOWED = {}


def objects(build):
    """Pairs of an object file and its source, as a path from the root of the tree."""
    for folder, _, names in os.walk(build):
        parts = folder.split(os.sep)
        target = next((i for i, part in enumerate(parts) if part.endswith(".dir")), None)
        if target is None:
            continue
        inside = parts[target + 1:]
        for name in names:
            source = "/".join(inside + [name[:-2]])
            is_source = source.split("/")[0] in FOLDERS and os.path.exists(os.path.join(ROOT, source))
            if name.endswith(".o") and is_source:  # a file that has moved leaves its object behind
                yield os.path.join(folder, name), source


def arrows(build):
    """For each source the sources that define what it refers to."""
    paths = {source: path for path, source in objects(build)}  # one object of those of a file that is in several programs
    sources = {path: source for source, path in paths.items()}
    defines, wants = {}, {source: set() for source in paths}
    for line in subprocess.run(["nm", "-A", "-P"] + sorted(sources), capture_output=True, text=True, check=True).stdout.splitlines():
        path, name, kind = line.split()[:3]
        source = sources[path[:-1]]  # without its colon
        if kind in "TW" and name != "main":
            defines.setdefault(name, set()).add(source)
        elif kind == "U":
            wants[source].add(name)
    return {s: {d for name in names for d in defines.get(name, ()) if d != s} for s, names in wants.items()}


def circles(graph):
    """Strongly connected components of more than one node (Tarjan, SIAM J. Comput. 1972), each sorted."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(root):
        work = [(root, iter(sorted(graph.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for to in rest:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    on_stack.add(to)
                    work.append((to, iter(sorted(graph.get(to, ())))))
                    break
                if to in on_stack:
                    low[node] = min(low[node], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members = stack[stack.index(node):]
                    del stack[stack.index(node):]
                    on_stack.difference_update(members)
                    if len(members) > 1:
                        found.append(tuple(sorted(members)))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found, key=lambda c: (-len(c), c))


def self_test():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"g"}, "g": {"e", "a"}}
    found = circles(graph)
    if found != [("e", "f", "g"), ("b", "c")]:
        sys.exit("circles of the planted graph: %s" % found)
    if circles({"a": {"b"}, "b": set()}):
        sys.exit("a circle where there is none")
    print("every planted circle was found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    graph = arrows(sys.argv[1])
    if not graph:
        sys.exit("no object files in %s: is it a build?" % sys.argv[1])
    found = circles(graph)
    new = [c for c in found if c not in ALLOWED]
    gone = [c for c in ALLOWED if c not in found]
    for c in new:
        print("a circle of %d files:" % len(c))
        for f in c:
            print("  %s -> %s" % (f, ", ".join(sorted(graph[f] & set(c)))))
    for c in gone:
        print("ALLOWED names what is no circle: %s" % ", ".join(c))
    print("%d files, %d circles, %d of them allowed" % (len(graph), len(found), len(found) - len(new)))
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
