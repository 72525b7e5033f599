#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of a recorded decode step goes: timeline.py FILE [STEP_MS]. FILE is what a build with
TRIREME_CUDA_TIMELINE writes to TRIREME_TIMELINE (kernels/cuda/device/timeline.h).

A kernel's time is from the moment when its first block has waited for the kernel before it to the same moment of the
next kernel: these times add up to the step. `early` is how long that block was on the device before it had waited.
Kernels of libraries do not stamp; their time is with the kernel before them, and the line names both."""
import re
import statistics
import sys


def short(name):
    """The function's identifier and the numbers of its template, of a mangled name."""
    m = re.match(r'_Z(?:N|L)*(\d+)', name)
    if not m:
        return re.sub(r'^(nvjet_\w+?|cublas\w*?|.{28}).*', r'\1', name)
    at = m.end()
    ident, rest = name[at:at + int(m[1])], name[at + int(m[1]):]
    while ident.startswith('_GLOBAL__N') or ident.startswith('_INTERNAL'):
        m = re.match(r'(\d+)', rest)
        ident, rest = rest[len(m[0]):len(m[0]) + int(m[0])], rest[len(m[0]) + int(m[0]):]
    args = re.match(r'I(.*?)E(?:v|i|E|$)', rest)
    numbers = re.findall(r'L[ib](\d+)E', rest)
    return ident + ('<' + ','.join(numbers) + '>' if args and numbers else '')


def main():
    steps = {}
    for line in open(sys.argv[1]):
        step, name, begun, waited = line.rstrip('\n').split('\t')
        steps.setdefault(int(step), []).append((short(name), int(begun), int(waited)))
    order = sorted(steps)
    if len(order) < 2:
        sys.exit('timeline: fewer than two steps were recorded')
    rows, totals = {}, []
    for s, following in zip(order, order[1:]):
        stamped = [k for k in steps[s] if k[2]] + [next(k for k in steps[following] if k[2])]
        totals.append(stamped[-1][2] - stamped[0][2])
        at = -1
        names = []
        for k in steps[s]:  # a kernel and those after it that do not stamp
            if k[2]:
                at += 1
                names.append(k[0])
            elif names:
                names[-1] += ' + ' + k[0]
        for i, name in enumerate(names):
            rows.setdefault(name, {}).setdefault(i, []).append(
                (stamped[i + 1][2] - stamped[i][2], stamped[i][2] - stamped[i][1]))
    total = statistics.median(totals)
    print(f'{"kernel":64} {"times":>5} {"us each":>8} {"min":>7} {"max":>7} {"early":>7} {"us a step":>10} {"share":>6}')
    lines = []
    for name, places in rows.items():
        each = [statistics.median(t for t, _ in p) / 1e3 for p in places.values()]
        early = [statistics.median(e for _, e in p) / 1e3 for p in places.values()]
        lines.append((sum(each), name, each, early))
    for whole, name, each, early in sorted(lines, reverse=True):
        print(f'{name[:64]:64} {len(each):5} {whole / len(each):8.2f} {min(each):7.2f} {max(each):7.2f} '
              f'{sum(early) / len(early):7.2f} {whole:10.1f} {whole * 1e5 / total:5.1f}%')
    whole = sum(l[0] for l in lines)
    print(f'sum {whole / 1e3:.3f} ms; a step {total / 1e6:.3f} ms ({len(totals)} of them, median)'
          + (f'; measured without stamps {float(sys.argv[2]):.3f} ms' if len(sys.argv) > 2 else ''))


main()
