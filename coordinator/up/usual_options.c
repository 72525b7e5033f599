/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `trireme serve` and `trireme up` that most users need: --help shows these. */
#include "coordinator/up/up.h"

#define MODEL_OPTIONS                                                                                                  \
  {"model", "Hugging Face checkpoint folder"}, {"served-model-name", "names of the model in requests"},                \
      {"dtype", "type of the weights in memory"},                                                                      \
      {"quantization", "int8 or w8a8: quantize linear layers when loading"},                                           \
      {"max-model-len", "longest sequence, prompt and answer, in tokens"},                                             \
      {"max-num-seqs", "sequences that run at a time"}, {"max-num-batched-tokens", "tokens of one step"},              \
      {"tensor-parallel-size", "GPUs that split every layer"},                                                         \
      {"pipeline-parallel-size", "stages, each with a range of layers"},                                               \
      {"data-parallel-size", "replicas; with -ep, data-parallel ranks that share experts"},                            \
      {"expert-parallel-size", "expert-parallel ranks, which divide the experts"},                                     \
      {"gpu-memory-utilization", "fraction of a GPU's memory to use"},                                                 \
      {"offload-weights", "where weights go that do not fit: none, cpu or nvme"},                                      \
      {"cpu-moe", "keep the experts in host memory"}, {                                                                \
    "backend", "cuda or cpu; default: cuda if possible"                                                                \
  }
#define SERVER_OPTIONS                                                                                                 \
  {"api-key-file", "file with API keys, a line NAME KEY each"},                                                        \
      {"chat-template", "file with a chat template to use instead of the model's"},                                    \
      {"tool-parser", "format of tool calls"}, {                                                                       \
    "reasoning-parser", "format of reasoning"                                                                          \
  }

const tri_usual_option tri_serve_usual[] = {
    MODEL_OPTIONS,
    {"host", "address of the HTTP server"},
    {"port", "port of the HTTP server"},
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
