# SPDX-License-Identifier: Apache-2.0
"""A server of completions as one writes it in Python, for tests/bench/gateway.sh: Starlette behind uvicorn.

It has no model: every STEP_US a step makes a token for each stream, whose text is the monotonic clock's nanoseconds.

    sse.py PORT STEP_US
"""
import asyncio
import json
import sys
import time

import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

queues = set()


async def step(every):
    due = time.monotonic() + every
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        due += every
        stamp = time.monotonic_ns()
        for queue in queues:
            queue.put_nowait(stamp)


async def tokens(count):
    queue = asyncio.Queue()
    queues.add(queue)
    try:
        for _ in range(count):
            stamp = await queue.get()
            event = {
                "id": "cmpl-00000000000000000000000000000000",
                "object": "text_completion",
                "created": 1764000000,
                "model": "fake",
                "choices": [{"index": 0, "text": f" {stamp}", "logprobs": None, "finish_reason": None}],
            }
            yield "data: " + json.dumps(event, separators=(",", ":")) + "\n\n"
    finally:
        queues.discard(queue)
    yield "data: [DONE]\n\n"


async def completions(request):
    body = await request.json()
    return StreamingResponse(tokens(body["max_tokens"]), media_type="text/event-stream")


async def main(port, step_us):
    app = Starlette(routes=[Route("/v1/completions", completions, methods=["POST"])])
    asyncio.create_task(step(step_us * 1e-6))
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", access_log=False, backlog=4096)
    await uvicorn.Server(config).serve()


asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
