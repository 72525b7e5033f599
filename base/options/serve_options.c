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
const char *const tri_quantization_names[] = {"none", "int8", "w8a8", NULL};
static const char *const backends[] = {"auto", "cpu", "cuda", "ref", NULL};
static const char *const policies[] = {"fcfs", "priority", NULL};
static const char *const levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const launches[] = {"auto", "mpi", "group", "self", NULL};

/* Names that other servers have for them. */
static const char other_dtypes[] = "half=float16 fp16=float16 bf16=bfloat16 float=float32 fp32=float32";

#define S tri_serve_options
const tri_option tri_serve_option_table[] = {
    {TRI_OPT(S, model), .name = "model", .alias = "m", .programs = TRI_FOR_ALL, .metavar = "DIR", .group = "Model",
     .help = "a Hugging Face checkpoint folder"},
    {TRI_OPT(S, served_model_name), .name = "served-model-name", .several = true, .metavar = "NAME...",
     .group = "Model",
     .help = "the names that clients may use, of which answers have the first; default: the folder's, or that of the "
             "repository in a Hugging Face cache"},
    {TRI_OPT(S, dtype), .name = "dtype", .programs = TRI_FOR_ALL, .choices = dtypes, .also = other_dtypes,
     .fallback = "auto", .group = "Model", .help = "type of the weights in memory; auto: as stored"},
    {TRI_OPT(S, quantization), .name = "quantization", .programs = TRI_FOR_ALL, .alias = "q",
     .choices = tri_quantization_names, .fallback = "none", .group = "Model",
     .help = "int8: linear layers' weights, a scale for each output; w8a8: their inputs too, one for each token"},
    {TRI_OPT(S, kv_cache_dtype), .name = "kv-cache-dtype", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .choices = dtypes,
     .also = other_dtypes, .fallback = "auto", .group = "Model",
     .help = "type of the KV cache; auto: float32 on a CPU, the weights' type on a device"},
    {TRI_OPT(S, load_format), .name = "load-format", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .choices = load_formats, .fallback = "auto", .group = "Model",
     .help = "dummy: seeded random weights of the config's shapes"},
    {TRI_OPT(S, pooling), .name = "pooling", .programs = TRI_FOR_PLAN, .choices = tri_pooling_names,
     .fallback = "model", .group = "Model",
     .help = "of encoders: cls: the first token's state; mean: of all states; model: as the folder's modules.json "
             "says, else "
             "its pooler, else mean"},
    {TRI_OPT(S, max_model_len), .name = "max-model-len", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0,
     .max = 1 << 24, .counts = true, .fallback = "0", .metavar = "N", .group = "Model",
     .help = "tokens of one sequence, prompt and answer, as 8192 or 8K (8k is 8000); 0: the model's. More than that is "
             "served with a "
             "warning where positions can be stretched (not those of a table): texts may get worse "
             "beyond what the model was made for"},
    {TRI_OPT(S, strict_config), .name = "strict-config", .programs = TRI_FOR_ALL, .fallback = "false", .group = "Model",
     .help = "refuse every key of config.json that is not understood, not only what is known to change the result"},
    {TRI_OPT(S, ignore_config_key), .name = "ignore-config-key", .programs = TRI_FOR_ALL, .metavar = "NAME,...",
     .group = "Model", .help = "read config.json as if these keys were not there, also one that would be refused"},
    {TRI_OPT(S, seed), .name = "seed", .programs = TRI_FOR_STEPS | TRI_FOR_PACK, .no_letters = true, .fallback = "0",
     .metavar = "N", .group = "Model",
     .help = "of dummy weights, and of requests that bring none, if it is given: without it each draws its own"},

    {TRI_OPT(S, offload_weights), .name = "offload-weights", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .choices = tri_offload_tier_names, .fallback = "auto", .group = "Offload",
     .help = "slowest place weights may be kept: none: all in memory; cpu: also host memory; nvme: also files; auto: "
             "the first that has room for all. What is not in memory is read again in every step"},
    {TRI_OPT(S, gpu_layers), .name = "gpu-layers", .alias = "ngl", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = -1,
     .max = 1 << 16, .fallback = "-1", .metavar = "N", .group = "Offload",
     .help = "layers whose weights stay in memory (of the device, where there is one); -1: as much as fits"},
    {TRI_OPT(S, cpu_offload_gb), .name = "cpu-offload-gb", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0,
     .max = 1 << 20, .fallback = "0", .metavar = "GIB", .group = "Offload",
     .help = "GiB of each rank's weights that leave its memory, however much of it there is"},
    {TRI_OPT(S, max_in_cpu), .name = "max-in-cpu", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .max = TRI_MOST_BYTES,
     .fallback = "0", .metavar = "BYTES", .group = "Offload",
     .help = "the host's memory for each rank's weights; 0: at most 80% of what is free"},
    {TRI_OPT(S, nvme_path), .name = "nvme-path", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .metavar = "DIR,...", .group = "Offload",
     .help = "a folder for packs: files of weights as a rank's memory has them, made where the checkpoint has them in "
             "another way; several, on drives of their own, are read at once"},
    {TRI_OPT(S, offload_prefetch_step), .name = "offload-prefetch-step", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .min = 2, .max = 64, .fallback = "4", .metavar = "N", .group = "Offload",
     .help =
         "parts (a layer's attention, its MLP or experts) that the ring of streamed weights has room for, fewer where "
         "memory is short: how far they are read ahead"},
    {TRI_OPT(S, cpu_moe), .name = "cpu-moe", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK,
     .fallback = "false", .group = "Offload",
     .help =
         "the experts of all layers stay in the host's memory, where the host computes them; a device has the rest"},
    {TRI_OPT(S, n_cpu_moe), .name = "n-cpu-moe", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN | TRI_FOR_PACK, .min = 0,
     .max = 1 << 16, .fallback = "0", .metavar = "N", .group = "Offload",
     .help = "the same for the first N layers that have experts; 0: for none"},
    {TRI_OPT(S, hot_experts), .name = "hot-experts", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = -1,
     .max = 1 << 16, .fallback = "-1", .metavar = "N", .group = "Offload",
     .help = "of the experts of each such layer the N with the most rows lie on the device, too, which computes these "
             "beside the host; 0: none; -1: as many as the KV cache leaves room for"},
    {TRI_OPT(S, kv_offloading_size), .name = "kv-offloading-size", .programs = TRI_FOR_PLAN, .min = 0, .max = 1 << 20,
     .fallback = "0", .metavar = "GIB", .group = "Offload",
     .help = "GiB of host memory, over all ranks of a group (of a shard), for the KV blocks of preempted sequences, "
             "which go on with them where that costs less than computing them again; 0: none"},

    {TRI_OPT(S, tp), .name = "tensor-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "tp", .min = 1, .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout",
     .help = "ranks that share each layer"},
    {TRI_OPT(S, pp), .name = "pipeline-parallel-size", .programs = TRI_FOR_PLAN | TRI_FOR_PACK, .alias = "pp", .min = 1,
     .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout", .help = "stages that follow one another"},
    {TRI_OPT(S, dp), .name = "data-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "dp", .min = 1, .max = 1024, .fallback = "1", .metavar = "N", .group = "Layout",
     .help = "shards of a group, each with sequences of its own, that share the experts; without expert parallelism "
             "replica groups (trireme up), unless --replicas says another number of those"},
    {TRI_OPT(S, ep), .name = "expert-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .alias = "ep", .min = 0, .max = 65536, .fallback = "0", .metavar = "N", .group = "Layout",
     .help = "shares of the experts; 0: 1, every rank has a slice of each expert"},
    {TRI_OPT(S, enable_expert_parallel), .name = "enable-expert-parallel",
     .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK, .fallback = "false", .group = "Layout",
     .help = "as many shares of the experts as -dp x -tp"},
    {TRI_OPT(S, moe_tp), .name = "moe-tensor-parallel-size", .programs = TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
     .min = 0, .max = 1024, .fallback = "0", .metavar = "N", .group = "Layout",
     .help = "slices of each expert, which divide -tp; 0: -dp x -tp / -ep"},
    {TRI_OPT(S, expert_placement_strategy), .name = "expert-placement-strategy",
     .programs = TRI_FOR_PLAN | TRI_FOR_PACK, .choices = tri_expert_strategy_names, .fallback = "linear",
     .group = "Layout", .help = "which experts a share has: neighbours (linear), or every -ep-th (round_robin)"},
    {TRI_OPT(S, num_redundant_experts), .name = "num-redundant-experts", .programs = TRI_FOR_PLAN | TRI_FOR_PACK,
     .min = 0, .max = 1 << 16, .fallback = "0", .metavar = "N", .group = "Layout",
     .help =
         "copies of experts in each layer, over all shares: of the first ones, or as --init-expert-location has it"},
    {TRI_OPT(S, init_expert_location), .name = "init-expert-location", .programs = TRI_FOR_PLAN | TRI_FOR_PACK,
     .metavar = "FILE", .group = "Layout",
     .help = "which expert each slot of each layer has, as trireme status --experts and trireme plan --rebalance write "
             "it"},
    {TRI_OPT(S, enable_eplb), .name = "enable-eplb", .programs = TRI_FOR_PLAN, .fallback = "false", .group = "Layout",
     .help = "move experts between ranks while the group serves, so that all have equally much to do"},
    {TRI_OPT(S, eplb_step_interval), .name = "eplb-step-interval", .min = 1, .max = 1 << 30, .fallback = "3000",
     .metavar = "N", .group = "Layout", .help = "steps between two looks at what the experts have had to do"},
    {TRI_OPT(S, all2all_backend), .name = "all2all-backend", .choices = exchanges, .fallback = "auto",
     .group = "Layout",
     .help = "how rows of several shards reach their experts: along columns of equal tensor ranks (coordinated), a "
             "part of them by each tensor rank (share), straight to the experts (flat), all to all (allgather); auto: "
             "what is fastest here for a number of rows"},
    {TRI_OPT(S, replicas), .name = "replicas", .programs = TRI_FOR_PLAN, .min = 0, .max = 64, .fallback = "0",
     .metavar = "N", .group = "Layout",
     .help =
         "groups that know nothing of each other (trireme up); 0: 1, or, without expert parallelism, as many as -dp "
         "says. If it is given, -dp is the number of shards inside each group"},

    {TRI_OPT(S, max_num_seqs), .name = "max-num-seqs", .programs = TRI_FOR_PLAN, .min = 0, .max = 4096, .fallback = "0",
     .metavar = "N", .group = "Scheduling",
     .help = "sequences at a time per group (per shard, if a group has several); 0: 256 on devices, 128 on CPUs"},
    {TRI_OPT(S, max_num_batched_tokens), .name = "max-num-batched-tokens", .programs = TRI_FOR_PLAN, .min = 0,
     .max = 1 << 17, .fallback = "0", .metavar = "N", .group = "Scheduling",
     .help = "tokens of one step per group (per shard, if a group has several); 0: 8192 on devices, 512 on CPUs, more "
             "where weights are "
             "streamed and a step of more tokens hides them"},
    {TRI_OPT(S, prompt_micro_batch_tokens), .name = "prompt-micro-batch-tokens", .min = 0, .max = 1 << 17,
     .fallback = "0", .metavar = "N", .group = "Scheduling",
     .help = "tokens of prompts in one step, so that a long one is in several stages at a time; 0: as many as fit, "
             "with several stages 2048 on devices and 256 on CPUs, or as many as hide streamed weights"},
    {TRI_OPT(S, block_size), .name = "block-size", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN, .min = 0, .max = 256,
     .fallback = "0", .metavar = "N", .group = "Scheduling",
     .help = "tokens of a KV block; 0: 64 on devices, 16 on CPUs"},
    {TRI_OPT(S, kv_cache_memory), .name = "kv-cache-memory-bytes", .programs = TRI_FOR_PLAN, .max = TRI_MOST_BYTES,
     .fallback = "0", .metavar = "BYTES", .group = "Scheduling",
     .help = "KV cache of each rank; 0: full slots, at most a fourth of what is free, on devices what "
             "--gpu-memory-utilization leaves"},
    {TRI_OPT(S, gpu_memory_utilization), .name = "gpu-memory-utilization", .programs = TRI_FOR_STEPS | TRI_FOR_PLAN,
     .min = 0.05, .max = 1, .fallback = "0.9", .metavar = "X", .group = "Scheduling",
     .help = "fraction of a device's memory that may be in use, by all programs"},
    {TRI_OPT(S, num_kv_blocks), .name = "num-kv-blocks-override", .programs = TRI_FOR_PLAN, .min = 0, .max = 1 << 30,
     .fallback = "0", .metavar = "N", .group = "Scheduling", .help = "exactly so many KV blocks; 0: by memory"},
    {TRI_OPT(S, enable_prefix_caching), .name = "enable-prefix-caching", .fallback = "true", .group = "Scheduling",
     .help = "prompts of a decoder begin behind the KV blocks that hold what they share with earlier ones; how soon "
             "they do tells clients what others have asked, unless each has a cache_salt"},
    {TRI_OPT(S, scheduling_policy), .name = "scheduling-policy", .choices = policies, .fallback = "fcfs",
     .group = "Scheduling",
     .help = "priority: lower `priority` of a request is sooner, and preempts what runs with a higher one"},
    {TRI_OPT(S, encoder_batching), .name = "encoder-batching", .choices = tri_encoder_batching_names,
     .fallback = "packed", .group = "Scheduling",
     .help = "how an encoder's waiting texts become batches: packed: in their order, without padding; dp-hungry, "
             "dp-lazy: padded ones of the least predicted cost, at once or as late as the latency limit allows; naive: "
             "padded ones in their order; none: one by one. Padding counts in --max-num-seqs"},
    {TRI_OPT(S, encoder_latency_limit), .name = "encoder-latency-limit", .min = 1, .max = 10000, .fallback = "100",
     .metavar = "MS", .group = "Scheduling",
     .help = "milliseconds that a request may take with dp-lazy, which begins a batch when half of them are used up"},
    {TRI_OPT(S, deterministic), .name = "deterministic", .programs = TRI_FOR_STEPS, .fallback = "false",
     .group = "Scheduling", .help = "the same bits whatever the batch, chunking or preemption"},

    {TRI_OPT(S, backend), .name = "backend", .programs = TRI_FOR_ALL, .choices = backends, .fallback = "auto",
     .group = "Execution",
     .help = "cuda: an NVIDIA device for each rank; auto: that where it can be had, else cpu, with its fastest code"},
    {TRI_OPT(S, threads), .name = "threads", .programs = TRI_FOR_STEPS | TRI_FOR_LOAD | TRI_FOR_PACK, .min = 0,
     .max = 1024, .fallback = "0", .metavar = "N", .group = "Execution",
     .help = "threads of each worker; 0: this host's cores over its workers"},
    {TRI_OPT(S, disable_custom_all_reduce), .name = "disable-custom-all-reduce", .fallback = "false",
     .group = "Execution",
     .help = "sums and transfers between devices go through NCCL alone, not also through each other's memory"},
    {TRI_OPT(S, autotune), .name = "autotune", .programs = TRI_FOR_STEPS, .fallback = "false", .group = "Execution",
     .help = "before the first step, measure on the device which of its kernels does each matrix product fastest"},
    {TRI_OPT(S, warmup), .name = "warmup", .fallback = "true", .group = "Execution",
     .help = "on a device, load kernels and record decode steps before serving, in 8 seconds at most"},
    {TRI_OPT(S, watchdog_timeout), .name = "watchdog-timeout", .min = 0.5, .max = 3600, .fallback = "4", .metavar = "S",
     .group = "Execution",
     .help = "seconds without progress after which a group counts as lost, or ten times what its slowest layer should "
             "take"},
    {TRI_OPT(S, start_timeout), .name = "start-timeout", .min = 1, .max = 86400, .fallback = "300", .metavar = "S",
     .group = "Execution",
     .help = "seconds without progress after which a start is given up: in its launcher, in connecting, in loading, in "
             "the first token"},

    {TRI_OPT(S, endpoint), .name = "endpoint", .env = "TRIREME_ENDPOINT", .metavar = "URL", .group = "Service",
     .help = "where clients connect: ipc://PATH or tcp://ADDRESS:PORT"},
    {TRI_OPT(S, worker_endpoint), .name = "worker-endpoint", .fallback = "auto", .metavar = "URL", .group = "Service",
     .help = "where workers connect; auto: with trireme up on one host a socket file, else a free TCP port"},
    {TRI_OPT(S, interface), .name = "interface", .metavar = "NAME|NETWORK,...", .group = "Service",
     .help = "networks between the hosts of a group, for MPI's TCP transport and NCCL: names or addresses "
             "(eth0,10.1.0.0/16); default: the one that leads to the coordinator"},
    {TRI_OPT(S, key_file), .name = "key-file", .env = "TRIREME_KEY_FILE", .metavar = "FILE", .group = "Service",
     .help = "the server's CURVE keys (trireme keygen FILE); needed for tcp://"},
    {TRI_OPT(S, allowed_keys), .name = "allowed-keys", .metavar = "FILE", .group = "Service",
     .help = "public keys of the clients that may connect, one a line"},
    {TRI_OPT(S, insecure_tcp), .name = "insecure-tcp", .fallback = "false", .group = "Service",
     .help = "allow tcp:// without CURVE, for trusted networks and tests"},
    {TRI_OPT(S, tokenizer_threads), .name = "tokenizer-threads", .min = 1, .max = 64, .fallback = "1", .metavar = "N",
     .group = "Service", .help = "threads that tokenize prompts"},
    {TRI_OPT(S, max_queue), .name = "max-queue", .min = 1, .max = 1 << 20, .fallback = "16384", .metavar = "N",
     .group = "Service",
     .help = "jobs that may wait or run; more are refused. A client may have half of those that others leave it"},
    {TRI_OPT(S, max_queued_per_client), .name = "max-queued-per-client", .min = 0, .max = 1 << 20, .fallback = "0",
     .metavar = "N", .group = "Service",
     .help = "the same of one client (a connection, or a caller that a gateway names); 0: its part of --max-queue "
             "alone"},
    {TRI_OPT(S, max_queue_bytes), .name = "max-queue-bytes", .max = 0x1p40, .fallback = "0", .metavar = "BYTES",
     .group = "Service", .help = "memory of the requests of those jobs; 0: half of --memory-cap less --response-cache"},
    {TRI_OPT(S, max_queue_time), .name = "max-queue-time", .min = 0, .max = 604800, .fallback = "0", .metavar = "S",
     .group = "Service", .help = "seconds that a job may wait for a group; 0: any time"},
    {TRI_OPT(S, client_share), .name = "client-share", .metavar = "NAME=WEIGHT,...", .group = "Service",
     .help = "weights in the queue, by the caller that a gateway names (its API key's name); 1 without one. A key of "
             "--allowed-keys may have weight=N after it"},
    {TRI_OPT(S, journal), .name = "journal", .metavar = "DIR", .group = "Service",
     .help = "a folder for a journal of jobs, of this user alone: a coordinator that starts with it goes on with those "
             "that an earlier one was killed under, and an accepted job is on the disk"},
    {TRI_OPT(S, memory_cap), .name = "memory-cap", .min = 1 << 24, .max = 0x1p40, .fallback = "512M",
     .metavar = "BYTES", .group = "Service",
     .help = "growth of the coordinator's memory at which it closes its client socket and opens it anew: clients lose "
             "their connection for a moment; commands and the gateway come back and go on"},
    {TRI_OPT(S, response_cache), .name = "response-cache", .max = 0x1p40, .fallback = "0", .metavar = "BYTES",
     .group = "Service",
     .help =
         "memory, of --memory-cap, for answers that come again: to the same embed, classify, or text at temperature "
         "0, by a beam search or with a seed. Their speed tells clients what others have asked, unless each has a "
         "cache_salt; 0: none"},
    {TRI_OPT(S, drain_timeout), .name = "drain-timeout", .min = 0, .max = 86400, .fallback = "30", .metavar = "S",
     .group = "Service", .help = "seconds that running jobs get to finish after SIGTERM"},
    {TRI_OPT(S, log_level), .name = "log-level", .choices = levels, .fallback = "info", .group = "Service",
     .help = "what goes to stderr"},
    {TRI_OPT(S, log_requests), .name = "log-requests", .fallback = "false", .group = "Service",
     .help = "the log has a line for each request that has ended: whose it was, its tokens, its times and its end, and "
             "nothing of its text"},

    {TRI_OPT(S, launch), .name = "launch", .choices = launches, .fallback = "auto", .group = "Launch",
     .help = "mpi: coordinator and workers are one MPI job; group: the workers are; self: one worker without MPI"},
    {TRI_OPT(S, boot_file), .name = "boot-file", .env = "TRIREME_BOOT_FILE", .metavar = "FILE", .group = "Launch",
     .help = "where the coordinator leaves its address and the workers' keys (mode 0600); said here, it wins over the "
             "variable TRIREME_BOOT of a launcher"},
    {TRI_OPT(S, worker_key_file), .name = "worker-key-file", .metavar = "FILE", .group = "Launch",
     .help =
         "where the coordinator keeps the keys of the workers' socket: with it and the boot file of a start before, "
         "that start's workers find this one"},
    {TRI_OPT(S, lease), .name = "lease", .min = 1, .max = 86400, .fallback = "8", .metavar = "S", .group = "Launch",
     .help = "seconds without a word from a coordinator after which a worker leaves"},
    {TRI_OPT(S, group), .name = "group", .min = 0, .max = 63, .fallback = "0", .metavar = "N", .group = "Launch",
     .help = "number of this worker's replica group"},
    {TRI_OPT(S, places), .name = "places", .metavar = "N@FIRST/COUNT,...", .group = "Launch",
     .help =
         "ranks of this group by host: so many, behind how many of other groups, of how many in all; default: every "
         "host has as many of each group"},
    {TRI_OPT(S, epoch), .name = "epoch", .no_letters = true, .fallback = "1", .metavar = "N", .group = "Launch",
     .help = "number of this start of the group, more than that of the start before by 1 to 2^32"},
    {TRI_OPT(S, event_fd), .name = "event-fd", .min = -1, .max = 1 << 20, .fallback = "-1", .metavar = "FD",
     .group = "Launch", .help = "where the coordinator tells its supervisor what happens"},
    {TRI_OPT(S, notice_fd), .name = "notice-fd", .min = -1, .max = 1 << 20, .fallback = "-1", .metavar = "FD",
     .group = "Launch", .help = "where the coordinator hears from its supervisor that the cluster ends"},
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
