/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts with what they are predicted to take, as a table or as JSON. */
#include <stdio.h>
#include <string.h>

#include "tools/plan/plan.h"

enum { FEW = 10 };

/* ---- the table ---- */

static void print_link(const char *name, const tri_link *l) {
  printf("%s %.3g us", name, l->start_s * 1e6);
  if (l->rank_s > 0) printf(" + %.3g us a rank", l->rank_s * 1e6);
  printf(" + bytes at %.4g GB/s", l->bytes_per_s * 1e-9);
}

static void print_machine(const struct plan *p, const struct plan_machine *m) {
  plan_print_ceilings(m);
  printf("         ");
  print_link("sums", &m->machine.near_sum);
  print_link("; exchange", &m->machine.near_all2all);
  print_link("; transfers", &m->machine.near_transfer);
  printf("\n");
  if (p->o->nnodes == 1) return;
  print_link("         between hosts, not measured: sums and exchange", &m->machine.far_sum);
  print_link("; transfers", &m->machine.far_transfer);
  printf("\n");
}

static void print_head(const struct plan *p, const struct plan_machine *m, const tri_recommend_config *config) {
  const tri_model_config *c = p->c;
  char memory[TRI_MEMORY_TEXT];
  printf("%s\n", p->assumption);
  printf("%s: %lld layers, hidden %lld, %lld heads over %lld KV heads, vocabulary %lld", c->arch->model_type,
         (long long)c->num_layers, (long long)c->hidden_size, (long long)c->attention.num_heads,
         (long long)c->attention.num_kv_heads, (long long)c->vocab_size);
  if (c->moe.num_experts)
    printf(", %lld experts, %lld for each token", (long long)c->moe.num_experts, (long long)c->moe.top_k);
  printf("\nbackend %s: %d %s on %d %s, %s for each rank, %d tokens per sequence\n", p->backend, p->o->devices,
         p->ledger.device ? "devices" : "ranks", p->o->nnodes, p->o->nnodes == 1 ? "host" : "hosts",
         tri_memory_text((uint64_t)p->ledger.memory, memory), p->limits.max_model_len);
  plan_print_stored(p);
  print_machine(p, m);
  printf("predicted, with %.0f keys for each sequence that decodes:\n\n"
         "  %-52s %10s %10s %8s %8s %15s %9s\n  %-52s %10s %10s %8s %8s %15s %9s\n",
         config->context, "", "MiB a rank", "KV tokens", "ms/token", "", "", "ms/prompt", "layout", "without KV",
         "in all", "1 seq.", "32 seqs.", "tokens/s", "");
}

static void print_row(const tri_recommendation *r, bool best) {
  char flags[TRI_LAYOUT_FLAGS];
  printf("%c%c%-52s %10.0f %10lld %8.3f %8.3f %8.0f at %3d %9.2f\n", best ? '*' : ' ', r->crosses ? '!' : ' ',
         tri_layout_flags(&r->layout, flags), (double)r->memory / 0x1p20, (long long)r->kv_tokens, r->one.seconds * 1e3,
         r->some.seconds * 1e3, r->many.tokens_per_s, r->many.sequences, tri_cost_seconds(&r->prompt) * 1e3);
}

/* Marks that rows need to be explained. */
struct marks {
  bool crosses, shards;
};

/* Without --all ten rows at most, by the latency of one sequence; the layout with the most tokens per second is always
 * among them. */
static void print_rows(const struct plan *p, const tri_recommendations *r, struct marks *m) {
  int shown = p->o->all || r->fitting < FEW ? r->fitting : FEW;
  if (r->best_throughput >= shown) shown--; /* its row is the last one */
  for (int i = 0; i < r->fitting; i++) {
    if (i >= shown && i != r->best_throughput) continue;
    print_row(&r->list[i], i == r->best_throughput);
    m->crosses |= r->list[i].crosses;
    m->shards |= r->list[i].layout.dp > 1;
  }
}

/* Prints an argument as a shell takes it. */
static void print_argument(const char *arg) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  printf(" ");
  if (*arg && strspn(arg, plain) == strlen(arg)) {
    printf("%s", arg);
    return;
  }
  putchar('\'');
  for (; *arg; arg++) {
    if (*arg == '\'')
      printf("'\\''");
    else
      putchar(*arg);
  }
  putchar('\'');
}

/* Returns how many of the arguments from `arg` on belong to the search for layouts alone.
 *
 * The command that was typed is repeated for one layout, without what belongs to the search: the user's other options
 * stay as they were spelled. */
static int count_of_search(const char *arg) {
  static const char *const values[] = {"devices", "nnodes", "context-len", "context_len"};
  static const char *const switches[] = {"all", "json"};
  const char *name = arg + strspn(arg, "-");
  size_t len = strcspn(name, "=");
  if (name == arg) return 0;
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    if (strlen(values[i]) == len && !memcmp(values[i], name, len)) return name[len] ? 1 : 2;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++)
    if (strlen(switches[i]) == len && !memcmp(switches[i], name, len)) return 1;
  return 0;
}

/* Prints the command that plans one of the layouts, with whatever else was asked for. */
static void print_plan_of(const struct plan *p, const char *flags) {
  const struct plan_options *o = p->o;
  printf("trireme plan");
  for (int i = 1, of_search; i < o->argc; i += of_search ? of_search : 1) {
    of_search = count_of_search(o->argv[i]);
    if (!of_search) print_argument(o->argv[i]);
  }
  if (!o->device && p->kind && !p->device[0]) printf(" --device %s", p->kind->name);
  if (!p->ckpt && o->disk_bandwidth <= 0) printf(" --disk-bandwidth 7GB");
  printf(" %s", flags);
}

/* Says which layout comes nearest where none keeps all weights in memory. */
static void print_streamed(const struct plan *p, const tri_recommendations *r) {
  char flags[TRI_LAYOUT_FLAGS], bytes[TRI_MEMORY_TEXT];
  if (r->fitting || r->streamed < 0) return;
  const tri_recommendation *s = &r->list[r->streamed];
  printf("no layout keeps all weights in memory; %s fits streamed: each step reads %s of a rank's weights\n",
         tri_layout_flags(&s->layout, flags), tri_memory_text((uint64_t)s->streamed, bytes));
  printf("(--offload-weights none refuses that). For the time of a step%s, run\n  ",
         !p->ckpt && p->o->disk_bandwidth <= 0 ? " with disks of 7 GB/s" : "");
  print_plan_of(p, flags);
  printf("\n");
}

static void print_rest(const struct plan *p, const tri_recommendations *r) {
  char flags[TRI_LAYOUT_FLAGS], missing[TRI_MEMORY_TEXT];
  int refused = r->count - r->fitting;
  if (!p->o->all && r->fitting > FEW) printf("%d of %d layouts that fit; --all shows the others\n", FEW, r->fitting);
  if (!refused) return;
  const tri_recommendation *nearest = &r->list[r->fitting];
  printf("%d %s not fit; the nearest, %s, lacks %s a rank\n", refused, refused == 1 ? "layout does" : "layouts do",
         tri_layout_flags(&nearest->layout, flags), tri_memory_text((uint64_t)nearest->missing, missing));
}

static void print_table(const struct plan *p, const struct plan_machine *m, const tri_recommend_config *config,
                        const tri_recommendations *r) {
  struct marks marks = {0};
  print_head(p, m, config);
  print_rows(p, r, &marks);
  printf(r->fitting ? "\n* the most tokens per second; a prompt has %.0f tokens\n" : "  none\n\n", config->prompt);
  if (marks.crosses) printf("! a tensor-parallel group spans several hosts\n");
  if (marks.shards && config->ledger.device)
    printf("predictions for data-parallel ranks (-dp) are measured on two GPUs only\n");
  print_rest(p, r);
  print_streamed(p, r);
}

/* ---- JSON ---- */

static void print_json_cost(const tri_cost *c) {
  printf("\"terms\":{\"reads\":%.6g,\"products\":%.6g,\"sums\":%.6g,\"exchange\":%.6g,\"launches\":%.6g,"
         "\"transfers\":%.6g}",
         c->reads, c->gemms, c->sums, c->all2all, c->launches, c->transfers);
}

static void print_json_load(const tri_recommend_load *l) {
  printf("{\"sequences\":%d,\"seconds\":%.6g,\"tokens_per_s\":%.6g,", l->sequences, l->seconds, l->tokens_per_s);
  print_json_cost(&l->cost);
  printf("}");
}

static void print_json_link(const char *name, const tri_link *l, const char *behind) {
  printf("\"%s\":{\"start_s\":%.6g,\"rank_s\":%.6g,\"bytes_per_s\":%.6g}%s", name, l->start_s, l->rank_s,
         l->bytes_per_s, behind);
}

static void print_json_machine(const struct plan_machine *m) {
  const tri_machine *at = &m->machine;
  printf("\"machine\":{\"read_bandwidth\":%.6g,\"read_source\":\"%s\",\"flops\":%.6g,\"flops_source\":\"%s\","
         "\"read_bytes_per_s\":%.6g,\"flops_per_s\":%.6g,\"op_s\":%.6g,",
         m->best.read_bytes_per_s, m->read_source, m->best.flops_per_s, m->flops_source, at->read_bytes_per_s,
         at->flops_per_s, at->op_s);
  print_json_link("sum", &at->near_sum, ",");
  print_json_link("exchange", &at->near_all2all, ",");
  print_json_link("transfer", &at->near_transfer, ",");
  print_json_link("sum_between_hosts", &at->far_sum, ",");
  print_json_link("exchange_between_hosts", &at->far_all2all, ",");
  print_json_link("transfer_between_hosts", &at->far_transfer, "},");
}

static void print_json_layout(const tri_recommendation *r) {
  const tri_serve_layout *y = &r->layout;
  char flags[TRI_LAYOUT_FLAGS];
  printf(
      "{\"flags\":\"%s\",\"tp\":%d,\"pp\":%d,\"dp\":%d,\"ep\":%d,\"replicas\":%d,\"crosses_hosts\":%s,\"memory\":%lld,",
      tri_layout_flags(y, flags), y->tp, y->pp, y->dp, y->ep, y->replicas, r->crosses ? "true" : "false",
      (long long)r->memory);
  if (!r->fits) {
    printf("\"fits\":false,\"missing\":%lld", (long long)r->missing);
    if (r->fits_streamed) printf(",\"streamed\":%lld", (long long)r->streamed);
    printf("}");
    return;
  }
  printf("\"fits\":true,\"kv_tokens\":%lld,\"decode\":[", (long long)r->kv_tokens);
  print_json_load(&r->one);
  printf(",");
  print_json_load(&r->some);
  printf(",");
  print_json_load(&r->many);
  printf("],\"prompt\":{\"seconds\":%.6g,", tri_cost_seconds(&r->prompt));
  print_json_cost(&r->prompt);
  printf("}}");
}

static void print_json(const struct plan *p, const struct plan_machine *m, const tri_recommend_config *config,
                       const tri_recommendations *r) {
  printf("{\"assumption\":\"%s\",", p->assumption);
  printf("\"model\":\"%s\",\"backend\":\"%s\",\"devices\":%d,\"nnodes\":%d,\"memory_per_rank\":%lld,"
         "\"max_model_len\":%d,\"context_len\":%.0f,\"prompt_len\":%.0f,",
         p->c->arch->model_type, p->backend, p->o->devices, p->o->nnodes, (long long)p->ledger.memory,
         p->limits.max_model_len, config->context, config->prompt);
  print_json_machine(m);
  printf("\"fits\":%s,\"fits_streamed\":%s,\"layouts\":[", r->fitting ? "true" : "false",
         r->fitting || r->streamed >= 0 ? "true" : "false");
  for (int i = 0; i < r->count; i++) {
    if (i) printf(",");
    print_json_layout(&r->list[i]);
  }
  printf("]}\n");
}

void plan_print_layouts(const struct plan *p, const struct plan_machine *m, const tri_recommend_config *config,
                        const tri_recommendations *r) {
  if (p->o->json)
    print_json(p, m, config, r);
  else
    print_table(p, m, config, r);
}
