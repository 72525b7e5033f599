/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/ledger.h"

#include <stdio.h>
#include <string.h>

#include "runtime/engine/all2all_choice.h"
#include "runtime/forward/step_arena.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/load/common_bytes.h"
#include "runtime/load/hot_weights.h"

/* Terms that are known exactly (weights, arena, KV blocks) are computed by the code that will take them; those that
 * are not (workspaces, what the driver takes) are bounded from above. What is left belongs to the KV cache. With
 * streamed weights both share what is left: the cache gets one sequence of the longest first, then a share
 * (docs/design/memory.md), and layers stay as far as the rest goes. */
/* Memory that is known only once it is taken: recorded steps, what communicators grow by, what copies go through, the
 * slack of the driver's allocations. A guess on the large side, and small compared with a device's memory. */
#define DEVICE_RESERVE ((size_t)384 << 20)

/* Memory of samples on a device: how often each id has come in each sequence, and what rows can ask for. */
static size_t sample_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits) {
  enum { ROW = 16 << 10 };
  size_t counts = (size_t)c->vocab_size * sizeof(uint32_t);
  return s->last_stage && !c->encoder ? (size_t)limits->max_num_seqs * (counts + ROW) : 0;
}

/* Adds what the encoder of an encoder-decoder takes in addition. */
static tri_status add_source(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                             const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                             tri_ledger *l, tri_error *err) {
  tri_model_config source;
  tri_shard shard;
  tri_weight_map m;
  tri_step_arena arena;
  if (!c->seq2seq.on) return TRI_OK;
  tri_model_config_source(c, &source);
  TRI_CHECK(tri_shard_make(&source, s->p, &shard, err));
  TRI_CHECK(tri_weight_map_make(&source, &shard, ckpt, config->dtype, config->quantization, NULL, &m, err));
  l->source_weights = m.bytes;
  l->weights += m.bytes;
  tri_weight_map_free(&m);
  tri_step_arena_config ac = {
      .model = &source, .shard = &shard, .limits = limits, .num_micro_batches = num_micro_batches};
  TRI_CHECK(tri_step_arena_plan(&ac, &arena, err));
  l->activations += arena.bytes;
  return TRI_OK;
}

/* Returns whether the device has experts of some layer. */
static bool has_experts_here(const tri_model_config *c, const tri_shard *s) {
  if (s->p.hot_experts) return true;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++)
    if ((c->layer_flags[l] & TRI_LAYER_SPARSE) && !tri_layer_experts_on_host(c, s->p, l)) return true;
  return false;
}

/* Returns whether a device's kernels may cut the keys that tiles of prompts see (kernels/cuda/attention/split_plan.h).
 */
static bool tiles_are_cut(const tri_model_config *c, const tri_ledger_config *config) {
  return !c->mla.on && config->kv_dtype != TRI_F32;
}

/* Bytes of a slab of an int8 weight that a prompt's GEMM widens at a time (kernels/cuda/linear/linear.c). */
static size_t slab_bytes(tri_weight_shape shape) {
  enum { ROWS = 4096, ELEMENTS = 1 << 24 };
  int64_t rows = ELEMENTS / shape.k / ROWS * ROWS;
  if (rows < ROWS) rows = ROWS;
  return (size_t)(rows < shape.n ? rows : shape.n) * (size_t)shape.k * 2;
}

static size_t larger_of(size_t a, size_t b) { return a > b ? a : b; }

/* Bytes of the parts that the sums of a GEMM with weights of 8 bits are cut into where its tiles do not fill the
 * device, and of the scales of rows in two terms (kernels/cuda/linear/gemm_8bit.cu), at most. */
static size_t sums_bytes(tri_weight_shape shape, size_t rows) {
  enum { SPLITS = 8, STEP = 64, FEWEST_STEPS = 4, TILES = 131, TILE = 128 * 128, GROUP = 128, TWO_TERMS_ROWS = 64 };
  size_t k = (size_t)shape.k, n = (size_t)shape.n, splits = (k + STEP - 1) / STEP / FEWEST_STEPS, sums = TILES * TILE;
  if (splits > SPLITS) splits = SPLITS;
  if (n < sums / rows) sums = rows * n;
  return (splits > 1 ? splits * sums * sizeof(float) : 0) + (k / GROUP + 1) * TWO_TERMS_ROWS * sizeof(float);
}

/* Bytes of the parts into which a gated MLP of few rows cuts its second GEMM's sums (kernels/cuda/linear/gated_mlp.cu),
 * at most. */
static size_t mlp_parts_bytes(const tri_model_config *c, const tri_shard *s, size_t rows) {
  enum { MOST = 16 << 20, ROWS = 64, OUTPUTS = 256, UNITS = 256, SPLITS = 16 };
  int units = s->ff.count > s->shared_kv_ff.count ? s->ff.count : s->shared_kv_ff.count;
  if (!c->mlp.gated || units <= 0) return 0;
  size_t splits = ((size_t)units + UNITS - 1) / UNITS, slabs = ((size_t)c->hidden_size + OUTPUTS - 1) / OUTPUTS;
  if (splits > SPLITS) splits = SPLITS;
  size_t tile = ROWS;
  while (tile >= 2 * rows && tile > 32) tile /= 2;
  size_t bytes = slabs * OUTPUTS * tile * splits * sizeof(float);
  return bytes < MOST ? bytes : MOST;
}

/* Returns the most elements that a row of keys has in a layer of this shard. */
static size_t longest_key(const tri_model_config *c, const tri_shard *s) {
  int64_t most = c->mla.on ? c->mla.rank + c->mla.rope_dim : 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count && !c->mla.on; l++)
    if (tri_layer_heads(c, l).dim > most) most = tri_layer_heads(c, l).dim;
  return (size_t)most;
}

/* Returns the most query heads that a layer of this shard has. */
static size_t most_heads(const tri_model_config *c, const tri_shard *s) {
  int most = 0;
  for (int l = s->layers.first; l < s->layers.first + s->layers.count; l++)
    if (tri_shard_q_heads(c, s, l).count > most) most = tri_shard_q_heads(c, s, l).count;
  return (size_t)most;
}

/* An upper bound of what any op's plan asks for on a device (kernels/cuda): inputs that are rounded to the weights'
 * type or to int8, partial results of attention whose keys are split among blocks, the hidden units of chosen experts
 * and what their choices come to, parts of a gated MLP's sums and of those with weights of 8 bits, and weights of int8
 * that prompts widen. A layer's ops have a chunk's rows, those after the last layer the logits'. */
static bool workspace_bytes(const tri_model_config *c, const tri_shard *s, const tri_limits *limits,
                            const tri_ledger_config *config, tri_ledger *l) {
  enum { BLOCKS = 2048, EXTRA = 8 }; /* parts of cut contexts at most; bytes for a row's scale and alignment */
  enum { PARTS = 264, ROWS = 128 };  /* parts of prompts' cut tiles, by a block each, at most; rows of each, */
  enum { SHORT = 132, LONG = 260 };  /* and a row of heads up to 128 elements, and of longer ones */
  enum { SPLIT_EXPERTS = 16 << 20 }; /* bytes of the parts that the sums of few experts are cut into, at most */
  int chunk = tri_limits_chunk(limits), logits = tri_limits_logits(limits);
  size_t rows = (size_t)(chunk > logits ? chunk : logits), heads = most_heads(c, s);
  size_t widest = 0, slab = 0, partial, hidden;
  for (int i = 0; i < TRI_W_COUNT * s->layers.count; i++) {
    int id = i % TRI_W_COUNT, layer = s->layers.first + i / TRI_W_COUNT;
    tri_weight_shape shape = tri_shard_weight_shape(c, s, (tri_weight_id)id, layer);
    if (shape.vector || shape.n <= 0 || shape.k <= 0) continue;
    if ((size_t)shape.k > widest) widest = (size_t)shape.k;
    bool eight_bits = config->quantization != TRI_QUANTIZE_NONE && tri_weight_is_quantized(c, (tri_weight_id)id);
    if (!eight_bits) continue;
    if (!tri_weight_is_of_experts((tri_weight_id)id)) slab = larger_of(slab, sums_bytes(shape, rows));
    if (config->quantization == TRI_QUANTIZE_INT8) slab = larger_of(slab, slab_bytes(shape));
  }
  size_t per_expert = (size_t)s->expert_ff.count * 2 + (size_t)c->hidden_size;
  bool has_experts = has_experts_here(c, s);
  per_expert = has_experts ? per_expert * sizeof(float) : 0;
  size_t head = longest_key(c, s) + 4;
  size_t row = head > SHORT ? LONG : SHORT;
  size_t of_prompts = tiles_are_cut(c, config) ? PARTS * ROWS * row * sizeof(float) : 0;
  if (!tri_size_mul(rows, widest + EXTRA, &widest) || !tri_size_mul(widest, 2, &widest) ||
      !tri_size_add(widest, slab, &widest) || !tri_size_mul(BLOCKS, heads * head * sizeof(float), &partial) ||
      !tri_size_add(partial, of_prompts, &partial) || !tri_size_mul(rows, (size_t)c->moe.top_k * per_expert, &hidden) ||
      !tri_size_add(hidden, widest, &hidden))
    return false;
  if (has_experts && !tri_size_add(hidden, SPLIT_EXPERTS, &hidden)) return false;
  size_t of_mlp = mlp_parts_bytes(c, s, rows);
  if (of_mlp > hidden) hidden = of_mlp;
  size_t of_gate = rows * (size_t)c->hidden_size * sizeof(float); /* of float32, whose rows are widened to it */
  if (of_gate > widest) widest = of_gate;
  l->side_workspace = c->moe.has_shared ? widest : 0; /* the shared expert's inputs */
  return tri_size_add(hidden > partial ? hidden : partial, l->side_workspace, &l->workspace);
}

/* Blocks beyond which more would never be used. An encoder's sequences have theirs for a step, in which each of them
 * may leave a block half full. */
static int64_t most_blocks(const tri_limits *l, int num_micro_batches, int64_t blocks_per_seq) {
  int64_t full = blocks_per_seq * l->max_num_seqs, step = l->max_num_batched_tokens / l->block_size + l->max_num_seqs;
  return l->whole_sequences && step * num_micro_batches < full ? step * num_micro_batches : full;
}

/* Blocks of slots of some 2,048 tokens: more sequences than that are rare. */
static int64_t usual_blocks(const tri_limits *limits, int64_t full) {
  enum { TOKENS = 2048 };
  int64_t blocks = (int64_t)limits->max_num_seqs * TOKENS / limits->block_size;
  return blocks < full ? blocks : full;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes of the KV cache beyond one sequence of the longest, from the rest that everything else leaves: half of it on a
 * device, a fourth on a host, but no more than makes the cache half of what is streamed, or than usual slots can use.
 * docs/design/memory.md says why. */
static int64_t share_of_rest(bool device, int64_t rest, int64_t streamed, int64_t one, int64_t usual) {
  int64_t share = smaller(rest / (device ? 2 : 4), streamed - 2 * one);
  return larger(smaller(share, usual - one), 0);
}

/* Memory for the KV cache while weights are streamed: what was asked for; else one sequence of the longest and its
 * share of the rest, or what layers cannot use of that, of a host a fourth at most. */
static int64_t streaming_kv(const tri_limits *limits, const tri_ledger_config *config, const tri_offload_room *weights,
                            int64_t room, int64_t full, int64_t one, int64_t block) {
  int64_t usual = usual_blocks(limits, full);
  if (config->num_kv_blocks) return config->num_kv_blocks * block;
  if (config->kv_bytes) return config->kv_bytes;
  if (!config->memory) return larger(one, usual) * block;
  int64_t rest = room - (int64_t)weights->usual - one * block, layers = (int64_t)(weights->most - weights->usual);
  if (rest <= 0) return one * block;
  int64_t streamed = (int64_t)weights->leave - smaller(rest, layers);
  int64_t more = share_of_rest(config->device, rest, streamed, one * block, usual * block);
  int64_t spare = config->device ? rest - layers : smaller(rest - layers, rest / 4);
  return smaller(one + larger(more, spare) / block, full) * block;
}

/* Weights leave where that was asked for, or where they do not fit next to that many blocks, of which one sequence
 * needs `one`; but not those that take less than what reads of files go through. */
static bool must_stream(const tri_model_config *c, const tri_ledger_config *config, size_t weights, int64_t room,
                        int64_t blocks, int64_t one, int64_t block) {
  bool given = config->num_kv_blocks || config->kv_bytes;
  if (!tri_offload_is_allowed(config->offload)) return false;
  if (tri_offload_is_asked(config->offload, config->device)) return true;
  if (c->encoder || c->seq2seq.on) return false;
  if (!config->device && weights <= tri_offload_buffer_bytes()) return false;
  return room < 0 || blocks * block > room || (blocks < one && !given);
}

/* Counts what a data-parallel rank streams as the others of its replica do. */
static tri_status count_common(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                               const tri_ledger_config *config, const tri_tiers *t, tri_ledger *l, tri_error *err) {
  tri_weight_map m;
  if (tri_parallel_dp(s->p) == 1) return TRI_OK;
  TRI_CHECK(tri_weight_map_make(c, s, ckpt, config->dtype, config->quantization, t, &m, err));
  l->common = tri_common_bytes(&m, t);
  tri_weight_map_free(&m);
  return TRI_OK;
}

/* Decides what of the weights stays, and counts it. room: for weights and their reads. */
static tri_status stream_weights(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                                 const tri_weight_map *m, const tri_ledger_config *config, int64_t room, tri_ledger *l,
                                 tri_error *err) {
  tri_tiers *t = NULL;
  char memory[TRI_MEMORY_TEXT];
  int64_t most = config->memory / 5 * 4;
  bool spares = !config->device && config->memory && room > most; /* a host has other work */
  if (spares) room = most;
  if (!config->memory) room = INT64_MAX / 2;
  l->weights_room = (size_t)larger(room, 0);
  tri_status st = tri_offload_plan(config->offload, c, m, s->layers.count, l->weights_room, config->device, &t, err);
  if (st == TRI_NO_CAPACITY && spares && err && (!strcmp(err->field, "gpu_layers") || !strcmp(err->field, "memory")))
    tri_error_add(err, "; where weights are streamed, a fifth of the %s that this rank may use stays free for the host",
                  tri_memory_text((uint64_t)config->memory, memory));
  if (st != TRI_OK) return st;
  l->streams = t->num_streamed > 0;
  l->streamed = t->streamed;
  l->ring = t->ring_bytes;
  l->weights = m->bytes - l->streamed + l->ring;
  l->reads = l->streams && !config->device ? tri_offload_buffer_bytes() : 0;
  st = count_common(c, s, ckpt, config, t, l, err);
  tri_tiers_free(t);
  return st;
}

/* Counts the least that streamed weights take, for which there is no room. */
static void count_least(const tri_weight_map *m, const tri_offload_room *r, bool device, tri_ledger *l) {
  l->streams = true;
  l->ring = r->ring;
  l->weights = r->stays + r->ring;
  l->streamed = m->bytes - r->stays;
  l->reads = device ? 0 : tri_offload_buffer_bytes();
}

/* A cache of a size that was given holds less than one sequence. */
static tri_status too_few_blocks(const tri_limits *limits, const tri_ledger_config *config, const tri_ledger *l,
                                 int64_t one, tri_error *err) {
  char more[80], less[60] = "";
  if (l->kv_tokens) snprintf(less, sizeof less, ", or --max-model-len %lld or less", (long long)l->kv_tokens);
  if (config->num_kv_blocks)
    snprintf(more, sizeof more, "--num-kv-blocks-override %lld", (long long)one);
  else
    snprintf(more, sizeof more, "--kv-cache-memory-bytes %lld", (long long)(one * (int64_t)l->block_bytes));
  const char *noun = l->encoder ? "text" : "sequence";
  return tri_fail(err, TRI_NO_CAPACITY, "max_model_len",
                  "%lld %sblocks of %d tokens hold less than one %s of max_model_len %d: give %s or more%s",
                  (long long)l->num_blocks, l->encoder ? "K and V " : "KV ", limits->block_size, noun,
                  limits->max_model_len, more, less);
}

static int64_t count(const tri_ledger *l, const tri_ledger_config *config) {
  size_t pool = config->device ? 0 : l->host_kv;
  return (int64_t)(l->activations + l->workspace + l->reserve + l->all2all + l->hot + pool);
}

/* Blocks of the host's memory. An encoder's sequences never wait with what they have computed, and those of
 * encoder-decoders are computed again with their sources. */
static tri_status count_pool(const tri_model_config *c, const tri_limits *limits, const tri_ledger_config *config,
                             tri_ledger *l, tri_error *err) {
  int64_t bytes = config->offload ? config->offload->host_kv : 0, most = INT32_MAX / limits->block_size;
  if (!bytes || c->encoder || c->seq2seq.on) return TRI_OK;
  l->num_host_blocks = bytes / (int64_t)l->block_bytes;
  if (l->num_host_blocks > most) l->num_host_blocks = most;
  l->host_kv = (size_t)l->num_host_blocks * l->block_bytes;
  if (l->num_host_blocks) return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "kv_offloading_size",
                  "a rank's part of --kv-offloading-size is %lld bytes, and its KV blocks of %d tokens have %zu bytes: "
                  "ask for more, or for 0",
                  (long long)bytes, limits->block_size, l->block_bytes);
}

/* Tables and tallies of experts that the device has in addition to the host. */
static size_t hot_table_bytes(const tri_model_config *c, const tri_shard *s) {
  size_t copies = s->p.placement ? (size_t)tri_expert_most_copies(s->p.placement) : 1;
  size_t table = (size_t)c->moe.num_experts * (1 + copies) * sizeof(int32_t);
  return (size_t)s->layers.count * (table + (size_t)s->p.hot_experts * sizeof(tri_expert_tally));
}

/* Everything but weights and KV blocks. */
static tri_status count_others(const tri_model_config *c, const tri_shard *s, const tri_limits *limits,
                               int num_micro_batches, const tri_ledger_config *config, tri_ledger *l, tri_error *err) {
  tri_step_arena arena;
  tri_step_arena_config ac = {
      .model = c, .shard = s, .limits = limits, .num_micro_batches = num_micro_batches, .gemms = l->gemm_type};
  TRI_CHECK(tri_step_arena_plan(&ac, &arena, err));
  l->activations = arena.bytes + (size_t)s->layers.count * (size_t)s->slots.count * sizeof(tri_expert_tally);
  if (s->p.placement)
    l->activations += (size_t)s->layers.count * (size_t)c->moe.num_experts *
                      (1 + (size_t)tri_expert_most_copies(s->p.placement)) * sizeof(int32_t);
  if (s->p.hot_experts) l->activations += hot_table_bytes(c, s);
  if (!tri_kv_block_bytes(c, s, config->kv_dtype, limits->block_size, &l->block_bytes) ||
      (config->device && !workspace_bytes(c, s, limits, config, l)) ||
      !tri_engine_all2all_bytes(c, s, limits, config->device, l->gemm_type, &l->all2all))
    return tri_fail(err, TRI_OVERFLOW, "max_num_batched_tokens", "the sizes overflow");
  if (config->device) l->reserve = DEVICE_RESERVE + sample_bytes(c, s, limits);
  return TRI_OK;
}

/* Blocks for the room that weights and everything else leave: not less than one sequence of the longest takes. */
static int64_t blocks_for(const tri_ledger_config *config, int64_t room, int64_t full, int64_t one, int64_t block) {
  if (config->num_kv_blocks) return config->num_kv_blocks;
  if (config->kv_bytes) return config->kv_bytes / block;
  /* A device is there for nothing else; a host has other work, and a page cache to keep. */
  int64_t most = config->device ? room : room / 4;
  return config->memory && full * block > most ? larger(most / block, one) : full;
}

/* The sum comes first: it and the limit are what counts. */
tri_status tri_ledger_refuse(const tri_ledger *l, int64_t memory, int one_len, tri_error *err) {
  char lines[TRI_LEDGER_TEXT], sum[TRI_MEMORY_TEXT], most[TRI_MEMORY_TEXT], cache[80] = "";
  uint64_t all = l->weights + l->reads + l->hot + l->activations + l->workspace + l->reserve + l->all2all + l->kv;
  if (!l->reserve) all += l->host_kv;
  tri_ledger_text(l, lines);
  const char *one = l->encoder ? "text" : "sequence";
  if (one_len) snprintf(cache, sizeof cache, " for one %s of max_model_len %d", one, one_len);
  tri_memory_text(all, sum);
  tri_memory_text((uint64_t)memory, most);
  if (!strcmp(sum, most)) { /* less apart than is shown */
    snprintf(sum, sizeof sum, "%llu bytes", (unsigned long long)all);
    snprintf(most, sizeof most, "%lld bytes", (long long)memory);
  }
  return tri_fail(err, TRI_NO_CAPACITY, "memory", "%s exceed the %s that this rank may use: %s%s", sum, most, lines,
                  cache);
}

/* Blocks of one sequence of the longest: an encoder-decoder's has some for its source, too. */
static int64_t blocks_of_one(const tri_model_config *c, const tri_limits *limits) {
  return ((int64_t)limits->max_model_len + limits->block_size - 1) / limits->block_size * (c->seq2seq.on ? 2 : 1);
}

/* With exactly so many experts on the device in addition to the host's as the shard says. */
static tri_status make(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                       const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                       tri_ledger *out, tri_error *err) {
  tri_weight_map m;
  tri_ledger l = {0};
  tri_status st = tri_weight_map_make(c, s, ckpt, config->dtype, config->quantization, NULL, &m, err);
  if (st != TRI_OK) return st;
  l.encoder = c->encoder;
  l.weights = m.bytes;
  l.host_experts = m.host_bytes;
  l.hot_experts = s->p.hot_experts;
  TRI_TRY(tri_hot_weights_bytes(s, &m, l.hot_experts, &l.hot));
  l.weight_type = m.layers[TRI_W_O].dtype;
  l.table_type = m.global[TRI_W_EMBED].dtype;
  l.gemm_type = tri_step_arena_type(c, config->device, m.gemms);
  TRI_TRY(count_others(c, s, limits, num_micro_batches, config, &l, err));
  TRI_TRY(add_source(c, s, ckpt, limits, num_micro_batches, config, &l, err));
  TRI_TRY(count_pool(c, limits, config, &l, err));
  int64_t one = blocks_of_one(c, limits), full = most_blocks(limits, num_micro_batches, one),
          block = (int64_t)l.block_bytes;
  int64_t others = count(&l, config), kv = 0;
  int64_t room = config->memory ? config->memory - others - (int64_t)l.weights : INT64_MAX;
  if (must_stream(c, config, m.bytes, room, blocks_for(config, room, full, one, block), one, block)) {
    tri_offload_room r;
    tri_limits chunked = *limits;
    chunked.chunk_tokens = l.chunk_tokens = tri_offload_chunk(config->offload, c, s->p, config->device);
    TRI_TRY(count_others(c, s, &chunked, num_micro_batches, config, &l, err));
    others = count(&l, config);
    int64_t left = config->memory - others;
    TRI_TRY(tri_offload_find_room(config->offload, &m, s->layers.count, config->device, &r));
    kv = streaming_kv(limits, config, &r, left, full, one, block);
    if (config->memory && config->offload->gpu_layers <= 0 && left - kv < (int64_t)r.least)
      count_least(&m, &r, config->device, &l);
    else
      TRI_TRY(stream_weights(c, s, ckpt, &m, config, left - kv, &l, err));
  }
  if (config->memory) room = config->memory - others - (int64_t)(l.weights + l.reads);
  l.num_blocks = l.streams ? kv / block : blocks_for(config, room, full, one, block);
  if (l.num_blocks > INT32_MAX / limits->block_size) l.num_blocks = INT32_MAX / limits->block_size;
  l.kv = (size_t)(l.num_blocks * block);
  l.kv_tokens = l.num_blocks * limits->block_size;
  *out = l;
  if (room < 0 || l.num_blocks * block > room)
    st = tri_ledger_refuse(&l, config->memory, l.num_blocks == one ? limits->max_model_len : 0, err);
  else if (l.num_blocks < one)
    st = too_few_blocks(limits, config, &l, one, err);
cleanup:
  tri_weight_map_free(&m);
  return st;
}

/* Returns the bytes of the KV cache that experts on the device leave: what was asked for, or what full slots of some
 * 2,048 tokens take, of what the cache would have without them. */
static int64_t kept_kv(const tri_model_config *c, const tri_limits *limits, int num_micro_batches,
                       const tri_ledger_config *config, const tri_ledger *without) {
  int64_t one = blocks_of_one(c, limits), full = most_blocks(limits, num_micro_batches, one), kv = (int64_t)without->kv;
  int64_t least = larger(one, usual_blocks(limits, full)) * (int64_t)without->block_bytes;
  if (config->kv_bytes) least = config->kv_bytes;
  if (config->num_kv_blocks) least = kv;
  return smaller(least, kv);
}

/* Returns the most experts of each layer for which a device has room in addition to the host's and the KV cache; *l is
 * the ledger without any, and then the one with them. */
static tri_status add_hot(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                          const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                          tri_ledger *l, tri_error *err) {
  tri_weight_map m;
  tri_shard shard = *s;
  tri_ledger with;
  tri_error ignored = {0};
  int64_t kv = kept_kv(c, limits, num_micro_batches, config, l);
  shard.p.hot_experts = 1;
  if (make(c, &shard, ckpt, limits, num_micro_batches, config, &with, &ignored) != TRI_OK || with.streams)
    return TRI_OK;
  int64_t spare = config->memory - count(&with, config) - (int64_t)with.weights - kv + (int64_t)with.hot;
  if (spare <= 0) return TRI_OK;
  TRI_CHECK(tri_weight_map_make(c, s, ckpt, config->dtype, config->quantization, NULL, &m, err));
  shard.p.hot_experts = tri_hot_weights_fit(s, &m, (size_t)spare);
  tri_weight_map_free(&m);
  for (; shard.p.hot_experts; shard.p.hot_experts--) {
    tri_status st = make(c, &shard, ckpt, limits, num_micro_batches, config, &with, &ignored);
    if (st != TRI_OK || with.streams || (int64_t)with.kv < kv) continue;
    *l = with;
    return TRI_OK;
  }
  return TRI_OK;
}

/* Refuses a number of them for which other weights would be streamed, which takes far longer than what they save. */
static tri_status check_hot(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                            const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                            const tri_ledger *with, tri_error *err) {
  tri_shard shard = *s;
  tri_ledger without;
  tri_error ignored = {0};
  char bytes[TRI_MEMORY_TEXT];
  shard.p.hot_experts = 0;
  if (!with->hot || !with->streams) return TRI_OK;
  if (make(c, &shard, ckpt, limits, num_micro_batches, config, &without, &ignored) != TRI_OK || without.streams)
    return TRI_OK;
  return tri_fail(err, TRI_NO_CAPACITY, "hot_experts",
                  "%d experts of each layer take %s of the GPU's memory, so that other weights would be streamed: give "
                  "a smaller --hot-experts, or -1 for as many as fit",
                  with->hot_experts, tri_memory_text(with->hot, bytes));
}

tri_status tri_ledger_make(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                           const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                           tri_ledger *out, tri_error *err) {
  int hot = tri_offload_hot_experts(config->offload, c, s, config->device, config->deterministic);
  tri_shard shard = *s;
  shard.p.hot_experts = hot == TRI_HOT_EXPERTS_AUTO ? 0 : hot;
  TRI_CHECK(make(c, &shard, ckpt, limits, num_micro_batches, config, out, err));
  if (hot != TRI_HOT_EXPERTS_AUTO) return check_hot(c, s, ckpt, limits, num_micro_batches, config, out, err);
  if (out->streams || !config->memory) return TRI_OK;
  return add_hot(c, s, ckpt, limits, num_micro_batches, config, out, err);
}

/* Returns whether a larger step costs little compared with its benefit. */
static bool is_worth_it(const tri_ledger *usual, const tri_ledger *l) {
  return l->streamed <= usual->streamed + usual->streamed / 8 && l->ring >= usual->ring - usual->ring / 8 &&
         l->num_blocks >= usual->num_blocks - usual->num_blocks / 8;
}

int tri_ledger_step_tokens(const tri_model_config *c, const tri_shard *s, const tri_checkpoint *ckpt,
                           const tri_limits *limits, int num_micro_batches, const tri_ledger_config *config,
                           const tri_ledger *usual, int wanted) {
  enum { STEP = TRI_OFFLOAD_CHUNK };
  int least = limits->max_num_batched_tokens, unit = usual->chunk_tokens ? usual->chunk_tokens : STEP;
  for (int tokens = wanted; tokens > least; tokens = (least + (tokens - least) / 2) / unit * unit) {
    tri_limits larger = *limits;
    tri_ledger l;
    tri_error ignored = {0};
    larger.max_num_batched_tokens = tokens;
    tri_status st = tri_ledger_make(c, s, ckpt, &larger, num_micro_batches, config, &l, &ignored);
    if (st == TRI_OK && is_worth_it(usual, &l)) return tokens;
  }
  return least;
}

const char *tri_memory_text(uint64_t bytes, char out[TRI_MEMORY_TEXT]) {
  if (bytes < 1024)
    snprintf(out, TRI_MEMORY_TEXT, "%d bytes", (int)bytes);
  else if (bytes < 1024 * 1024)
    snprintf(out, TRI_MEMORY_TEXT, "%.1f KiB", (double)bytes / 0x1p10);
  else
    snprintf(out, TRI_MEMORY_TEXT, "%.1f MiB", (double)bytes / 0x1p20);
  return out;
}

void tri_ledger_text(const tri_ledger *l, char out[TRI_LEDGER_TEXT]) {
  char weights[TRI_MEMORY_TEXT], activations[TRI_MEMORY_TEXT], kv[TRI_MEMORY_TEXT], device[100] = "";
  char workspace[TRI_MEMORY_TEXT], reserve[TRI_MEMORY_TEXT];
  if (l->reserve)
    snprintf(device, sizeof device, " + workspace %s + reserve %s", tri_memory_text(l->workspace, workspace),
             tri_memory_text(l->reserve, reserve));
  char all2all[TRI_MEMORY_TEXT], rows[64] = "", streamed[TRI_MEMORY_TEXT], reads[TRI_MEMORY_TEXT], beside[64] = "",
                                 buffers[64] = "";
  if (l->streams) snprintf(beside, sizeof beside, " (%s are streamed)", tri_memory_text(l->streamed, streamed));
  if (l->reads) snprintf(buffers, sizeof buffers, " + reads %s", tri_memory_text(l->reads, reads));
  char pool[TRI_MEMORY_TEXT], waiting[64] = "";
  if (l->host_kv && !l->reserve)
    snprintf(waiting, sizeof waiting, " + KV blocks of preempted sequences %s", tri_memory_text(l->host_kv, pool));
  char experts[TRI_MEMORY_TEXT], hot[64] = "";
  if (l->hot) snprintf(hot, sizeof hot, " + experts %s", tri_memory_text(l->hot, experts));
  if (l->all2all) snprintf(rows, sizeof rows, " + exchange %s", tri_memory_text(l->all2all, all2all));
  snprintf(out, TRI_LEDGER_TEXT, "weights %s%s%s%s + activations %s%s%s + %s %s%s",
           tri_memory_text(l->weights, weights), beside, buffers, hot, tri_memory_text(l->activations, activations),
           device, rows, l->encoder ? "K and V" : "KV cache", tri_memory_text(l->kv, kv), waiting);
}
