/* SPDX-License-Identifier: Apache-2.0 */
/* The options about what leaves memory: weights, KV blocks. */
#ifndef TRI_RUNTIME_ENGINE_OFFLOAD_OPTIONS_H
#define TRI_RUNTIME_ENGINE_OFFLOAD_OPTIONS_H

#include "base/options/serve_options.h"
#include "runtime/engine/offload_plan.h"

/* The strings stay the options'. TRI_USAGE: two options contradict each other. */
tri_status tri_offload_of_options(const tri_serve_options *o, tri_offload_config *out, tri_error *err);

#endif
