#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a Trireme coordinator over ZeroMQ, and prints the answer as it comes. Needs pyzmq and msgpack.

    ask_zeromq.py PROMPT     of the socket of this user, or of TRIREME_ENDPOINT with TRIREME_KEY_FILE and TRIREME_SERVER_KEY
"""
import os
import sys

import msgpack
import zmq

runtime = os.environ.get("XDG_RUNTIME_DIR")
default = f"ipc://{runtime}/trireme.sock" if runtime else f"ipc:///tmp/trireme-{os.getuid()}.sock"
socket = zmq.Context().socket(zmq.DEALER)
if "TRIREME_SERVER_KEY" in os.environ:  # over TCP: a key pair of `trireme keygen`, whose public half the coordinator knows
    with open(os.environ["TRIREME_KEY_FILE"], "rb") as pair:
        socket.curve_publickey, socket.curve_secretkey = pair.read().split()[:2]
    socket.curve_serverkey = os.environ["TRIREME_SERVER_KEY"].encode()
socket.setsockopt(zmq.LINGER, 0)
socket.setsockopt(zmq.RCVTIMEO, 60000)
socket.connect(os.environ.get("TRIREME_ENDPOINT", default))

request = {"v": 1, "op": "submit", "id": 1, "prompt": sys.argv[1], "max_tokens": 64, "temperature": 0}
socket.send(msgpack.packb(request))
while True:
    unpacker = msgpack.Unpacker()
    unpacker.feed(socket.recv())
    for reply in unpacker:  # a frame holds any number of maps, or none
        if reply["op"] == "error":
            sys.exit(f"{reply['code']}: {reply['message']}")
        for choice in reply.get("choices", []):
            print(choice.get("text", ""), end="", flush=True)
        if reply["op"] == "done":
            print()
            sys.exit()
