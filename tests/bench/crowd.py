#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streaming clients that come and go for a long time, and whether the gateway and the coordinator grow by it.

   crowd.py FOLDER [--minutes 10] [--streams 1000] [--step-us 500000]

FOLDER has trireme-gateway and the tests' fake_coordinator, which answers with a token a step. So many clients are there
at a time. Seven of ten read a whole answer of 5 to 60 tokens; one reads a few bytes a second and then leaves; one
vanishes in the middle, mostly by a reset; one sends its request in pieces over some seconds, or leaves half of it.
Every 10 s the resident memory and the open descriptors of both processes are sampled. At the end a line for each says
the memory, its slope by least squares after the first fifth of the time, and the descriptors while crowded and after
the last client has left. Exits 1 where the median of the last quarter of the memory is more than 3% and 2 MiB above that of the
second, where descriptors are left, or where an answer that was read whole is not whole.
"""
import argparse
import asyncio
import collections
import json
import os
import random
import re
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SAMPLE_S = 10
KINDS = ["reader"] * 7 + ["slow reader", "vanishing", "slow sender"]


def options():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--streams", type=int, default=1000)
    p.add_argument("--step-us", type=int, default=500000)
    return p.parse_args()


def request(tokens):
    body = json.dumps({"model": "m", "prompt": "a crowd", "max_tokens": tokens, "stream": True, "ignore_eos": True})
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}").encode()


class Crowd:
    def __init__(self, port, r):
        self.port, self.r = port, r
        self.count = collections.Counter()
        self.is_over = False

    async def connect(self, receive_bytes=0):
        s = socket.socket()
        s.setblocking(False)
        if receive_bytes:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.port))
        return s

    async def read(self, s, most=1 << 16):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(s, most), 120)

    async def send(self, s, data):
        await asyncio.get_running_loop().sock_sendall(s, data)

    async def reader(self, s):
        await self.send(s, request(self.r.randint(5, 60)))
        await self.read_whole(s)

    async def read_whole(self, s):
        end = b""
        while data := await self.read(s):
            end = (end + data)[-200:]
        if b"[DONE]" not in end:
            self.count["answers that are not whole"] += 1

    async def slow_reader(self, s):
        await self.send(s, request(200))
        for _ in range(self.r.randint(5, 30)):
            await self.read(s, 64)
            await asyncio.sleep(1)

    async def vanishing(self, s):
        await self.send(s, request(60))
        await asyncio.sleep(self.r.uniform(0, 10))
        if self.r.random() < 0.7:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def slow_sender(self, s):
        data = request(5)
        stays = self.r.random() < 0.7
        for at in range(0, len(data) if stays else len(data) // 2, 32):
            await self.send(s, data[at:at + 32])
            await asyncio.sleep(self.r.uniform(0.1, 0.8))
        if stays:
            await self.read_whole(s)

    async def client(self):
        await asyncio.sleep(self.r.uniform(0, 10))
        while not self.is_over:
            kind = self.r.choice(KINDS)
            self.count[kind] += 1
            s = await self.connect(4096 if kind == "slow reader" else 0)
            try:
                await getattr(self, kind.replace(" ", "_"))(s)
            except (OSError, asyncio.TimeoutError) as e:
                self.count[f"{kind}: {type(e).__name__}"] += 1
            finally:
                s.close()


class Process:
    def __init__(self, name, command, pattern, out, **more):
        self.name, self.memory, self.descriptors = name, [], []
        self.out = open(out, "w+b")
        self.process = subprocess.Popen(command, stdout=self.out, stderr=subprocess.STDOUT, **more)
        for _ in range(200):
            with open(out, "rb") as f:
                self.said = re.search(pattern, f.read().decode())
            if self.said:
                return
            time.sleep(0.05)
        sys.exit(f"crowd.py: {name} does not serve")

    def resident_kib(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s*(\d+)", f.read())[1])

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def sample(self):
        self.memory.append(self.resident_kib())
        self.descriptors.append(self.open_descriptors())

    def report(self, before):
        """Prints what was sampled. Returns whether it is right."""
        n = len(self.memory)
        later = self.memory[n // 5:]
        slope = statistics.linear_regression([i * SAMPLE_S / 60 for i in range(len(later))], later).slope if len(later) > 1 else 0
        after = self.open_descriptors()
        print(f"{self.name}: {self.memory[0]} KiB at first, {later[0]} after a fifth, {self.memory[-1]} at last, most {max(self.memory)}, "
              f"slope {slope:+.1f} KiB a minute; descriptors {before} before, up to {max(self.descriptors)}, {after} after")
        second, last = statistics.median(self.memory[n // 4:n // 2] or self.memory), statistics.median(self.memory[-max(1, n // 4):])
        return last <= second * 1.03 + 2048 and after <= before + 2

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.out.close()


async def run(o, processes, crowd):
    clients = [asyncio.create_task(crowd.client()) for _ in range(o.streams)]
    end = time.monotonic() + o.minutes * 60
    while time.monotonic() < end:
        await asyncio.sleep(min(SAMPLE_S, o.minutes * 6))
        for p in processes:
            p.sample()
        failed = [c for c in clients if c.done()]
        if failed:
            failed[0].result()
            sys.exit("crowd.py: a client is gone")
    crowd.is_over = True
    await asyncio.gather(*clients)
    await asyncio.sleep(3)


def main():
    o = options()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as work:
        env = {**os.environ, "TRIREME_ENDPOINT": f"ipc://{work}/t.sock"}
        command = [f"{o.folder}/fake_coordinator", "--step-us", str(o.step_us)]
        fake = Process("coordinator", command, "sock", f"{work}/fake", env=env)
        command = [f"{o.folder}/trireme-gateway", "--http", "127.0.0.1:0"]
        gateway = Process("gateway", command, r"(?s)http://127.0.0.1:(\d+).*serving", f"{work}/gateway", env=env)
        processes = [gateway, fake]
        try:
            before = [p.open_descriptors() for p in processes]
            crowd = Crowd(int(gateway.said[1]), random.Random(1))
            asyncio.run(run(o, processes, crowd))
            print(f"{o.streams} clients at a time for {o.minutes:g} minutes: " + ", ".join(f"{n} {k}" for k, n in sorted(crowd.count.items())))
            right = [p.report(b) for p, b in zip(processes, before)]
        finally:
            for p in processes:
                p.stop()
    sys.exit(not all(right) or crowd.count["answers that are not whole"] > 0)


if __name__ == "__main__":
    main()
