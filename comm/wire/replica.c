/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol between coordinator and replicas, as tables (comm/wire/pack.h).
 *
 * Tokens come with every step, and so they are arrays without names: [job, choice, token, offset, flags, reason], then
 * as flags say preemptions, waited_ns, cached, and [logprob, binary ids, binary logprobs] of the alternatives. An entry
 * whose length contradicts its flags is refused. */
#include "comm/wire/replica.h"

#include <string.h>

#include "comm/wire/embed.h"
#include "comm/wire/pack.h"
#include "comm/wire/sampling.h"

enum { TOKEN_PARTS = 6, LOGPROB_PARTS = 3, MOST_PARTS = TOKEN_PARTS + 3 + LOGPROB_PARTS, MAX_NAME = 256 };

/* ---- tokens: arrays, for they are the one message of every step ---- */

/* Returns how many parts an entry with these flags has. */
static uint32_t token_parts(uint64_t flags) {
  uint32_t n = TOKEN_PARTS;
  if (flags & TRI_TOKEN_PREEMPTED) n++;
  if (flags & TRI_TOKEN_WAITED) n++;
  if (flags & TRI_TOKEN_CACHED) n++;
  if (flags & TRI_TOKEN_LOGPROB) n += LOGPROB_PARTS;
  return n;
}

static void write_tokens(tri_pack *p, const void *at) {
  const tri_replica_tokens *t = at;
  tri_pack_array(p, t->num);
  for (uint32_t i = 0; i < t->num; i++) {
    const tri_replica_token *k = &t->tokens[i];
    tri_pack_array(p, token_parts(k->flags));
    tri_pack_u64(p, k->job);
    tri_pack_u64(p, k->choice);
    tri_pack_u64(p, k->token);
    tri_pack_u64(p, k->offset);
    tri_pack_u64(p, k->flags);
    tri_pack_u64(p, (uint64_t)k->reason);
    if (k->flags & TRI_TOKEN_PREEMPTED) tri_pack_u64(p, k->preemptions);
    if (k->flags & TRI_TOKEN_WAITED) tri_pack_u64(p, k->waited_ns);
    if (k->flags & TRI_TOKEN_CACHED) tri_pack_u64(p, k->cached);
    if (!(k->flags & TRI_TOKEN_LOGPROB)) continue;
    tri_pack_f32(p, k->logprob);
    tri_pack_bin(p, k->top_ids, (size_t)k->num_top * sizeof *k->top_ids);
    tri_pack_bin(p, k->top_logprobs, (size_t)k->num_top * sizeof *k->top_logprobs);
  }
}

static tri_status read_token_logprob(tri_unpacker *d, tri_unpack *u, tri_replica_token *k) {
  tri_value v;
  size_t n = 0;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_FLOAT) return tri_read_wrong(d, "logprob", "a float", &v);
  k->logprob = (float)v.f;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_BIN) return tri_read_wrong(d, "top_ids", "binary", &v);
  if (v.len > TRI_WIRE_MAX_LOGPROBS * sizeof(uint32_t))
    return tri_fail(d->err, TRI_TOO_LARGE, "top_ids", "%zu bytes of alternatives", v.len);
  if (v.len) TRI_CHECK(tri_read_ids(d, "top_ids", u, &v, &k->top_ids, &n));
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  k->num_top = (int)n;
  if (!n && v.kind == TRI_V_BIN && !v.len) return TRI_OK;
  return tri_read_floats(d, "top_logprobs", &v, n, &k->top_logprobs);
}

/* Reads the next part, which must be a number of at most `limit`. */
static tri_status read_part(tri_unpacker *d, tri_unpack *u, uint32_t element, uint32_t part, uint64_t limit,
                            uint64_t *out) {
  tri_value v;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_UINT || v.u > limit)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "tokens", "part %u of element %u is out of range", part, element);
  *out = v.u;
  return TRI_OK;
}

static tri_status read_token(tri_unpacker *d, tri_unpack *u, uint32_t i, tri_replica_token *k) {
  static const uint64_t limit[TOKEN_PARTS] = {UINT64_MAX, UINT32_MAX, UINT32_MAX,
                                              UINT64_MAX, UINT8_MAX,  TRI_FINISH_ERROR};
  uint64_t part[TOKEN_PARTS], preemptions = 0, waited_ns = 0, cached = 0;
  tri_value v;
  if (!tri_unpack_next(u, &v)) return TRI_CORRUPT;
  if (v.kind != TRI_V_ARRAY || v.count < TOKEN_PARTS || v.count > MOST_PARTS)
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "tokens", "element %u must be an array of %d to %d", i, TOKEN_PARTS,
                    MOST_PARTS);
  for (uint32_t j = 0; j < TOKEN_PARTS; j++) TRI_CHECK(read_part(d, u, i, j, limit[j], &part[j]));
  if (v.count != token_parts(part[4]))
    return tri_fail(d->err, TRI_INVALID_ARGUMENT, "tokens", "element %u contradicts its flags", i);
  if (part[4] & TRI_TOKEN_PREEMPTED) TRI_CHECK(read_part(d, u, i, TOKEN_PARTS, UINT32_MAX, &preemptions));
  if (part[4] & TRI_TOKEN_WAITED) TRI_CHECK(read_part(d, u, i, TOKEN_PARTS + 1, UINT64_MAX, &waited_ns));
  if (part[4] & TRI_TOKEN_CACHED) TRI_CHECK(read_part(d, u, i, TOKEN_PARTS + 2, UINT32_MAX, &cached));
  k->job = part[0];
  k->choice = (uint32_t)part[1];
  k->token = (uint32_t)part[2];
  k->offset = part[3];
  k->flags = (uint8_t)part[4];
  k->reason = (tri_finish)part[5];
  k->preemptions = (uint32_t)preemptions;
  k->waited_ns = waited_ns;
  k->cached = (uint32_t)cached;
  return k->flags & TRI_TOKEN_LOGPROB ? read_token_logprob(d, u, k) : TRI_OK;
}

static tri_status read_tokens(tri_unpacker *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at) {
  tri_replica_tokens *t = at;
  if (v->kind != TRI_V_ARRAY) return tri_read_wrong(d, f->name, "an array", v);
  /* An element is 7 bytes at least; checked before memory is asked for. */
  if (v->count > (size_t)(u->end - u->p) / (TOKEN_PARTS + 1))
    return tri_fail(d->err, TRI_CORRUPT, f->name, "%u elements do not fit", v->count);
  tri_replica_token *all = tri_arena_alloc(d->arena, v->count ? v->count : 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < v->count; i++) TRI_CHECK(read_token(d, u, i, &all[i]));
  t->tokens = all;
  t->num = v->count;
  return TRI_OK;
}
static const tri_codec tokens_codec = {.read = read_tokens, .write = write_tokens};

/* ---- tables ---- */

/* Rows of G_ are of a struct that is a member of the message, and count from it; those of M_ count from the message.
 * All of them are required. */
#define G_U64(S, m)                                                                                                    \
  { TRI_F(TRI_FT_U64, #m, S, m), .flags = TRI_FF_REQUIRED }
#define G_U32(S, m)                                                                                                    \
  { TRI_F(TRI_FT_U32, #m, S, m), .flags = TRI_FF_REQUIRED }
#define G_REPLICA(S)                                                                                                   \
  { TRI_F(TRI_FT_U32, "group", S, replica), .flags = TRI_FF_REQUIRED }
#define G_STR(S, m)                                                                                                    \
  { TRI_F(TRI_FT_STR, #m, S, m), .flags = TRI_FF_OMIT, .max = MAX_NAME }

static const tri_field register_fields[] = {
    G_STR(tri_replica_register, version),
    G_STR(tri_replica_register, host),
    G_REPLICA(tri_replica_register),
    G_U32(tri_replica_register, rank),
    G_U32(tri_replica_register, world),
    G_U32(tri_replica_register, tp),
    G_U32(tri_replica_register, pp),
    G_U32(tri_replica_register, dp),
    G_U32(tri_replica_register, ep),
    G_U64(tri_replica_register, epoch),
    {TRI_F(TRI_FT_I64, "pid", tri_replica_register, pid)},
    G_U64(tri_replica_register, model_hash),
    {TRI_F(TRI_FT_U64, "weights_hash", tri_replica_register, weights_hash), .flags = TRI_FF_OMIT},
    G_U64(tri_replica_register, max_model_len),
    G_U64(tri_replica_register, vocab_size),
    G_U64(tri_replica_register, kv_blocks),
    G_U64(tri_replica_register, block_size),
    G_U64(tri_replica_register, max_num_seqs),
    G_U64(tri_replica_register, max_num_batched_tokens),
    {TRI_F(TRI_FT_F64, "layer_seconds", tri_replica_register, layer_seconds), .flags = TRI_FF_OMIT},
};

#define M_F(type_, name_, m)                                                                                           \
  { TRI_F(type_, name_, tri_replica_msg, m), .flags = TRI_FF_REQUIRED }

static const tri_field ready_fields[] = {
    M_F(TRI_FT_U32, "group", ready.replica),
    M_F(TRI_FT_U64, "epoch", ready.epoch),
    M_F(TRI_FT_F64, "load_seconds", ready.load_seconds),
    M_F(TRI_FT_F64, "layer_seconds", ready.layer_seconds),
    {TRI_F(TRI_FT_IDS, "canary_ids", tri_replica_msg, ready.canary_ids),
     .count_offset = offsetof(tri_replica_msg, ready.num_canary_ids), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "canary_millis", tri_replica_msg, ready.canary_millis),
     .count_offset = offsetof(tri_replica_msg, ready.num_canary_millis), .flags = TRI_FF_OMIT},
};

static const tri_field tokens_fields[] = {
    G_U64(tri_replica_tokens, epoch),
    G_U64(tri_replica_tokens, step),
    {TRI_CUSTOM_ALL("tokens", tokens_codec), .flags = TRI_FF_REQUIRED},
};

static const tri_field embed_results_fields[] = {
    G_U64(tri_replica_results, epoch),
    {TRI_CUSTOM_ALL("results", tri_codec_results), .flags = TRI_FF_REQUIRED},
};

#define H_STREAM(name_, m)                                                                                             \
  { TRI_F(TRI_FT_U64, name_, tri_replica_health, stream.m), .flags = TRI_FF_OMIT }
#define H_SWAPS(name_, m)                                                                                              \
  { TRI_F(TRI_FT_U64, name_, tri_replica_health, swaps.m), .flags = TRI_FF_OMIT }
#define H_PREFIXES(name_, m)                                                                                           \
  { TRI_F(TRI_FT_U64, name_, tri_replica_health, prefixes.m), .flags = TRI_FF_OMIT }
static const tri_field health_fields[] = {
    G_REPLICA(tri_replica_health),
    G_U32(tri_replica_health, rank),
    G_U64(tri_replica_health, epoch),
    G_U64(tri_replica_health, step),
    G_U64(tri_replica_health, layer),
    G_U64(tri_replica_health, collective),
    {TRI_F(TRI_FT_U32, "exchange", tri_replica_health, exchange), .flags = TRI_FF_OMIT,
     .max = TRI_NUM_ALL2ALL_PARTS - 1},
    {TRI_F(TRI_FT_BOOL, "busy", tri_replica_health, busy)},
    G_U32(tri_replica_health, running),
    G_U32(tri_replica_health, waiting),
    G_U64(tri_replica_health, kv_blocks_used),
    G_U64(tri_replica_health, tokens),
    G_U64(tri_replica_health, scheduler_ns),
    G_U64(tri_replica_health, preemptions),
    {TRI_F(TRI_FT_U32, "prompt_bound", tri_replica_health, prompt_bound), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "rearrangements", tri_replica_health, rearrangements), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "experts_moved", tri_replica_health, experts_moved), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "moving_ns", tri_replica_health, moving_ns), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "shards", tri_replica_health, dp_ranks),
     .count_offset = offsetof(tri_replica_health, num_dp_ranks), .flags = TRI_FF_OMIT},
    H_STREAM("streamed_bytes", bytes),
    H_STREAM("stream_dram_bytes", dram_bytes),
    H_STREAM("stream_peer_bytes", peer_bytes),
    H_STREAM("stream_stall_ns", stall_ns),
    H_STREAM("stream_pass_bytes", pass_bytes),
    H_STREAM("stream_pass_ns", pass_ns),
    H_STREAM("stream_bytes_per_s", bytes_per_s),
    H_SWAPS("host_kv_blocks", host_kv_blocks),
    H_SWAPS("host_kv_blocks_used", host_kv_blocks_used),
    H_SWAPS("swaps_out", out),
    H_SWAPS("swaps_in", in),
    H_SWAPS("swapped_out_bytes", out_bytes),
    H_SWAPS("swapped_in_bytes", in_bytes),
    H_PREFIXES("prefix_cache_queries", queries),
    H_PREFIXES("prefix_cache_hits", hits),
    H_PREFIXES("prefix_cache_evictions", evictions),
};

static const tri_field failed_fields[] = {
    M_F(TRI_FT_U32, "group", failed.replica),
    M_F(TRI_FT_U32, "rank", failed.rank),
    M_F(TRI_FT_U64, "epoch", failed.epoch),
    {TRI_F(TRI_FT_STR, "code", tri_replica_msg, failed.code), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_STR, "message", tri_replica_msg, failed.message), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_STR, "field", tri_replica_msg, failed.field), .flags = TRI_FF_OMIT},
};

static const tri_field refused_fields[] = {
    M_F(TRI_FT_U64, "job", refused.job),
    M_F(TRI_FT_U64, "epoch", refused.epoch),
    {TRI_F(TRI_FT_STR, "code", tri_replica_msg, refused.code), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_STR, "message", tri_replica_msg, refused.message), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_STR, "field", tri_replica_msg, refused.field), .flags = TRI_FF_OMIT},
};

static const tri_field welcome_fields[] = {
    M_F(TRI_FT_BOOL, "ok", welcome.ok),
    {TRI_F(TRI_FT_STR, "message", tri_replica_msg, welcome.message), .flags = TRI_FF_OMIT},
};

static const tri_field assign_fields[] = {
    G_U64(tri_replica_assign, job),
    G_U64(tri_replica_assign, epoch),
    G_U64(tri_replica_assign, seed),
    {TRI_F(TRI_FT_I64, "remaining_ms", tri_replica_assign, remaining_ms), .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_IDS, "token_ids", tri_replica_assign, token_ids),
     .count_offset = offsetof(tri_replica_assign, num_token_ids), .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_U64, "second_start", tri_replica_assign, second_start), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_STR, "cache_salt", tri_replica_assign, cache_salt), .flags = TRI_FF_OMIT,
     .max = TRI_WIRE_MAX_CACHE_SALT},
    {TRI_F(TRI_FT_IDS, "drawn", tri_replica_assign, sampled), .count_offset = offsetof(tri_replica_assign, num_sampled),
     .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_IDS, "drawn_counts", tri_replica_assign, sampled_counts),
     .count_offset = offsetof(tri_replica_assign, num_sampled_counts), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "num_scored", tri_replica_assign, num_scored), .flags = TRI_FF_OMIT},
    TRI_SAMPLING_FIELDS(tri_replica_assign),
};
_Static_assert(sizeof assign_fields / sizeof *assign_fields <= 64, "a bit for each field that has been read");

#define FLOOR_ROW(S, type, m, json) M_F(TRI_FT_##type, #m, S.m),
static const tri_field rooflines_fields[] = {
    M_F(TRI_FT_U32, "group", rooflines.replica), M_F(TRI_FT_U32, "rank", rooflines.rank),
    M_F(TRI_FT_U64, "epoch", rooflines.epoch), TRI_ROOFLINES_FIELDS(FLOOR_ROW, rooflines.rooflines)};

static const tri_field experts_fields[] = {
    G_REPLICA(tri_replica_experts),
    G_U32(tri_replica_experts, rank),
    G_U64(tri_replica_experts, epoch),
    {TRI_F(TRI_FT_U64, "placement", tri_replica_experts, placement), .flags = TRI_FF_OMIT},
    G_U32(tri_replica_experts, first_layer),
    G_U32(tri_replica_experts, num_layers),
    G_U32(tri_replica_experts, first_slot),
    G_U32(tri_replica_experts, num_own),
    G_U32(tri_replica_experts, num_slots),
    {TRI_F(TRI_FT_IDS, "expert_of", tri_replica_experts, expert_of),
     .count_offset = offsetof(tri_replica_experts, num_expert_of), .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_IDS, "rows", tri_replica_experts, rows), .count_offset = offsetof(tri_replica_experts, num_rows),
     .flags = TRI_FF_REQUIRED},
    {TRI_F(TRI_FT_IDS, "earlier", tri_replica_experts, earlier),
     .count_offset = offsetof(tri_replica_experts, num_earlier), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "hot_slots", tri_replica_experts, hot.slots), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "hot_layers_rows", tri_replica_experts, hot.rows), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "device_rows", tri_replica_experts, hot.device_rows), .flags = TRI_FF_OMIT},
    {TRI_F(TRI_FT_U64, "hot_exchanges", tri_replica_experts, hot.exchanges), .flags = TRI_FF_OMIT},
};

static const tri_field abort_fields[] = {M_F(TRI_FT_U64, "job", abort.job)};
static const tri_field lease_fields[] = {M_F(TRI_FT_U64, "time_ms", lease.time_ms)};

/* Unknown names are read over: a worker of another version must be able to say so in its register. */
#define MESSAGE(op_, fields, base_, member)                                                                            \
  { op_, {TRI_FIELDS(fields)}, base_, sizeof(((tri_replica_msg *)0)->member) }
/* The fields count from the member itself. */
#define MEMBER(op_, fields, member) MESSAGE(op_, fields, offsetof(tri_replica_msg, member), member)
static const tri_message messages[] = {
    [TRI_REPLICA_REGISTER] = MEMBER("register", register_fields, reg),
    [TRI_REPLICA_READY] = MESSAGE("ready", ready_fields, 0, ready),
    [TRI_REPLICA_TOKENS] = MEMBER("tokens", tokens_fields, tokens),
    [TRI_REPLICA_HEALTH] = MEMBER("health", health_fields, health),
    [TRI_REPLICA_FAILED] = MESSAGE("failed", failed_fields, 0, failed),
    [TRI_REPLICA_ROOFLINES] = MESSAGE("floors", rooflines_fields, 0, rooflines),
    [TRI_REPLICA_EMBED_RESULTS] = MEMBER("embed_results", embed_results_fields, embed_results),
    [TRI_REPLICA_REFUSED] = MESSAGE("refused", refused_fields, 0, refused),
    [TRI_REPLICA_EXPERTS] = MEMBER("experts", experts_fields, experts),
    [TRI_REPLICA_WELCOME] = MESSAGE("welcome", welcome_fields, 0, welcome),
    [TRI_REPLICA_ASSIGN] = {"assign", {TRI_FIELDS(assign_fields)}, offsetof(tri_replica_msg, assign), 0},
    [TRI_REPLICA_ABORT] = MESSAGE("abort", abort_fields, 0, abort),
    [TRI_REPLICA_DRAIN] = {.op = "drain"},
    [TRI_REPLICA_LEASE] = MESSAGE("lease", lease_fields, 0, lease),
    [TRI_REPLICA_MEASURE] = {.op = "measure"},
    [TRI_REPLICA_COUNT_EXPERTS] = {.op = "count_experts"},
};
static const tri_protocol protocol = {messages, sizeof messages / sizeof *messages, "seq",
                                      offsetof(tri_replica_msg, reg)};

tri_status tri_replica_msg_pack(const tri_replica_msg *m, tri_buf *out) {
  return tri_message_write(&protocol, m->op, m->seq, m, out);
}

/* Checks that the tokens which have been sampled are those that the counts say. */
static tri_status check_sampled(const tri_replica_assign *a, tri_error *err) {
  uint64_t sum = 0, ended = 0, n = (uint64_t)a->sampling.n;
  if (a->num_sampled_counts && a->num_sampled_counts != n)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "drawn_counts", "drawn_counts has %zu elements for %llu choices",
                    a->num_sampled_counts, (unsigned long long)n);
  for (size_t i = 0; i < a->num_sampled_counts; i++) {
    if (a->sampled_counts[i] == TRI_SAMPLED_ENDED)
      ended++;
    else
      sum += a->sampled_counts[i];
  }
  if (ended && ended == n)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "drawn_counts", "all %llu choices have ended", (unsigned long long)n);
  if (sum != a->num_sampled)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "drawn", "drawn has %zu tokens, drawn_counts says %llu", a->num_sampled,
                    (unsigned long long)sum);
  if (a->num_scored > a->num_token_ids)
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_scored", "%llu tokens of a prompt of %zu are scored",
                    (unsigned long long)a->num_scored, a->num_token_ids);
  return TRI_OK;
}

tri_status tri_replica_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_replica_msg *out,
                                  tri_error *err) {
  tri_sampling_extra extra = {0};
  tri_unpacker d = {.arena = arena, .err = err, .extra = &extra};
  tri_envelope e;
  TRI_CHECK(tri_envelope_read(&d, &protocol, data, len, &e, NULL));
  out->op = (tri_replica_op)e.op;
  out->seq = e.seq;
  if (out->op != TRI_REPLICA_ASSIGN) return tri_message_read(&d, &protocol, &e, out);
  tri_replica_assign *a = &out->assign;
  a->token_ids = a->sampled = a->sampled_counts = NULL;
  a->num_token_ids = a->num_sampled = a->num_sampled_counts = 0;
  a->second_start = a->num_scored = 0;
  a->cache_salt = (tri_wire_str){0};
  tri_sampling_init(&a->sampling);
  TRI_CHECK(tri_message_read(&d, &protocol, &e, out));
  a->sampling.seed = a->seed;
  a->sampling.has_seed = true;
  TRI_CHECK(tri_sampling_finish(&d, &a->sampling, &extra));
  return check_sampled(a, err);
}
