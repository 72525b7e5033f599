/* The fields of tri_sampling, which a client's submit and the coordinator's assign share, and every numeric limit of a
 * request. */
#ifndef TRI_COMM_WIRE_SAMPLING_H
#define TRI_COMM_WIRE_SAMPLING_H

#include "comm/wire/pack.h"

/* The one place of the numbers: TRI_LIMIT_name is "min, max". */
#define TRI_LIMIT_max_tokens -1, 1048576
#define TRI_LIMIT_min_tokens 0, 1048576
#define TRI_LIMIT_temperature 0, 100
#define TRI_LIMIT_top_p 0, 1
#define TRI_LIMIT_min_p 0, 1
#define TRI_LIMIT_top_k -1, 1048576
#define TRI_LIMIT_repetition_penalty 0.01, 100
#define TRI_LIMIT_presence_penalty -2, 2
#define TRI_LIMIT_frequency_penalty -2, 2
#define TRI_LIMIT_n 1, TRI_WIRE_MAX_N
#define TRI_LIMIT_num_beams 1, TRI_WIRE_MAX_BEAMS
#define TRI_LIMIT_length_penalty -TRI_WIRE_MAX_LENGTH_PENALTY, TRI_WIRE_MAX_LENGTH_PENALTY
#define TRI_LIMIT_logprobs 0, TRI_WIRE_MAX_LOGPROBS
#define TRI_LIMIT_logit_bias -100, 100
#define TRI_LIMIT_priority -2147483648.0, 2147483647
#define TRI_LIMIT_deadline_ms 0, 604800000
#define TRI_LIMIT_seed 0, 18446744073709551615.0

#define TRI_LIMIT_PAIR_(min_, max_) .min = (min_), .max = (max_)
#define TRI_LIMIT_PAIR(pair) TRI_LIMIT_PAIR_(pair)
#define TRI_LIMIT(name) TRI_LIMIT_PAIR(TRI_LIMIT_##name)

/* What a submit says and tri_sampling does not hold as it was said; the decoder's extra while one is read. */
typedef struct tri_sampling_extra {
  bool has_logprobs, logprobs_off, has_top_logprobs;
  int64_t logprobs, top_logprobs;
} tri_sampling_extra;

tri_status tri_sampling_read_logprobs(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_sampling_write_logprobs(tri_pack *p, const void *at);
bool tri_sampling_has_logprobs(const void *at);
tri_status tri_sampling_read_stop(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_sampling_write_stop(tri_pack *p, const void *at);
bool tri_sampling_has_stop(const void *at);
tri_status tri_sampling_read_stop_ids(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_sampling_write_stop_ids(tri_pack *p, const void *at);
bool tri_sampling_has_stop_ids(const void *at);
tri_status tri_sampling_read_bias(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_sampling_write_bias(tri_pack *p, const void *at);
bool tri_sampling_has_bias(const void *at);
tri_status tri_sampling_read_early(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_sampling_write_early(tri_pack *p, const void *at);
bool tri_sampling_has_early(const void *at);
/* Fields that are known and have one value so far, or none. */
tri_status tri_sampling_read_neutral(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
bool tri_sampling_never(const void *at);

void tri_sampling_init(tri_sampling *s);
/* What can be said only once all fields are there. */
tri_status tri_sampling_finish(tri_decoder *d, tri_sampling *s, const tri_sampling_extra *x);

#define TRI_SAMPLING_NUM_(type_, S, m, def_, flags_)                                                                   \
  {                                                                                                                    \
    TRI_F(type_, #m, S, sampling.m), .has = offsetof(S, sampling.has_##m) + 1, .flags = (flags_), .def = (def_),       \
                                     TRI_LIMIT(m)                                                                      \
  }
#define TRI_SAMPLING_DEF_(type_, S, m, def_)                                                                           \
  { TRI_F(type_, #m, S, sampling.m), .flags = TRI_FF_OMIT, .def = (def_), TRI_LIMIT(m) }
#define TRI_SAMPLING_CUSTOM_(S, name_, what)                                                                           \
  {                                                                                                                    \
    TRI_F(TRI_FT_CUSTOM, name_, S, sampling), .flags = TRI_FF_OMIT, .read = tri_sampling_read_##what,                  \
                                              .write = tri_sampling_write_##what, .present = tri_sampling_has_##what   \
  }

#define TRI_SAMPLING_EARLY_(S, flags_)                                                                                 \
  {                                                                                                                    \
    TRI_F(TRI_FT_CUSTOM, "early_stopping", S, sampling.early_stopping),                                                \
        .has = offsetof(S, sampling.has_early_stopping) + 1, .flags = (flags_), .read = tri_sampling_read_early,       \
        .write = tri_sampling_write_early, .present = tri_sampling_has_early                                           \
  }

/* Entries of a tri_field table for a struct S with a member `sampling`; flags_ of the fields with a has_*. */
#define TRI_SAMPLING_FIELDS(S, flags_)                                                                                 \
  TRI_SAMPLING_NUM_(TRI_FT_I64, S, max_tokens, 16, flags_), TRI_SAMPLING_DEF_(TRI_FT_I64, S, min_tokens, 0),           \
      TRI_SAMPLING_NUM_(TRI_FT_F64, S, temperature, 1, flags_), TRI_SAMPLING_NUM_(TRI_FT_F64, S, top_p, 1, flags_),    \
      TRI_SAMPLING_NUM_(TRI_FT_I64, S, top_k, 0, flags_), TRI_SAMPLING_DEF_(TRI_FT_F64, S, min_p, 0),                  \
      TRI_SAMPLING_NUM_(TRI_FT_F64, S, repetition_penalty, 1, flags_),                                                 \
      TRI_SAMPLING_DEF_(TRI_FT_F64, S, presence_penalty, 0), TRI_SAMPLING_DEF_(TRI_FT_F64, S, frequency_penalty, 0),   \
      TRI_SAMPLING_DEF_(TRI_FT_I64, S, n, 1), TRI_SAMPLING_NUM_(TRI_FT_I64, S, num_beams, 1, flags_),                  \
      TRI_SAMPLING_NUM_(TRI_FT_F64, S, length_penalty, 1, flags_), TRI_SAMPLING_EARLY_(S, flags_),                     \
      TRI_SAMPLING_CUSTOM_(S, "logprobs", logprobs),                                                                   \
      {TRI_F(TRI_FT_BOOL, "ignore_eos", S, sampling.ignore_eos), .flags = TRI_FF_OMIT},                                \
      {TRI_F(TRI_FT_BOOL, "echo", S, sampling.echo), .flags = TRI_FF_OMIT},                                            \
      TRI_SAMPLING_CUSTOM_(S, "stop_token_ids", stop_ids), TRI_SAMPLING_CUSTOM_(S, "logit_bias", bias),                \
      TRI_SAMPLING_DEF_(TRI_FT_I64, S, priority, 0), TRI_SAMPLING_DEF_(TRI_FT_I64, S, deadline_ms, 0)

#endif
