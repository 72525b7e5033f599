/* SPDX-License-Identifier: Apache-2.0 */
/* The words of vLLM's and llama.cpp's servers, for people who come from there. Each is an option of ours, or is refused
 * with what to say instead. */
#include "coordinator/up/up.h"

#define FOLDER "the model is a folder of this host, as Hugging Face has it (config.json, *.safetensors)"
#define REQUEST "requests say it"
#define SHARED "say --tensor-parallel-size, --pipeline-parallel-size and --hosts, and groups are started on all hosts"

const tri_option_word tri_up_words[] = {
    /* the model */
    {.words = "a alias", .option = "served-model-name"},
    {.words = "hf hf-repo hff hf-file mu model-url download-dir revision code-revision tokenizer-revision hf-token",
     .why = FOLDER},
    {.words = "tokenizer tokenizer-mode", .why = "the tokenizer is the tokenizer.json of the model's folder"},
    {.words = "trust-remote-code", .why = "no code of a model's folder is run; the families are built in"},
    {.words = "task runner convert embedding embeddings reranking rerank",
     .why = "the model's config.json says what it does"},
    {.words = "hf-overrides hf-config-path rope-scaling rope-theta rope-freq-base rope-freq-scale yarn-orig-ctx "
              "generation-config override-generation-config",
     .why = "config.json and generation_config.json of the model's folder say it"},
    {.words = "lora lora-scaled enable-lora lora-modules max-loras", .why = "adapters are not served"},
    {.words = "md model-draft speculative-config", .why = "there is no speculative decoding"},
    {.words = "mm mmproj limit-mm-per-prompt", .why = "images and sound are not served"},
    {.words = "ctk cache-type-k ctv cache-type-v",
     .why = "say --kv-cache-dtype (float32, float16, bfloat16), for both"},
    /* memory */
    {.words = "c ctx-size", .option = "max-model-len"},
    {.words = "n-gpu-layers", .option = "gpu-layers"},
    {.words = "cmoe", .option = "cpu-moe"},
    {.words = "ncmoe", .option = "n-cpu-moe"},
    {.words = "num-gpu-blocks-override", .option = "num-kv-blocks-override"},
    {.words = "swap-space", .why = "say --kv-offloading-size, GiB of all ranks of a group together"},
    {.words = "kv-offload nkvo no-kv-offload", .why = "the KV cache lies where attention is computed"},
    {.words = "mlock mmap no-mmap", .why = "say --offload-weights: how far down weights may go"},
    /* layout */
    {.words = "ts tensor-split sm split-mode mg main-gpu",
     .why = "say --tensor-parallel-size or --pipeline-parallel-size"},
    {.words = "distributed-executor-backend", .why = "say --launcher (mpirun, srun)"},
    {.words = "nnodes node-rank master-addr master-port headless data-parallel-address", .why = SHARED},
    {.words = "rpc", .why = SHARED},
    {.words = "dev device", .why = "say --backend (cuda, cpu)"},
    /* steps */
    {.words = "np parallel", .option = "max-num-seqs"},
    {.words = "b batch-size", .option = "max-num-batched-tokens"},
    {.words = "ub ubatch-size", .option = "prompt-micro-batch-tokens"},
    {.words = "t", .option = "threads"},
    {.words = "tb threads-batch threads-http", .why = "say --threads, of each worker for all of its steps"},
    {.words = "s", .option = "seed"},
    {.words = "cb cont-batching enable-chunked-prefill"},
    {.words = "fa flash-attn attention-backend", .why = "there is one kind of attention, which nothing switches"},
    {.words = "enforce-eager no-enforce-eager compilation-config O cuda-graph-sizes max-seq-len-to-capture",
     .why = "shapes of steps that come again are recorded; --no-warmup serves without recording any before"},
    {.words = "numa", .why = "threads are pinned by themselves"},
    {.words = "preemption-mode",
     .why = "say --kv-offloading-size for swapping; without it what is preempted is computed again"},
    /* HTTP */
    {.words = "api-key", .why = "say --api-key-file with a file of lines NAME KEY, which others cannot read"},
    {.words = "ssl-keyfile ssl-certfile ssl-key-file ssl-cert-file", .why = "TLS is the work of a proxy before it"},
    {.words = "allowed-origins", .option = "cors-origin"},
    {.words = "root-path api-prefix", .why = "that is the work of a proxy before it"},
    {.words = "to timeout", .why = "say --http-drain-timeout for the end; requests have deadline_ms"},
    {.words = "enable-log-requests", .option = "log-requests"},
    {.words = "enable-auto-tool-choice metrics jinja disable-log-requests no-enable-log-requests no-webui"},
    {.words = "slots props", .why = "GET /metrics and trireme status say what runs"},
    {.words = "tool-call-parser", .option = "tool-parser"},
    {.words = "chat-template-file", .option = "chat-template"},
    {.words = "n predict n-predict temp temperature top-k top-p min-p repeat-penalty", .why = REQUEST},
    /* the log */
    {.words = "uvicorn-log-level", .option = "log-level"},
    {.words = "v verbose lv verbosity log-verbosity", .why = "say --log-level debug"},
    {.words = "disable-log-stats", .why = "the line comes every 10 s while there is work; --log-level warn is silent"},
    {.words = "log-file", .why = "the log is the standard error"},
};
const size_t tri_up_num_words = sizeof tri_up_words / sizeof *tri_up_words;
