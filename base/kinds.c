/* SPDX-License-Identifier: Apache-2.0 */
#include "base/kinds.h"

#include <stddef.h>

const char *const tri_pooling_names[] = {"model", "cls", "mean", "last", NULL};

const char *const tri_offload_tier_names[] = {"none", "cpu", "nvme", "auto", NULL};

const char *const tri_encoder_batching_names[] = {"packed", "dp-hungry", "dp-lazy", "naive", "none", NULL};

const char *const tri_all2all_part_names[] = {"", "dispatch", "combine", "move"};
