/* SPDX-License-Identifier: Apache-2.0 */
/* Log records: every transition of a job that recovery needs, in the order of their coming. Between two of them nothing
 * but time changes a job. */
#ifndef TRI_COORDINATOR_RECORD_H
#define TRI_COORDINATOR_RECORD_H

#include "comm/wire/client.h"
#include "comm/wire/replica.h"
#include "comm/wire/peer.h"

typedef enum tri_record_op {
  TRI_RECORD_ACCEPTED = 1, /* a job and its tokens; its client may hear of it once this is durable */
  TRI_RECORD_ASSIGNED,     /* a replica has it */
  TRI_RECORD_TOKENS,       /* what a replica has drawn in a step; written before any client has it */
  TRI_RECORD_ENDED,        /* by something else than its last token: an error, a cancellation, its deadline */
  TRI_RECORD_OVER,         /* no client can attach to it any more: its minute after the end is over */
  TRI_RECORD_WHOLE,        /* all of a job so far, in the place of what was recorded of it before: one record of the */
  TRI_RECORD_BEGIN,        /* facts since this */
  TRI_RECORD_DIED,         /* a replica that may have begun it was lost */
} tri_record_op;

/* Hashes of what was asked for, as takeovers compare it. */
typedef struct tri_record_content {
  uint64_t prompt, rest;
} tri_record_content;

typedef struct tri_record {
  tri_record_op op;
  uint64_t job;   /* of all but TOKENS */
  int64_t age_ns; /* of ACCEPTED: how long ago that was */
  union {
    struct {
      tri_client_msg msg; /* a submit with token ids, request_id and seed */
      tri_owner owner;
      tri_record_content content;
      uint64_t model;      /* a hash of it and its tokenizer */
      tri_wire_str prompt; /* its text, for an echo */
    } accepted;
    struct {
      uint32_t replica;
      uint64_t epoch, weights_hash;
    } assigned;
    struct {
      uint32_t replica;
      const tri_replica_tokens *tokens;
    } tokens;
    struct {
      bool timed_out;
      bool dropped;           /* its client had gone: it finds nothing */
      const tri_error *error; /* NULL: it was cut off without one */
    } ended;
  };
} tri_record;

#endif
