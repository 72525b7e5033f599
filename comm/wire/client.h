/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between clients and the coordinator: one msgpack map per ZeroMQ frame, at most TRI_WIRE_MAX_MESSAGE bytes;
 * to a client, several maps may share a frame.
 * docs/protocol.md describes every field; this header is the C view of it.
 *
 * Bytes from the network are hostile: client.c walks them once (depth <= 8, counts <= bytes left, no extension types)
 * before anything is unpacked or allocated. msgpack-c is used by pack.c alone. Unknown request fields are refused
 * by name; unknown reply fields are ignored. */
#ifndef TRI_COMM_WIRE_CLIENT_H
#define TRI_COMM_WIRE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/wire/status_fields.h"
#include "base/buf.h"
#include "base/kinds.h"
#include "base/mem.h"
#include "base/options/sampling_numbers.h"
#include "base/status.h"

enum {
  TRI_WIRE_VERSION = 1,
  TRI_WIRE_MAX_MESSAGE = 1 << 20,
  TRI_WIRE_MAX_DEPTH = 8,
  TRI_WIRE_MAX_STOP = 16,        /* stop strings */
  TRI_WIRE_MAX_STOP_BYTES = 256, /* of one of them */
  TRI_WIRE_MAX_STOP_IDS = 32,
  TRI_WIRE_MAX_LOGIT_BIAS = 512,
  TRI_WIRE_MAX_ALLOWED_IDS = 131072,
  TRI_WIRE_MAX_CONSTRAINT = 256 << 10, /* bytes */
  TRI_WIRE_MAX_FRAME_TEXT = 256,       /* bytes of each text around its JSON */
  TRI_WIRE_MAX_FRAME_MOST = 16,        /* texts of JSON */
  TRI_WIRE_MAX_LOGPROBS = 20,
  TRI_WIRE_MAX_TOKEN_TEXT = 1024, /* bytes of a token's text next to its logprob; longer ones are cut */
  TRI_WIRE_MAX_N = 64,
  TRI_WIRE_MAX_BEAMS = 10,
  TRI_WIRE_MAX_LENGTH_PENALTY = 10,
  TRI_WIRE_MAX_CACHE_SALT = 128,  /* bytes */
  TRI_WIRE_MAX_CALLER = 64,       /* bytes, all of them visible characters of ASCII */
  TRI_WIRE_MAX_EXTERNAL_ID = 128, /* likewise */
  /* The limit of one embed or classify: numbers, names of labels and texts of tokens, with 8 bytes for each text. The
   * rest of a message is for what is around them. */
  TRI_WIRE_MAX_RESULT = 1000000,
};

typedef struct tri_request_id {
  uint8_t bytes[16];
} tri_request_id;

/* A frame from the coordinator holds one message or several, one after the other: *used is the first one's length. */
tri_status tri_wire_first(const void *data, size_t len, size_t *used, tri_error *err);

/* 32 hexadecimal digits and a NUL. Parsing accepts dashes between bytes as well. */
#define TRI_REQUEST_ID_TEXT 33
bool tri_request_id_parse(const char *s, size_t len, tri_request_id *out);
void tri_request_id_format(const tri_request_id *id, char out[TRI_REQUEST_ID_TEXT]);

/* ---- requests ---- */

typedef enum tri_client_op {
  TRI_OP_HELLO,
  TRI_OP_SUBMIT,
  TRI_OP_ATTACH,
  TRI_OP_CANCEL,
  TRI_OP_STATUS,
  TRI_OP_STATS,
  TRI_OP_MODELS,
  TRI_OP_EMBED,
  TRI_OP_CLASSIFY,
  TRI_OP_ROOFLINES, /* what the machines could do at best */
  TRI_OP_EXPERTS,   /* what each expert has had to do */
} tri_client_op;

typedef struct tri_wire_str {
  const char *s; /* not NUL-terminated; NULL: absent */
  size_t len;
} tri_wire_str;

typedef enum tri_on_disconnect { TRI_DISCONNECT_CANCEL, TRI_DISCONNECT_CONTINUE } tri_on_disconnect;

struct tri_wire_bias {
  uint32_t id;
  float bias;
};

/* The answer is a JSON text that fits a schema, or any JSON object. */
typedef enum tri_constraint_kind {
  TRI_CONSTRAINT_NONE,
  TRI_CONSTRAINT_JSON_SCHEMA,
  TRI_CONSTRAINT_JSON_OBJECT,
  TRI_CONSTRAINT_KINDS
} tri_constraint_kind;

/* The texts around the JSON of an answer: `begin`, a text of JSON, up to `most` - 1 further ones after `separator`
 * each, `end`. */
typedef struct tri_wire_frame {
  tri_wire_str begin, separator, end; /* absent: nothing */
  uint32_t most;                      /* 0 is 1 */
} tri_wire_frame;

typedef struct tri_wire_constraint {
  tri_constraint_kind kind;
  tri_wire_str text; /* the schema, as JSON; of an object absent */
  tri_wire_frame frame;
} tri_wire_constraint;

#define TRI_SAMPLING_MEMBER_(context, type, name, option, least, most, def, absent, sampler, help)                     \
  TRI_NUMBER_TYPE_##type name;                                                                                         \
  TRI_SAMPLING_HAS_##absent(name)
#define TRI_SAMPLING_HAS_FIXED(name)
#define TRI_SAMPLING_HAS_OPEN(name) bool has_##name;
#define TRI_SAMPLING_HAS_MODEL(name) TRI_SAMPLING_HAS_OPEN(name)

/* Sampling and limits of a submit: every number of base/options/sampling_numbers.h by its name, with a has_NAME where
 * absent differs from every value, and what is no plain number. */
typedef struct tri_sampling {
  TRI_SAMPLING_NUMBERS(TRI_SAMPLING_MEMBER_, )
  tri_early_stopping early_stopping; /* false; absent: the model's */
  bool has_early_stopping, has_seed;
  uint64_t seed;
  int64_t logprobs; /* -1: none; 0..20: that many alternatives (`logprobs`: true or a number; `top_logprobs`) */
  bool ignore_eos, echo;
  bool skip_special_tokens; /* in texts; true */
  bool include_stop;        /* a text continues to the end of what has stopped it (include_stop_str_in_output) */
  tri_wire_str stop[TRI_WIRE_MAX_STOP];
  int num_stop;
  uint32_t stop_token_ids[TRI_WIRE_MAX_STOP_IDS];
  int num_stop_token_ids;
  const struct tri_wire_bias *logit_bias; /* borrowed; of an unpacker's arena */
  int num_logit_bias;
  const uint32_t *allowed_token_ids; /* borrowed as well; ids may be there twice */
  size_t num_allowed_token_ids;      /* 0: all ids may come */
  tri_wire_constraint constraint;    /* its text is borrowed as well */
} tri_sampling;

/* Checks how many ids there are that alone may come. */
tri_status tri_sampling_check_allowed(size_t num, tri_error *err);
/* Returns how many bytes a constraint's texts have together. */
size_t tri_wire_constraint_bytes(const tri_wire_constraint *c);
/* Copies a constraint's texts into one block, for tri_free, and has it point there. NULL: no memory is left. */
char *tri_wire_constraint_own(tri_wire_constraint *c);
bool tri_wire_constraint_is_same(const tri_wire_constraint *a, const tri_wire_constraint *b);
/* Checks whether a constraint has a meaning with a request's other fields: names the first with which it has none. */
tri_status tri_sampling_check_constraint(const tri_sampling *s, tri_error *err);
/* Checks whether a beam search can do what is asked of it: names the first field with which it has no meaning. */
tri_status tri_sampling_check_beams(const tri_sampling *s, tri_error *err);

typedef struct tri_submit {
  tri_request_id request_id;
  bool has_request_id;
  tri_wire_str model;        /* absent: the one served */
  tri_wire_str prompt;       /* either a text ... */
  const uint32_t *token_ids; /* ... or ids (binary array of little-endian uint32, or a msgpack array); arena memory */
  size_t num_token_ids;
  tri_sampling sampling;
  bool add_special_tokens;  /* to the prompt; true */
  bool stream;              /* true */
  bool cache;               /* true: the response cache may answer, and keep the answer */
  tri_wire_str cache_salt;  /* whose answers these may be; empty is absent */
  tri_wire_str caller;      /* for whom the client asks; empty is absent */
  tri_wire_str external_id; /* the caller's own name of the request, for the log; empty is absent */
  bool return_token_ids;    /* `accepted` has the prompt's */
  tri_on_disconnect on_disconnect;
} tri_submit;

/* How a classifier's logits become scores. UNSET: as the model's files say. */
typedef enum tri_activation {
  TRI_ACTIVATION_UNSET,
  TRI_ACTIVATION_NONE,
  TRI_ACTIVATION_SOFTMAX,
  TRI_ACTIVATION_SIGMOID
} tri_activation;
/* UNSET has no name that can be sent. NULL: no such value. */
const char *tri_activation_name(tri_activation a);
bool tri_activation_parse(const char *name, tri_activation *out);

/* An embed or a classify. */
typedef struct tri_embed_request {
  tri_wire_str model;        /* absent: the one served */
  tri_wire_str text;         /* either a text ... */
  tri_wire_str text_pair;    /* (and one after it, of which the model knows that it is another) */
  const uint32_t *token_ids; /* ... or ids */
  size_t num_token_ids;
  tri_wire_str prompt_name; /* embed: of a text, whose prompt comes before it; absent: the usual one; "": none */
  bool has_pooling;         /* embed; false: as it is served */
  tri_pooling pooling;
  bool has_normalize;        /* embed; false: as the model's folder says */
  bool normalize;            /* to length 1 */
  bool truncate;             /* a text that is too long loses its end, and is not refused */
  tri_activation activation; /* classify */
  int64_t priority, deadline_ms;
  bool cache; /* as of a submit */
  tri_wire_str cache_salt, caller, external_id;
} tri_embed_request;

typedef struct tri_client_msg {
  tri_client_op op;
  uint64_t id; /* the client's own number of this request, unique per connection */
  union {
    struct {
      tri_wire_str client;
    } hello;
    tri_submit submit;
    tri_embed_request embed;
    struct {
      tri_request_id request_id;
      uint64_t offset;
    } attach; /* offset: generated tokens (of choice 0) that the client has */
    struct {
      tri_request_id request_id;
      uint64_t target;
      bool has_request_id, has_target;
    } cancel; /* by request_id, or by target, the id of an earlier submit */
  };
} tri_client_msg;

/* Decodes and validates. Strings point into data, arrays into the arena. On failure *err names the field; *id is set as
 * far as it could be read (0 otherwise), so that the error can be addressed. */
tri_status tri_client_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_client_msg *out, uint64_t *id,
                                 tri_error *err);
tri_status tri_client_msg_pack(const tri_client_msg *m, tri_buf *out);
/* Defaults of a submit, and of an embed or a classify. */
void tri_submit_init(tri_submit *s);
void tri_embed_request_init(tri_embed_request *e);

/* The table of numeric request fields, for validation, --help and the docs. */
typedef struct tri_wire_field {
  const char *name;
  double min, max;
  const char *help;
} tri_wire_field;
const tri_wire_field *tri_wire_fields(size_t *count);

/* ---- replies ---- */

typedef enum tri_server_op {
  TRI_REPLY_HELLO,
  TRI_REPLY_ACCEPTED,
  TRI_REPLY_TOKENS,
  TRI_REPLY_DONE,
  TRI_REPLY_ERROR,
  TRI_REPLY_STATUS,
  TRI_REPLY_STATS,
  TRI_REPLY_MODELS,
  TRI_REPLY_ROOFLINES,
  TRI_REPLY_EMBEDDING,
  TRI_REPLY_SCORES,
  TRI_REPLY_EXPERTS,
} tri_server_op;

typedef enum tri_finish { TRI_FINISH_STOP, TRI_FINISH_LENGTH, TRI_FINISH_ABORT, TRI_FINISH_ERROR } tri_finish;
const char *tri_finish_name(tri_finish f); /* "stop" */

/* Logprobs of one token: its own and the alternatives. */
typedef struct tri_token_logprobs {
  float logprob;
  int num_top;
  const uint32_t *top_ids;
  const float *top_logprobs;
  tri_wire_str
      text; /* the token's bytes, TRI_WIRE_MAX_TOKEN_TEXT at most; NULL: not said, for all tokens of a choice */
  const tri_wire_str *top_texts; /* [num_top] */
} tri_token_logprobs;

typedef struct tri_choice_tokens {
  uint32_t index;    /* choice */
  uint64_t offset;   /* number of the first of these tokens in the choice */
  tri_wire_str text; /* what became certain with them */
  const uint32_t *ids;
  size_t num_ids;
  const tri_token_logprobs *logprobs; /* [num_ids] or NULL */
  bool of_prompt; /* tokens of the prompt, and numbers within it; the first one's logprob is not a number */
} tri_choice_tokens;

typedef struct tri_done {
  uint32_t num_choices;
  struct tri_done_choice {
    tri_finish reason;
    tri_wire_str text;
    uint64_t completion_tokens;
    bool has_stop_string, has_stop_token_id; /* what of the request's lists has stopped it: */
    uint64_t stop_string;                    /* its number in `stop` */
    uint64_t stop_token_id;
  } choices[TRI_WIRE_MAX_N]; /* text: whole, when stream is false */
  uint64_t prompt_tokens, completion_tokens;
  double queue_ms, first_token_ms, total_ms;
  uint32_t preemptions;
  uint64_t cached_tokens; /* of prompt_tokens: those whose KV blocks were there */
  bool timed_out;         /* an abort was the deadline's */
  uint64_t seed;          /* that was sampled, or the request's own */
} tri_done;

#define TRI_STATUS_MAX_REPLICAS 64
#define TRI_STATUS_MAX_RANKS 256
#define TRI_STATUS_MAX_CALLERS 64

#define TRI_STATUS_MEMBER_(context, type, name, json) TRI_STATUS_TYPE_##type name;
#define TRI_STATUS_TYPE_U32 uint32_t
#define TRI_STATUS_TYPE_U64 uint64_t
#define TRI_STATUS_TYPE_I64 int64_t
#define TRI_STATUS_TYPE_F64 double
#define TRI_STATUS_TYPE_STR tri_wire_str
#define TRI_STATUS_TYPE_LAYER uint64_t

typedef struct tri_replica_status {
  TRI_REPLICA_STATUS_FIELDS(TRI_STATUS_MEMBER_, )
} tri_replica_status;

typedef struct tri_rank_status {
  TRI_RANK_STATUS_FIELDS(TRI_STATUS_MEMBER_, )
} tri_rank_status;

/* Jobs under way, by caller. */
typedef struct tri_caller_status {
  TRI_CALLER_STATUS_FIELDS(TRI_STATUS_MEMBER_, )
} tri_caller_status;

typedef struct tri_cluster_status {
  TRI_STATUS_FIELDS(TRI_STATUS_MEMBER_, )
  uint32_t num_replicas;
  tri_replica_status replicas[TRI_STATUS_MAX_REPLICAS];
  uint32_t num_ranks;
  tri_rank_status ranks[TRI_STATUS_MAX_RANKS];
  uint32_t num_callers;
  tri_caller_status callers[TRI_STATUS_MAX_CALLERS];
} tri_cluster_status;

typedef struct tri_rooflines {
  TRI_ROOFLINES_FIELDS(TRI_STATUS_MEMBER_, )
} tri_rooflines;

typedef struct tri_replica_rooflines {
  uint32_t replica, ranks, measured; /* ranks; those in the sums */
  tri_rooflines sum;
} tri_replica_rooflines;

typedef struct tri_cluster_rooflines {
  uint32_t num_replicas;
  tri_replica_rooflines replicas[TRI_STATUS_MAX_REPLICAS];
} tri_cluster_rooflines;

/* The answer to an embed (values alone) or a classify. */
typedef struct tri_embed_reply {
  const float *values; /* an embedding, or [rows, num_labels] */
  size_t num_values;
  uint32_t num_labels;
  const tri_wire_str *labels;
  uint32_t num_tokens; /* 0, or of a classifier of tokens as many as rows */
  const tri_wire_str *tokens;
  tri_activation activation; /* that was applied */
  uint64_t prompt_tokens;
  double queue_ms, total_ms;
  bool cached; /* it comes from the response cache */
} tri_embed_reply;

typedef struct tri_server_msg {
  tri_server_op op;
  uint64_t id;
  union {
    struct {
      tri_wire_str version;
      uint64_t max_message;
    } hello;
    struct {
      tri_request_id request_id;
      uint64_t prompt_tokens;
      bool existing, token_ids_only; /* token_ids_only: the model has no tokenizer, and the answer no text */
      bool cached;                   /* the answer comes from the response cache */
      const uint32_t *token_ids;     /* of the prompt, where they were asked for */
      size_t num_token_ids;
    } accepted;
    struct {
      uint32_t num;
      const tri_choice_tokens *choices;
    } tokens;
    tri_done done;
    struct {
      tri_wire_str code, message, field;
    } error; /* code: a tri_status name in lower case */
    tri_cluster_status status;
    tri_wire_str stats; /* Prometheus text */
    struct {
      uint32_t num;
      const tri_wire_str *names;
      uint64_t max_model_len;
      uint64_t tokenizer; /* a hash of tokenizer.json (tri_tokenizer_hash); 0: the model has none */
    } models;
    tri_cluster_rooflines rooflines;
    tri_wire_str experts; /* JSON */
    tri_embed_reply embed;
  };
} tri_server_msg;

/* The caller keeps a message below the limit (tokens and done may be split by choice). */
tri_status tri_server_msg_pack(const tri_server_msg *m, tri_buf *out);
tri_status tri_server_msg_unpack(const void *data, size_t len, tri_arena *arena, tri_server_msg *out, tri_error *err);

#endif
