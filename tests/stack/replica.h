/* SPDX-License-Identifier: Apache-2.0 */
/* An imitation of a replica of one rank, over a real connection to the coordinator. It answers a prompt that ends in a
 * sum, as "37+48=" or "37+48=8", with the rest of what the sum comes to and the end of the text, a token in each turn;
 * what is no sum with "0" and the end. After an end that does not count (ignore_eos) it says "1". A token's logprob is
 * -0.25, those of its alternatives are less by 1 from one to the next; so are those of a prompt's tokens.
 *
 * An encoder's vector has the number of the prompt's tokens, then the first token, then zeros. */
#ifndef TRI_TESTS_STACK_REPLICA_H
#define TRI_TESTS_STACK_REPLICA_H

#include "comm/wire/boot.h"
#include "comm/wire/replica.h"
#include "runtime/model/config.h"
#include "text/tokenizer/tokenizer.h"

enum { REPLICA_MOST_JOBS = 512, REPLICA_SLOTS = 256 };

typedef struct replica replica;

/* Connects, and becomes ready within some turns. boot, config and tokenizer (NULL: there is none) are borrowed.
 * max_num_seqs 0: REPLICA_SLOTS. */
replica *replica_open(const tri_boot *boot, const tri_model_config *config, const tri_tokenizer *tokenizer,
                      uint64_t epoch, uint64_t max_model_len, int max_num_seqs);
void replica_close(replica *r); /* without a word, as one that is killed */
/* Takes what has come, and takes a step with the jobs that are there. */
void replica_turn(replica *r);

/* ---- what it is told ---- */

void replica_hold(replica *r, bool hold);       /* takes no steps: jobs wait, until their deadlines */
void replica_say(replica *r, const char *text); /* the answer to everything, from now on; NULL: sums again */
/* Refuses the next job. */
void replica_refuse(replica *r, const char *code, const char *field, const char *message);
void replica_fail(replica *r, const char *code, const char *message); /* says what ends it */

/* ---- what it has been told ---- */

int replica_jobs(const replica *r);           /* that it has */
int replica_aborts(const replica *r);         /* so far */
size_t replica_last_tokens(const replica *r); /* of the answer that ended last, its end included */
bool replica_drains(const replica *r);
const tri_sampling *replica_sampling(const replica *r); /* of the last job; its arrays mean nothing */

#endif
