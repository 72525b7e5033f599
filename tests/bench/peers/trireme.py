# SPDX-License-Identifier: Apache-2.0
"""Times `trireme up` with one thread as llamacpp.py times llama.cpp, in CPU time of all its processes. One line of JSON.

    trireme.py FOLDER FILE WHAT NUMBER [OPTION...]     FOLDER has the programs; options are those of `trireme up`
"""
import concurrent.futures
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import cpu_time

STEPS = 128
LIMIT = 600


class Server:
    def __init__(self, folder, path, options, work):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        env = dict(os.environ, XDG_RUNTIME_DIR=work, XDG_STATE_HOME=work + "/state")
        env.pop("TRIREME_ENDPOINT", None)
        command = [folder + "/trireme", "up", "--model", path, "--backend", "cpu", "--threads", "1", "--http", str(self.port)]
        with open(work + "/log", "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command + options, env=env, stdout=log, stderr=log, start_new_session=True)
        self.root = self.process.pid
        self.log = work + "/log"
        until = time.monotonic() + LIMIT
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > until:
                with open(self.log, encoding="utf-8") as log:
                    sys.exit("trireme up does not serve: " + log.read()[-2000:])
            time.sleep(0.05)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, json.dumps(body) if body else None, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status}: {text[:300]}")
        return json.loads(text) if text else None

    def answers(self):
        try:
            self.model = self.call("GET", "/v1/models")["data"][0]["id"]
            self.call("GET", "/health")
            return True
        except (OSError, RuntimeError, LookupError, ValueError):
            return False

    def complete(self, length, answer, first=0):
        ids = [first] + [(i * 7919 + 13) % 49152 for i in range(1, length)]
        body = {"model": self.model, "prompt": ids, "max_tokens": answer, "temperature": 0, "ignore_eos": True}
        used = self.call("POST", "/v1/completions", body)["usage"]["completion_tokens"]
        if used != answer:
            raise RuntimeError(f"{used} tokens in place of {answer}")

    def all_at_once(self, sequences, length, answer):
        """CPU seconds of so many requests; each has a first token of its own, so that none is answered from another's prefix."""
        start = cpu_time.seconds(self.root)
        self.round = getattr(self, "round", 100) + sequences
        with concurrent.futures.ThreadPoolExecutor(sequences) as pool:
            for done in [pool.submit(self.complete, length, answer, self.round + i) for i in range(sequences)]:
                done.result()
        return cpu_time.seconds(self.root) - start

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LIMIT)


def measure(server, what, number):
    if what == "decode":
        server.all_at_once(number, 128, 2)
        prompts = server.all_at_once(number, 128, 1)
        whole = server.all_at_once(number, 128, 1 + STEPS)
        return {"rate": STEPS * number / (whole - prompts)}
    if what == "prompt":
        server.all_at_once(1, 16, 1)
        took = server.all_at_once(1, number, 1)
        return {"rate": number / took, "seconds": took}
    server.complete(number, 1)
    took = cpu_time.seconds(server.root)
    after = cpu_time.resident(server.root)
    return {"seconds": took, "bytes": after.get("Pss", 0), "anonymous": after.get("Anonymous", 0)}


def main():
    folder, path, what, number = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    with tempfile.TemporaryDirectory() as work:
        server = Server(folder, path, sys.argv[5:], work)
        try:
            result = measure(server, what, number)
        finally:
            server.stop()
    print(json.dumps({"peer": " ".join(["trireme", *sys.argv[5:]]), "what": what, "number": number, **result}))


if __name__ == "__main__":
    main()
