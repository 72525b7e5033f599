/* SPDX-License-Identifier: Apache-2.0 */
/* A placement of experts by what they have had to do: hot ones get copies, and shares nearly equal numbers of rows. */
#ifndef TRI_RUNTIME_MODEL_EXPERT_BALANCE_H
#define TRI_RUNTIME_MODEL_EXPERT_BALANCE_H

#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* Rows that each expert of each layer has had, as `trireme status --experts` tells it. */
typedef struct tri_expert_counts {
  int num_layers, num_experts; /* layers with experts */
  int num_groups;              /* runs of experts that the router chooses by; 1: none */
  uint64_t *rows;              /* [num_layers, num_experts] */
} tri_expert_counts;

/* {"num_experts": E, "num_groups": G, "rows": [[rows of expert 0, ...], ...]}, without G 1; other members are not
 * looked at. */
tri_status tri_expert_counts_read(const char *path, tri_expert_counts *out, tri_error *err);
void tri_expert_counts_free(tri_expert_counts *c);

/* Places a layer's experts in ep shares of num_slots slots: a further slot goes to the expert with the most rows for
 * each that it has, and the slots with the most rows go first to the share that has the fewest (longest processing time
 * first, Graham 1969). No share has an expert twice. TRI_OUT_OF_RANGE: not num_experts <= num_slots <= ep x
 * num_experts, or ep > num_slots. */
tri_status tri_expert_rebalance(const uint64_t *rows, int num_experts, int num_slots, int ep, int32_t *expert_of);

/* The same where shares lie on several hosts. A router that chooses by groups gives a row experts of few groups: as
 * long as a group's lie on one host, the row goes to few hosts. So groups go to hosts first, those with the most rows
 * first to the host with the fewest for each share, and then experts and copies to the shares there; unless the busiest
 * share has more rows than without that by a tenth, or hosts have room for other numbers of experts. host_of: [ep],
 * shares of a host are neighbours; NULL: one host. */
enum { TRI_EXPERT_HOST_COST = 10 /* percent */ };
tri_status tri_expert_rebalance_hosts(const uint64_t *rows, int num_experts, int num_slots, int ep, int num_groups,
                                      const int32_t *host_of, int32_t *expert_of);

/* Rows of the shares, in the mean over the most of one: 1 is balanced; 1 where there are none. An expert's rows are
 * divided by its slots. shares: [ep] is added to. */
void tri_expert_share_rows(const uint64_t *rows, int num_experts, const int32_t *expert_of, int num_slots, int ep,
                           double *shares);
double tri_expert_balancedness(const double *shares, int ep);

/* The file that --init-expert-location reads, of all layers; *balancedness: over the layers' sums of the most.
 * host_of: as above. */
tri_status tri_expert_rebalance_all(const tri_expert_counts *c, int num_redundant, int ep, const int32_t *host_of,
                                    tri_buf *out, double *balancedness, tri_error *err);

#endif
