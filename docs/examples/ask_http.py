#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks a Trireme gateway over HTTP, and prints the answer as it comes. Needs the standard library alone.

    ask_http.py PROMPT     of http://127.0.0.1:8000, or of TRIREME_URL, with the key TRIREME_API_KEY where it wants one
"""
import json
import os
import sys
import urllib.error
import urllib.request

url = os.environ.get("TRIREME_URL", "http://127.0.0.1:8000") + "/v1/completions"
headers = {"Content-Type": "application/json"}
if "TRIREME_API_KEY" in os.environ:
    headers["Authorization"] = "Bearer " + os.environ["TRIREME_API_KEY"]
body = {"prompt": sys.argv[1], "max_tokens": 64, "temperature": 0, "stream": True}
request = urllib.request.Request(url, json.dumps(body).encode(), headers)
try:
    with urllib.request.urlopen(request, timeout=60) as answer:
        for line in answer:  # server-sent events: "data: {...}", comments, and empty lines
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                sys.exit(event["error"]["message"])
            for choice in event["choices"]:
                print(choice["text"], end="", flush=True)
    print()
except urllib.error.HTTPError as error:
    sys.exit(json.load(error)["error"]["message"])
