/* SPDX-License-Identifier: Apache-2.0 */
/* The ops: their arguments, and what each reads and writes.
 *
 * One generic executor (runtime/forward) emits these and nothing else. Activations are float32 on the CPU backends.
 * Accumulation, softmax, norms, rotary angles and logits are float32 or wider everywhere. hq query heads and hkv KV
 * heads are those of this rank. Pointers are the backend's unless a comment says host. No argument may overlap another
 * one unless the op's comment allows it.
 *
 * TRI_READS_op and TRI_WRITES_op list, for an argument struct `a`, the activations that the op reads and writes, as
 * pointers to their first elements. What is changed in place is in both; NULL stands for nothing. The forward pass
 * derives from them how long each of its buffers holds something (runtime/forward/walk.h), so an op that forgets one
 * gives wrong results, which tests/unit/test_step_arena.c finds. Weights, the KV cache and the batch's arrays are not
 * listed. */
#ifndef TRI_KERNELS_OPS_H
#define TRI_KERNELS_OPS_H

#include "kernels/sample.h"
#include "kernels/tensor.h"

/* out[t] = scale * table[ids[t] - first_id] (zero where the id is outside this rank's rows: the vocabulary is cut over
 * the tensor group and an all-reduce follows; zero too with table.n = 0) + positions_table[positions[t] +
 * position_offset] and + type_table[types[t]] where those tables are given. */
#define TRI_SAMPLED_ID 0x80000000u
typedef struct tri_embed_args {
  const uint32_t *ids;      /* [T]; TRI_SAMPLED_ID + i stands for sampled[i] */
  const uint32_t *sampled;  /* what the step before sampled; NULL where no id stands for another */
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
#define TRI_READS_embed(a) NULL
#define TRI_WRITES_embed(a) (a)->out.data

static inline uint32_t tri_embed_id(const tri_embed_args *a, int t) {
  uint32_t id = a->ids[t];
  return id & TRI_SAMPLED_ID && a->sampled ? a->sampled[id & ~TRI_SAMPLED_ID] : id;
}

/* x += delta_scale * delta (delta.data NULL: no addition), then out = norm(x) * (weight + weight_offset) + bias.
 * RMS: x / sqrt(mean(x^2) + eps). LAYER: (x - mean) / sqrt(var + eps). The norm reads the unrounded sum. out may be x
 * itself (then x holds the normed value afterwards). out.data NULL: only the addition. weight, bias: float32 [hidden],
 * may be NULL. copy.data, only with narrow_activations: out once more, in the type that a GEMM takes. Where x is a
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
#define TRI_READS_norm(a) (a)->x.data, (a)->delta.data, (a)->square_sums
#define TRI_WRITES_norm(a) (a)->delta.data ? (a)->x.data : NULL, (a)->out.data, (a)->copy.data

/* x = x_scale * (x + delta_scale * d), where d is what one or two branches have given: delta + second (data NULL: none,
 * and without a delta there is no second). Each of the two is normed first where it has a weight, and so is their sum
 * where it has one: norms of results, as Gemma 2 has them (Riviere et al. 2024, table 1). Then out[i] = norm(x) *
 * (weight[i] + weight_offset) * scale[i], for the outputs up to the first that has no data: one norm for several
 * readers. All norms are RMS, with one eps and one offset. out[0] may be x itself (then x holds the normed value
 * afterwards). delta and second hold nothing that is of use afterwards. Weights: float32 [hidden]; of an output NULL:
 * ones. */
enum { TRI_BRANCH_NORM_OUTPUTS = 3 };
typedef struct tri_branch_norm_args {
  tri_mat x, delta, second;
  const float *delta_weight, *second_weight, *sum_weight;
  float delta_scale, x_scale, eps, weight_offset;
  tri_mat out[TRI_BRANCH_NORM_OUTPUTS];
  const float *weight[TRI_BRANCH_NORM_OUTPUTS];
  float scale[TRI_BRANCH_NORM_OUTPUTS];
} tri_branch_norm_args;
#define TRI_READS_branch_norm(a) (a)->x.data, (a)->delta.data, (a)->second.data
#define TRI_WRITES_branch_norm(a)                                                                                      \
  (a)->x.data, (a)->delta.data, (a)->second.data, (a)->out[0].data, (a)->out[1].data, (a)->out[2].data

/* sums[t] = sum of x[t][j]^2 */
typedef struct tri_square_sums_args {
  tri_mat x;
  float *sums; /* [T] */
} tri_square_sums_args;
#define TRI_READS_square_sums(a) (a)->x.data
#define TRI_WRITES_square_sums(a) (a)->sums

/* x[t] *= sigmoid(gate[t]), or with plain x[t] *= gate[t], row by row. */
typedef struct tri_gate_rows_args {
  tri_mat x;
  const float *gate; /* [T] */
  bool plain;
} tri_gate_rows_args;
#define TRI_READS_gate_rows(a) (a)->x.data, (a)->gate
#define TRI_WRITES_gate_rows(a) (a)->x.data

/* x = cap * tanh(scale * x / cap), or scale * x with cap 0. */
typedef struct tri_softcap_args {
  tri_mat x;
  float scale, cap;
} tri_softcap_args;
#define TRI_READS_softcap(a) (a)->x.data
#define TRI_WRITES_softcap(a) (a)->x.data

/* out = act(x w^T + bias), or out += act(...) with accumulate. bias: float32 [n] or NULL. rounds_rows: each row of x is
 * rounded to the weights' type, in groups of elements with a scale for each (kernels/quantize.h); a group's products
 * are added up and multiplied with its scale, and the sum of groups, or with blocks of weights each group, with the
 * weights' scales. With weights of I8 groups are TRI_INT8_GROUP elements, and their sums integers; with those of
 * F8_E4M3 that have blocks of as many columns the same without integers, and with those that have a scale for each row
 * a group is the whole row. A row with an element that is not finite gives NaN. */
typedef struct tri_linear_args {
  tri_mat x; /* [M, k] */
  tri_weight w;
  const float *bias;
  tri_act act;
  bool accumulate, rounds_rows;
  tri_mat out; /* [M, n] */
} tri_linear_args;
#define TRI_READS_linear(a) (a)->x.data, (a)->accumulate ? (a)->out.data : NULL
#define TRI_WRITES_linear(a) (a)->out.data

/* A GEMM of its own for each head: out[t][h * out_stride + j] = sum over i < k of w[h * n + j][i] * x[t][h *
 * x_stride + i] for j < n. What lies between the heads' parts of out stays as it is. */
typedef struct tri_head_linear_args {
  tri_mat x;    /* [T, at least (num_heads - 1) * x_stride + k] */
  tri_weight w; /* [num_heads * n, k] */
  int num_heads, x_stride, out_stride;
  tri_mat out; /* [T, at least (num_heads - 1) * out_stride + n], not x */
} tri_head_linear_args;
#define TRI_READS_head_linear(a) (a)->x.data
#define TRI_WRITES_head_linear(a) (a)->out.data

/* How positions become angles. Once per step, for all layers: cos[t][i], sin[t][i] = attention_scale *
 * cos/sin(positions[t] * inv_freq[i]), product and function in float32 as the reference implementations have it. FIXED:
 * inv_freq. DYNAMIC (dynamic NTK): for rope_len <= original_max_len inv_freq, else base is stretched to base * (factor
 * * len / original - (factor - 1))^(d / (d - 2)) with d = rotary_dim. BY_LENGTH (longrope): inv_freq up to
 * original_max_len, inv_freq_long and attention_scale_long beyond.
 *
 * q_scale, where it is given: q_scale[t] = 1 + q_scale_beta * ln(1 + floor((positions[t] + q_scale_offset) /
 * q_scale_every)), which queries are multiplied with (Llama 4's temperature, Nakanishi, 2025). */
typedef struct tri_rope_angles_args {
  const int32_t *positions, *rope_len; /* [T] */
  const float *inv_freq;               /* [rotary_dim / 2] */
  const float *inv_freq_long;          /* BY_LENGTH only */
  tri_rope_kind kind;
  int num_tokens, rotary_dim, original_max_len;
  float base, factor, attention_scale, attention_scale_long;
  float *cos, *sin; /* [T, rotary_dim / 2] */
  float q_scale_beta;
  int q_scale_offset, q_scale_every; /* every: at least 1 */
  float *q_scale;                    /* [T] or NULL */
} tri_rope_angles_args;
#define TRI_READS_rope_angles(a) NULL
#define TRI_WRITES_rope_angles(a) (a)->cos, (a)->sin, (a)->q_scale

/* One row of qkv is hq*d queries, hkv*d keys, hkv*v values, where v is value_dim or, with 0, d: the cache has d for
 * either, and zeros from v on. Values are multiplied with value_scale (0: they are not). Optional norms of each head of
 * q, k and v (weights float32, head h's at h * norm_stride: 0 for one [d] for all heads; NULL: none), then rotation of
 * the first rotary_dim elements of each head of q and k (0: none), then k and v are written to the cache at kv_slot and
 * q stays in place, rotated and times q_scale[t] where that is given. Rotation pairs (i, i + rotary_dim/2), or (2i,
 * 2i+1) when interleaved. Without num_kv_heads a row has queries alone, and nothing is written to the cache, which has
 * heads of the same size. */
typedef struct tri_qkv_rope_append_args {
  tri_mat qkv; /* [T, (hq + hkv) d + hkv v] in place */
  int num_heads, num_kv_heads, head_dim;
  int value_dim; /* at most head_dim, and without v_norm; 0: head_dim */
  float value_scale;
  const float *q_norm, *k_norm, *v_norm;
  float norm_eps, norm_weight_offset;
  tri_norm_kind norm_kind;
  int norm_stride;
  int rotary_dim;
  bool interleaved;
  const float *cos, *sin; /* from rope_angles */
  const float *q_scale;   /* [T] from rope_angles, or NULL */
  const int64_t *kv_slot; /* [T] */
  tri_kv_layer kv;
} tri_qkv_rope_append_args;
#define TRI_READS_qkv_rope_append(a)                                                                                   \
  (a)->qkv.data, (a)->rotary_dim ? (a)->cos : NULL, (a)->rotary_dim ? (a)->sin : NULL, (a)->q_scale
#define TRI_WRITES_qkv_rope_append(a) (a)->qkv.data

/* The step before latent attention (DeepSeek-V2, section 2.1). Its cache has one row for all heads: the RMS-normed
 * latent of `rank` elements and after it the rotated key of rope_dim elements that the heads share. In the absorbed
 * form a head's query is its first nope_dim elements times its part of the keys' up-projection (head_linear, to the
 * front of the head's part of q_out), then its own rotated rope_dim elements (here, after them); attention over the
 * cached rows gives a latent per head, which the values' up-projection (head_linear again) turns into the head's
 * output. Pairs rotate as in qkv_rope_append and stay where they are. With q_scale both parts of a head's query are
 * multiplied with q_scale[t], in q_out. */
typedef struct tri_mla_append_args {
  tri_mat q;    /* [T, num_heads * (nope_dim + rope_dim)] */
  tri_mat kv_a; /* [T, rank + rope_dim]; afterwards undefined */
  int num_heads, nope_dim, rope_dim, rank;
  const float *norm; /* [rank] */
  float norm_eps;
  bool interleaved;
  const float *cos, *sin; /* [T, rope_dim / 2] from rope_angles */
  const float *q_scale;   /* [T] from rope_angles, or NULL */
  const int64_t *kv_slot; /* [T] */
  tri_kv_layer kv;        /* num_kv_heads 1, head_dim rank + rope_dim, v_dim rank */
  tri_mat q_out;          /* [T, num_heads * (rank + rope_dim)]; without q_scale only the rotated parts are written */
} tri_mla_append_args;
#define TRI_READS_mla_append(a) (a)->q.data, (a)->kv_a.data, (a)->q_out.data, (a)->cos, (a)->sin, (a)->q_scale
#define TRI_WRITES_mla_append(a) (a)->kv_a.data, (a)->q_out.data

/* Attention of every sequence's new tokens over its paged keys, prompt chunks and decodes mixed in one batch. Token j
 * (of n) of sequence s, at position p = context_len[s] - n + j, sees the keys 0 .. p, of those the last `window` (0:
 * all), or with chunked those from the last multiple of `window` on (kernels/visible_keys.h). causal false: it sees all
 * context_len keys, with a window those less than `window` away from p on either side. score = scale * q.k, then
 * softcap
 * * tanh(score / softcap) (softcap 0: none), plus alibi_slopes[h] * (key position - query position). position_bias[h *
 * bias_len + i] is added with i = key position + bias_offset, less the query position with bias_relative, clamped to
 * the table (not together with a soft cap). sinks[h]: one more logit in the softmax's denominator without a value. With
 * causal, the batch's kv_slot names all keys that the step itself has written (NULL: none): the others may be read
 * before the step's earlier ops end. */
typedef struct tri_attention_args {
  tri_mat q; /* [T, hq d], ld may be that of the qkv buffer */
  tri_kv_layer kv;
  const tri_batch *batch;
  int num_heads;
  int heads_per_kv;  /* query heads that share a KV head, at most, */
  int skipped_heads; /* and how many of the first one's are another rank's: see kernels/kv_heads.h */
  float scale, softcap;
  int window;
  bool chunked, causal;
  const float *alibi_slopes, *sinks; /* [hq] or NULL */
  const float *position_bias;        /* [hq, bias_len] or NULL */
  int bias_len, bias_offset;
  bool bias_relative;
  tri_mat out; /* [T, hq d], with v_dim [T, hq v_dim] */
} tri_attention_args;
#define TRI_READS_attention(a) (a)->q.data
#define TRI_WRITES_attention(a) (a)->out.data

/* out[:, j] = act(gate_up[:, j]) * gate_up[:, f + j] for j < f: the gate's columns come first. SWIGLU_OAI: with gate =
 * min(gate, limit) and up = clamp(up, -limit, limit), gate * sigmoid(1.702 gate) * (up + 1). SWIGLU_CLAMPED:
 * min(gate * sigmoid(gate), limit) * clamp(up, -limit, limit). */
typedef struct tri_glu_args {
  tri_mat gate_up; /* [T, 2 f] */
  tri_act act;
  float limit; /* SWIGLU_OAI and SWIGLU_CLAMPED only, > 0; 7 in gpt-oss */
  tri_mat out; /* [T, f] */
} tri_glu_args;
#define TRI_READS_glu(a) (a)->gate_up.data
#define TRI_WRITES_glu(a) (a)->out.data

/* The first GEMM of a gated MLP and the activation after it in one: glu of the GEMM, whose result need not show
 * in up.out = glu.gate_up afterwards. */
typedef struct tri_gated_linear_args {
  tri_linear_args up; /* w [2 f, k]; no activation, does not accumulate */
  tri_glu_args glu;
} tri_gated_linear_args;
#define TRI_READS_gated_linear(a) (a)->up.x.data
#define TRI_WRITES_gated_linear(a) (a)->up.out.data, (a)->glu.out.data

/* A gated MLP: gated_linear, then linear of what it gives. down.x is gated.glu.out, which need not show afterwards.
 * down.out may lie where the first GEMM alone has something: in its rows, or in up.out. */
typedef struct tri_gated_mlp_args {
  tri_gated_linear_args gated;
  tri_linear_args down;
} tri_gated_mlp_args;
#define TRI_READS_gated_mlp(a) (a)->gated.up.x.data, (a)->down.accumulate ? (a)->down.out.data : NULL
#define TRI_WRITES_gated_mlp(a) (a)->gated.up.out.data, (a)->gated.glu.out.data, (a)->down.out.data

/* The choices that go to a rank's own experts, ordered by expert and, of one expert, by choice. Choice t * top_k + c is
 * choice c of token t. Permuted rows first[e] .. first[e + 1] - 1 are those of own expert e, so first[num_experts] is
 * their number N; choice[i] for i < N is the choice that row i belongs to, after that choice[] means nothing. row is
 * the way back: row[choice] is the permuted row, or -1 for a choice of another rank's expert or of none. Every
 * backend makes the same map. moe_route makes it of a step's tokens, moe_map of rows that ranks have exchanged. */
typedef struct tri_expert_map {
  int32_t *first;  /* [num_experts + 1]; NULL: there is no map */
  int32_t *choice; /* [T * top_k] */
  int32_t *row;    /* [T * top_k] */
} tri_expert_map;

/* Counts an expert's rows, and the steps in which it had any, so that its weights were read. */
typedef struct tri_expert_tally {
  uint64_t rows, steps;
} tri_expert_tally;

/* Which experts each token goes to, and with what weights. Scores: SOFTMAX over all experts (Mixtral, OLMoE, Qwen,
 * DeepSeek-V2), SIGMOID of each (DeepSeek-V3), TOPK_SOFTMAX the logits themselves (gpt-oss), and so does
 * SPARSEMIXER (Phi-3.5-MoE). Chosen are the top_k with
 * the best score + bias, of equal ones the lowest ids; they come best first. Their weights are the scores without the
 * bias (TOPK_SOFTMAX: the softmax of the chosen logits), divided by their sum with renormalize (SIGMOID: by the sum +
 * 1e-20), times scale, and times expert_scale[e] of the expert where that is given. SPARSEMIXER, without renormalize: a
 * choice's weight is its part of a softmax over it and those that were not chosen before it, without those whose logit
 * x is lower than its own, y, by more than 2 jitter times the larger of |x| and y (Liu et al., "GRIN", 2024, as at
 * inference).
 *
 * Groups (DeepSeek-V3, section 2.1.2): the experts are num_groups equal runs, and only those of the top_groups best
 * runs can be chosen. A run is as good as the sum of its group_best best score + bias (V3: 2, V2: 1). Experts of other
 * runs are out of the question however low the chosen ones' biased scores are; the reference implementation once set
 * them to 0 instead, which let one win against a negative sum.
 *
 * Rows that only pad a step, those with a negative kv_slot, go nowhere: their experts are -1 and their weights 0. The
 * map is that of the experts first_expert .. first_expert + num_experts - 1, this rank's; T * top_k fits into 31 bits.
 *
 * Where experts lie in slots, some in several, `slots` says in which: what is written, and mapped, are slots then
 * instead of experts. A token's choice goes to one of the slots that the own data-parallel rank has, which are
 * own_first .. own_end - 1, or of all where it has none: to the one whose number is (token + data-parallel rank) mod
 * how many. */
typedef struct tri_moe_route_args {
  tri_mat logits;         /* [T, E] */
  const float *bias;      /* [E] or NULL */
  const int64_t *kv_slot; /* [T], the batch's, or NULL: no row is padding */
  tri_moe_score score;
  int top_k;
  int num_groups, top_groups, group_best; /* num_groups 1: no groups, the others mean nothing */
  bool renormalize;
  float scale, jitter;           /* jitter: of SPARSEMIXER */
  const float *expert_scale;     /* [E] or NULL */
  int first_expert, num_experts; /* with a map only; of slots, where there are any */
  const int32_t *slots;          /* [E, 1 + most_copies] of each expert: how many it has, then they; or NULL */
  int most_copies;
  int own_first, own_end, shard;
  int32_t *experts; /* [T, top_k] */
  float *weights;   /* [T, top_k] */
  tri_expert_map map;
  tri_expert_tally *tally; /* [num_experts] to which the map's rows are added, or NULL */
} tri_moe_route_args;
#define TRI_READS_moe_route(a) (a)->logits.data
#define TRI_WRITES_moe_route(a) (a)->experts, (a)->weights, (a)->map.first, (a)->map.choice, (a)->map.row

/* The map of choices that are known, as moe_route makes it of its own: -1 is no expert. */
typedef struct tri_moe_map_args {
  const int32_t *experts; /* [T, top_k] */
  int num_tokens, top_k;  /* T; T * top_k fits into 31 bits */
  int first_expert, num_experts;
  tri_expert_map map;
  tri_expert_tally *tally; /* as moe_route's */
} tri_moe_map_args;
#define TRI_READS_moe_map(a) (a)->experts
#define TRI_WRITES_moe_map(a) (a)->map.first, (a)->map.choice, (a)->map.row

/* Returns the part of routing that makes the map. */
static inline tri_moe_map_args tri_moe_map_of(const tri_moe_route_args *a) {
  tri_moe_map_args m;
  m.experts = a->experts;
  m.num_tokens = a->logits.rows;
  m.top_k = a->top_k;
  m.first_expert = a->first_expert;
  m.num_experts = a->num_experts;
  m.map = a->map;
  m.tally = a->tally;
  return m;
}

/* out[t] = sum over the token's choices c that have a permuted row, in their order, of weights[t * top_k + c] *
 * expert(x[t]), or out += with accumulate. expert(x) = down act(up x + up_bias) + down_bias; gated: down glu(up x +
 * up_bias), the rows of up_n being F gates and then F ups. A token none of whose choices has a row comes to 0, or stays
 * as it was. Which choices go to which expert is the map's to say, which is one of num_experts experts and T * top_k
 * choices. rounds_rows: both GEMMs are as tri_linear_args has them; x's rows are rounded, and
 * of each choice the hidden row before `down`. x of 16 bits has the weights' type, or any with weights of I8; out may
 * have any type but I8. */
typedef struct tri_moe_experts_args {
  tri_mat x;            /* [T, H] */
  const float *weights; /* [T, top_k] */
  int top_k;
  int num_experts; /* of this rank */
  tri_expert_map map;
  tri_weight up;                    /* [num_experts * up_n, H], expert below expert; up_n = gated ? 2 F : F */
  tri_weight down;                  /* [num_experts * H, F] */
  const float *up_bias, *down_bias; /* [num_experts * up_n], [num_experts * H], or NULL */
  tri_act act;
  bool gated;
  float glu_limit; /* as in tri_glu_args */
  bool accumulate, rounds_rows;
  tri_mat out; /* [T, H], not x */
} tri_moe_experts_args;
#define TRI_READS_moe_experts(a)                                                                                       \
  (a)->x.data, (a)->weights, (a)->map.first, (a)->map.choice, (a)->map.row, (a)->accumulate ? (a)->out.data : NULL
#define TRI_WRITES_moe_experts(a) (a)->out.data

/* out[i] = x[rows[i]] */
typedef struct tri_gather_rows_args {
  tri_mat x;
  const int32_t *rows; /* [out.rows] */
  tri_mat out;
} tri_gather_rows_args;
#define TRI_READS_gather_rows(a) (a)->x.data
#define TRI_WRITES_gather_rows(a) (a)->out.data

/* out[s] = mean of the rows start[s] .. start[s + 1] - 1 of x; zero where there are none. */
typedef struct tri_mean_rows_args {
  tri_mat x;
  const int32_t *start; /* [out.rows + 1] */
  tri_mat out;
} tri_mean_rows_args;
#define TRI_READS_mean_rows(a) (a)->x.data
#define TRI_WRITES_mean_rows(a) (a)->out.data

/* Copies whole KV blocks inside a layer's cache (copy-on-write of shared KV blocks). Pairs run in order. */
typedef struct tri_copy_blocks_args {
  tri_kv_layer kv;
  const int32_t *pairs; /* [num_pairs][2]: source, destination; host memory */
  int num_pairs;
} tri_copy_blocks_args;
#define TRI_READS_copy_blocks(a) NULL
#define TRI_WRITES_copy_blocks(a) NULL

/* Moves whole KV blocks, of all layers, between the cache and a pool in the host's memory. Pairs run in any order, so
 * that none may read or write what another one writes. */
typedef struct tri_move_blocks_args {
  tri_kv_layer kv; /* of the first layer, which the others are like */
  int num_layers;
  size_t layer_stride; /* bytes from a layer's keys to those of the next one, and from its values; of whole blocks */
  void *host;          /* host_alloc's: [num_host_blocks, num_layers, keys and values], a block of each */
  int num_host_blocks;
  const int32_t *pairs; /* [num_pairs][2]: the cache's block, the pool's; host memory */
  int num_pairs;
  bool out; /* to the pool; else from it */
  /* Layers l with l % num_turns == turn go first, all of their pairs, then those of the turns that follow, round to the
   * first. 0: one turn. */
  int num_turns, turn;
} tri_move_blocks_args;
#define TRI_READS_move_blocks(a) NULL
#define TRI_WRITES_move_blocks(a) NULL

/* Every op: name. The table below, the reference, opcheck and the benchmark are generated from this one list. */
#define TRI_OP_LIST(X)                                                                                                 \
  X(embed)                                                                                                             \
  X(norm)                                                                                                              \
  X(branch_norm)                                                                                                       \
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
  X(gated_mlp)                                                                                                         \
  X(moe_route)                                                                                                         \
  X(moe_map)                                                                                                           \
  X(moe_experts)                                                                                                       \
  X(gather_rows)                                                                                                       \
  X(mean_rows)                                                                                                         \
  X(copy_blocks)                                                                                                       \
  X(move_blocks)                                                                                                       \
  X(sample)                                                                                                            \
  X(sample_part)                                                                                                       \
  X(sample_merge)

typedef enum tri_op {
#define X(op) TRI_KERNEL_##op,
  TRI_OP_LIST(X)
#undef X
      TRI_KERNEL_COUNT
} tri_op;

/* The plan of one of an op's parts, as below. */
typedef struct tri_part_plan {
  int variant, split;
  size_t workspace;
} tri_part_plan;

/* The decisions of plan. Plain data: may be copied and kept as long as the shapes stay. */
typedef struct tri_op_plan {
  int variant;            /* the backend's own number of the chosen kernel */
  int split;              /* the backend's own: parts a row or a sequence is cut into */
  size_t workspace;       /* bytes of scratch the launch uses; the backend keeps the largest it was asked for */
  tri_part_plan parts[2]; /* of a gated_mlp that runs as two ops */
} tri_op_plan;

#endif
