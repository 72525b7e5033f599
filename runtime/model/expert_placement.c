/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/expert_placement.h"

#include <string.h>

#include "base/hash.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "runtime/model/layout.h"

/* A placement without a file is made share by share for one layer and copied to all others, since the strategies do
 * not look at rows. Files are hostile: every slot and count is checked before it is used as an index. */
enum { MOST_FILE_BYTES = 256 << 20 };

/* ---- memory ---- */

tri_expert_placement *tri_expert_placement_alloc(const tri_model_config *c, int num_slots) {
  tri_expert_placement *p = tri_calloc(1, sizeof *p);
  if (!p) return NULL;
  p->num_layers = (int)c->num_layers;
  p->num_experts = (int)c->moe.num_experts;
  p->num_slots = num_slots;
  p->row_of = tri_calloc((size_t)p->num_layers, sizeof *p->row_of);
  for (int l = 0; p->row_of && l < p->num_layers; l++)
    p->row_of[l] = c->layer_flags[l] & TRI_LAYER_SPARSE ? p->num_rows++ : -1;
  size_t rows = p->num_rows ? (size_t)p->num_rows : 1;
  p->expert_of = tri_calloc(rows, (size_t)num_slots * sizeof *p->expert_of);
  if (p->row_of && p->expert_of) return p;
  tri_expert_placement_free(p);
  return NULL;
}

void tri_expert_placement_free(tri_expert_placement *p) {
  if (!p) return;
  tri_free(p->row_of);
  tri_free(p->expert_of);
  tri_free(p);
}

uint64_t tri_expert_placement_hash(const tri_expert_placement *p) {
  if (!p) return 0;
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, &p->num_slots, sizeof p->num_slots);
  return tri_hash_bytes(h, p->expert_of, (size_t)p->num_rows * (size_t)p->num_slots * sizeof *p->expert_of);
}

/* ---- strategies ---- */

/* The slots of a layer while they are filled, share by share. */
struct filling {
  int ep, num_slots;
  int32_t *expert_of; /* [num_slots]; -1: free */
};

static bool share_has(const struct filling *f, int share, int expert) {
  tri_range own = tri_range_part(f->num_slots, f->ep, share);
  for (int s = own.first; s < own.first + own.count; s++)
    if (f->expert_of[s] == expert) return true;
  return false;
}

static int free_slots(const struct filling *f, int share, int *first) {
  tri_range own = tri_range_part(f->num_slots, f->ep, share);
  int n = 0;
  for (int s = own.first + own.count; s-- > own.first;)
    if (f->expert_of[s] < 0) {
      *first = s;
      n++;
    }
  return n;
}

/* One slot of each expert, in shares that leave room for equal numbers of copies. Each share keeps as many slots free
 * as its part of the copies is. These parts add up to all copies, so that an expert that is left always finds a
 * share. */
static void fill_first(struct filling *f, tri_expert_strategy strategy, int num_experts) {
  int copies = f->num_slots - num_experts, share = 0, slot = 0;
  for (int e = 0; e < num_experts; e++) {
    while (free_slots(f, share, &slot) <= tri_range_part(copies, f->ep, share).count) share = (share + 1) % f->ep;
    f->expert_of[slot] = e;
    if (strategy == TRI_EXPERTS_ROUND_ROBIN) share = (share + 1) % f->ep;
  }
}

/* Makes room for a copy of the expert that all shares with free slots have: another share, which has none, takes it
 * instead of an expert that goes into the free slot. */
static bool swap_in(struct filling *f, int expert, int free_share, int free_slot) {
  for (int share = 0; share < f->ep; share++) {
    tri_range own = tri_range_part(f->num_slots, f->ep, share);
    if (share == free_share || share_has(f, share, expert)) continue;
    for (int s = own.first; s < own.first + own.count; s++) {
      if (f->expert_of[s] < 0 || share_has(f, free_share, f->expert_of[s])) continue;
      f->expert_of[free_slot] = f->expert_of[s];
      f->expert_of[s] = expert;
      return true;
    }
  }
  return false;
}

/* A further slot for an expert: in the share with the most free ones that does not have it. An expert that is twice in
 * a share is the last resort: its second slot there takes no load off other ranks. */
static void fill_copy(struct filling *f, int expert) {
  int best = -1, most = 0, at = -1, any = -1, any_slot = -1;
  for (int share = 0; share < f->ep; share++) {
    int slot = 0, n = free_slots(f, share, &slot);
    if (!n) continue;
    any = share;
    any_slot = slot;
    if (n <= most || share_has(f, share, expert)) continue;
    most = n;
    best = share;
    at = slot;
  }
  if (best < 0 && swap_in(f, expert, any, any_slot)) return;
  f->expert_of[best < 0 ? any_slot : at] = expert;
}

static void fill(tri_expert_placement *p, const tri_expert_placement_config *config) {
  struct filling f = {.ep = config->ep, .num_slots = p->num_slots, .expert_of = p->expert_of};
  size_t row = (size_t)p->num_slots;
  for (int s = 0; s < p->num_slots; s++) f.expert_of[s] = -1;
  fill_first(&f, config->strategy, p->num_experts);
  for (int i = 0; i < p->num_slots - p->num_experts; i++) fill_copy(&f, i % p->num_experts);
  for (int r = 1; r < p->num_rows; r++)
    memcpy(p->expert_of + (size_t)r * row, p->expert_of, row * sizeof *p->expert_of);
}

/* Refuses what no model or layout with such sizes can have. */
static tri_status check_sizes(const tri_model_config *c, const tri_expert_placement_config *config, tri_error *err) {
  int64_t experts = c->moe.num_experts;
  int r = config->num_redundant;
  const char *field = config->file ? "init_expert_location" : "num_redundant_experts";
  if (config->moves) field = "enable_eplb";
  if (!experts) return tri_fail(err, TRI_UNSUPPORTED, field, "the model has no experts to be placed");
  if (config->moves && config->ep < 2)
    return tri_fail(err, TRI_UNSUPPORTED, field,
                    "--enable-eplb moves experts between shares, and there is one alone: give -ep or "
                    "--enable-expert-parallel");
  if (r && (int64_t)r > experts * (config->ep - 1))
    return tri_fail(err, TRI_OUT_OF_RANGE, "num_redundant_experts",
                    "%d copies of %lld experts in %d shares, which have each expert once at most: the range is 0 to "
                    "%lld",
                    r, (long long)experts, config->ep, (long long)(experts * (config->ep - 1)));
  return TRI_OK;
}

static tri_status read_file(const tri_model_config *c, const tri_expert_placement_config *config,
                            tri_expert_placement **out, tri_error *err) {
  int r = config->num_redundant;
  TRI_CHECK(tri_expert_placement_read(c, config->file, out, err));
  int has = (*out)->num_slots - (int)c->moe.num_experts;
  if (!r || r == has) return TRI_OK;
  tri_expert_placement_free(*out);
  *out = NULL;
  return tri_fail(err, TRI_OUT_OF_RANGE, "num_redundant_experts",
                  "%s has slots for %d copies, but %d redundant experts are asked for", config->file, has, r);
}

/* No share has an expert twice, unless a file says so. */
static void make_room(tri_expert_placement *p, const tri_expert_placement_config *config) {
  p->room = 1 + p->num_slots - p->num_experts;
  if (!config->file && p->room > config->ep) p->room = config->ep;
}

/* No placement (NULL) is the linear one without copies, in which an expert's number is its slot's. */
tri_status tri_expert_placement_make(const tri_model_config *c, const tri_expert_placement_config *config,
                                     tri_expert_placement **out, tri_error *err) {
  int64_t experts = c->moe.num_experts;
  int r = config->num_redundant;
  bool linear = config->strategy == TRI_EXPERTS_LINEAR && !r && !config->file;
  *out = NULL;
  if (!config->moves && (linear || (!experts && !r && !config->file))) return TRI_OK;
  TRI_CHECK(check_sizes(c, config, err));
  if (config->file) {
    TRI_CHECK(read_file(c, config, out, err));
  } else {
    if (config->ep > experts + r) return TRI_OK; /* no layout can be: it says why */
    if (!(*out = tri_expert_placement_alloc(c, (int)experts + r)))
      return tri_fail(err, TRI_NO_MEMORY, "num_redundant_experts", "no memory for the table of experts");
    fill(*out, config);
  }
  if (config->moves) make_room(*out, config);
  return TRI_OK;
}

/* ---- files ---- */

struct reading {
  const char *path;
  tri_expert_placement *p;
  int32_t *seen; /* [num_experts] slots of each in the layer at hand */
  tri_error *err;
};

static tri_status wrong(const struct reading *r, const char *field) {
  return tri_fail(r->err, TRI_CORRUPT, "init_expert_location", "%.200s: %s", r->path, field);
}

/* layer: of the model. Every expert needs a slot: rows that choose one without would have no rank to compute them. */
static tri_status read_row(const struct reading *r, const tri_json *row, int layer, int32_t *expert_of) {
  const tri_expert_placement *p = r->p;
  int slots = (int)tri_json_size(row);
  memset(r->seen, 0, (size_t)p->num_experts * sizeof *r->seen);
  if (tri_json_kind_of(row) != TRI_JSON_ARRAY || slots != p->num_slots)
    return tri_fail(r->err, TRI_CORRUPT, "init_expert_location", "%.200s: layer %d has %d slots, num_slots is %d",
                    r->path, layer, slots, p->num_slots);
  for (int s = 0; s < slots; s++) {
    int64_t e = -1;
    if (!tri_json_as_int(tri_json_at(row, (size_t)s), &e) || e < 0 || e >= p->num_experts)
      return tri_fail(r->err, TRI_CORRUPT, "init_expert_location",
                      "%.200s: layer %d, slot %d: %lld is no expert: they are 0 to %d", r->path, layer, s, (long long)e,
                      p->num_experts - 1);
    expert_of[s] = (int32_t)e;
    r->seen[e]++;
  }
  for (int e = 0; e < p->num_experts; e++)
    if (!r->seen[e])
      return tri_fail(r->err, TRI_CORRUPT, "init_expert_location", "%.200s: layer %d: no slot has expert %d", r->path,
                      layer, e);
  return TRI_OK;
}

static tri_status read_rows(const struct reading *r, const tri_json *rows) {
  const tri_expert_placement *p = r->p;
  size_t given = tri_json_size(rows);
  if (tri_json_kind_of(rows) != TRI_JSON_ARRAY || (given != 1 && given != (size_t)p->num_rows))
    return tri_fail(r->err, TRI_CORRUPT, "init_expert_location",
                    "%.200s: layers has %zu rows, the model has %d layers with experts: it must have as many, or one",
                    r->path, given, p->num_rows);
  for (int l = 0; l < p->num_layers; l++) {
    int row = p->row_of[l];
    if (row < 0) continue;
    TRI_CHECK(read_row(r, tri_json_at(rows, given == 1 ? 0 : (size_t)row), l,
                       p->expert_of + (size_t)row * (size_t)p->num_slots));
  }
  return TRI_OK;
}

static tri_status read_sizes(const tri_model_config *c, const char *path, const tri_json *root, int *slots,
                             tri_error *err) {
  enum { MOST_SLOTS = 1 << 20 };
  struct reading r = {.path = path, .err = err};
  int64_t experts, n;
  if (tri_json_kind_of(root) != TRI_JSON_OBJECT) return wrong(&r, "it is no JSON object");
  if (!tri_json_get_int(root, "num_experts", &experts)) return wrong(&r, "it has no number num_experts");
  if (!tri_json_get_int(root, "num_slots", &n)) return wrong(&r, "it has no number num_slots");
  if (experts != c->moe.num_experts)
    return tri_fail(err, TRI_CORRUPT, "init_expert_location", "%.200s: num_experts is %lld, the model has %lld", path,
                    (long long)experts, (long long)c->moe.num_experts);
  if (n < experts || n > MOST_SLOTS)
    return tri_fail(err, TRI_CORRUPT, "init_expert_location", "%.200s: num_slots is %lld: the range is %lld to %d",
                    path, (long long)n, (long long)experts, MOST_SLOTS);
  *slots = (int)n;
  return TRI_OK;
}

tri_status tri_expert_placement_read(const tri_model_config *c, const char *path, tri_expert_placement **out,
                                     tri_error *err) {
  tri_json_doc *doc = NULL;
  struct reading r = {.path = path, .err = err};
  int slots = 0;
  tri_status st = tri_json_read_file(path, MOST_FILE_BYTES, &doc, err);
  if (st != TRI_OK) return st;
  const tri_json *root = tri_json_root(doc);
  TRI_TRY(read_sizes(c, path, root, &slots, err));
  r.p = tri_expert_placement_alloc(c, slots);
  r.seen = tri_calloc((size_t)c->moe.num_experts, sizeof *r.seen);
  if (!r.p || !r.seen) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "init_expert_location", "no memory for %.200s", path));
  TRI_TRY(read_rows(&r, tri_json_get(root, "layers")));
  *out = r.p;
  r.p = NULL;
cleanup:
  tri_expert_placement_free(r.p);
  tri_free(r.seen);
  tri_json_free(doc);
  return st;
}

/* ---- tables of slots ---- */

static int copies_in(const tri_expert_placement *p, int row, int expert, int32_t *out) {
  const int32_t *of = p->expert_of + (size_t)row * (size_t)p->num_slots;
  int n = 0;
  for (int s = 0; s < p->num_slots; s++) {
    if (of[s] != expert) continue;
    if (out) out[n] = s;
    n++;
  }
  return n;
}

int tri_expert_most_copies(const tri_expert_placement *p) {
  int most = 1;
  if (p && p->room) return p->room;
  for (int row = 0; p && row < p->num_rows; row++)
    for (int e = 0; e < p->num_experts; e++) {
      int n = copies_in(p, row, e, NULL);
      if (n > most) most = n;
    }
  return most;
}

void tri_expert_slot_table(const tri_expert_placement *p, int layer, int most_copies, int32_t *out) {
  for (int e = 0; e < p->num_experts; e++) {
    int32_t *to = out + (size_t)e * (size_t)(1 + most_copies);
    memset(to, 0, (size_t)(1 + most_copies) * sizeof *to);
    to[0] = (int32_t)copies_in(p, p->row_of[layer], e, to + 1);
  }
}
