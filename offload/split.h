/* SPDX-License-Identifier: Apache-2.0 */
/* Memory through which the ranks of one host have in common what each of them has read: of weights that all of them
 * need, each reads a share from the disk, and takes the others' shares from where those have put them
 * (DeepSpeed-Inference, Aminabadi et al. 2022, section VI.B: each GPU fetches a part of a layer, and all gather it).
 *
 * Each rank has the buffers of its reader there. What comes into them for all is a piece. The pieces of a rank are
 * numbered from 0 on in the order in which it begins to read them, which every rank knows by itself. The rank publishes
 * each as soon as it is there, in any order; the others take each of them, in the order of the numbers; when all have
 * taken a piece, its place is free again. Where devices copy from each other's memory that place is in the reader's
 * ring, and nothing but words goes through here. Bytes alone: what they mean the stream knows (stream.h).
 *
 * What all of them need and lies in the host's memory for good lies there once, too: the home.
 *
 * A thread that publishes or takes wakes those that may wait for it. Nothing here waits. */
#ifndef TRI_OFFLOAD_SPLIT_H
#define TRI_OFFLOAD_SPLIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/wait.h"

/* PIECES: of a rank's pieces so many follow each other at most of which not all have been taken. */
enum { TRI_SPLIT_MAX_RANKS = 16, TRI_SPLIT_PIECES = 64, TRI_SPLIT_CARD_BYTES = 128, TRI_SPLIT_STAGES = 4 };

typedef struct tri_split tri_split;

/* The same on all ranks, but for rank. */
typedef struct tri_split_config {
  int rank, size;      /* 2 .. TRI_SPLIT_MAX_RANKS ranks */
  size_t buffer_bytes; /* of all buffers of a rank */
  size_t home_bytes;   /* that the home could have at most: it takes what tri_split_take_home asks for */
  int num_words;       /* that each rank tells the others before it streams */
} tri_split_config;

/* How another process of this host opens the memory. */
typedef struct tri_split_name {
  int32_t process, descriptor;
  uint64_t token; /* not 0: the memory begins with it */
} tri_split_name;

/* Makes the memory (rank 0), or opens it while rank 0 has it. Every byte of a rank's own buffers is reserved, so that
 * too little memory is an error here and no signal later. It has no name in any file system, and goes with the last
 * process that has it. */
tri_status tri_split_create(const tri_split_config *config, tri_split_name *name, tri_split **out, tri_error *err);
tri_status tri_split_open(const tri_split_config *config, const tri_split_name *name, tri_split **out, tri_error *err);
/* Leaves (tri_split_leave) and gives the memory back. NULL is fine. */
void tri_split_close(tri_split *s);

int tri_split_rank(const tri_split *s);
int tri_split_size(const tri_split *s);
/* Begins at a multiple of a page. */
void *tri_split_buffers(const tri_split *s, int rank);
size_t tri_split_buffer_bytes(const tri_split *s);
/* Bytes of all ranks' buffers, which lie one after the other from rank 0's on, in whole pages. */
size_t tri_split_all_bytes(const tri_split *s);
/* Begins at a multiple of TRI_SPLIT_HOME_ALIGN. */
enum { TRI_SPLIT_HOME_ALIGN = 2 << 20 };
char *tri_split_home(const tri_split *s);
/* Reserves bytes of the home near this rank, and only these; what others have reserved stays as it is. */
tri_status tri_split_take_home(tri_split *s, size_t at, size_t bytes, tri_error *err);

/* ---- before they stream ---- */

/* words [num_words]; once. */
void tri_split_tell(tri_split *s, const uint64_t *words);
/* Sets *words to what a rank has told. TRI_AGAIN: it has not yet. TRI_PEER_LOST: it has left and told nothing. */
tri_status tri_split_hear(const tri_split *s, int rank, const uint64_t **words);

/* TRI_SPLIT_CARD_BYTES of a rank's, for what it says before it answers a stage. */
void *tri_split_card(const tri_split *s, int rank);
/* Answers stage 0 .. TRI_SPLIT_STAGES - 1, once; and finds a rank's answer, as tri_split_hear its words. */
void tri_split_answer(tri_split *s, int stage, bool yes);
tri_status tri_split_answer_of(const tri_split *s, int rank, int stage, bool *yes);

/* ---- pieces; the thread that moves a rank's bytes calls these ---- */

/* A piece of this rank is there, at so many bytes of its buffers, or of its ring. */
void tri_split_publish(tri_split *s, uint64_t number, size_t at);
/* Sets *at to where a rank's piece lies. TRI_AGAIN: it is not there. TRI_PEER_LOST: nor will it ever be, as the rank
 * has left. */
tri_status tri_split_find(const tri_split *s, int rank, uint64_t number, size_t *at);
/* This rank has taken a rank's pieces up to this one. */
void tri_split_take(tri_split *s, int rank, uint64_t number);
/* Returns whether a rank has taken this rank's piece, or has left; and whether all others have. */
bool tri_split_has_taken(const tri_split *s, int rank, uint64_t number);
bool tri_split_is_taken(const tri_split *s, uint64_t number);

/* ---- signs of life ---- */

/* The thread that publishes and takes is to be woken here. */
tri_waker *tri_split_waker(tri_split *s);
/* Shows that this thread is alive; and how often a rank's has. */
void tri_split_beat(tri_split *s);
uint64_t tri_split_beats(const tri_split *s, int rank);
/* Publishes and takes nothing more: the others learn it. What was published stays for them. */
void tri_split_leave(tri_split *s);
/* Returns whether a rank's process is still there. */
bool tri_split_is_alive(const tri_split *s, int rank);

#endif
