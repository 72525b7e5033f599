/* SPDX-License-Identifier: Apache-2.0 */
/* A prediction of how long steps take under a layout, term by term: reading weights and keys, products, the sums of
 * tensor groups, the exchange between data-parallel ranks, launches, transfers between stages. Pure arithmetic.
 *
 * A step that decodes is bound by reading what it needs once, a prompt by products; both follow DeepSpeed-Inference
 * (Aminabadi et al. 2022, section V) and DeepSpeed-MoE (Rajbhandari et al. 2022, section 5). Weights, experts and
 * attention run one after the other, and each of them takes the longer of reading and computing: the term that bounds
 * it gets its time, so that the terms add up to the step. */
#ifndef TRI_RUNTIME_COST_COST_H
#define TRI_RUNTIME_COST_COST_H

#include "runtime/model/config.h"
#include "runtime/model/layout.h"

/* Time of one operation among P ranks with n bytes: start_s + rank_s x P + n / bytes_per_s (the model of Hockney, with
 * one term more for the flags of P peers). */
typedef struct tri_link {
  double start_s, rank_s, bytes_per_s;
} tri_link;

/* Numbers of rows that products are timed with: 1, 2, 4 ... 1024. */
enum { TRI_CPU_GEMM_ROWS = 11 };

/* Rates that a rank's kernels reach, not what the hardware could do at best; links inside a host and between hosts. */
typedef struct tri_machine {
  double read_bytes_per_s, flops_per_s;
  double row_shares[TRI_CPU_GEMM_ROWS]; /* of flops_per_s, that products of so few rows reach; 0: all of it */
  double attention_flops_per_s;         /* of prompts */
  double query_flops_per_s;             /* of attention of sequences that decode; 0: reading their keys takes longer */
  double op_s;                          /* seconds of each launched op in addition to what it reads or computes */
  double element_s;                     /* of an element of an op that goes row by row; 0: op_s has it */
  tri_link near_sum, far_sum, near_all2all, far_all2all, near_transfer, far_transfer;
  int ranks_per_host;                             /* 0: all ranks are on one */
  double host_read_bytes_per_s, host_flops_per_s; /* of a rank's part of the host, where that computes experts */
} tri_machine;

typedef struct tri_gemm_sample {
  int n, k; /* of the weight */
  tri_dtype dtype;
  bool int8_activations;
} tri_gemm_sample;

/* The sizes that a rank's ops are timed with: some of a layer's matrices but the experts', and its rows. */
typedef struct tri_cost_sample {
  tri_gemm_sample gemms[6];
  int num_gemms;
  int hidden, q_heads, kv_heads, head_dim; /* head_dim 0: keys are latents */
} tri_cost_sample;

/* The most that any rank of a stage has and does. Bytes are read by a step, operations are done for each token. */
typedef struct tri_cost_share {
  double dense_bytes, dense_flops;         /* of its layers' matrices but the experts' */
  double last_flops;                       /* the part of them that is done for rows that are sampled from alone */
  double head_bytes, head_flops;           /* of the output layer; operations for each row that is sampled from */
  double expert_bytes, expert_flops;       /* of one expert of one layer, as far as the rank has it */
  double key_bytes, key_flops;             /* of one key and value in one layer; operations for each query */
  double local_key_bytes, local_key_flops; /* the same of layers that see a window alone */
  int layers, sparse_layers;               /* sparse ones have experts, */
  int last_sparse;     /* 1: the last of these chooses experts for rows that are sampled from alone */
  int host_layers;     /* these others have them on the host, */
  double hot_share;    /* and so much of them on the device, too */
  int local_layers;    /* attention sees a window alone */
  int ops, sums;       /* of a step */
  double row_elements; /* of a token, that ops go through row by row: norms, positions, activations */
  tri_cost_sample sample;
} tri_cost_share;

/* A model under a layout on a machine. */
typedef struct tri_cost_model {
  tri_machine machine;
  tri_parallel p;
  int hidden_size, window, experts, top_k;
  const tri_cost_share *stages; /* [p.pp] */
} tri_cost_model;

/* Seconds. launches: also what ops take that go row by row. */
typedef struct tri_cost {
  double reads, gemms, sums, all2all, launches, transfers;
  double host; /* in which the host computes experts */
} tri_cost;

static inline double tri_cost_seconds(const tri_cost *c) {
  return c->reads + c->gemms + c->sums + c->all2all + c->launches + c->transfers + c->host;
}

/* The work of a step. */
typedef struct tri_cost_load {
  double tokens, all_tokens; /* of one data-parallel rank; of all of them */
  double sampled;            /* rows of logits of a data-parallel rank */
  double sequences, context; /* of a data-parallel rank; keys of each */
  double queries;            /* pairs of a query and a key that it sees, over context: half of a prompt's tokens */
} tri_cost_load;

/* One share of the experts, the busiest of a layer. */
typedef struct tri_expert_load {
  double experts, choices; /* that it reads; that it computes */
} tri_expert_load;

/* Adds what a data-parallel rank has to the share of its stage. kv: the type of keys and values. c: of a decoder. */
tri_status tri_cost_share_add(const tri_model_config *c, const tri_shard *s, tri_dtype dtype,
                              tri_quantization quantization, tri_dtype kv, tri_cost_share *stage, tri_error *err);

/* The mean, over seeded samples of top_k different experts for each token, of the most different experts and the most
 * choices that one of `shares` nearly equal parts of them gets. Routers are trained to be balanced: each expert counts
 * as equally likely. */
tri_expert_load tri_cost_experts(int experts, int top_k, int shares, double tokens);

/* Returns the rate of products with so many rows: between two that were timed, by their logarithms. */
double tri_cost_gemm_rate(const tri_machine *m, double rows);

/* Returns the seconds of one collective of `bytes` bytes among `ranks` ranks: start_s + rank_s * ranks + bytes /
 * bytes_per_s. */
double tri_cost_link(const tri_link *l, int ranks, double bytes);

/* Seconds in which every rank of a stage sends `bytes` for its data-parallel rank's tokens to the ranks that have their
 * experts. Flat: all ranks of the stage talk to all, O(p). Coordinated (DeepSpeed-MoE, section 5.3, p = dp x tp ranks,
 * L = tp): tokens are the same on all ranks of a tensor group, so each talks to the dp ranks of its number alone, and a
 * sum over the replica's tp finishes: O(p / L) + O(L). The sum is the one that every branch ends with and is counted
 * there. */
double tri_cost_all2all(const tri_machine *m, tri_parallel p, double bytes, bool flat);

/* Returns whether some replica of so many neighbouring ranks lies on several hosts. */
bool tri_cost_crosses(const tri_machine *m, int ranks);

/* Seconds in which the host computes a stage's experts for so many tokens, and
 * the device at the same time those that it has; 0: the host has none of them. */
double tri_cost_host_experts(const tri_cost_model *m, int stage, double tokens);

/* One stage's part of a step, with the transfer to the next stage. */
tri_cost tri_cost_stage(const tri_cost_model *m, int stage, const tri_cost_load *load);
/* The whole step, stage after stage. */
tri_cost tri_cost_step(const tri_cost_model *m, const tri_cost_load *load);

/* Returns what one micro-batch of a decode step of so many sequences is on one data-parallel rank; see tri_cost_decode.
 */
tri_cost_load tri_cost_decode_load(const tri_cost_model *m, int sequences, double context);
/* One token for each of so many sequences of a replica with `context` keys each: pp micro-batches share them, and in
 * each micro-batch dp data-parallel ranks. *out is one micro-batch's way through all stages. Returns the seconds
 * between two tokens of a sequence: all micro-batches take their turn on the slowest stage, which may take longer than
 * one micro-batch's way (GPipe's schedule, Huang et al. 2019, without its ends). */
double tri_cost_decode(const tri_cost_model *m, int sequences, double context, tri_cost *out);
/* A prompt of one sequence in one step. */
tri_cost tri_cost_prompt(const tri_cost_model *m, double tokens);

#endif
