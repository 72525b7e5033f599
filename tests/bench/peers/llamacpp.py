# SPDX-License-Identifier: Apache-2.0
"""Times llama.cpp (llama-cpp-python) with one thread, in CPU time of its process. One line of JSON.

    llamacpp.py FILE decode SEQUENCES     tokens a second of so many sequences, after prompts of 128
    llamacpp.py FILE prompt LENGTH        tokens a second of a prompt
    llamacpp.py FILE first LENGTH         CPU seconds from before the file is opened to the first token after a prompt
    llamacpp.py FILE memory LENGTH        bytes in memory after a prompt, more than the process had before

LLAMACPP_PLAIN=1 leaves out the kernels that repack weights, among them those of AMX.
"""
import ctypes
import json
import os
import sys
import time

import llama_cpp as lc
import numpy as np

import cpu_time

STEPS = 128
BATCH = 512


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def no_log(_level, _text, _data):
    pass


class Model:
    def __init__(self, path, sequences, room):
        lc.llama_log_set(no_log, None)
        lc.llama_backend_init()
        params = lc.llama_model_default_params()
        params.n_gpu_layers = 0
        params.use_extra_bufts = not os.environ.get("LLAMACPP_PLAIN")
        self.model = lc.llama_load_model_from_file(path.encode(), params)
        context = lc.llama_context_default_params()
        context.n_ctx = sequences * room
        context.n_seq_max = sequences
        context.n_batch = context.n_ubatch = BATCH
        context.n_threads = context.n_threads_batch = 1
        self.context = lc.llama_new_context_with_model(self.model, context)
        self.vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(self.model))
        self.batch = lc.llama_batch_init(BATCH, 0, 1)

    def decode(self, entries):
        """entries: (token, position, sequence, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(entries)
        for i, (token, position, sequence, wanted) in enumerate(entries):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        if lc.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def prompt(self, length, sequence=0):
        ids = [(i * 7919 + 13) % self.vocab for i in range(length)]
        for begin in range(0, length, BATCH):
            part = ids[begin : begin + BATCH]
            self.decode([(t, begin + i, sequence, begin + i == length - 1) for i, t in enumerate(part)])
        return self.best(len(part) - 1)

    def best(self, row):
        """The most likely token after a row of the last batch."""
        logits = lc.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocab,)).argmax())


def main():
    path, what, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
    own = os.getpid()
    before = cpu_time.resident(own).get("Pss", 0)
    start = time.process_time()
    if what == "decode":
        model = Model(path, number, 512)
        tokens = [model.prompt(128, s) for s in range(number)]
        start = time.process_time()
        for step in range(STEPS):
            model.decode([(tokens[s], 128 + step, s, True) for s in range(number)])
            tokens = [model.best(s) for s in range(number)]
        result = {"rate": STEPS * number / (time.process_time() - start)}
    elif what == "prompt":
        model = Model(path, 1, number + BATCH)
        model.prompt(16)
        lc.llama_memory_clear(lc.llama_get_memory(model.context), True)
        start = time.process_time()
        model.prompt(number)
        took = time.process_time() - start
        result = {"rate": number / took, "seconds": took}
    else:
        model = Model(path, 1, 2048)
        model.prompt(number)
        took = time.process_time() - start
        after = cpu_time.resident(own)
        result = {"seconds": took, "bytes": after.get("Pss", 0) - before, "anonymous": after.get("Anonymous", 0)}
    print(json.dumps({"peer": "llama.cpp", "what": what, "number": number, **result}))


if __name__ == "__main__":
    main()
