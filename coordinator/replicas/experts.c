/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks tell the rows that the experts in their slots have had; the sums by expert are the answer to who asks.
 *
 * A question goes to every rank of all replicas that are ready, which answers between two steps; it is answered when
 * all have told, of the same placement. Where experts have moved between two ranks' words, rows of one expert would be
 * counted twice or not at all, and all are asked again. Questions that come meanwhile join the one that is open. What
 * ranks told last is kept for the metrics. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/replicas/replicas_impl.h"

/* Ranks answer between two steps. */
#define COUNT_NS (3 * 1000000000LL)

/* Far more slots in a layer than any model has: a rank's word alone must not decide what is allocated. */
#define MAX_SLOTS (1u << 20)

static bool has_told(const replica *g, const rank_info *rank) {
  (void)g;
  return rank->experts.told;
}

/* False where experts have moved between two ranks' words. */
static bool has_placement_of_first(const replica *g, const rank_info *rank) {
  return rank->experts.placement == g->ranks[0].experts.placement;
}

static uint32_t num_sparse(const tri_model_config *m) {
  uint32_t n = 0;
  for (int64_t l = 0; l < m->num_layers; l++) n += m->layer_flags[l] & TRI_LAYER_SPARSE ? 1 : 0;
  return n;
}

/* ---- sums ---- */

struct sums {
  uint32_t num_layers, num_experts, num_replicas, num_slots, ep; /* layers with experts; replicas of the router */
  uint64_t *rows;                                                /* [num_layers, num_experts] of all replicas */
  uint64_t *share_rows;                                          /* [num_layers, ep] */
  uint32_t *expert_of;                                           /* [num_layers, num_slots] in the first replica */
  tri_replica_hot hot;                                           /* of all ranks; slots: the fewest */
};

/* Adds a rank's rows. Of an expert in several slots (EPLB) each slot has rows of its own, and the sum is the expert's;
 * slices of one expert have the same rows, of which the caller passes the first slice's alone. */
static void add_rank(struct sums *s, const expert_report *e, uint32_t share, bool first_replica) {
  for (size_t i = 0; i < (size_t)e->num_layers * s->num_experts; i++)
    s->rows[(size_t)e->first_layer * s->num_experts + i] += e->earlier[i];
  for (uint32_t l = 0; l < e->num_layers; l++)
    for (uint32_t k = 0; k < e->num_own; k++) {
      size_t layer = e->first_layer + l, from = (size_t)l * e->num_own + k;
      s->rows[layer * s->num_experts + e->expert_of[from]] += e->rows[from];
      s->share_rows[layer * s->ep + share] += e->rows[from];
      if (first_replica) s->expert_of[layer * s->num_slots + e->first_slot + k] = e->expert_of[from];
    }
}

/* Reports of another layout than the first replica's are left out of the sums, whose arrays have the sizes of that one.
 */
static bool alike(const struct sums *s, const expert_report *e, const replica *g) {
  return e->rows && e->num_slots == s->num_slots && (g->ep ? g->ep : 1) == s->ep;
}

static void add_hot(struct sums *s, const tri_replica_hot *h) {
  if (!h->slots) return;
  if (!s->hot.slots || h->slots < s->hot.slots) s->hot.slots = h->slots;
  s->hot.rows += h->rows;
  s->hot.device_rows += h->device_rows;
  s->hot.exchanges += h->exchanges;
}

/* Ranks of a stage are numbered by share, then by slice: the first of each `slices` ranks has the share's rows. */
static void add_replica(struct sums *s, const replica *g, bool first_replica) {
  uint32_t stage = g->tp * g->dp, slices = stage / s->ep;
  for (uint32_t r = 0; slices && r < g->world; r++) {
    uint32_t rank = r % stage;
    add_hot(s, &g->ranks[r].experts.hot);
    if (alike(s, &g->ranks[r].experts, g) && rank % slices == 0 && rank / slices < s->ep)
      add_rank(s, &g->ranks[r].experts, rank / slices, first_replica);
  }
}

static void free_sums(struct sums *s) {
  tri_free(s->rows);
  tri_free(s->share_rows);
  tri_free(s->expert_of);
}

/* Sizes are those of the first replica that is ready. */
static bool make_sums(const tri_core *c, struct sums *s) {
  const replica *first = NULL;
  *s = (struct sums){.num_layers = num_sparse(c->cfg.model),
                     .num_experts = (uint32_t)c->cfg.model->moe.num_experts,
                     .num_replicas = (uint32_t)c->cfg.model->moe.num_groups};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    if (g->state != REPLICA_READY) continue;
    if (!first) {
      first = g;
      s->num_slots = g->ranks[0].experts.num_slots;
      s->ep = g->ep ? g->ep : 1;
      s->rows = tri_calloc(s->num_layers, s->num_experts * sizeof *s->rows);
      s->share_rows = tri_calloc(s->num_layers, s->ep * sizeof *s->share_rows);
      s->expert_of = tri_calloc(s->num_layers, s->num_slots * sizeof *s->expert_of);
      if (!s->rows || !s->share_rows || !s->expert_of) return false;
    }
    add_replica(s, g, g == first);
  }
  return first != NULL;
}

/* ---- the answer ---- */

/* A layer is as slow as its share with the most rows: the mean over that, each summed over the layers. */
static double balancedness(const struct sums *s) {
  double mean = 0, most = 0;
  for (uint32_t l = 0; l < s->num_layers; l++) {
    uint64_t top = 0;
    for (uint32_t e = 0; e < s->ep; e++) {
      uint64_t n = s->share_rows[(size_t)l * s->ep + e];
      mean += (double)n / s->ep;
      if (n > top) top = n;
    }
    most += (double)top;
  }
  return most > 0 ? mean / most : 1;
}

static void print_shares(FILE *f, const struct sums *s) {
  for (uint32_t e = 0; e < s->ep; e++) {
    uint64_t n = 0;
    for (uint32_t l = 0; l < s->num_layers; l++) n += s->share_rows[(size_t)l * s->ep + e];
    fprintf(f, "%s%llu", e ? "," : "", (unsigned long long)n);
  }
}

static double device_share(const tri_replica_hot *h) { return h->rows ? (double)h->device_rows / (double)h->rows : 0; }

/* Experts that devices have in addition to their hosts. */
static void print_hot(FILE *f, const tri_replica_hot *h) {
  if (!h->slots) return;
  fprintf(f,
          "\"hot_experts\":{\"slots\":%llu,\"rows\":%llu,\"device_rows\":%llu,\"device_share\":%.4f,"
          "\"exchanges\":%llu},\n",
          (unsigned long long)h->slots, (unsigned long long)h->rows, (unsigned long long)h->device_rows,
          device_share(h), (unsigned long long)h->exchanges);
}

static const char *row_begin(uint32_t layer) { return layer ? ",\n[" : "\n["; }

static void print(FILE *f, const struct sums *s) {
  fprintf(f,
          "{\"num_experts\":%u,\"num_groups\":%u,\"num_slots\":%u,\"expert_parallel_size\":%u,\"balancedness\":%.4f,"
          "\"share_rows\":[",
          s->num_experts, s->num_replicas, s->num_slots, s->ep, balancedness(s));
  print_shares(f, s);
  fprintf(f, "],\n");
  print_hot(f, &s->hot);
  fprintf(f, "\"layers\":[");
  for (uint32_t l = 0; l < s->num_layers; l++) {
    const uint32_t *of = s->expert_of + (size_t)l * s->num_slots;
    for (uint32_t k = 0; k < s->num_slots; k++) fprintf(f, "%s%u", k ? "," : row_begin(l), of[k]);
    fprintf(f, "]");
  }
  fprintf(f, "],\n\"rows\":[");
  for (uint32_t l = 0; l < s->num_layers; l++) {
    const uint64_t *rows = s->rows + (size_t)l * s->num_experts;
    for (uint32_t e = 0; e < s->num_experts; e++)
      fprintf(f, "%s%llu", e ? "," : row_begin(l), (unsigned long long)rows[e]);
    fprintf(f, "]");
  }
  fprintf(f, "]}");
}

static void refuse(const tri_core *c, const rank_ask *a, tri_status st, const char *why) {
  tri_error err = {0};
  tri_fail(&err, st, "op", "%s", why);
  answer_error(c, &a->peer, a->id, &err);
}

static void answer(tri_core *c, const rank_ask *a) {
  struct sums s;
  char *text = NULL;
  size_t n = 0;
  if (!ranks_all(c, has_told) || !ranks_all(c, has_placement_of_first)) {
    refuse(c, a, TRI_TIMEOUT, "not all ranks have told the rows of their experts");
    return;
  }
  if (!make_sums(c, &s)) {
    free_sums(&s);
    refuse(c, a, TRI_NOT_FOUND, "no replica is ready");
    return;
  }
  FILE *f = open_memstream(&text, &n);
  if (f) print(f, &s);
  bool ok = f && !fclose(f);
  tri_server_msg m = {.op = TRI_REPLY_EXPERTS, .id = a->id, .experts = {text, n}};
  if (!ok || n > TRI_WIRE_MAX_RESULT)
    refuse(c, a, TRI_TOO_LARGE, "the experts' rows do not fit into a message");
  else
    c->cfg.io.answer(c->cfg.io.ctx, &a->peer, &m);
  free(text); /* open_memstream's */
  free_sums(&s);
}

/* ---- metrics ---- */

static bool is_known(const replica *g, const rank_info *rank) {
  (void)g;
  return rank->experts.rows;
}

static void print_rank(FILE *f, uint32_t replica, uint32_t rank, const expert_report *e, int64_t experts) {
  uint64_t n = 0;
  for (size_t i = 0; i < (size_t)e->num_layers * (size_t)experts; i++) n += e->earlier[i];
  for (size_t i = 0; i < (size_t)e->num_layers * e->num_own; i++) n += e->rows[i];
  fprintf(f, "trireme:expert_rank_tokens_total{group=\"%u\",rank=\"%u\"} %llu\n", replica, rank, (unsigned long long)n);
}

static void add_counter(const tri_core *c, FILE *f, const char *name, const char *help, size_t offset, double unit) {
  fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s counter\n", name, help, name);
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    uint64_t n;
    memcpy(&n, (const char *)replica_at(c, i) + offset, sizeof n);
    fprintf(f, "trireme:%s{group=\"%u\"} %.9g\n", name, i, (double)n * unit);
  }
}

/* Movement of experts, since the replicas' start. */
static void moving_metrics(const tri_core *c, FILE *f) {
  add_counter(c, f, "expert_rearrangements_total", "Windows of steps after which experts moved to other ranks.",
              offsetof(replica, rearrangements), 1);
  add_counter(c, f, "expert_moves_total", "Slots that got another expert.", offsetof(replica, experts_moved), 1);
  add_counter(c, f, "expert_move_seconds_total", "Time that steps waited for experts that moved.",
              offsetof(replica, moving_ns), 1e-9);
}

struct hot_metric {
  const char *name, *type, *help;
  size_t offset;
};

/* Nothing is said of ranks whose experts are all the device's, or the host's. */
static void hot_metrics(const tri_core *c, FILE *f) {
  static const struct hot_metric metrics[] = {
      {"hot_expert_slots", "gauge", "Experts of a layer on a rank's GPU in addition to its host.",
       offsetof(tri_replica_hot, slots)},
      {"hot_layers_expert_rows_total", "counter", "Rows of such layers' experts.", offsetof(tri_replica_hot, rows)},
      {"device_expert_rows_total", "counter", "Of these, rows that the GPU has computed.",
       offsetof(tri_replica_hot, device_rows)},
      {"hot_expert_exchanges_total", "counter", "Experts copied to a rank's GPU.",
       offsetof(tri_replica_hot, exchanges)}};
  for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
    const struct hot_metric *m = &metrics[i];
    fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s %s\n", m->name, m->help, m->name, m->type);
    for (uint32_t g = 0; g < c->cfg.num_replicas; g++)
      for (uint32_t r = 0; r < replica_at(c, g)->world && replica_at(c, g)->state == REPLICA_READY; r++) {
        const tri_replica_hot *h = &replica_at(c, g)->ranks[r].experts.hot;
        uint64_t n;
        memcpy(&n, (const char *)h + m->offset, sizeof n);
        if (h->slots) fprintf(f, "trireme:%s{group=\"%u\",rank=\"%u\"} %llu\n", m->name, g, r, (unsigned long long)n);
      }
  }
}

void experts_metrics(const tri_core *c, FILE *f) {
  struct sums s = {0};
  if (c->cfg.model->moe.num_experts && ranks_all(c, is_known) && make_sums(c, &s)) {
    fprintf(f,
            "# HELP trireme:expert_balancedness Mean over the most rows of a share of experts, over all layers.\n"
            "# TYPE trireme:expert_balancedness gauge\ntrireme:expert_balancedness %.6g\n"
            "# HELP trireme:expert_rank_tokens_total Rows that the experts of a rank have had.\n"
            "# TYPE trireme:expert_rank_tokens_total counter\n",
            balancedness(&s));
    for (uint32_t i = 0; i < c->cfg.num_replicas; i++)
      for (uint32_t r = 0; r < replica_at(c, i)->world && replica_at(c, i)->state == REPLICA_READY; r++)
        print_rank(f, i, r, &replica_at(c, i)->ranks[r].experts, c->cfg.model->moe.num_experts);
    if (s.hot.slots) hot_metrics(c, f);
  }
  if (c->cfg.model->moe.num_experts) moving_metrics(c, f);
  free_sums(&s);
}

/* ---- asking ---- */

static void begin(tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    replica *g = replica_at(c, i);
    for (uint32_t r = 0; r < g->world && g->state == REPLICA_READY; r++)
      g->ranks[r].experts.told = g->ranks[r].experts.asked = false;
  }
}

/* Asks the ranks that have not been: those of a replica that has become ready meanwhile, too. */
static void ask_ranks(tri_core *c) {
  tri_replica_msg m = {.op = TRI_REPLICA_COUNT_EXPERTS};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    replica *g = replica_at(c, i);
    for (uint32_t r = 0; r < g->world && g->state == REPLICA_READY; r++) {
      expert_report *e = &g->ranks[r].experts;
      if (!e->told && !e->asked) e->asked = c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m) == TRI_OK;
    }
  }
}

void experts_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id) {
  rank_ask ask = {.peer = *from, .id = id, .until_ns = now + COUNT_NS};
  if (!c->cfg.model->moe.num_experts) {
    refuse(c, &ask, TRI_UNSUPPORTED, "the model has no experts");
    return;
  }
  rank_asks *asks = &c->replicas->expert_asks;
  if (asks->num == MAX_ASKS) {
    refuse(c, &ask, TRI_NO_CAPACITY, "too many clients wait for the experts' rows already");
    return;
  }
  if (!asks->num) begin(c);
  asks->list[asks->num++] = ask;
  experts_tick(c, now);
}

/* Layers are counted among those with experts. */
static bool is_sound(const tri_core *c, const tri_replica_experts *e) {
  const tri_model_config *m = c->cfg.model;
  uint32_t layers = num_sparse(m);
  size_t n = (size_t)e->num_layers * e->num_own;
  bool ok = e->num_layers <= layers && e->first_layer <= layers - e->num_layers && e->num_slots <= MAX_SLOTS &&
            e->num_own <= e->num_slots && e->first_slot <= e->num_slots - e->num_own && e->num_expert_of == n &&
            e->num_rows == 2 * n && e->hot.device_rows <= e->hot.rows &&
            (!e->num_earlier || e->num_earlier == 2 * (size_t)e->num_layers * (size_t)m->moe.num_experts);
  for (size_t i = 0; ok && i < n; i++) ok = e->expert_of[i] < m->moe.num_experts;
  return ok;
}

static uint64_t count_at(const uint32_t *halves, size_t i) { return (uint64_t)halves[2 * i + 1] << 32 | halves[2 * i]; }

static void take(tri_core *c, int64_t now, rank_info *rank, const tri_replica_experts *e) {
  expert_report *to = &rank->experts;
  size_t n = (size_t)e->num_layers * e->num_own, experts = (size_t)c->cfg.model->moe.num_experts;
  if (!is_sound(c, e)) return;
  rank_forget_experts(to);
  *to = (expert_report){.placement = e->placement,
                        .first_layer = e->first_layer,
                        .num_layers = e->num_layers,
                        .first_slot = e->first_slot,
                        .num_own = e->num_own,
                        .num_slots = e->num_slots,
                        .hot = e->hot,
                        .rows = tri_calloc(n + 1, sizeof *to->rows),
                        .expert_of = tri_calloc(n + 1, sizeof *to->expert_of),
                        .earlier = tri_calloc(e->num_layers * experts + 1, sizeof *to->earlier)};
  if (!to->rows || !to->expert_of || !to->earlier) {
    rank_forget_experts(to);
    return;
  }
  to->asked = to->told = true;
  for (size_t i = 0; i < n; i++) {
    to->rows[i] = count_at(e->rows, i);
    to->expert_of[i] = e->expert_of[i];
  }
  for (size_t i = 0; i < e->num_earlier / 2; i++) to->earlier[i] = count_at(e->earlier, i);
  experts_tick(c, now);
}

void experts_take(tri_core *c, int64_t now, const tri_replica_msg *m) {
  replica *g = replica_find(c, m->experts.replica, m->experts.epoch);
  if (g && m->experts.rank < g->world) take(c, now, &g->ranks[m->experts.rank], &m->experts);
}

void experts_tick(tri_core *c, int64_t now) {
  if (!c->replicas->expert_asks.num) return;
  bool told = ranks_all(c, has_told), complete = told && ranks_all(c, has_placement_of_first);
  if (told && !complete) begin(c);
  if (!complete) ask_ranks(c);
  rank_asks_answer(c, now, &c->replicas->expert_asks, complete, answer);
}
