/* SPDX-License-Identifier: Apache-2.0 */
#include "base/options/serve_options.h"

#include "base/kinds.h"

/* In the order of tri_dtype. */
static const char *const dtypes[] = {"float32", "float16", "bfloat16", "auto", NULL};
/* In the order of tri_all2all_form. */
static const char *const exchanges[] = {"allgather", "coordinated", "auto", NULL};
/* In the order of tri_expert_strategy. */
const char *const tri_expert_strategy_names[] = {"linear", "round_robin", NULL};
static const char *const load_formats[] = {"auto", "safetensors", "dummy", NULL};
const char *const tri_quantization_names[] = {"none", "int8", "w8a8", "fp8", "auto", NULL};
static const char *const backends[] = {"auto", "cpu", "cuda", "ref", NULL};
static const char *const policies[] = {"fcfs", "priority", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const launches[] = {"auto", "mpi", "group", "self", NULL};

/* Names that other servers have for them. */
static const char other_dtypes[] = "half=float16 fp16=float16 bf16=bfloat16 float=float32 fp32=float32";

#define S tri_serve_options
const tri_option tri_serve_option_table[] = {
    {TRI_OPT(S, model), .name = "model", .alias = "m", .programs = TRI_FOR_ALL, .metavar = "DIR", .group = "Model",
     .help = "Hugging Face checkpoint folder"},
    {TRI_OPT(S, served_model_name), .name = "served-model-name", .several = true, .metavar = "NAME...",
     .group = "Model",
     .help = "names of the model for clients; answers carry the first. Default: the folder's name, or the repository's "
             "in a Hugging Face cache"},
    {TRI_OPT(S, dtype), .name = "dtype", .programs = TRI_FOR_ALL, .choices = dtypes, .also = other_dtypes,
     .fallback = "auto", .group = "Model", .help = "type of the weights in memory; auto: as stored"},
    {TRI_OPT(S, quantization), .name = "quantization", .programs = TRI_FOR_ALL, .alias = "q",
     .choices = tri_quantization_names, .fallback = "auto", .group = "Model",
     .help = "int8: linear layers' weights in int8, with a scale for each output; w8a8: their inputs too, with a scale "
             "for each 128 elements of a token; fp8: FP8 as the checkpoint has it, or made with a scale for each "
             "output; none: 16 bits or more; auto: fp8 of an FP8 checkpoint on Hopper GPUs and CPUs with AVX-512, int8 "
             "of a GGUF file in Q8_0 on CPUs, as it is stored, else none"},
    {TRI_OPT(S, kv_cache_dtype), .name = "kv-cache-dtype", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .choices = dtypes,
     .also = other_dtypes, .fallback = "auto", .group = "Model",
     .help = "type of the KV cache; auto: float32 on CPUs, the weights' type on GPUs"},
    {TRI_OPT(S, load_format), .name = "load-format", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .choices = load_formats, .fallback = "auto", .group = "Model",
     .help = "dummy: random weights, from --seed, in the shapes of config.json"},
    {TRI_OPT(S, pooling), .name = "pooling", .programs = TRI_FOR_PLAN, .choices = tri_pooling_names,
     .fallback = "model", .group = "Model",
     .help = "pooling of an encoder's states: cls: the first token's; last: the last one's; mean: their mean; model: "
             "what the folder's modules.json says, else the model's pooler, else mean, of a decoder's family last"},
    {TRI_OPT(S, max_model_len), .name = "max-model-len", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0,
     .max = 1 << 24, .counts = true, .fallback = "0", .metavar = "N", .group = "Model",
     .help = "longest sequence in tokens, prompt and answer together, as 8192 or 8K (8k is 8000); 0: the model's "
             "limit. More than that is accepted with a warning (quality may suffer), but refused for learned "
             "positions, and where keys would be chosen (index_topk)"},
    {TRI_OPT(S, strict_config), .name = "strict-config", .programs = TRI_FOR_ALL, .fallback = "false", .group = "Model",
     .help = "refuse every unknown key of config.json, not only those known to change the result"},
    {TRI_OPT(S, ignore_config_key), .name = "ignore-config-key", .programs = TRI_FOR_ALL, .metavar = "NAME,...",
     .group = "Model", .help = "ignore these keys of config.json, even if they would be refused"},
    {TRI_OPT(S, seed), .name = "seed", .programs = TRI_FOR_STEPS | TRI_FOR_PACK, .no_letters = true, .fallback = "0",
     .metavar = "N", .group = "Model",
     .help = "seed of dummy weights and, only if given, of requests without a seed, which else get a random one each"},

    {TRI_OPT(S, offload_weights), .name = "offload-weights", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .choices = tri_offload_tier_names, .fallback = "auto", .group = "Offload",
     .help = "slowest tier for weights: none: the rank's memory; cpu: also host memory; nvme: also files; auto: the "
             "first that holds all. Weights outside the rank's memory are read again in every step"},
    {TRI_OPT(S, gpu_layers), .name = "gpu-layers", .alias = "ngl", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = -1,
     .max = 1 << 16, .fallback = "-1", .metavar = "N", .group = "Offload",
     .help = "layers whose weights stay in memory (the GPU's, or the host's without a GPU); -1: as many as fit"},
    {TRI_OPT(S, cpu_offload_gb), .name = "cpu-offload-gb", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0,
     .max = 1 << 20, .fallback = "0", .metavar = "GIB", .group = "Offload",
     .help = "GiB of each rank's weights to move out of its memory, even if they would fit"},
    {TRI_OPT(S, max_in_cpu), .name = "max-in-cpu", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .max = TRI_MOST_BYTES,
     .fallback = "0", .metavar = "BYTES", .group = "Offload",
     .help = "host memory for each rank's weights; 0: at most 80% of what is free"},
    {TRI_OPT(S, nvme_path), .name = "nvme-path", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .metavar = "DIR,...", .group = "Offload",
     .help = "folder for packs: files with weights as a rank's memory holds them, written if the checkpoint stores "
             "them differently; several folders on separate drives are read at once"},
    {TRI_OPT(S, offload_prefetch_step), .name = "offload-prefetch-step", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .min = 2, .max = 64, .fallback = "4", .metavar = "N", .group = "Offload",
     .help = "size of the ring buffer of streamed weights, in parts (a layer's attention, or its MLP or experts), and "
             "so how far ahead they are read; fewer if memory is short"},
    {TRI_OPT(S, cpu_moe), .name = "cpu-moe", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .fallback = "false", .group = "Offload",
     .help = "keep the experts of all layers in host memory, where the CPU computes them; the GPU has everything else"},
    {TRI_OPT(S, n_cpu_moe), .name = "n-cpu-moe", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK, .min = 0,
     .max = 1 << 16, .fallback = "0", .metavar = "N", .group = "Offload",
     .help = "the same for the first N layers with experts; 0: none"},
    {TRI_OPT(S, hot_experts), .name = "hot-experts", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = -1,
     .max = 1 << 16, .fallback = "-1", .metavar = "N", .group = "Offload",
     .help = "with --cpu-moe or --n-cpu-moe: also keep the N most used experts of each such layer on the GPU, which "
             "computes them while the CPU computes the others; 0: none; -1: as many as fit next to the KV cache"},
    {TRI_OPT(S, kv_offloading_size), .name = "kv-offloading-size", .programs = TRI_FOR_PLAN, .min = 0, .max = 1 << 20,
     .fallback = "0", .metavar = "GIB", .group = "Offload",
     .help = "GiB of host memory for KV blocks of preempted sequences, which are swapped in where that is faster than "
             "computing them again; for all ranks of a replica (or of a data-parallel rank) together; 0: none"},

    {TRI_OPT(S, tp), .name = "tensor-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "tp", .min = 1, .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout",
     .help = "ranks that split every layer"},
    {TRI_OPT(S, pp), .name = "pipeline-parallel-size", .programs = TRI_FOR_PLAN | TRI_FOR_PACK, .alias = "pp", .min = 1,
     .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout",
     .help = "pipeline stages, each with a range of layers"},
    {TRI_OPT(S, dp), .name = "data-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "dp", .min = 1, .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout",
     .help = "with expert parallelism (-ep, --enable-expert-parallel): data-parallel ranks of a replica, each with its "
             "own sequences and KV cache, that share the experts.\nWithout: the same as --replicas"},
    {TRI_OPT(S, ep), .name = "expert-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "ep", .min = 0, .max = 65536, .fallback = "0", .metavar = "N", .group = "Layout",
     .help = "expert-parallel ranks, which divide the experts among them; 0 or 1: every tensor-parallel rank has a "
             "slice of each expert"},
    {TRI_OPT(S, enable_expert_parallel), .name = "enable-expert-parallel",
     .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK, .fallback = "false", .group = "Layout",
     .help = "each rank of a pipeline stage has some of the experts, whole: -ep with the product of -dp and -tp"},
    {TRI_OPT(S, moe_tp), .name = "moe-tensor-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .min = 0, .max = 1024, .fallback = "0", .metavar = "N", .group = "Layout",
     .help = "ranks that each expert is sliced over, a divisor of -tp; 0: -dp x -tp / -ep"},
    {TRI_OPT(S, expert_placement_strategy), .name = "expert-placement-strategy",
     .programs = TRI_FOR_PLAN | TRI_FOR_PACK, .choices = tri_expert_strategy_names, .fallback = "linear",
     .group = "Layout",
     .help = "experts of an expert-parallel rank: consecutive ones (linear), or every -ep-th (round_robin)"},
    {TRI_OPT(S, num_redundant_experts), .name = "num-redundant-experts", .programs = TRI_FOR_PLAN | TRI_FOR_PACK,
     .min = 0, .max = 1 << 16, .fallback = "0", .metavar = "N", .group = "Layout",
     .help = "extra copies of experts in each layer, over all expert-parallel ranks: of the first experts, or as in "
             "--init-expert-location"},
    {TRI_OPT(S, init_expert_location), .name = "init-expert-location", .programs = TRI_FOR_PLAN | TRI_FOR_PACK,
     .metavar = "FILE", .group = "Layout",
     .help = "file with the logical expert of each physical expert in each layer, as trireme status --experts and "
             "trireme plan --rebalance write it"},
    {TRI_OPT(S, enable_eplb), .name = "enable-eplb", .programs = TRI_FOR_PLAN, .fallback = "false", .group = "Layout",
     .help = "rebalance: move experts between ranks while the replica serves, so that all have the same load"},
    {TRI_OPT(S, eplb_step_interval), .name = "eplb-step-interval", .min = 1, .max = 1 << 30, .fallback = "3000",
     .metavar = "N", .group = "Layout", .help = "steps between two checks of the experts' load"},
    {TRI_OPT(S, all2all_backend), .name = "all2all-backend", .choices = exchanges, .fallback = "auto",
     .group = "Layout",
     .help = "how tokens of several data-parallel ranks reach their experts: all tokens to all ranks (allgather), or "
             "each to the ranks of its experts, between equal tensor-parallel ranks (coordinated); auto: the faster "
             "one here for each number of tokens"},
    {TRI_OPT(S, replicas), .name = "replicas", .programs = TRI_FOR_PLAN, .min = 0, .max = 64, .fallback = "0",
     .metavar = "N", .group = "Layout",
     .help = "independent replicas of the model; 0: -dp of them without expert parallelism, else one. With -dp above 1 "
             "and another number here, each replica of a model without experts has -dp data-parallel ranks"},

    {TRI_OPT(S, max_num_seqs), .name = "max-num-seqs", .programs = TRI_FOR_PLAN, .min = 0, .max = 4096, .fallback = "0",
     .metavar = "N", .group = "Scheduling",
     .help = "sequences that run at a time in a replica (or in each of its data-parallel ranks); 0: 256 on GPUs, 128 "
             "on CPUs"},
    {TRI_OPT(S, max_num_batched_tokens), .name = "max-num-batched-tokens", .programs = TRI_FOR_PLAN, .min = 0,
     .max = 1 << 17, .fallback = "0", .metavar = "N", .group = "Scheduling",
     .help = "tokens of one step of a replica (or of each of its data-parallel ranks); 0: 8192 on GPUs, 512 on CPUs, "
             "more with weight streaming if a larger step hides the reads"},
    {TRI_OPT(S, prompt_micro_batch_tokens), .name = "prompt-micro-batch-tokens", .min = 0, .max = 1 << 17,
     .fallback = "0", .metavar = "N", .group = "Scheduling",
     .help = "prompt tokens of one micro-batch, so that a long prompt keeps several pipeline stages busy; 0: no limit "
             "with one stage, else 2048 on GPUs and 256 on CPUs, or as many as hide streamed weights"},
    {TRI_OPT(S, max_inter_token_factor), .name = "max-inter-token-factor", .min = 1.1, .max = 1000, .or_zero = true,
     .fallback = "3.5", .metavar = "X", .group = "Scheduling",
     .help = "with one pipeline stage, steps in which sequences decode take few enough prompt tokens that none takes "
             "more than X times as long as one without prompts, as measured while serving, but at least 256 on GPUs "
             "and 64 on CPUs; 0: no such limit. A step with prompts is never as short as one without: less than 1.1 is "
             "refused"},
    {TRI_OPT(S, block_size), .name = "block-size", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0, .max = 256,
     .fallback = "0", .metavar = "N", .group = "Scheduling", .help = "tokens of a KV block; 0: 64 on GPUs, 16 on CPUs"},
    {TRI_OPT(S, kv_cache_memory), .name = "kv-cache-memory-bytes", .programs = TRI_FOR_PLAN, .max = TRI_MOST_BYTES,
     .fallback = "0", .metavar = "BYTES", .group = "Scheduling",
     .help = "KV cache of each rank; 0: on GPUs what --gpu-memory-utilization leaves, on CPUs enough for "
             "--max-num-seqs full sequences, but at most a fourth of the free memory"},
    {TRI_OPT(S, gpu_memory_utilization), .name = "gpu-memory-utilization", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .min = 0.05, .max = 1, .fallback = "0.9", .metavar = "X", .group = "Scheduling",
     .help = "fraction of a GPU's memory that may be in use, by all programs together"},
    {TRI_OPT(S, num_kv_blocks), .name = "num-kv-blocks-override", .programs = TRI_FOR_PLAN, .min = 0, .max = 1 << 30,
     .fallback = "0", .metavar = "N", .group = "Scheduling", .help = "exact number of KV blocks; 0: as memory allows"},
    {TRI_OPT(S, enable_prefix_caching), .name = "enable-prefix-caching", .fallback = "true", .group = "Scheduling",
     .help = "a decoder reuses KV blocks of earlier prompts that begin with the same tokens; the time saved can reveal "
             "what other clients have asked, unless requests have a cache_salt"},
    {TRI_OPT(S, scheduling_policy), .name = "scheduling-policy", .choices = policies, .fallback = "fcfs",
     .group = "Scheduling",
     .help = "priority: requests with a lower `priority` run first and preempt those with a higher one"},
    {TRI_OPT(S, encoder_batching), .name = "encoder-batching", .choices = tri_encoder_batching_names,
     .fallback = "packed", .group = "Scheduling",
     .help = "how waiting texts form an encoder's batches: packed: in order, without padding; dp-hungry, dp-lazy: "
             "padded, with the least predicted cost, at once or as late as the latency limit allows; naive: padded, in "
             "order; none: one by one. Padding takes up --max-num-seqs"},
    {TRI_OPT(S, encoder_latency_limit), .name = "encoder-latency-limit", .min = 1, .max = 10000, .fallback = "100",
     .metavar = "MS", .group = "Scheduling",
     .help = "latency limit of dp-lazy, in milliseconds; it starts a batch when half of it is used up"},
    {TRI_OPT(S, deterministic), .name = "deterministic", .programs = TRI_FOR_STEPS, .fallback = "false",
     .group = "Scheduling",
     .help = "bit-identical results whatever the batch, chunking or preemption; CPUs only: with --backend auto GPUs "
             "are not used"},

    {TRI_OPT(S, backend), .name = "backend", .programs = TRI_FOR_ALL, .choices = backends, .fallback = "auto",
     .group = "Execution",
     .help = "cuda: an NVIDIA GPU for each rank; auto: cuda if possible, else cpu; ref: slow reference code"},
    {TRI_OPT(S, threads), .name = "threads", .programs = TRI_FOR_STEPS | TRI_FOR_LOAD | TRI_FOR_PACK, .min = 0,
     .max = 1024, .fallback = "0", .metavar = "N", .group = "Execution",
     .help = "threads of each worker; 0: the host's cores divided by its workers"},
    {TRI_OPT(S, disable_custom_all_reduce), .name = "disable-custom-all-reduce", .fallback = "false",
     .group = "Execution", .help = "all-reduces and transfers between GPUs use NCCL alone, not peer memory access"},
    {TRI_OPT(S, autotune), .name = "autotune", .programs = TRI_FOR_STEPS, .fallback = "false", .group = "Execution",
     .help = "before the first step, measure which GPU kernel is fastest for each matrix product"},
    {TRI_OPT(S, warmup), .name = "warmup", .fallback = "true", .group = "Execution",
     .help = "on a GPU, load kernels and record decode steps (CUDA graphs) before serving, for 8 seconds at most"},
    {TRI_OPT(S, watchdog_timeout), .name = "watchdog-timeout", .min = 0.5, .max = 3600, .fallback = "4", .metavar = "S",
     .group = "Execution",
     .help = "seconds without progress after which a replica counts as hung; ten times the expected time of its "
             "slowest layer if that is longer"},
    {TRI_OPT(S, start_timeout), .name = "start-timeout", .min = 1, .max = 86400, .fallback = "300", .metavar = "S",
     .group = "Execution",
     .help = "seconds without progress after which a start is given up, in any phase: launch, connection, loading, "
             "first token"},

    {TRI_OPT(S, endpoint), .name = "endpoint", .env = "TRIREME_ENDPOINT", .metavar = "URL", .group = "Service",
     .help = "address for clients: ipc://PATH or tcp://ADDRESS:PORT"},
    {TRI_OPT(S, worker_endpoint), .name = "worker-endpoint", .fallback = "auto", .metavar = "URL", .group = "Service",
     .help = "address for workers; auto: a socket file with trireme up on one host, else a free TCP port"},
    {TRI_OPT(S, interface), .name = "interface", .metavar = "NAME|NETWORK,...", .group = "Service",
     .help = "networks between the hosts of a replica, for MPI over TCP and for NCCL, as names or addresses "
             "(eth0,10.1.0.0/16); default: the one that leads to the coordinator"},
    {TRI_OPT(S, key_file), .name = "key-file", .env = "TRIREME_KEY_FILE", .metavar = "FILE", .group = "Service",
     .help = "the server's CURVE keys (trireme keygen FILE); needed for tcp://"},
    {TRI_OPT(S, allowed_keys), .name = "allowed-keys", .metavar = "FILE", .group = "Service",
     .help = "file with the public keys of clients that may connect, one a line"},
    {TRI_OPT(S, insecure_tcp), .name = "insecure-tcp", .fallback = "false", .group = "Service",
     .help = "allow tcp:// without CURVE, for trusted networks and tests"},
    {TRI_OPT(S, tokenizer_threads), .name = "tokenizer-threads", .min = 1, .max = 64, .fallback = "1", .metavar = "N",
     .group = "Service", .help = "threads that tokenize prompts"},
    {TRI_OPT(S, max_queue), .name = "max-queue", .min = 1, .max = 1 << 20, .fallback = "16384", .metavar = "N",
     .group = "Service",
     .help =
         "waiting and running jobs; more are refused. One client may have half of the places that others leave free"},
    {TRI_OPT(S, max_queued_per_client), .name = "max-queued-per-client", .min = 0, .max = 1 << 20, .fallback = "0",
     .metavar = "N", .group = "Service",
     .help = "waiting and running jobs of one client (a connection, or a caller that a gateway names); 0: limited by "
             "--max-queue alone"},
    {TRI_OPT(S, max_queue_bytes), .name = "max-queue-bytes", .max = 0x1p40, .fallback = "0", .metavar = "BYTES",
     .group = "Service", .help = "memory for waiting and running jobs; 0: half of --memory-cap, less --response-cache"},
    {TRI_OPT(S, max_queue_time), .name = "max-queue-time", .min = 0, .max = 604800, .fallback = "0", .metavar = "S",
     .group = "Service", .help = "seconds that a job may wait for a replica; 0: no limit"},
    {TRI_OPT(S, client_share), .name = "client-share", .metavar = "NAME=WEIGHT,...", .group = "Service",
     .help = "weights of clients in the fair queue, by the name that a gateway gives (the name of the API key); "
             "default 1. A key in --allowed-keys may be followed by weight=N"},
    {TRI_OPT(S, journal), .name = "journal", .metavar = "DIR", .group = "Service",
     .help = "folder for the journal of jobs, readable by this user alone: accepted jobs are on disk, and a "
             "coordinator that starts with it resumes the jobs that an earlier one left unfinished"},
    {TRI_OPT(S, memory_cap), .name = "memory-cap", .min = 1 << 24, .max = 0x1p40, .fallback = "512M",
     .metavar = "BYTES", .group = "Service",
     .help = "limit for the growth of the coordinator's memory: new jobs are refused, or, if it is not for jobs, the "
             "client socket is reopened, to which the commands and the gateway connect again"},
    {TRI_OPT(S, response_cache), .name = "response-cache", .max = 0x1p40, .fallback = "0", .metavar = "BYTES",
     .group = "Service",
     .help = "memory, part of --memory-cap, for answers to repeated requests: embed, classify, and text at temperature "
             "0, with beam search or with a seed. The time saved can reveal what other clients have asked, unless "
             "requests have a cache_salt; 0: none"},
    {TRI_OPT(S, drain_timeout), .name = "drain-timeout", .min = 0, .max = 86400, .fallback = "30", .metavar = "S",
     .group = "Service", .help = "seconds that running jobs have to finish after SIGTERM"},
    {TRI_OPT(S, log_level), .name = "log-level", .choices = levels, .fallback = "info", .group = "Service",
     .help = "lowest severity that is written to stderr"},
    {TRI_OPT(S, log_requests), .name = "log-requests", .fallback = "false", .group = "Service",
     .help = "log a line for each request that ends: client, tokens, times and reason, but no text"},

    {TRI_OPT(S, launch), .name = "launch", .choices = launches, .fallback = "auto", .group = "Launch",
     .help = "mpi: coordinator and workers are one MPI job; group: the workers of a replica are one; self: one worker "
             "without MPI"},
    {TRI_OPT(S, boot_file), .name = "boot-file", .env = "TRIREME_BOOT_FILE", .metavar = "FILE", .group = "Launch",
     .help = "file where the coordinator writes its address and the workers' keys (mode 0600); wins over a launcher's "
             "variable TRIREME_BOOT"},
    {TRI_OPT(S, worker_key_file), .name = "worker-key-file", .metavar = "FILE", .group = "Launch",
     .help = "file where the coordinator keeps the keys of the workers' socket: with it and an earlier boot file, "
             "workers of an earlier coordinator find the new one"},
    {TRI_OPT(S, lease), .name = "lease", .min = 1, .max = 86400, .fallback = "8", .metavar = "S", .group = "Launch",
     .help = "seconds without a message from a coordinator after which a worker exits"},
    {TRI_OPT(S, group), .name = "group", .min = 0, .max = 63, .fallback = "0", .metavar = "N", .group = "Launch",
     .help = "number of this worker's replica"},
    {TRI_OPT(S, places), .name = "places", .metavar = "N@FIRST/COUNT,...", .group = "Launch",
     .help = "ranks of this replica on each host: N of them, after FIRST of other replicas, of COUNT in all; default: "
             "equally many on every host"},
    {TRI_OPT(S, epoch), .name = "epoch", .no_letters = true, .fallback = "1", .metavar = "N", .group = "Launch",
     .help = "number of this start of the replica, above that of the previous start by 1 to 2^32"},
    {TRI_OPT(S, event_fd), .name = "event-fd", .min = -1, .max = 1 << 20, .fallback = "-1", .metavar = "FD",
     .group = "Launch", .help = "file descriptor for the coordinator's events to its supervisor"},
    {TRI_OPT(S, notice_fd), .name = "notice-fd", .min = -1, .max = 1 << 20, .fallback = "-1", .metavar = "FD",
     .group = "Launch", .help = "file descriptor on which the supervisor announces the end of the cluster"},
};
#undef S
const size_t tri_serve_option_count = sizeof tri_serve_option_table / sizeof *tri_serve_option_table;

tri_status tri_serve_model_find(tri_serve_options *o, tri_error *err) {
  if (!o->model) return tri_fail(err, TRI_USAGE, "model", "--model is missing");
  TRI_CHECK(tri_model_folder_find(o->model, o->model_folder, err));
  o->model = o->model_folder;
  return TRI_OK;
}

size_t tri_serve_options_copy(tri_option *table, tri_serve_program program, const tri_option *own, size_t num_own) {
  size_t n = tri_serve_option_count;
  for (size_t i = 0; i < n; i++) {
    table[i] = tri_serve_option_table[i];
    table[i].hidden = !(table[i].programs & program);
  }
  for (size_t i = 0; i < num_own; i++) table[n++] = own[i];
  return n;
}
