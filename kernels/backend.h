/* The table of kernels behind which a backend stands.
 *
 * One generic executor (runtime/forward/forward.c) calls these slots and nothing else; it never asks which backend it
 * has. The table is filled at init, reference first: tri_backend_create() copies kernels/ref's slots and lets the
 * chosen backend put its own on top, so no slot is ever NULL.
 *
 * Every op has two halves. `plan` runs on the host when shapes change: it looks only at the shape and type fields of
 * the arguments (never through a data pointer), chooses a kernel and says how much workspace that needs. `launch`
 * enqueues the planned kernel on the stream with the actual pointers, allocates nothing and may be captured into a
 * graph. The CPU backends execute inside launch.
 *
 * Conventions: matrices are row-major. A weight is [n, k] (out features, in features). M is the number of tokens
 * (rows). Activations are float32 on the CPU backends. Accumulation, softmax, norms, rotary angles and logits are
 * float32 or wider everywhere. T tokens, S sequences, hq query heads and hkv KV heads are those of this rank. Pointers
 * are device pointers unless a comment says host. Nothing here owns what it points to. */
#ifndef TRI_KERNELS_BACKEND_H
#define TRI_KERNELS_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/dtype.h"
#include "runtime/base/kinds.h"
#include "runtime/base/mem.h"
#include "runtime/base/pool.h"
#include "runtime/base/sampling_numbers.h"
#include "runtime/base/status.h"

typedef struct tri_backend tri_backend;
typedef struct tri_stream tri_stream;
struct tri_comm;         /* comm/comm.h */
struct tri_choices;      /* kernels/choices.h */
struct tri_device_floor; /* kernels/floor.h */
struct tri_random_fill;  /* kernels/random.h */

/* A row-major weight [n, k], rows contiguous. dtype F32, F16, BF16, or I8 with one float32 scale per row: w = q *
 * scale. */
typedef struct tri_weight {
  const void *data;
  const float *scale; /* [n]; I8 only */
  tri_dtype dtype;
  int n, k;
} tri_weight;

/* An activation matrix: element (i, j) is data[i * ld + j], float32. Backends with narrow_activations take matrices of
 * F16 and BF16, too, where elements of that type lie at data: as the inputs of a product whose weights have the same
 * type, as its output if it does not accumulate, as the outputs of norm and attention and as both of glu. */
typedef struct tri_mat {
  float *data;
  int rows, cols;
  int ld;
  tri_dtype dtype;
} tri_mat;

/* Keys and values of one layer: [page][kv_head][token in page][head_dim], the same layout for both. With v_dim > 0
 * there are only keys, and the first v_dim elements of a key are its value (a latent cache, see tri_mla_append_args); v
 * is not looked at. */
typedef struct tri_kv_layer {
  void *k, *v;
  tri_dtype dtype; /* F32, F16, BF16 */
  int num_pages, num_kv_heads, block_size, head_dim;
  int v_dim; /* 0: values are on their own, as long as keys */
} tri_kv_layer;
static inline void *tri_kv_values(const tri_kv_layer *kv) { return kv->v_dim ? kv->k : kv->v; }
static inline int tri_kv_value_dim(const tri_kv_layer *kv) { return kv->v_dim ? kv->v_dim : kv->head_dim; }

/* The flattened token batch of one step, at fixed addresses for the life of an engine. Sequence s owns the tokens
 * seq_start[s] .. seq_start[s+1]-1; its last token's key is key number context_len[s]-1. Rows are in sequence order. */
typedef struct tri_batch {
  int num_tokens, num_seqs, num_logits;
  int block_table_stride;     /* pages per row of block_table */
  int max_context;            /* max of context_len, so that plan can size things without reading the array */
  int max_query;              /* max tokens of one sequence in this step */
  int num_single;             /* sequences that have one token in this step */
  const uint32_t *token_ids;  /* [T] */
  const int32_t *positions;   /* [T] */
  const int32_t *types;       /* [T] of tokens: 0, or 1 from the second text of a pair on */
  const int32_t *rope_len;    /* [T] the sequence length that length-dependent rotary scalings use for this token */
  const int64_t *kv_slot;     /* [T] page * block_size + offset in page where this token's K and V go */
  const int32_t *seq_start;   /* [S + 1] */
  const int32_t *context_len; /* [S] keys visible to the last token of the sequence */
  const int32_t *block_table; /* [S, block_table_stride] page numbers */
  const int32_t *logit_rows;  /* [num_logits] rows of the batch whose logits are wanted */
} tri_batch;

/* out[t] = scale * table[ids[t] - first_id] (zero where the id is outside this rank's rows: the vocabulary is cut over
 * the tensor group and an all-reduce follows; zero too with table.n = 0) + positions_table[positions[t] +
 * position_offset] and + type_table[types[t]] where those tables are given. */
#define TRI_DRAWN_ID 0x80000000u
typedef struct tri_embed_args {
  const uint32_t *ids;      /* [T]; TRI_DRAWN_ID + i stands for drawn[i] */
  const uint32_t *drawn;    /* what the step before drew; NULL where no id stands for another */
  const int32_t *positions; /* [T] */
  tri_weight table;         /* [rows of this rank, hidden] */
  uint32_t first_id;
  float scale;
  tri_weight position_table; /* data NULL: none */
  int position_offset;
  tri_weight type_table; /* data NULL: none */
  const int32_t *types;  /* [T]; NULL: every token is of type 0 */
  tri_mat out;           /* [T, hidden] */
} tri_embed_args;

static inline uint32_t tri_embed_id(const tri_embed_args *a, int t) {
  uint32_t id = a->ids[t];
  return id & TRI_DRAWN_ID && a->drawn ? a->drawn[id & ~TRI_DRAWN_ID] : id;
}

/* x += delta_scale * delta (delta.data NULL: no addition), then out = norm(x) * (weight + weight_offset) + bias.
 * RMS: x / sqrt(mean(x^2) + eps). LAYER: (x - mean) / sqrt(var + eps). The norm reads the unrounded sum. out may be x
 * itself (then x holds the normed value afterwards). out.data NULL: only the addition. weight, bias: float32 [hidden],
 * may be NULL. copy.data, only with narrow_activations: out once more, in the type that a product takes. Where x is a
 * part of longer rows (RMS only), square_sums holds the whole rows' sums of squares and
 * whole_cols their length. */
typedef struct tri_norm_args {
  tri_mat x;
  tri_mat delta;
  float delta_scale;
  const float *weight, *bias;
  const float *square_sums; /* [T] or NULL */
  int whole_cols;
  float eps, weight_offset;
  tri_norm_kind kind;
  tri_mat out, copy;
} tri_norm_args;

/* sums[t] = sum of x[t][j]^2 */
typedef struct tri_square_sums_args {
  tri_mat x;
  float *sums; /* [T] */
} tri_square_sums_args;

/* x[t] *= sigmoid(gate[t]), row by row. */
typedef struct tri_gate_rows_args {
  tri_mat x;
  const float *gate; /* [T] */
} tri_gate_rows_args;

/* x = cap * tanh(scale * x / cap), or scale * x with cap 0. */
typedef struct tri_softcap_args {
  tri_mat x;
  float scale, cap;
} tri_softcap_args;

/* out = act(x w^T + bias), or out += act(...) with accumulate. bias: float32 [n] or NULL. int8_activations, with
 * weights of I8 and k <= TRI_INT8_MAX_K: each row of x is rounded to int8 as kernels/quantize.h has it, products and
 * sums are integers, and the sum is multiplied with the row's and the weight's scales. A row with an element that is
 * not finite gives NaN. */
enum { TRI_INT8_MAX_K = 1 << 17 }; /* sums of 127 * 128 fit into 32 bits */
typedef struct tri_linear_args {
  tri_mat x; /* [M, k] */
  tri_weight w;
  const float *bias;
  tri_act act;
  bool accumulate, int8_activations;
  tri_mat out; /* [M, n] */
} tri_linear_args;

/* A product of its own for each head: out[t][h * out_stride + j] = sum over i < k of w[h * n + j][i] * x[t][h *
 * x_stride + i] for j < n. What lies between the heads' parts of out stays as it is. */
typedef struct tri_head_linear_args {
  tri_mat x;    /* [T, at least (num_heads - 1) * x_stride + k] */
  tri_weight w; /* [num_heads * n, k] */
  int num_heads, x_stride, out_stride;
  tri_mat out; /* [T, at least (num_heads - 1) * out_stride + n], not x */
} tri_head_linear_args;

/* How positions become angles. Once per step, for all layers: cos[t][i], sin[t][i] = attention_scale *
 * cos/sin(positions[t] * inv_freq[i]), product and function in float32 as the reference implementations have it. FIXED:
 * inv_freq. DYNAMIC (dynamic NTK): for rope_len <= original_max_len inv_freq, else base is stretched to base * (factor
 * * len / original - (factor - 1))^(d / (d - 2)) with d = rotary_dim. BY_LENGTH (longrope): inv_freq up to
 * original_max_len, inv_freq_long beyond. */
typedef struct tri_rope_angles_args {
  const int32_t *positions, *rope_len; /* [T] */
  const float *inv_freq;               /* [rotary_dim / 2] */
  const float *inv_freq_long;          /* BY_LENGTH only */
  tri_rope_kind kind;
  int num_tokens, rotary_dim, original_max_len;
  float base, factor, attention_scale;
  float *cos, *sin; /* [T, rotary_dim / 2] */
} tri_rope_angles_args;

/* One row of qkv is hq*d queries, hkv*d keys, hkv*d values. Optional norms of each head of q and k (weights float32,
 * head h's at h * norm_stride: 0 for one [d] for all heads; NULL: none), then rotation of the first rotary_dim elements
 * of each head (0: none), then k and v are written to the cache at kv_slot and q stays in place, rotated. Rotation
 * pairs (i, i + rotary_dim/2), or (2i, 2i+1) when interleaved. */
typedef struct tri_qkv_rope_append_args {
  tri_mat qkv; /* [T, (hq + 2 hkv) d] in place */
  int num_heads, num_kv_heads, head_dim;
  const float *q_norm, *k_norm;
  float norm_eps, norm_weight_offset;
  tri_norm_kind norm_kind;
  int norm_stride;
  int rotary_dim;
  bool interleaved;
  const float *cos, *sin; /* from rope_angles */
  const int64_t *kv_slot; /* [T] */
  tri_kv_layer kv;
} tri_qkv_rope_append_args;

/* What goes before latent attention (DeepSeek-V2, section 2.1). Its cache has one row for all heads: the RMS-normed
 * latent of `rank` elements and behind it the rotated key of rope_dim elements that the heads share. In the absorbed
 * form a head's query is its first nope_dim elements times its part of the keys' up-projection (head_linear, to the
 * front of the head's part of q_out), then its own rotated rope_dim elements (here, behind them); attention over the
 * cached rows gives a latent per head, which the values' up-projection (head_linear again) turns into the head's
 * output. Pairs rotate as in qkv_rope_append and stay where they are. */
typedef struct tri_mla_append_args {
  tri_mat q;    /* [T, num_heads * (nope_dim + rope_dim)] */
  tri_mat kv_a; /* [T, rank + rope_dim]; afterwards undefined */
  int num_heads, nope_dim, rope_dim, rank;
  const float *norm; /* [rank] */
  float norm_eps;
  bool interleaved;
  const float *cos, *sin; /* [T, rope_dim / 2] from rope_angles */
  const int64_t *kv_slot; /* [T] */
  tri_kv_layer kv;        /* num_kv_heads 1, head_dim rank + rope_dim, v_dim rank */
  tri_mat q_out;          /* [T, num_heads * (rank + rope_dim)]; only the rotated parts are written */
} tri_mla_append_args;

/* Attention of every sequence's new tokens over its paged keys, prompt chunks and decodes mixed in one batch. Token j
 * (of n) of sequence s sees the keys 0 .. context_len[s] - n + j, of those the last `window` (0: all). score = scale *
 * q.k, then softcap * tanh(score / softcap) (softcap 0: none), plus alibi_slopes[h] * (key position - query position).
 * position_bias[h * bias_len + i] is added with i = key position + bias_offset, less the query position with
 * bias_relative, clamped to the table (not together with a soft cap). sinks[h]: one more logit in the softmax's
 * denominator without a value. causal false: every token sees all context_len keys. With causal, the batch's kv_slot
 * names all keys that the step itself has written (NULL: none): the others may be read before the step's earlier ops
 * end. */
typedef struct tri_attention_args {
  tri_mat q; /* [T, hq d], ld may be that of the qkv buffer */
  tri_kv_layer kv;
  const tri_batch *batch;
  int num_heads;
  const int32_t *kv_head_of; /* [hq] local KV head of each local query head: groups need not be even */
  int heads_per_kv;          /* where they are, and in order; 0: kv_head_of alone says */
  float scale, softcap;
  int window;
  bool causal;
  const float *alibi_slopes, *sinks; /* [hq] or NULL */
  const float *position_bias;        /* [hq, bias_len] or NULL */
  int bias_len, bias_offset;
  bool bias_relative;
  tri_mat out; /* [T, hq d], with v_dim [T, hq v_dim] */
} tri_attention_args;

/* out[:, j] = act(gate_up[:, j]) * gate_up[:, f + j] for j < f: the gate's columns come first. SWIGLU_OAI: with gate =
 * min(gate, limit) and up = clamp(up, -limit, limit), gate * sigmoid(1.702 gate) * (up + 1). */
typedef struct tri_glu_args {
  tri_mat gate_up; /* [T, 2 f] */
  tri_act act;
  float limit; /* SWIGLU_OAI only, > 0; 7 in gpt-oss */
  tri_mat out; /* [T, f] */
} tri_glu_args;

/* The first product of a gated MLP and the activation behind it in one: glu of the product, whose result need not show
 * in up.out = glu.gate_up afterwards. */
typedef struct tri_gated_linear_args {
  tri_linear_args up; /* w [2 f, k]; no activation, does not accumulate */
  tri_glu_args glu;
} tri_gated_linear_args;

/* Which experts each token goes to, and with what weights. Scores: SOFTMAX over all experts (Mixtral, OLMoE, Qwen,
 * DeepSeek-V2), SIGMOID of each (DeepSeek-V3), TOPK_SOFTMAX the logits themselves (gpt-oss). Chosen are the top_k with
 * the best score + bias, of equal ones the lowest ids; they come best first. Their weights are the scores without the
 * bias (TOPK_SOFTMAX: the softmax of the chosen logits), divided by their sum with renormalize (SIGMOID: by the sum +
 * 1e-20), times scale.
 *
 * Groups (DeepSeek-V3, section 2.1.2): the experts are num_groups equal runs, and only those of the top_groups best
 * runs can be chosen. A run is as good as the sum of its group_best best score + bias (V3: 2, V2: 1). Experts of other
 * runs are out of the question however low the chosen ones' biased scores are; the reference implementation once set
 * them to 0 instead, which let one win against a negative sum. */
typedef struct tri_moe_route_args {
  tri_mat logits;    /* [T, E] */
  const float *bias; /* [E] or NULL */
  tri_moe_score score;
  int top_k;
  int num_groups, top_groups, group_best; /* num_groups 1: no groups, the others mean nothing */
  bool renormalize;
  float scale;
  int32_t *experts; /* [T, top_k] */
  float *weights;   /* [T, top_k] */
} tri_moe_route_args;

/* out[t] = sum over the token's choices c, in their order, of weights[t][c] * expert(x[t]), or out += with accumulate.
 * expert(x) = down act(up x + up_bias) + down_bias; gated: down glu(up x + up_bias), the rows of up_n being F gates and
 * then F ups. Choices outside first_expert .. first_expert + num_experts - 1 are other ranks' and add nothing.
 * int8_activations, with weights of I8 and H and F <= TRI_INT8_MAX_K: both products are as tri_linear_args has them;
 * x's rows are rounded, and of each choice the hidden row, which is float32, before `down`. */
typedef struct tri_moe_experts_args {
  tri_mat x;              /* [T, H] */
  const int32_t *experts; /* [T, top_k] */
  const float *weights;   /* [T, top_k] */
  int top_k;
  int num_experts, first_expert;
  tri_weight up;                    /* [num_experts * up_n, H], expert below expert; up_n = gated ? 2 F : F */
  tri_weight down;                  /* [num_experts * H, F] */
  const float *up_bias, *down_bias; /* [num_experts * up_n], [num_experts * H], or NULL */
  tri_act act;
  bool gated;
  float glu_limit; /* as in tri_glu_args */
  bool accumulate, int8_activations;
  tri_mat out; /* [T, H], not x */
} tri_moe_experts_args;

/* out[i] = x[rows[i]] */
typedef struct tri_gather_rows_args {
  tri_mat x;
  const int32_t *rows; /* [out.rows] */
  tri_mat out;
} tri_gather_rows_args;

/* out[s] = mean of the rows start[s] .. start[s + 1] - 1 of x; zero where there are none. */
typedef struct tri_mean_rows_args {
  tri_mat x;
  const int32_t *start; /* [out.rows + 1] */
  tri_mat out;
} tri_mean_rows_args;

/* Copies whole KV pages inside a layer's cache (copy-on-write of shared pages). Pairs run in order. */
typedef struct tri_copy_pages_args {
  tri_kv_layer kv;
  const int32_t *pairs; /* [num_pairs][2]: source, destination; host memory */
  int num_pairs;
} tri_copy_pages_args;

typedef struct tri_logit_bias {
  uint32_t id;
  float bias;
} tri_logit_bias;

/* What one sequence asked of the sampler. Order of application: logit bias and banned ids, repetition / presence /
 * frequency penalties, temperature, then min_p, top_k, top_p on the tempered distribution; one draw from a
 * counter-based generator keyed by (seed, counter). temperature 0, or a largest logit that is infinite: arg-max of the
 * penalised logits, lowest id on a tie. A logit that is not a number counts as minus infinity. */
#define TRI_SAMPLE_MEMBER_(context, type, name, least, most, def, absent, sampler, help) TRI_SAMPLE_##sampler(name)
#define TRI_SAMPLE_NONE(name)
#define TRI_SAMPLE_FLOAT(name) float name;
#define TRI_SAMPLE_INT(name) int name;
typedef struct tri_sample_params {
  TRI_SAMPLING_NUMBERS(TRI_SAMPLE_MEMBER_, ) /* temperature and what else the list calls the sampler's; top_k 0: all */
  uint64_t seed;
  int num_logprobs; /* -1: none; k >= 0: the sampled token's and the k best (raw log-softmax, before any change) */
  const tri_logit_bias *logit_bias;
  int num_logit_bias;
  const uint32_t *banned; /* ids that may not come now (end-of-sequence before min_tokens) */
  int num_banned;
} tri_sample_params;

#define TRI_SAMPLE_DEFAULT_(p, type, name, least, most, def, absent, sampler, help)                                    \
  TRI_SAMPLE_SET_##sampler(p, name, def)
#define TRI_SAMPLE_SET_NONE(p, name, def)
#define TRI_SAMPLE_SET_FLOAT(p, name, def) (p).name = (def);
#define TRI_SAMPLE_SET_INT(p, name, def) (p).name = (def);

/* Parameters that take the most probable token and change nothing. */
static inline tri_sample_params tri_sample_greedy(void) {
  tri_sample_params p = {.num_logprobs = -1};
  TRI_SAMPLING_NUMBERS(TRI_SAMPLE_DEFAULT_, p)
  p.temperature = 0;
  return p;
}

#define TRI_MAX_LOGPROBS 20

typedef struct tri_sample_result {
  uint32_t token;
  float logprob;
  int num_top;
  uint32_t top_ids[TRI_MAX_LOGPROBS];
  float top_logprobs[TRI_MAX_LOGPROBS];
} tri_sample_result;

/* One draw per row of logits. history[r] (host): the row's prompt and generated ids, for the penalties: repetition
 * counts prompt and output, presence and frequency only the output (ids from num_prompt[r] on). What plan may look at
 * here beyond shapes: params and num_history, which say how much room the launch needs. */
typedef struct tri_sample_args {
  tri_mat logits;                         /* [R, vocab]; may be overwritten */
  const tri_sample_params *const *params; /* [R] host */
  const uint32_t *const *history;         /* [R] host */
  const int *num_prompt, *num_history;    /* [R] host */
  const uint64_t *counter;                /* [R] host: number of the draw within the sequence */
  tri_sample_result *results;             /* [R] host; there after stream_sync, or an event behind the launch */
  uint32_t *drawn; /* [R] or NULL: the tokens once more, where the next step's embed reads them */
} tri_sample_args;

/* Sampling from a vocabulary that is cut over the ranks of a tensor group, as the head's product leaves it, without
 * bringing a whole row together. What top_k leaves of a row is among the top_k first of each of its parts, so that a
 * few candidates of each part, those of all ranks gathered, are all that a draw below a small top_k can meet, and the
 * first of each part all that a greedy one can. Every rank then draws by itself what the others draw: the results are
 * those of `sample` on the whole rows, to the bit (the reference's, where a backend's own sums depend on their order).
 */
typedef struct tri_sample_candidate {
  float logit;
  uint32_t id; /* of the whole vocabulary; TRI_NO_CANDIDATE: nothing is here */
} tri_sample_candidate;
#define TRI_NO_CANDIDATE UINT32_MAX
enum { TRI_SAMPLE_CANDIDATES = 64, TRI_SAMPLE_MERGED = 2048 }; /* the most of a row in a part, and in all parts */

static inline bool tri_sample_has_penalties(const tri_sample_params *p) {
  return p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
}

/* How many candidates of each part such a row is drawn from. 0: it needs all of its logits, or its whole history: an
 * uncut distribution, top_p or min_p alone, logprobs and penalties. */
static inline int tri_sample_num_candidates(const tri_sample_params *p) {
  if (p->num_logprobs >= 0 || tri_sample_has_penalties(p)) return 0;
  if (p->temperature <= 0) return 1;
  return p->top_k > 0 && p->top_k <= TRI_SAMPLE_CANDIDATES ? p->top_k : 0;
}

/* Of each row of a part the first tri_sample_num_candidates, in the order of larger logits and then of lower ids, after
 * bias and bans. They come in any order, and nothing behind them up to `width`, which is at least as many as any of the
 * rows has and at most TRI_SAMPLE_CANDIDATES. A logit of minus infinity need not be there. */
typedef struct tri_sample_part_args {
  tri_sample_args rows; /* logits: [R, ids of the part]; may be overwritten. History, results and drawn: not used */
  uint32_t first_id;    /* of the part */
  int width;
  tri_sample_candidate *candidates; /* [R, width] */
} tri_sample_part_args;

/* The draws from the candidates of all parts. What sample_part was told of the rows may be with the backend still, and
 * so this follows on the sample_part of one of the parts, with the same rows. */
typedef struct tri_sample_merge_args {
  tri_sample_args rows; /* logits: cols is the whole vocabulary's, data is not used. History: not used. results: NULL
                           where `drawn` is enough */
  int num_parts, width; /* num_parts * width is TRI_SAMPLE_MERGED at most */
  const tri_sample_candidate *candidates; /* [num_parts, R, width] */
} tri_sample_merge_args;

/* Every op: name. The table below, the reference, opcheck and the benchmark are generated from this one list. */
#define TRI_OP_LIST(X)                                                                                                 \
  X(embed)                                                                                                             \
  X(norm)                                                                                                              \
  X(square_sums)                                                                                                       \
  X(gate_rows)                                                                                                         \
  X(softcap)                                                                                                           \
  X(linear)                                                                                                            \
  X(head_linear)                                                                                                       \
  X(rope_angles)                                                                                                       \
  X(qkv_rope_append)                                                                                                   \
  X(mla_append)                                                                                                        \
  X(attention)                                                                                                         \
  X(glu)                                                                                                               \
  X(gated_linear)                                                                                                      \
  X(moe_route)                                                                                                         \
  X(moe_experts)                                                                                                       \
  X(gather_rows)                                                                                                       \
  X(mean_rows)                                                                                                         \
  X(copy_pages)                                                                                                        \
  X(sample)                                                                                                            \
  X(sample_part)                                                                                                       \
  X(sample_merge)

typedef enum tri_op {
#define X(op) TRI_OP_##op,
  TRI_OP_LIST(X)
#undef X
      TRI_OP_COUNT
} tri_op;
const char *tri_op_name(tri_op op);

/* What plan decided. Plain data: may be copied and kept as long as the shapes stay. */
typedef struct tri_op_plan {
  int variant;      /* the backend's own number of the chosen kernel */
  int split;        /* the backend's own: parts a row or a sequence is cut into */
  size_t workspace; /* bytes of scratch the launch uses; the backend keeps the largest it was asked for */
} tri_op_plan;

/* LAUNCH: as ever. RECORD: the ops launched until graph_end run there. REPLAY: they are under way already. */
typedef enum tri_graph_mode { TRI_GRAPH_LAUNCH, TRI_GRAPH_RECORD, TRI_GRAPH_REPLAY } tri_graph_mode;

/* For tune: a product as a step launches it. gated: as the `up` of a gated_linear. Those of one shape differ in their
 * weights. */
typedef struct tri_tune_product {
  tri_linear_args args;
  bool gated;
} tri_tune_product;

typedef struct tri_tune_result {
  int shapes;   /* that there is a choice for */
  int known;    /* of them: in the backend's choices already */
  int measured; /* of the others; less than those where the time was up */
  double saved; /* sum over the measured shapes of the part of the default way's time that the fastest way saves */
} tri_tune_result;

typedef struct tri_backend_ops {
#define X(op)                                                                                                          \
  tri_status (*op##_plan)(tri_backend * be, const tri_##op##_args *args, tri_op_plan *plan);                           \
  void (*op##_launch)(tri_backend * be, const tri_op_plan *plan, const tri_##op##_args *args, tri_stream *stream);
  TRI_OP_LIST(X)
#undef X
  /* Device memory, zeroed; bytes are counted under the tag. */
  tri_status (*mem_alloc)(tri_backend *be, tri_mem_tag tag, size_t bytes, void **out);
  void (*mem_free)(tri_backend *be, tri_mem_tag tag, void *p, size_t bytes);
  /* Stream-ordered copies. An upload has read its source when it returns, unless that is pinned or, as it may be, the
   * backend's own memory; what a download writes to must stay until stream_sync. On the CPU both are memcpy. */
  void (*upload)(tri_backend *be, void *device, const void *host, size_t bytes, tri_stream *stream);
  void (*download)(tri_backend *be, void *host, const void *device, size_t bytes, tri_stream *stream);
  tri_status (*stream_sync)(tri_backend *be, tri_stream *stream);
  /* Marks a place in the stream. event_query: TRI_OK when everything in front of the last mark of that number is done,
   * else TRI_AGAIN, or the error that stream_sync would give. NULL: whatever is launched is done. */
  void (*event_record)(tri_backend *be, int number);
  tri_status (*event_query)(tri_backend *be, int number);
  /* Rows of `width` bytes inside the backend's memory, which lie `pitch` bytes apart. */
  void (*copy_rows)(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                    size_t rows);
  /* Memory of the host that copies to and from the backend's go by themselves and at full speed: pinned, for a device.
   * Zeroed or not. TRI_NO_MEMORY where the system gives no more of it. */
  tri_status (*host_alloc)(tri_backend *be, size_t bytes, void **out);
  void (*host_free)(tri_backend *be, void *p, size_t bytes);
  /* Rows of `width` bytes from host_alloc's memory, beside whatever the stream does: neither waits for the other. What
   * was uploaded before upload_mark has arrived, and its source is free again, when upload_wait for the same ticket
   * (below TRI_UPLOAD_TICKETS) returns. On the CPU all of it is memcpy. */
  void (*upload_rows)(tri_backend *be, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t rows);
  void (*upload_mark)(tri_backend *be, int ticket);
  tri_status (*upload_wait)(tri_backend *be, int ticket);
  /* Made-up weights; see kernels/random.h. Stream-ordered. */
  void (*fill_random)(tri_backend *be, const struct tri_random_fill *fill);
  /* A communicator of the same ranks as host, which must outlive it, for buffers of this backend's memory; collective
   * over host. `sums`: it is all_reduce that must be fast, else isend and recv, which are not recorded then. NULL: host
   * serves itself. */
  tri_status (*comm_create)(tri_backend *be, struct tri_comm *host, bool sums, struct tri_comm **out, tri_error *err);
  /* Steps of one key launch the same ops with the same arguments. graph_begin says what the caller is to do with this
   * one; after TRI_GRAPH_RECORD, graph_end follows in any case: TRI_AGAIN, it has no room for what was recorded, the
   * ops are to be launched once more, and nothing is recorded from then on. NULL: every step is launched op by op. */
  tri_graph_mode (*graph_begin)(tri_backend *be, uint64_t key);
  tri_status (*graph_end)(tri_backend *be);
  /* Forgets what is recorded: the memory and the communicators that it uses may go then. */
  void (*graph_drop)(tri_backend *be);
  /* Brings a batch's arrays to where the ops read them; *out is as *host with its pointers there, good until the next
   * batch of the same number. On the CPU a copy of the struct. */
  tri_status (*bind_batch)(tri_backend *be, int number, const tri_batch *host, tri_batch *out);
  /* Makes room for the largest workspace that any plan asked for. Called between plan and launch, only when it grew. */
  tri_status (*reserve)(tri_backend *be, size_t workspace);
  /* Bytes of memory that mem_alloc could give at most now; NULL: the host's. */
  int64_t (*mem_available)(tri_backend *be);
  /* Measures for each shape of the products that be->choices has nothing for which way is the fastest, rotating over
   * the weights of all, and puts that into `out`. Writes to what the products write to, forgets recorded steps, and
   * begins nothing more when tri_now_ns() is `until`. No step may be under way. NULL: there is only one way. */
  tri_status (*tune)(tri_backend *be, const tri_tune_product *products, int count, int64_t until,
                     struct tri_choices *out, tri_tune_result *result);
  /* Measures what the backend could do at best, in products of that type. NULL: the floors are the host's. */
  tri_status (*floor_create)(tri_backend *be, tri_dtype type, struct tri_device_floor **out);
  void (*destroy)(tri_backend *be);
} tri_backend_ops;

enum { TRI_BOUND_BATCHES = 3, TRI_EVENTS = 2 }; /* numbers for bind_batch and for events are below these */
enum { TRI_UPLOAD_TICKETS = 8 };

typedef struct tri_backend_config {
  const char *name;    /* "ref", "cpu", "cuda", or "auto": cuda where it can be had and do what is asked, else cpu */
  int device;          /* of cuda: which of the host's processes this is; with one visible device it is that one */
  bool deterministic;  /* the same bits whatever the batch; a backend that cannot refuses */
  tri_pool *pool;      /* CPU threads; borrowed, NULL: the caller's thread alone */
  const char *isa;     /* "avx512", "avx2", "scalar": refuses where the processor lacks it; NULL: the best it has */
  bool no_peer_memory; /* what goes between devices goes through the library alone, not through kernels of our own */
} tri_backend_config;

enum { TRI_DEVICE_NAME = 48, TRI_CHOICES_KEY = 160 };

struct tri_backend {
  tri_backend_ops ops;
  const char *name;
  const char *isa; /* what the CPU code runs on ("avx2", "avx512", "scalar"), for logs and benchmarks */
  bool deterministic, no_peer_memory;
  bool host_memory;             /* what mem_alloc gives can be read and written by the caller */
  bool narrows_inputs;          /* products with 16-bit weights may round their inputs to that type */
  bool narrow_activations;      /* see tri_mat */
  char failure[192];            /* what stream_sync's TRI_DEVICE_LOST means */
  char device[TRI_DEVICE_NAME]; /* tells its device from every other one, of any host; empty: it has none, as those
                                   below */
  char pci[24];                 /* the device's PCI address, as its driver writes it */
  char about[224];              /* the device in words, for the log */
  struct tri_choices *choices;  /* which way a product goes, by its shape: plans and launches look there, and whoever
                                   changes it does so while nothing is planned; NULL: there is only one way */
  char choices_key[TRI_CHOICES_KEY]; /* the device and the library that choices are good for, in printable ASCII */
  tri_pool *pool;
  size_t allocated[TRI_MEM_TAGS]; /* bytes now */
  void *workspace;
  size_t workspace_bytes;
  void *impl;   /* the backend's own state */
  void *module; /* the shared library that a backend came from */
};

tri_status tri_backend_create(const tri_backend_config *config, tri_backend **out, tri_error *err);
void tri_backend_destroy(tri_backend *be); /* NULL is fine */

/* plan, reserve and launch in one go, for callers outside the step path (loading, tests). */
#define X(op) tri_status tri_run_##op(tri_backend *be, const tri_##op##_args *args, tri_stream *stream);
TRI_OP_LIST(X)
#undef X

/* Each backend's hook: puts its slots over those already there. */
void tri_backend_fill_ref(tri_backend *be);
tri_status tri_backend_fill_cpu(tri_backend *be, const char *isa, tri_error *err);
/* Loads the CUDA module, which lies beside the program or in the library folder beside its own, and lets it put its
 * slots there. TRI_UNSUPPORTED with the reason where it is not there or cannot work here. */
tri_status tri_backend_load_cuda(tri_backend *be, int device, tri_error *err);

#endif
