/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/expert_balance.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/layout.h"

/* Placement by counts in two steps, as DeepSeek's EPLB has them: experts get slots in proportion to their rows
 * (divide), then slots go to shares, the heaviest first to the lightest share (place). On several hosts groups of
 * experts go to hosts before that, and both steps are done for each host alone. Everything is deterministic, ties
 * included: equal counts give equal files. */
enum { MOST_FILE_BYTES = 256 << 20 };

/* ---- what was counted ---- */

static tri_status read_layer(const char *path, const tri_json *row, size_t layer, int experts, uint64_t *out,
                             tri_error *err) {
  if (tri_json_size(row) != (size_t)experts)
    return tri_fail(err, TRI_CORRUPT, "rebalance", "%.200s: rows of layer %zu: they are %zu, num_experts is %d", path,
                    layer, tri_json_size(row), experts);
  for (int e = 0; e < experts; e++) {
    int64_t n = -1;
    if (!tri_json_as_int(tri_json_at(row, (size_t)e), &n) || n < 0)
      return tri_fail(err, TRI_CORRUPT, "rebalance", "%.200s: rows of layer %zu, expert %d: no number of rows", path,
                      layer, e);
    out[e] = (uint64_t)n;
  }
  return TRI_OK;
}

tri_status tri_expert_counts_read(const char *path, tri_expert_counts *out, tri_error *err) {
  enum { MOST_EXPERTS = 1 << 20 };
  tri_json_doc *doc = NULL;
  tri_expert_counts c = {0};
  int64_t experts = 0, groups = 1;
  tri_status st = tri_json_read_file(path, MOST_FILE_BYTES, &doc, err);
  if (st != TRI_OK) return st;
  const tri_json *root = tri_json_root(doc), *rows = tri_json_get(root, "rows");
  size_t layers = tri_json_size(rows);
  if (!tri_json_get_int(root, "num_experts", &experts) || experts < 1 || experts > MOST_EXPERTS)
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "rebalance", "%.200s: it has no num_experts", path));
  if (tri_json_kind_of(rows) != TRI_JSON_ARRAY || !layers)
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "rebalance",
                     "%.200s: it has no rows of layers with experts, as trireme status --experts tells them", path));
  c.num_experts = (int)experts;
  if (!tri_json_get_int(root, "num_groups", &groups)) groups = 1;
  if (groups < 1 || experts % groups)
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "rebalance", "%.200s: num_groups %lld does not divide num_experts %lld", path,
                     (long long)groups, (long long)experts));
  c.num_groups = (int)groups;
  c.num_layers = (int)layers;
  c.rows = tri_calloc(layers, (size_t)experts * sizeof *c.rows);
  if (!c.rows) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "rebalance", "no memory for %.200s", path));
  for (size_t l = 0; l < layers; l++)
    TRI_TRY(read_layer(path, tri_json_at(rows, l), l, c.num_experts, c.rows + l * (size_t)experts, err));
  *out = c;
  c.rows = NULL;
cleanup:
  tri_expert_counts_free(&c);
  tri_json_free(doc);
  return st;
}

void tri_expert_counts_free(tri_expert_counts *c) {
  tri_free(c->rows);
  c->rows = NULL;
}

/* ---- a layer ---- */

/* A slot that is to be placed. */
struct item {
  double rows;
  int32_t expert;
};

struct share {
  double rows;
  int first, count, used;
};

struct layer {
  int ep;
  int32_t *expert_of;
  struct share *shares; /* [ep] */
  struct item *items;   /* [num_slots] */
};

static int heavier(const void *a, const void *b) {
  const struct item *x = a, *y = b;
  if (x->rows != y->rows) return x->rows < y->rows ? 1 : -1;
  return (x->expert > y->expert) - (x->expert < y->expert);
}

/* Returns in `copies` how many slots each expert gets. Each further slot goes to the expert with the most rows per
 * slot, which keeps the largest of these as small as can be. An expert has `ep` slots at most, one for each share. */
static void divide(const uint64_t *rows, int num_experts, int num_slots, int ep, int32_t *copies) {
  for (int e = 0; e < num_experts; e++) copies[e] = 1;
  for (int left = num_slots - num_experts; left > 0; left--) {
    int best = -1;
    for (int e = 0; e < num_experts; e++) {
      if (copies[e] == ep) continue;
      if (best < 0 || (double)rows[e] / copies[e] > (double)rows[best] / copies[best]) best = e;
    }
    copies[best]++;
  }
}

static int slot_of(const struct layer *y, const struct share *s, int32_t expert) {
  for (int i = s->first; i < s->first + s->used; i++)
    if (y->expert_of[i] == expert) return i;
  return -1;
}

static void put(const struct layer *y, struct share *s, const struct item *i) {
  y->expert_of[s->first + s->used++] = i->expert;
  s->rows += i->rows;
}

static double rows_of(const struct layer *y, int32_t expert) {
  const struct item *i = y->items;
  while (i->expert != expert) i++;
  return i->rows;
}

/* All shares with a free slot have the expert: one of the others, which are full, gives another expert for it. */
static void exchange(const struct layer *y, struct share *open, const struct item *i) {
  for (struct share *s = y->shares; s < y->shares + y->ep; s++) {
    if (slot_of(y, s, i->expert) >= 0) continue;
    for (int k = s->first + s->used; k-- > s->first;) { /* the lightest first */
      struct item other = {.expert = y->expert_of[k]};
      if (slot_of(y, open, other.expert) >= 0) continue;
      other.rows = rows_of(y, other.expert);
      y->expert_of[k] = i->expert;
      s->rows += i->rows - other.rows;
      put(y, open, &other);
      return;
    }
  }
}

/* Equal rows: the share with more free slots comes first, as it needs them filled. */
static bool is_lighter(const struct share *a, const struct share *b) {
  if (a->rows != b->rows) return a->rows < b->rows;
  return a->count - a->used > b->count - b->used;
}

/* Puts a slot's expert into the lightest share that has room and does not have it. */
static void place(const struct layer *y, const struct item *i) {
  struct share *best = NULL, *open = NULL;
  for (struct share *s = y->shares; s < y->shares + y->ep; s++) {
    if (s->used == s->count) continue;
    if (!open || is_lighter(s, open)) open = s;
    if (slot_of(y, s, i->expert) < 0 && (!best || is_lighter(s, best))) best = s;
  }
  if (best)
    put(y, best, i);
  else
    exchange(y, open, i);
}

/* Some shares of a layer, and their slots, for all of these experts. */
static tri_status fill(const uint64_t *rows, int num_experts, int all_slots, int all_shares, tri_range shares,
                       int32_t *expert_of) {
  int ep = shares.count, first = tri_range_part(all_slots, all_shares, shares.first).first;
  tri_range last = tri_range_part(all_slots, all_shares, shares.first + ep - 1);
  int num_slots = last.first + last.count - first;
  if (ep < 1 || ep > num_slots || num_slots < num_experts || num_slots > (int64_t)ep * num_experts)
    return TRI_OUT_OF_RANGE;
  struct layer y = {.ep = ep, .expert_of = expert_of};
  int32_t *copies = tri_calloc((size_t)num_experts, sizeof *copies);
  int n = 0;
  y.shares = tri_calloc((size_t)ep, sizeof *y.shares);
  y.items = tri_calloc((size_t)num_slots, sizeof *y.items);
  bool ok = copies && y.shares && y.items;
  if (ok) divide(rows, num_experts, num_slots, ep, copies);
  for (int e = 0; ok && e < num_experts; e++)
    for (int k = 0; k < copies[e]; k++) y.items[n++] = (struct item){(double)rows[e] / copies[e], e};
  if (ok) qsort(y.items, (size_t)n, sizeof *y.items, heavier);
  for (int s = 0; ok && s < ep; s++) {
    tri_range own = tri_range_part(all_slots, all_shares, shares.first + s);
    y.shares[s] = (struct share){.first = own.first, .count = own.count};
  }
  for (int i = 0; i < n; i++) place(&y, &y.items[i]);
  tri_free(copies);
  tri_free(y.shares);
  tri_free(y.items);
  return ok ? TRI_OK : TRI_NO_MEMORY;
}

tri_status tri_expert_rebalance(const uint64_t *rows, int num_experts, int num_slots, int ep, int32_t *expert_of) {
  if (ep < 1 || num_experts < 1) return TRI_OUT_OF_RANGE;
  return fill(rows, num_experts, num_slots, ep, (tri_range){0, ep}, expert_of);
}

/* ---- a layer on several hosts ---- */

struct host {
  tri_range shares;
  int room, groups; /* room: for so many groups */
  double rows;
};

/* A router's group, and the host that it goes to. */
struct expert_group {
  double rows;
  int number, host;
};

struct hosts {
  const uint64_t *rows;                           /* [num_experts] */
  int num_slots, ep, size, num_hosts, num_groups; /* size: experts of a group */
  struct host *list;                              /* [ep] at most */
  struct expert_group *groups;                    /* [num_groups] */
  uint64_t *own_rows;                             /* [num_experts] of one host's experts, */
  int32_t *own;                                   /* [num_experts] which are these */
  int32_t *expert_of;                             /* [num_slots] */
};

static int by_rows(const void *a, const void *b) {
  const struct expert_group *x = a, *y = b;
  if (x->rows != y->rows) return x->rows < y->rows ? 1 : -1;
  return x->number - y->number;
}

/* Runs of shares with one host each become hosts; a host's room is whole groups that its slots can take. */
static void find_hosts(struct hosts *h, const int32_t *host_of) {
  for (int s = 0; s < h->ep; s++) {
    if (!s || host_of[s] != host_of[s - 1]) h->list[h->num_hosts++] = (struct host){.shares = {.first = s}};
    struct host *at = &h->list[h->num_hosts - 1];
    at->shares.count++;
    at->room += tri_range_part(h->num_slots, h->ep, s).count;
  }
  for (int i = 0; i < h->num_hosts; i++) h->list[i].room /= h->size;
}

/* False: there is no room for all groups. Compares rows per share without dividing: hosts may have different numbers
 * of shares. */
static bool give_groups(struct hosts *h) {
  for (int g = 0; g < h->num_groups; g++) {
    h->groups[g] = (struct expert_group){.number = g};
    for (int e = g * h->size; e < (g + 1) * h->size; e++) h->groups[g].rows += (double)h->rows[e];
  }
  qsort(h->groups, (size_t)h->num_groups, sizeof *h->groups, by_rows);
  for (int g = 0; g < h->num_groups; g++) {
    struct host *best = NULL;
    for (struct host *at = h->list; at < h->list + h->num_hosts; at++)
      if (at->groups < at->room && (!best || at->rows * best->shares.count < best->rows * at->shares.count)) best = at;
    if (!best) return false;
    best->groups++;
    best->rows += h->groups[g].rows;
    h->groups[g].host = (int)(best - h->list);
  }
  return true;
}

/* Fills one host's slots with the experts of its groups alone, which count from 0 meanwhile, and translates them back.
 */
static tri_status fill_host(const struct hosts *h, int host) {
  tri_range shares = h->list[host].shares;
  int n = 0;
  for (int g = 0; g < h->num_groups; g++)
    for (int i = 0; h->groups[g].host == host && i < h->size; i++, n++) {
      h->own[n] = h->groups[g].number * h->size + i;
      h->own_rows[n] = h->rows[h->own[n]];
    }
  TRI_CHECK(fill(h->own_rows, n, h->num_slots, h->ep, shares, h->expert_of));
  for (int s = 0; s < shares.count; s++) {
    tri_range slots = tri_range_part(h->num_slots, h->ep, shares.first + s);
    for (int i = slots.first; i < slots.first + slots.count; i++) h->expert_of[i] = h->own[h->expert_of[i]];
  }
  return TRI_OK;
}

/* The rows of the busiest share. */
static double most_rows(const struct hosts *h, int num_experts, const int32_t *expert_of, double *shares) {
  double most = 0;
  memset(shares, 0, (size_t)h->ep * sizeof *shares);
  tri_expert_share_rows(h->rows, num_experts, expert_of, h->num_slots, h->ep, shares);
  for (int s = 0; s < h->ep; s++)
    if (shares[s] > most) most = shares[s];
  return most;
}

/* The placement that keeps groups on hosts is taken unless the one that ignores hosts has a busiest share that is
 * lighter by more than TRI_EXPERT_HOST_COST percent. */
tri_status tri_expert_rebalance_hosts(const uint64_t *rows, int num_experts, int num_slots, int ep, int num_groups,
                                      const int32_t *host_of, int32_t *expert_of) {
  tri_status st = tri_expert_rebalance(rows, num_experts, num_slots, ep, expert_of);
  if (st != TRI_OK || !host_of || num_groups < 2 || num_experts % num_groups) return st;
  struct hosts h = {
      .rows = rows, .num_slots = num_slots, .ep = ep, .size = num_experts / num_groups, .num_groups = num_groups};
  double *shares = tri_calloc((size_t)ep, sizeof *shares);
  h.list = tri_calloc((size_t)ep, sizeof *h.list);
  h.groups = tri_calloc((size_t)num_groups, sizeof *h.groups);
  h.own_rows = tri_calloc((size_t)num_experts, sizeof *h.own_rows);
  h.own = tri_calloc((size_t)num_experts, sizeof *h.own);
  h.expert_of = tri_calloc((size_t)num_slots, sizeof *h.expert_of);
  bool ok = shares && h.list && h.groups && h.own_rows && h.own && h.expert_of;
  TRI_TRY(ok ? TRI_OK : TRI_NO_MEMORY);
  find_hosts(&h, host_of);
  if (h.num_hosts < 2 || !give_groups(&h)) goto cleanup;
  for (int i = 0; st == TRI_OK && i < h.num_hosts; i++) st = fill_host(&h, i);
  double kept = st == TRI_OK ? most_rows(&h, num_experts, h.expert_of, shares) : 0;
  if (st == TRI_OK && kept * (100 - TRI_EXPERT_HOST_COST) <= most_rows(&h, num_experts, expert_of, shares) * 100)
    memcpy(expert_of, h.expert_of, (size_t)num_slots * sizeof *expert_of);
  if (st == TRI_OUT_OF_RANGE) st = TRI_OK; /* a host would have an expert twice, or none for a share */
cleanup:
  tri_free(shares);
  tri_free(h.list);
  tri_free(h.groups);
  tri_free(h.own_rows);
  tri_free(h.own);
  tri_free(h.expert_of);
  return st;
}

/* ---- what it comes to ---- */

void tri_expert_share_rows(const uint64_t *rows, int num_experts, const int32_t *expert_of, int num_slots, int ep,
                           double *shares) {
  for (int e = 0; e < num_experts; e++) {
    int copies = 0;
    for (int s = 0; s < num_slots; s++) copies += expert_of[s] == e;
    for (int share = 0; share < ep; share++) {
      tri_range own = tri_range_part(num_slots, ep, share);
      for (int s = own.first; s < own.first + own.count; s++)
        if (expert_of[s] == e) shares[share] += (double)rows[e] / copies;
    }
  }
}

double tri_expert_balancedness(const double *shares, int ep) {
  double sum = 0, most = 0;
  for (int s = 0; s < ep; s++) {
    sum += shares[s];
    if (shares[s] > most) most = shares[s];
  }
  return most > 0 ? sum / ep / most : 1;
}

/* ---- all layers ---- */

static tri_status print(tri_buf *out, const char *text) { return tri_buf_append(out, text, strlen(text)); }

static tri_status print_row(tri_buf *out, const int32_t *expert_of, int num_slots, bool first) {
  char number[16];
  TRI_CHECK(print(out, first ? "\n[" : ",\n["));
  for (int s = 0; s < num_slots; s++) {
    snprintf(number, sizeof number, "%s%" PRId32, s ? "," : "", expert_of[s]);
    TRI_CHECK(print(out, number));
  }
  return print(out, "]");
}

/* The figure over all layers is the sum of the shares' mean rows over the sum of the busiest shares': a layer with many
 * rows counts for more than one with few, as it does in a step's time. */
tri_status tri_expert_rebalance_all(const tri_expert_counts *c, int num_redundant, int ep, const int32_t *host_of,
                                    tri_buf *out, double *balancedness, tri_error *err) {
  int slots = c->num_experts + num_redundant;
  size_t experts = (size_t)c->num_experts;
  double sum = 0, most = 0;
  char head[96];
  int32_t *expert_of = tri_calloc((size_t)slots, sizeof *expert_of);
  double *shares = tri_calloc((size_t)ep, sizeof *shares);
  tri_status st = expert_of && shares ? TRI_OK : TRI_NO_MEMORY;
  snprintf(head, sizeof head, "{\"num_experts\":%d,\"num_slots\":%d,\"layers\":[", c->num_experts, slots);
  TRI_TRY(st);
  TRI_TRY(print(out, head));
  for (int l = 0; l < c->num_layers; l++) {
    const uint64_t *rows = c->rows + (size_t)l * experts;
    TRI_TRY(tri_expert_rebalance_hosts(rows, c->num_experts, slots, ep, c->num_groups, host_of, expert_of));
    memset(shares, 0, (size_t)ep * sizeof *shares);
    tri_expert_share_rows(rows, c->num_experts, expert_of, slots, ep, shares);
    double all = 0;
    for (int s = 0; s < ep; s++) all += shares[s];
    sum += all / ep;
    most += all / ep / tri_expert_balancedness(shares, ep);
    TRI_TRY(print_row(out, expert_of, slots, !l));
  }
  TRI_TRY(print(out, "]}\n"));
  *balancedness = most > 0 ? sum / most : 1;
cleanup:
  tri_free(expert_of);
  tri_free(shares);
  if (st == TRI_OUT_OF_RANGE)
    tri_fail(err, st, "num_redundant_experts",
             "%d experts with %d copies do not fit into %d shares, which have each expert once at most", c->num_experts,
             num_redundant, ep);
  else if (st != TRI_OK)
    tri_fail(err, st, "rebalance", "no memory");
  return st;
}
