/* The fields of embed and classify, of their answers, and of an encoder's results on their way from a group. */
#ifndef TRI_COMM_WIRE_EMBED_H
#define TRI_COMM_WIRE_EMBED_H

#include "comm/wire/group.h"
#include "comm/wire/pack.h"

/* The record of pooling and activation is that field; of labels, tokens and values that field of a tri_encoded_reply;
 * of results the tri_group_results. */
extern const tri_codec tri_codec_pooling, tri_codec_activation, tri_codec_values, tri_codec_labels, tri_codec_tokens,
    tri_codec_results;

/* Checks the scores: their number is that of the labels, for each token or once. */
tri_status tri_encoded_finish(tri_decoder *d, const tri_encoded_reply *r);

#endif
