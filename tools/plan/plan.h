/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `trireme plan`. */
#ifndef TRI_TOOLS_PLAN_PLAN_H
#define TRI_TOOLS_PLAN_PLAN_H

#include <limits.h>

#include "base/host/hosts.h"
#include "base/options/serve_layout.h"
#include "kernels/backend.h"
#include "runtime/engine/ledger.h"
#include "tools/plan/recommend.h"

struct plan_options {
  tri_serve_options serve;
  uint64_t memory;
  const char *hosts, *rebalance;
  const char *device; /* of tri_device_kinds; NULL: what is here, else the first */
  bool json;
  /* of layouts for so many devices: 0: the one that is asked for */
  int devices, nnodes;
  bool all;
  int64_t context_len;
  double host_bandwidth, read_bandwidth, flops, link_bandwidth, network_bandwidth, network_latency,
      disk_bandwidth; /* 0: not given */
  int argc;           /* of the command that asks */
  char *const *argv;
};

struct plan_rank {
  tri_shard shard;
  tri_ledger ledger;
};

/* The figures of the machine that predictions are made with, and in words where they are from. */
struct plan_machine {
  tri_ceilings best;
  tri_machine machine;
  char read_source[64], flops_source[64];
  char host_source[64]; /* of the host's figures, where it computes experts for devices; else empty */
};

/* A number of sequences that decode, and what is predicted for them. */
enum { PLAN_LOADS = 3 };
struct plan_load {
  int sequences;
  double seconds; /* between two tokens of a sequence */
};

/* Experts in host memory of ranks with devices. */
struct plan_host_experts {
  bool on;
  size_t bytes;       /* of the rank that has most of them there, */
  double token_bytes; /* and of those that one token reads, of all stages, */
  double token_s;     /* in so many seconds */
  int hot;            /* of each layer, that lie on every rank's device, too */
  double without_s;   /* a step of one sequence if none did */
  struct plan_machine machine;
  double context;
  struct plan_load loads[PLAN_LOADS];
  int num_loads;   /* 0: a step is predicted with the weights that are streamed */
  double prompt_s; /* of a step of a prompt's tokens, as many as it may have; 0: not known */
};

/* Weights that do not stay in memory, and what steps take because of them. */
struct plan_streaming {
  bool on;
  /* bytes of the rank that streams most */
  size_t stay, ring, dram, files;
  size_t common; /* of these, of which each of so many data-parallel ranks of a host reads or brings a part, for all */
  int readers;
  bool from_pack, from_checkpoint; /* both: some ranks' from this, others' from that; none: not known yet */
  int sharing;                     /* ranks that share a disk */
  double disk_bytes_per_s;         /* that they share; 0: not known */
  double link_bytes_per_s;         /* of a device, else 0 */
  char disk_source[80];
  int num_disks;               /* that a pack is spread over */
  char slowest_disk[PATH_MAX]; /* folder of the one that the others wait for; empty: they are alike, or it is not known
                                */
  struct plan_machine machine;
  double pass_s;        /* of the slowest stage, by its disk and link */
  double context;       /* keys of each sequence */
  int64_t hiding, most; /* tokens of a step from which compute hides the pass, 0: not up to `most` */
  int usual_tokens;     /* of a step that has more because of that, else 0 */
  struct plan_load loads[PLAN_LOADS];
  int num_loads;
};

struct plan {
  const struct plan_options *o;
  tri_serve_layout layout;
  tri_model_config *c;
  tri_expert_placement *placement; /* NULL: linear */
  const tri_checkpoint *ckpt;      /* NULL: sizes are counted from the config */
  tri_limits limits;
  tri_ledger_config ledger;
  tri_offload_config offload;        /* the ledger's */
  struct plan_rank *ranks;           /* [num_ranks], of which num_made are made */
  int num_ranks, num_made;           /* of a replica */
  int64_t tokens;                    /* of KV on the smallest rank */
  bool streaming_refused;            /* for want of a place that weights could come from */
  int64_t longest, longest_resident; /* the largest max_model_len that fits, and with all weights in memory; 0: none */
  const char *backend;
  char device[TRI_TACTICS_KEY]; /* the backend's tactics_key; empty: it has none */
  const tri_device_kind *kind;  /* NULL: not planned for devices */
  char assumption[256];         /* what of the machine is given or assumed; the first line of a plan */
  int devices, cores;           /* of this host: that the backend sees; that this process may run on. 0: not known */
  tri_hosts hosts;
  tri_place *places; /* of every replica's ranks; NULL: no hosts were given */
  struct plan_streaming streaming;
  struct plan_host_experts host_experts;
};

/* ---- backend.c ---- */

/* Finds whether ranks have devices, and what each may use: of a device its own memory, if this host has one. As with
 * `up`, `auto` takes devices where there is one for each rank of a replica. */
tri_status plan_find_backend(struct plan *p, tri_error *err);
/* Returns whether the ranks' devices are those of this host, whose memory then is theirs. */
bool plan_is_for_this_host(const struct plan *p);

/* ---- texts.c ---- */

/* Refuses a folder whose tokenizer or labels a coordinator would refuse. */
tri_status plan_check_texts(const char *dir, const tri_model_config *c, tri_error *err);

/* ---- figures.c ---- */

/* Returns the type of the weights of most products, as a worker has them; no type where they cannot be laid out. */
tri_dtype plan_weight_type(const struct plan *p);
/* Finds the figures of the machine: as given, as measured with a rank's share, or of machines of its kind. */
tri_status plan_find_machine(const struct plan *p, const tri_cost_share *share, struct plan_machine *m, tri_error *err);

/* ---- stream_plan.c ---- */

/* Fills p->streaming, if ranks stream weights. Their ledgers are made. TRI_NO_CAPACITY: in words that a start has, too.
 */
tri_status plan_streaming(struct plan *p, tri_error *err);
/* Predictions of streamed weights and of host_experts.c: the share of every stage [pp], zeroed; the model of them; one
 * sequence, 64, and as many as slots and KV blocks allow, with so many keys each: returns how many loads that are. */
tri_status plan_add_stages(const struct plan *p, tri_cost_share *stages, tri_error *err);
tri_cost_model plan_cost_model(const struct plan *p, const struct plan_machine *m, const tri_cost_share *stages);
int plan_loads(const struct plan *p, struct plan_load loads[PLAN_LOADS], double *context);

/* ---- host_experts.c ---- */

/* Fills p->host_experts, if ranks have experts in the host's memory, after plan_streaming. */
tri_status plan_host_experts(struct plan *p, tri_error *err);

/* ---- ranks.c ---- */

/* Finds the limits of a step for a max_model_len. */
tri_status plan_limits(const struct plan *p, int64_t len, tri_limits *out, tri_error *err);
tri_parallel plan_parallel(const struct plan *p);
/* Fills p->ranks, the longest lengths, p->streaming and p->host_experts. The ranks that were made before a failure
 * stay. */
tri_status plan_ranks(struct plan *p, tri_error *err);

/* ---- devices.c ---- */

/* `--devices`: layouts by what they are predicted to take. p has its options, model, checkpoint and ledger's types. */
tri_status plan_devices(struct plan *p, tri_error *err);

/* ---- print_parts.c: lines of several tables ---- */

/* A line of how a checkpoint that is quantized already is stored, and what becomes of its weights. */
void plan_print_stored(const struct plan *p);
void plan_print_ceilings(const struct plan_machine *m);
void plan_print_loads(const struct plan_load *loads, int count, double context);
void plan_print_json_loads(const struct plan_load *loads, int count);

/* ---- print.c and print_*.c ---- */

/* err: why it does not fit; its status is TRI_OK where it does. */
void plan_print(const struct plan *p, const tri_error *err);
/* Nothing where there are none. */
void plan_print_streaming(const struct plan *p);
void plan_print_host_experts(const struct plan *p);
void plan_print_layouts(const struct plan *p, const struct plan_machine *m, const tri_recommend_config *config,
                        const tri_recommendations *r);

#endif
