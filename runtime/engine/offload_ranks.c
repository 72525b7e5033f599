/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/offload_ranks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "runtime/engine/offload_plan.h"

/* MOST_RANKS: of a column, on all hosts. */
enum { MOST_RANKS = 256 };

/* The boot of the kernel, and the processes that this one can see by their numbers. Containers of one machine have one
 * boot and namespaces of their own: they are hosts apart, since they cannot open each other's memory by a process
 * number. */
uint64_t tri_offload_host(void) {
  static const char *const links[] = {"/proc/self/ns/pid", "/proc/self/ns/user"};
  uint64_t h = TRI_HASH_SEED;
  char text[128];
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (f && fgets(text, sizeof text, f)) h = tri_hash_bytes(h, text, strlen(text));
  if (f) fclose(f);
  for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
    ssize_t n = readlink(links[i], text, sizeof text);
    if (n > 0) h = tri_hash_bytes(h, text, (size_t)n);
  }
  return h;
}

static bool are_together(const tri_offload_rank *a, const tri_offload_rank *b) {
  return a->streams && b->streams && a->host == b->host && a->num_words == b->num_words;
}

int tri_offload_find_ranks(const tri_offload_rank *all, int count, int own, int *first, int *rank) {
  int members = 0;
  for (int r = 0; r < count; r++) {
    if (!are_together(&all[r], &all[own])) continue;
    if (!members) *first = r;
    if (r == own) *rank = members;
    members++;
  }
  return all[own].streams && members > 1 && members <= TRI_SPLIT_MAX_RANKS ? members : 0;
}

/* Has each rank's word come to all. */
static tri_status tell_all(tri_comm *c, const tri_offload_rank *own, tri_offload_rank *all, tri_error *err) {
  tri_status st = tri_comm_all_gather(c, own, all, sizeof *own);
  return st == TRI_OK
             ? st
             : tri_fail(err, st, "comm", "the replica's ranks cannot reach each other: %s", tri_status_text(st));
}

static tri_split_config split_config(const tri_offload_rank *own, int rank, int members) {
  return (tri_split_config){.rank = rank,
                            .size = members,
                            .buffer_bytes = tri_offload_buffer_bytes(),
                            .home_bytes = own->home_bytes,
                            .num_words = (int)own->num_words};
}

static void tell_why(const tri_error *why) {
  tri_log(TRI_LOG_WARN, "engine", "each rank of this host reads all of its streamed weights: %s", why->message);
}

/* Makes the memory of the first rank's, and opens it on the others. Ranks that share none take part. Three steps: the
 * first rank makes the memory and its name reaches the others, the others open it, and all learn who succeeded. It is
 * used only if all of them have it: a rank without it would never read its share. From the second exchange on `streams`
 * means that a rank has it. */
static tri_status connect(tri_comm *c, tri_offload_rank *own, tri_offload_rank *all, tri_split **out, tri_error *err) {
  tri_error why = {0};
  tri_split *s = NULL;
  int first = -1, rank = 0, members = tri_offload_find_ranks(all, c->size, c->rank, &first, &rank);
  tri_split_config sc = split_config(own, rank, members);
  if (members && !rank) tri_split_create(&sc, &own->name, &s, &why);
  tri_status st = tell_all(c, own, all, err);
  if (st == TRI_OK && rank && all[first].name.token) tri_split_open(&sc, &all[first].name, &s, &why);
  own->streams = s != NULL;
  if (st == TRI_OK) st = tell_all(c, own, all, err);
  int opened = st == TRI_OK ? tri_offload_find_ranks(all, c->size, c->rank, &first, &rank) : 0;
  if (opened && opened == members) {
    *out = s;
    return TRI_OK;
  }
  if (why.status) tell_why(&why);
  tri_split_close(s);
  return st;
}

/* Takes the least room of those that stream together, and the most of what they could have in common. */
static void level(tri_offload_rank *own, const tri_offload_rank *all, int count) {
  const tri_offload_rank mine = *own;
  for (int r = 0; r < count; r++) {
    if (!are_together(&all[r], &mine)) continue;
    if (all[r].room < own->room) own->room = all[r].room;
    if (all[r].host_room < own->host_room) own->host_room = all[r].host_room;
    if (all[r].home_bytes > own->home_bytes) own->home_bytes = all[r].home_bytes;
  }
}

tri_status tri_offload_join_ranks(tri_replica *g, tri_offload_joining *joining, tri_split **out, tri_error *err) {
  tri_comm *c = g->column;
  tri_offload_rank all[MOST_RANKS], own = {.host = tri_offload_host(),
                                           .streams = joining->streams,
                                           .num_words = (uint64_t)joining->num_words,
                                           .home_bytes = joining->home_bytes,
                                           .room = joining->room,
                                           .host_room = joining->host_room};
  *out = NULL;
  if (!c || c->size > MOST_RANKS) return TRI_OK;
  TRI_CHECK(tell_all(c, &own, all, err));
  level(&own, all, c->size);
  TRI_CHECK(connect(c, &own, all, out, err));
  if (*out) joining->room = own.room;
  if (*out) joining->host_room = own.host_room;
  return TRI_OK;
}
