/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a deployment: those that the coordinator, the workers and `trireme up` share. Each program reads what
 * concerns it and accepts the rest, so that one list of arguments (or one file of cluster-configs/) serves all of them.
 */
#ifndef TRI_BASE_OPTIONS_SERVE_OPTIONS_H
#define TRI_BASE_OPTIONS_SERVE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/model_folder.h"
#include "base/options/options.h"

/* Limit of options that say how much memory a rank has: their sums stay far from what 64 bits hold. */
#define TRI_MOST_BYTES 0x1p50

typedef enum tri_launch { TRI_LAUNCH_AUTO, TRI_LAUNCH_MPI, TRI_LAUNCH_REPLICA, TRI_LAUNCH_SELF } tri_launch;

typedef struct tri_serve_options {
  /* model */
  const char *model;
  char model_folder[TRI_MODEL_FOLDER]; /* tri_serve_model_find */
  tri_opt_list served_model_name;      /* the first is the one that answers have */
  int dtype, kv_cache_dtype;           /* tri_dtype, or TRI_SERVE_AUTO */
  int quantization;                    /* tri_quantization */
  int load_format;                     /* tri_load_format */
  int pooling;                         /* tri_pooling */
  uint64_t seed;
  int64_t max_model_len;
  bool strict_config;
  tri_opt_list ignore_config_key;
  /* weights that leave memory */
  int offload_weights; /* tri_offload_tier */
  int gpu_layers;      /* -1: as many as fit */
  double cpu_offload_gb;
  uint64_t max_in_cpu;
  const char *nvme_path;
  int offload_prefetch_step;
  bool cpu_moe;
  int n_cpu_moe;
  int hot_experts;
  double kv_offloading_size; /* GiB, of a data-parallel rank's ranks together */
  /* layout */
  int tp, pp, dp, ep, moe_tp, replicas; /* 0: not given, of the last three; see tri_serve_layout */
  bool enable_expert_parallel;
  int expert_placement_strategy; /* tri_expert_strategy */
  int num_redundant_experts;
  const char *init_expert_location;
  bool enable_eplb;
  int eplb_step_interval;
  int all2all_backend; /* tri_all2all_form, or TRI_SERVE_FASTEST */
  /* scheduling */
  int max_num_seqs, max_num_batched_tokens, prompt_micro_batch_tokens, block_size, scheduling_policy;
  double max_inter_token_factor; /* 0: no bound */
  uint64_t kv_cache_memory;
  int num_kv_blocks;
  bool enable_prefix_caching, deterministic;
  int encoder_batching;         /* tri_encoder_batching */
  double encoder_latency_limit; /* ms */
  /* execution */
  const char *backend;
  int threads;
  bool disable_custom_all_reduce, autotune, warmup;
  double gpu_memory_utilization;
  /* service */
  const char *endpoint, *worker_endpoint, *interface, *key_file, *allowed_keys;
  bool insecure_tcp;
  int tokenizer_threads;
  const char *client_share;
  int64_t max_queue, max_queued_per_client;
  uint64_t max_queue_bytes; /* 0: half of what memory_cap leaves after the response cache */
  double max_queue_time;    /* seconds; 0: any */
  uint64_t memory_cap, response_cache;
  const char *journal; /* NULL: none */
  double watchdog_timeout, start_timeout, drain_timeout, lease;
  int log_level;
  bool log_requests;
  /* launch */
  int launch; /* tri_launch */
  const char *boot_file, *worker_key_file, *places;
  int group, event_fd, notice_fd;
  uint64_t epoch;
} tri_serve_options;

enum { TRI_SERVE_FASTEST = 2 }; /* of all2all_backend: after the forms */
enum { TRI_SERVE_AUTO = 3 };    /* of dtype and kv_cache_dtype: follows the names of float32, float16, bfloat16 */

extern const char *const tri_quantization_names[]; /* by tri_quantization; NULL-terminated */
extern const char *const tri_expert_strategy_names[];
extern const tri_option tri_serve_option_table[];
extern const size_t tri_serve_option_count;

/* Makes `model` the folder that has the model's files. */
tri_status tri_serve_model_find(tri_serve_options *o, tri_error *err);

/* Programs other than the server's that have use for some of the options: the bits of tri_option.programs. */
typedef enum tri_serve_program {
  TRI_FOR_STEPS = 1,
  TRI_FOR_LOAD = 2,
  TRI_FOR_PLAN = 4,
  TRI_FOR_PACK = 8,
  TRI_FOR_ALL = TRI_FOR_STEPS | TRI_FOR_LOAD | TRI_FOR_PLAN | TRI_FOR_PACK,
} tri_serve_program;

/* Copies the table for such a program, of which --help then shows what it has use for, and its own options after it.
 * Returns how many there are. */
size_t tri_serve_options_copy(tri_option *table, tri_serve_program program, const tri_option *own, size_t num_own);

#endif
