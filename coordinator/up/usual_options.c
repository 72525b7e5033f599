/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `trireme serve` and `trireme up` that most users need: --help shows these. */
#include "coordinator/up/up.h"

#define MODEL_OPTIONS                                                                                                  \
  {"model", "Hugging Face checkpoint folder"}, {"served-model-name", "names of the model in requests"},                \
      {"dtype", "type of the weights in memory"},                                                                      \
      {"quantization", "none, int8, w8a8, fp8 or auto: linear layers, quantized when loading"},                        \
      {"max-model-len", "longest sequence, prompt and answer, in tokens; default: the model's"},                       \
      {"max-num-seqs", "sequences that run at a time; default: 256 on GPUs, 128 on CPUs"},                             \
      {"max-num-batched-tokens", "tokens of one step; default: 8192 on GPUs, 512 on CPUs"},                            \
      {"tensor-parallel-size", "GPUs that split every layer"},                                                         \
      {"pipeline-parallel-size", "stages, each with a range of layers"},                                               \
      {"data-parallel-size", "replicas; with expert parallelism, data-parallel ranks"},                                \
      {"enable-expert-parallel", "whole experts on each rank, not a slice of each"},                                   \
      {"gpu-memory-utilization", "fraction of a GPU's memory that may be in use; default: 0.9"},                       \
      {"offload-weights", "where weights go that do not fit: none, cpu or nvme"},                                      \
      {"cpu-moe", "keep the experts in host memory"}, {                                                                \
    "backend", "cuda or cpu; default: cuda if possible"                                                                \
  }
#define SERVER_OPTIONS                                                                                                 \
  {"api-key-file", "file of API keys, one NAME KEY a line; chmod 600"},                                                \
      {"chat-template", "file with a chat template to use instead of the model's"},                                    \
      {"tool-parser", "format of tool calls; default: by the chat template"}, {                                        \
    "reasoning-parser", "think: separate reasoning from answers; default: none"                                        \
  }

const tri_usual_option tri_serve_usual[] = {
    MODEL_OPTIONS,
    {"host", "address of the HTTP server; default: 127.0.0.1"},
    {"port", "port of the HTTP server; default: 8000"},
    SERVER_OPTIONS,
};
const size_t tri_serve_num_usual = sizeof tri_serve_usual / sizeof *tri_serve_usual;

const tri_usual_option tri_up_usual[] = {
    MODEL_OPTIONS,
    {"hosts", "hosts and ranks on each, as a:8,b:8"},
    {"endpoint", "ZeroMQ address for clients"},
    {"http", "also serve OpenAI's HTTP API on [ADDR:]PORT"},
    SERVER_OPTIONS,
};
const size_t tri_up_num_usual = sizeof tri_up_usual / sizeof *tri_up_usual;
