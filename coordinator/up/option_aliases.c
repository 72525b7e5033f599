/* SPDX-License-Identifier: Apache-2.0 */
/* Options of vLLM's and llama.cpp's servers. Each is an alias of an option of ours, changes
 * nothing that an answer shows and is warned of, or is refused with what to say instead. */
#include "coordinator/up/up.h"

#define FOLDER "the model is a Hugging Face folder on this host (config.json, *.safetensors)"
#define REQUEST "each request sets it"
#define TOKENIZER "the tokenizer is the one of the model's folder"
#define WHAT_IT_DOES "the model's config.json decides it"
#define LOADING "weights are read by several threads, at the rate of the disk"
#define MEDIA "images and sound are not served"
#define ATTENTION "there is only one kind of attention"
#define RECORDED "repeated steps are recorded as CUDA graphs; --no-warmup serves without recording any before"
#define STEPS "steps are always prepared while others run, and long prompts are prefilled in chunks"
#define SHARED "use --tensor-parallel-size, --pipeline-parallel-size and --hosts; replicas are started on all hosts"

const tri_option_word tri_up_words[] = {
    /* the model */
    {.words = "a alias", .option = "served-model-name"},
    {.words = "hf hf-repo hff hf-file mu model-url revision", .why = FOLDER},
    {.words = "download-dir code-revision tokenizer-revision hf-token ignore-patterns",
     .instead = FOLDER,
     .values = TRI_WORD_VALUE},
    {.words = "tokenizer", .why = TOKENIZER},
    {.words = "tokenizer-mode tokenizer-pool-size tokenizer-pool-type tokenizer-pool-extra-config",
     .instead = TOKENIZER,
     .values = TRI_WORD_VALUE},
    {.words = "trust-remote-code", .instead = "code of a model's folder is never run; model families are built in"},
    {.words = "task runner convert config-format", .instead = WHAT_IT_DOES, .values = TRI_WORD_VALUE},
    {.words = "embedding embeddings", .instead = WHAT_IT_DOES},
    {.words = "reranking rerank", .why = WHAT_IT_DOES},
    {.words = "model-loader-extra-config safetensors-load-strategy max-parallel-loading-workers",
     .instead = LOADING,
     .values = TRI_WORD_VALUE},
    {.words = "use-tqdm-on-load", .instead = LOADING},
    {.words = "hf-overrides hf-config-path rope-scaling rope-theta rope-freq-base rope-freq-scale yarn-orig-ctx "
              "generation-config override-generation-config",
     .why = "edit config.json or generation_config.json of the model's folder"},
    {.words = "lora lora-scaled enable-lora lora-modules max-loras", .why = "adapters are not served"},
    {.words = "md model-draft speculative-config speculative-model num-speculative-tokens draft-max draft-min",
     .instead = "there is no speculative decoding; it would not change answers",
     .values = TRI_WORD_VALUE},
    {.words = "mm mmproj", .why = MEDIA},
    {.words =
         "limit-mm-per-prompt mm-processor-kwargs mm-processor-cache-gb mm-encoder-tp-mode allowed-local-media-path",
     .instead = MEDIA,
     .values = TRI_WORD_VALUE},
    {.words = "disable-mm-preprocessor-cache interleave-mm-strings", .instead = MEDIA},
    {.words = "ctk cache-type-k ctv cache-type-v", .why = "use --kv-cache-dtype (float32, float16, bfloat16) for both"},
    /* memory */
    {.words = "c ctx-size", .option = "max-model-len"},
    {.words = "n-gpu-layers", .option = "gpu-layers"},
    {.words = "cmoe", .option = "cpu-moe"},
    {.words = "ncmoe", .option = "n-cpu-moe"},
    {.words = "num-gpu-blocks-override", .option = "num-kv-blocks-override"},
    {.words = "swap-space",
     .instead = "preempted sequences are computed again, or swapped with --kv-offloading-size (GiB of host memory)",
     .values = TRI_WORD_VALUE},
    {.words = "kv-offload nkvo", .instead = "the KV cache is where attention is computed"},
    {.words = "mlock mmap",
     .instead = "weights are read into memory; --offload-weights says where those go that do not fit"},
    {.words = "prefix-caching-hash-algo",
     .instead = "the prefix cache compares the tokens themselves",
     .values = TRI_WORD_VALUE},
    {.words = "disable-hybrid-kv-cache-manager use-v2-block-manager", .instead = "there is one kind of KV cache"},
    /* layout */
    {.words = "ts tensor-split sm split-mode mg main-gpu",
     .why = "use --tensor-parallel-size or --pipeline-parallel-size"},
    {.words = "distributed-executor-backend data-parallel-backend",
     .instead = "replicas of several ranks are started with --launcher (mpirun, srun)",
     .values = TRI_WORD_VALUE},
    {.words = "worker-use-ray engine-use-ray ray-workers-use-nsight", .instead = "Ray is not used"},
    {.words = "data-parallel-size-local data-parallel-rpc-port api-server-count",
     .instead = "one coordinator has the sockets of all replicas",
     .values = TRI_WORD_VALUE},
    {.words = "nnodes node-rank master-addr master-port headless data-parallel-address", .why = SHARED},
    {.words = "rpc", .why = SHARED},
    {.words = "dev device", .why = "use --backend (cuda, cpu)"},
    /* steps */
    {.words = "np parallel", .option = "max-num-seqs"},
    {.words = "b batch-size", .option = "max-num-batched-tokens"},
    {.words = "ub ubatch-size", .option = "prompt-micro-batch-tokens"},
    {.words = "t", .option = "threads"},
    {.words = "tb threads-batch threads-http prio poll",
     .instead = "--threads sets the threads of each worker, for all steps",
     .values = TRI_WORD_VALUE},
    {.words = "s", .option = "seed"},
    {.words = "cb cont-batching enable-chunked-prefill"},
    {.words = "fa flash-attn", .instead = ATTENTION, .values = TRI_WORD_SWITCH},
    {.words = "attention-backend", .instead = ATTENTION, .values = TRI_WORD_VALUE},
    {.words = "disable-cascade-attn", .instead = ATTENTION},
    {.words = "enforce-eager O0 O1 O2 O3", .instead = RECORDED},
    {.words = "compilation-config O max-seq-len-to-capture", .instead = RECORDED, .values = TRI_WORD_VALUE},
    {.words = "cuda-graph-sizes cudagraph-capture-sizes", .instead = RECORDED, .values = TRI_WORD_NUMBERS},
    {.words = "numa", .instead = "threads are pinned automatically", .values = TRI_WORD_VALUE},
    {.words = "preemption-mode",
     .instead = "preempted sequences are computed again, or swapped with --kv-offloading-size",
     .values = TRI_WORD_VALUE},
    {.words = "num-scheduler-steps num-lookahead-slots scheduler-delay-factor scheduler-cls",
     .instead = STEPS,
     .values = TRI_WORD_VALUE},
    {.words = "max-num-partial-prefills max-long-partial-prefills long-prefill-token-threshold",
     .instead = "--max-inter-token-factor limits how long sequences that decode wait for prompts",
     .values = TRI_WORD_VALUE},
    {.words = "async-scheduling multi-step-stream-outputs disable-async-output-proc enable-dbo", .instead = STEPS},
    {.words = "guided-decoding-backend structured-outputs-config reasoning-backend",
     .instead = "answers are constrained by one engine of its own",
     .values = TRI_WORD_VALUE},
    /* HTTP */
    {.words = "api-key", .why = "use --api-key-file with a file of lines NAME KEY that other users cannot read"},
    {.words = "ssl-keyfile ssl-certfile ssl-key-file ssl-cert-file", .why = "use a TLS proxy in front of the gateway"},
    {.words = "allowed-origins", .option = "cors-origin"},
    {.words = "root-path api-prefix", .why = "use a proxy in front of the gateway"},
    {.words = "allowed-methods allowed-headers",
     .instead = "pages of --cors-origin may send all methods and headers of the endpoints",
     .values = TRI_WORD_VALUE},
    {.words = "allow-credentials", .instead = "pages of --cors-origin may send the header with the API key"},
    {.words = "response-role", .instead = "answers of a chat have the role assistant", .values = TRI_WORD_VALUE},
    {.words = "chat-template-content-format",
     .instead = "the template decides the form of content",
     .values = TRI_WORD_VALUE},
    {.words = "max-logprobs logprobs-mode",
     .instead = "a request may ask for up to 20 logprobs of a token",
     .values = TRI_WORD_VALUE},
    {.words = "enable-reasoning", .instead = "--reasoning-parser decides whether reasoning is separated"},
    {.words = "disable-frontend-multiprocessing disable-fastapi-docs enable-server-load-tracking "
              "enable-request-id-headers enable-prompt-tokens-details disable-uvicorn-access-log",
     .instead =
         "the gateway is a process of its own; answers have X-Request-Id and cached_tokens, and no pages of docs"},
    {.words = "context-shift slots props", .instead = "see GET /metrics and trireme status"},
    {.words = "to timeout", .why = "use --http-drain-timeout for shutdown, and deadline_ms of a request"},
    {.words = "enable-log-requests", .option = "log-requests"},
    {.words = "enable-auto-tool-choice metrics jinja disable-log-requests no-enable-log-requests no-webui"},
    {.words = "tool-call-parser", .option = "tool-parser"},
    {.words = "chat-template-file", .option = "chat-template"},
    {.words = "n predict n-predict temp temperature top-k top-p min-p repeat-penalty", .why = REQUEST},
    /* the log */
    {.words = "uvicorn-log-level", .instead = "--log-level is for all programs", .values = TRI_WORD_VALUE},
    {.words = "v verbose lv verbosity log-verbosity", .why = "use --log-level debug"},
    {.words = "disable-log-stats", .instead = "the line is logged every 10 s under load; --log-level warn omits it"},
    {.words = "max-log-len", .instead = "the log has no text of requests", .values = TRI_WORD_VALUE},
    {.words = "otlp-traces-endpoint collect-detailed-traces",
     .instead = "there are no traces; use GET /metrics",
     .values = TRI_WORD_VALUE},
    {.words = "log-file", .why = "the log goes to the standard error"},
};
const size_t tri_up_num_words = sizeof tri_up_words / sizeof *tri_up_words;
