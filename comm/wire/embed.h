/* The fields of embed and classify, of their answers, and of an encoder's results on their way from a group. */
#ifndef TRI_COMM_WIRE_EMBED_H
#define TRI_COMM_WIRE_EMBED_H

#include "comm/wire/group.h"
#include "comm/wire/pack.h"

/* Readers and writers of tri_field tables. `at` of pooling and activation: the field itself; of labels, tokens and
 * values: that field of a tri_encoded_reply; of results: the tri_group_results. */
tri_status tri_encode_read_pooling(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encode_write_pooling(tri_pack *p, const void *at);
bool tri_encode_has_pooling(const void *at);
tri_status tri_encode_read_activation(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encode_write_activation(tri_pack *p, const void *at);
bool tri_encode_has_activation(const void *at);

tri_status tri_encoded_read_values(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encoded_write_values(tri_pack *p, const void *at);
tri_status tri_encoded_read_labels(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encoded_write_labels(tri_pack *p, const void *at);
tri_status tri_encoded_read_tokens(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encoded_write_tokens(tri_pack *p, const void *at);
bool tri_encoded_has_tokens(const void *at);
/* Of scores: their number is that of the labels, for each token or once. */
tri_status tri_encoded_finish(tri_decoder *d, const tri_encoded_reply *r);

tri_status tri_encoded_read_results(tri_decoder *d, const tri_field *f, tri_unpack *u, const tri_value *v, void *at);
void tri_encoded_write_results(tri_pack *p, const void *at);

#endif
