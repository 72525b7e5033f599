/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of tri_sampling, which a client's submit and the coordinator's assign share. */
#ifndef TRI_COMM_WIRE_SAMPLING_H
#define TRI_COMM_WIRE_SAMPLING_H

#include "comm/wire/pack.h"

/* The parts of a submit that tri_sampling does not hold as they were said; the unpacker's extra while one is read. */
typedef struct tri_sampling_extra {
  bool has_logprobs, logprobs_off, has_top_logprobs;
  int64_t logprobs, top_logprobs;
} tri_sampling_extra;

/* The record is the tri_sampling, of early_stopping that member. */
extern const tri_codec tri_codec_logprobs, tri_codec_top_logprobs, tri_codec_stop, tri_codec_stop_ids, tri_codec_bias,
    tri_codec_allowed_ids, tri_codec_early_stopping, tri_codec_constraint;
/* Reads fields that are known and have one value so far, or none. */
extern const tri_codec tri_codec_neutral;

void tri_sampling_init(tri_sampling *s);
/* Checks what can be said only once all fields are there. */
tri_status tri_sampling_finish(tri_unpacker *d, tri_sampling *s, const tri_sampling_extra *x);

/* Values that are not called given: a client's are not written, the coordinator's are, which may be the model's. */
#define TRI_SAMPLING_UNGIVEN_tri_submit 0
#define TRI_SAMPLING_UNGIVEN_tri_replica_assign TRI_FF_UNLESS_GIVEN

/* A row for each number; that of a number that may be absent has a flag for it. */
#define TRI_SAMPLING_FIELD_(S, type_, m, option_, least_, most_, def_, absent_, sampler_, help_)                       \
  {TRI_F(TRI_FT_##type_, #m, S, sampling.m), .def = (def_), .min = (least_), .max = (most_),                           \
   TRI_SAMPLING_FIELD_##absent_(S, m)},
#define TRI_SAMPLING_FIELD_FIXED(S, m) .flags = TRI_FF_OMIT
#define TRI_SAMPLING_FIELD_OPEN(S, m) .has = offsetof(S, sampling.has_##m) + 1, .flags = TRI_SAMPLING_UNGIVEN_##S
#define TRI_SAMPLING_FIELD_MODEL(S, m) TRI_SAMPLING_FIELD_OPEN(S, m)

/* Entries of a tri_field table for a struct S with a member `sampling`. */
/* clang-format off */
#define TRI_SAMPLING_FIELDS(S)                                                                                         \
  TRI_SAMPLING_NUMBERS(TRI_SAMPLING_FIELD_, S)                                                                         \
  {TRI_CUSTOM("early_stopping", S, sampling.early_stopping, tri_codec_early_stopping),                                 \
   .has = offsetof(S, sampling.has_early_stopping) + 1, .flags = TRI_SAMPLING_UNGIVEN_##S},                            \
  {TRI_CUSTOM("logprobs", S, sampling, tri_codec_logprobs), .flags = TRI_FF_OMIT},                                     \
  {TRI_F(TRI_FT_BOOL, "ignore_eos", S, sampling.ignore_eos), .flags = TRI_FF_OMIT},                                    \
  {TRI_F(TRI_FT_BOOL, "echo", S, sampling.echo), .flags = TRI_FF_OMIT},                                                \
  {TRI_F(TRI_FT_BOOL, "skip_special_tokens", S, sampling.skip_special_tokens), .flags = TRI_FF_OMIT, .def = 1},        \
  {TRI_F(TRI_FT_BOOL, "include_stop_str_in_output", S, sampling.include_stop), .flags = TRI_FF_OMIT},                  \
  {TRI_CUSTOM("stop_token_ids", S, sampling, tri_codec_stop_ids), .flags = TRI_FF_OMIT},                               \
  {TRI_CUSTOM("logit_bias", S, sampling, tri_codec_bias), .flags = TRI_FF_OMIT},                                       \
  {TRI_CUSTOM("allowed_token_ids", S, sampling, tri_codec_allowed_ids), .flags = TRI_FF_OMIT},                         \
  {TRI_CUSTOM("constraint", S, sampling, tri_codec_constraint), .flags = TRI_FF_OMIT}
/* clang-format on */

#endif
