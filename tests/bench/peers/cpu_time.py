# SPDX-License-Identifier: Apache-2.0
"""CPU time and memory of a process and all that it has started, as Linux counts them."""
import os

TICK = os.sysconf("SC_CLK_TCK")


def fields(pid):
    """The fields of /proc/PID/stat from the state on; None of a process that is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def family(root):
    """The process and its descendants."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := fields(name)):
            parents.setdefault(int(stat[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        found.append(queue.pop())
        queue += parents.get(found[-1], [])
    return found


def seconds(root):
    """CPU time of the process and its descendants, also of those that it has waited for."""
    stats = [stat for pid in family(root) if (stat := fields(pid))]
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / TICK


def resident(root):
    """Bytes in memory, where a page that several share counts in parts; {} without a right to know."""
    total = {}
    for pid in family(root):
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            key, value = line.split(":")
            total[key] = total.get(key, 0) + int(value.split()[0]) * 1024
    return total
