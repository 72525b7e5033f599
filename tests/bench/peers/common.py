# SPDX-License-Identifier: Apache-2.0
"""What the peers' scripts share: a clock that waits for the device, random weights, and one line of JSON for each result."""
import json
import statistics
import time

import torch

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def device():
    return "cuda" if torch.cuda.is_available() else "cpu"


def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(fn):
    """Milliseconds that a call takes, until its results are there."""
    sync()
    start = time.perf_counter()
    fn()
    sync()
    return (time.perf_counter() - start) * 1e3


def median_ms(fn, times):
    return statistics.median(timed(fn) for _ in range(times))


def random_model(auto_class, config, dtype):
    """A model of that shape with random weights, made where it runs."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    with torch.device(device()):
        return auto_class.from_config(config, dtype=dtype).to(dtype).eval()


def prompt(batch, length, vocab):
    """The ids of `trireme bench latency`."""
    row = [(i * 7919 + 13) % vocab for i in range(length)]
    return torch.tensor([row] * batch, device=device())


def matrix_bytes(model):
    """Weights that a step reads: matrices, without the embeddings' lookups; a head that is the embedding counts."""
    lookups = {m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    head = model.get_output_embeddings()
    counted = {p for p in model.parameters() if p.dim() == 2} - lookups
    if head is not None:
        counted.add(head.weight)
    return sum(p.numel() * p.element_size() for p in counted)


def show(**fields):
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in fields.items()}
    print(json.dumps(rounded, separators=(",", ":")), flush=True)
