#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Put classification heads on the encoders in tests/data/checkpoints, with what they answer.

    make_heads.py CHECKPOINTS [--seed N]

Reads CHECKPOINTS/{bert,roberta,distilbert,albert} and writes CHECKPOINTS/NAME_{sequences,tokens}: the same weights under
the names that a classifier's file has, a random head, and as logits.I the head's formula, computed here in double from the
final states that the reference stored (encoder.I, kept). So the answers owe nothing to the program under test, and this
needs neither torch nor numpy. qwen3_embedding gets a head of its last state, in qwen3_sequences.
"""
import argparse
import json
import math
import os
import random
import struct

LABELS = 3
LEAST = 3  # mean square of a prompt's answers: near zero, the rounding of the stored states would be all that shows
# model: class, prefix, sequences: (layers of the head with their tensors' names, activation between them)
MODELS = {
    'bert': ('Bert', 'bert.', [('bert.pooler.dense', None), ('classifier', LABELS)], math.tanh),
    'roberta': ('Roberta', 'roberta.', [('classifier.dense', None), ('classifier.out_proj', LABELS)], math.tanh),
    'distilbert': ('DistilBert', 'distilbert.', [('pre_classifier', None), ('classifier', LABELS)], lambda x: max(x, 0.0)),
    'albert': ('Albert', 'albert.', [('albert.pooler', None), ('classifier', LABELS)], math.tanh),
    'qwen3_embedding': ('Qwen3', 'model.', [('score', LABELS)], None),
}
DECODERS = ('qwen3_embedding',)  # their heads have no biases


def read(path):
    data = open(path, 'rb').read()
    size = struct.unpack('<Q', data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop('__metadata__', None)
    return {name: (t['dtype'], t['shape'], data[8 + size + t['data_offsets'][0]:8 + size + t['data_offsets'][1]])
            for name, t in header.items()}


def write(path, tensors):
    header, at = {'__metadata__': {'format': 'pt'}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {'dtype': dtype, 'shape': shape, 'data_offsets': [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as out:
        out.write(struct.pack('<Q', len(text)) + text)
        for _, _, data in tensors.values():
            out.write(data)


def encode(dtype, values):
    if dtype == 'BF16':  # the upper half of a float32; the values are cut, not rounded
        return b''.join(struct.pack('<f', v)[2:] for v in values)
    return struct.pack('<%d%s' % (len(values), {'F32': 'f', 'F16': 'e'}[dtype]), *values)


def decode(dtype, data):
    if dtype == 'BF16':
        data = b''.join(b'\0\0' + data[i:i + 2] for i in range(0, len(data), 2))
    kind, size = ('e', 2) if dtype == 'F16' else ('f', 4)
    return struct.unpack('<%d%s' % (len(data) // size, kind), data)


def head(dtype, hidden, layers, rng, biased):
    """The layers' tensors, and their weights as stored."""
    tensors, stored = {}, []
    for name, out in layers:
        out = out or hidden
        weight = encode(dtype, [rng.gauss(0, 2 / math.sqrt(hidden)) for _ in range(out * hidden)])
        bias = encode(dtype, [rng.gauss(0, 0.5) for _ in range(out)])
        tensors[name + '.weight'] = (dtype, [out, hidden], weight)
        if biased:
            tensors[name + '.bias'] = (dtype, [out], bias)
        w = decode(dtype, weight)
        stored.append(([w[i * hidden:(i + 1) * hidden] for i in range(out)],
                       decode(dtype, bias) if biased else [0.0] * out))
    return tensors, stored


def apply(stored, act, x):
    for i, (weight, bias) in enumerate(stored):
        x = [math.fsum(a * b for a, b in zip(row, x)) + c for row, c in zip(weight, bias)]
        if i + 1 < len(stored):
            x = [act(v) for v in x]
    return x


def make(folder, model, what, rng):
    name, prefix, layers, act = MODELS[model]
    source, out = os.path.join(folder, model), os.path.join(folder, '%s_%s' % (model.split('_')[0], what))
    config = json.load(open(os.path.join(source, 'config.json')))
    config['architectures'] = [name + ('ForSequenceClassification' if what == 'sequences' else 'ForTokenClassification')]
    config['id2label'] = {str(i): 'LABEL_%d' % i for i in range(LABELS)}
    config['label2id'] = {'LABEL_%d' % i: i for i in range(LABELS)}
    weights, expected = read(os.path.join(source, 'model.safetensors')), read(os.path.join(source, 'expected.safetensors'))
    hidden, dtype = expected['encoder.0'][1][1], next(iter(weights.values()))[0]
    layers = layers if what == 'sequences' else [('classifier', LABELS)]
    states = []
    for i in range(sum(k.startswith('prompt.') for k in expected)):
        flat = decode('F32', expected['encoder.%d' % i][2])
        rows = [flat[r:r + hidden] for r in range(0, len(flat), hidden)]
        pooled = rows[-1:] if model in DECODERS else rows[:1]
        states.append(pooled if what == 'sequences' else rows)
    least = 0
    while least < LEAST:
        tensors, stored = head(dtype, hidden, layers, rng, model not in DECODERS)
        scores = [[v for x in rows for v in apply(stored, act, x)] for rows in states]
        least = min(sum(v * v for v in answer) / len(answer) for answer in scores)
    answers = {k: v for k, v in expected.items() if not k.startswith(('pooled', 'hidden', 'embedding'))}
    for i, answer in enumerate(scores):
        shape = [LABELS] if what == 'sequences' else [len(states[i]), LABELS]
        answers['logits.%d' % i] = ('F32', shape, encode('F32', answer))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, 'config.json'), 'w') as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write('\n')
    body = {prefix + k: v for k, v in weights.items() if not k.startswith('pooler')}
    write(os.path.join(out, 'model.safetensors'), {**body, **tensors})
    write(os.path.join(out, 'expected.safetensors'), answers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('checkpoints')
    parser.add_argument('--seed', type=int, default=1)
    args = parser.parse_args()
    for model in MODELS:
        for what in ('sequences', 'tokens'):
            if (model, what) != ('bert', 'sequences') and (model not in DECODERS or what == 'sequences'):  # bert_classifier is one
                make(args.checkpoints, model, what, random.Random('%d %s %s' % (args.seed, model, what)))


if __name__ == '__main__':
    main()
