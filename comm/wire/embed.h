/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of embed and classify, of their answers, and of an encoder's results on their way from a replica. */
#ifndef TRI_COMM_WIRE_EMBED_H
#define TRI_COMM_WIRE_EMBED_H

#include "comm/wire/replica.h"
#include "comm/wire/pack.h"

/* The record of activation is that field; of values the tri_embed_reply; of results the tri_replica_results. */
extern const tri_codec tri_codec_activation, tri_codec_values, tri_codec_results;

/* Checks scores: their number is that of the labels, for each token or once. */
tri_status tri_embed_reply_finish(tri_unpacker *d, const tri_embed_reply *r);

#endif
