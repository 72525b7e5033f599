/* SPDX-License-Identifier: Apache-2.0 */
/* The plan as a table or as JSON. */
#include <stdio.h>
#include <string.h>

#include "tools/plan/plan.h"

static double mib(size_t n) { return (double)n / 0x1p20; }

/* ---- the table ---- */

/* "backend cuda (8 devices on this host): weights bfloat16, activations float32, KV cache bfloat16" */
static void print_backend(const struct plan *p) {
  const tri_ledger *l = &p->ranks[0].ledger;
  printf("backend %s", p->backend);
  if (p->devices) printf(" (%d %s on this host)", p->devices, p->devices == 1 ? "device" : "devices");
  if (p->cores) printf(" (%d %s on this host)", p->cores, p->cores == 1 ? "core" : "cores");
  printf(": weights %s", tri_dtype_name(l->weight_type));
  if (l->table_type != l->weight_type) printf(" (embedding %s)", tri_dtype_name(l->table_type));
  printf(", activations float32");
  if (l->gemm_type != TRI_F32) printf(" (inputs of products %s)", tri_dtype_name(l->gemm_type));
  printf(", %s %s\n", p->c->encoder ? "K and V" : "KV cache", tri_dtype_name(p->ledger.kv_dtype));
  if (!p->ckpt) printf("no weights are looked at: their number and type are what config.json says\n");
}

/* "world 8 = pp 1 x dp 2 x tp 4; 64 experts: ep 8 x 1 slice; columns of 2, sums of 4" */
static void print_layout(const struct plan *p) {
  const tri_serve_layout *y = &p->layout;
  int slices = y->dp * y->tp / y->ep;
  if (y->replicas > 1) printf("%d replicas, each of them:\n", y->replicas);
  if (!p->c->moe.num_experts) return;
  printf("world %d = pp %d x dp %d x tp %d; %lld experts", p->num_ranks, y->pp, y->dp, y->tp,
         (long long)p->c->moe.num_experts);
  if (p->placement) printf(" in %d slots", p->placement->num_slots);
  printf(": ep %d x %d %s; columns of %d, sums of %d\n", y->ep, slices, slices == 1 ? "slice" : "slices", y->dp, y->tp);
}

static void print_head(const struct plan *p) {
  const tri_model_config *c = p->c;
  char source[64] = "", memory[TRI_MEMORY_TEXT];
  const char *whose = c->seq2seq.on ? "decoder " : "";
  printf("%s\n", p->assumption);
  if (c->seq2seq.on) snprintf(source, sizeof source, "%lld encoder layers and ", (long long)c->seq2seq.num_layers);
  printf("%s: %s%lld %slayers, hidden %lld, %lld heads over %lld KV heads, vocabulary %lld\n", c->arch->model_type,
         source, (long long)c->num_layers, whose, (long long)c->hidden_size, (long long)c->attention.num_heads,
         (long long)c->attention.num_kv_heads, (long long)c->vocab_size);
  print_backend(p);
  plan_print_stored(p);
  print_layout(p);
  printf("%d %s with %s each, %d tokens per sequence, %d tokens per step\n\n"
         "rank  pp  tp   layers     q heads kv heads  weights MiB  activ. MiB  %12s    total MiB %12s\n",
         p->num_ranks, p->num_ranks == 1 ? "rank" : "ranks", tri_memory_text((uint64_t)p->ledger.memory, memory),
         p->limits.max_model_len, p->limits.max_num_batched_tokens, c->encoder ? "K and V MiB" : "KV cache MiB",
         c->encoder ? "of tokens" : "KV tokens");
}

/* The total is what the rank takes of its own memory: of a device's, without what lies in the host's. */
static void print_rank(const struct plan *p, const struct plan_rank *r, int rank) {
  const tri_shard *s = &r->shard;
  const tri_ledger *l = &r->ledger;
  printf("%4d %3d %3d %5d-%-5d %7d %8d %12.1f %12.1f %12.1f %12.1f %12lld\n", rank, s->p.pp_rank, s->p.tp_rank,
         s->layers.first, s->layers.first + s->layers.count - 1, s->q_heads.count, s->kv_heads.count, mib(l->weights),
         mib(l->activations), mib(l->kv),
         mib(l->weights + l->reads + l->hot + l->activations + l->workspace + l->reserve + l->all2all + l->kv +
             (p->ledger.device ? 0 : l->host_kv)),
         (long long)l->kv_tokens);
  if (l->reserve)
    printf("              of the total %.1f MiB for the ops' workspace, %.1f MiB in reserve for the GPU's libraries\n",
           mib(l->workspace), mib(l->reserve));
  if (l->all2all) printf("              of the total %.1f MiB for the all-to-all\n", mib(l->all2all));
  if (l->streams)
    printf("              of the weights %.1f MiB stay and %.1f MiB are a ring buffer for %.1f MiB streamed in every "
           "step\n",
           mib(l->weights - l->ring), mib(l->ring), mib(l->streamed));
  if (l->reads) printf("              of the total %.1f MiB for reads of them\n", mib(l->reads));
  if (l->host_kv)
    printf("              of %s %.1f MiB for %lld KV blocks of preempted sequences\n",
           p->ledger.device ? "host memory" : "the total", mib(l->host_kv), (long long)l->num_host_blocks);
  if (l->host_experts)
    printf("              of host memory %.1f MiB for experts, which the CPU computes\n", mib(l->host_experts));
  if (l->hot)
    printf("              of the total %.1f MiB for %d of the %d experts of each such layer, which the GPU computes\n",
           mib(l->hot), l->hot_experts, s->slots.count);
  if (p->c->moe.num_experts)
    printf("              data-parallel rank %d: %s %d-%d, units %d-%d of each\n", s->p.dp_rank,
           p->placement ? "slots" : "experts", s->slots.first, s->slots.first + s->slots.count - 1, s->expert_ff.first,
           s->expert_ff.first + s->expert_ff.count - 1);
  if (p->c->seq2seq.on)
    printf("              of the weights %.1f MiB for the encoder's layers 0-%lld, %.1f MiB for the decoder\n",
           mib(l->source_weights), (long long)p->c->seq2seq.num_layers - 1, mib(l->weights - l->source_weights));
}

static void print_verdict(const struct plan_streaming *s) {
  if (!s->on)
    printf("\nfits: ");
  else if (s->num_loads)
    printf("\nfits streamed, %.3g s a step at least: ", s->pass_s);
  else
    printf("\nfits streamed, with an unknown time of a step (give --disk-bandwidth): ");
}

static void print_fits(const struct plan *p) {
  int64_t len = p->limits.max_model_len, step = p->limits.max_num_batched_tokens;
  bool sources = p->c->seq2seq.on; /* each with as many tokens as a sequence, and KV of its own */
  if (tri_model_config_takes_whole(p->c))
    printf(
        "\nfits: texts of up to %lld tokens, %lld tokens of texts in a step. An encoder keeps no KV cache: its K and V "
        "are those of the steps under way\n",
        (long long)len, (long long)(p->tokens < step ? p->tokens : step));
  else {
    print_verdict(&p->streaming);
    printf("%lld tokens of KV in the replica (%s), %lld sequences of full length%s\n",
           (long long)p->tokens * p->layout.dp,
           p->layout.dp > 1 ? "all data-parallel ranks" : "set by the smallest rank",
           (long long)(p->tokens / len / (sources ? 2 : 1)) * p->layout.dp, sources ? " with their sources" : "");
  }
}

static void print_longest(const struct plan *p) {
  bool own = p->longest == p->c->max_position_embeddings;
  if (p->longest)
    printf("the longest max_model_len that fits with %s is %lld%s\n",
           p->longest > p->longest_resident ? "weights streamed" : "all weights in memory", (long long)p->longest,
           own ? ", all that the model was made for" : "");
  else
    printf("no max_model_len fits%s\n", p->streaming_refused && !tri_offload_is_asked(&p->offload, p->ledger.device)
                                            ? " with all weights in memory"
                                            : "");
  if (p->longest > p->longest_resident && p->longest_resident)
    printf("with all weights in memory it is %lld\n", (long long)p->longest_resident);
  if (p->streaming.on && !p->streaming_refused && tri_offload_is_allowed(&p->offload) &&
      !tri_offload_is_asked(&p->offload, p->ledger.device))
    printf("--offload-weights none refuses what does not fit without streaming\n");
}

/* ---- JSON ---- */

static void print_json_head(const struct plan *p) {
  const tri_serve_layout *y = &p->layout;
  printf("{\"assumption\":\"%s\",", p->assumption);
  printf("\"model\":\"%s\",\"encoder\":%s,\"tp\":%d,\"pp\":%d,\"dp\":%d,\"ep\":%d,\"backend\":\"%s\",",
         p->c->arch->model_type, p->c->encoder ? "true" : "false", y->tp, y->pp, y->dp, y->ep, p->backend);
  if (p->devices) printf("\"devices\":%d,", p->devices);
  if (p->cores) printf("\"cores\":%d,", p->cores);
  if (p->num_made)
    printf("\"weight_type\":\"%s\",\"product_type\":\"%s\",\"kv_cache_type\":\"%s\",",
           tri_dtype_name(p->ranks[0].ledger.weight_type), tri_dtype_name(p->ranks[0].ledger.gemm_type),
           tri_dtype_name(p->ledger.kv_dtype));
  char stored[TRI_STORED_TEXT];
  if (p->c->stored.method != TRI_STORED_PLAIN) printf("\"stored\":\"%s\",", tri_stored_text(&p->c->stored, stored));
  printf("\"has_weights\":%s,\"max_model_len\":%d,\"longest_max_model_len\":%lld,"
         "\"longest_resident_max_model_len\":%lld,\"memory_per_rank\":%lld,\"ranks\":[",
         p->ckpt ? "true" : "false", p->limits.max_model_len, (long long)p->longest, (long long)p->longest_resident,
         (long long)p->ledger.memory);
}

static void print_json_rank(const struct plan *p, const struct plan_rank *r, int rank) {
  const tri_shard *s = &r->shard;
  const tri_ledger *l = &r->ledger;
  printf("%s{\"rank\":%d,\"tp_rank\":%d,\"pp_rank\":%d,\"layers\":[%d,%d],\"q_heads\":%d,\"kv_heads\":%d,\"weights\":"
         "%zu,\"activations\":%zu,\"kv_cache\":%zu,"
         "\"kv_pages\":%lld,\"kv_tokens\":%lld",
         rank ? "," : "", rank, s->p.tp_rank, s->p.pp_rank, s->layers.first, s->layers.first + s->layers.count,
         s->q_heads.count, s->kv_heads.count, l->weights, l->activations, l->kv, (long long)l->num_blocks,
         (long long)l->kv_tokens);
  if (p->c->moe.num_experts)
    printf(",\"dp_rank\":%d,\"%s\":[%d,%d],\"expert_units\":[%d,%d]", s->p.dp_rank, p->placement ? "slots" : "experts",
           s->slots.first, s->slots.first + s->slots.count, s->expert_ff.first,
           s->expert_ff.first + s->expert_ff.count);
  if (l->all2all) printf(",\"exchange\":%zu", l->all2all);
  if (l->host_kv)
    printf(",\"host_kv_blocks\":%zu,\"num_host_kv_blocks\":%lld", l->host_kv, (long long)l->num_host_blocks);
  if (l->streams) printf(",\"ring\":%zu,\"streamed_weights\":%zu,\"read_buffers\":%zu", l->ring, l->streamed, l->reads);
  if (l->host_experts) printf(",\"host_experts\":%zu", l->host_experts);
  if (l->hot) printf(",\"hot_experts\":%d,\"hot_bytes\":%zu", l->hot_experts, l->hot);
  if (l->reserve) printf(",\"workspace\":%zu,\"reserve\":%zu", l->workspace, l->reserve);
  if (p->c->seq2seq.on)
    printf(",\"encoder_layers\":[0,%lld],\"encoder_weights\":%zu", (long long)p->c->seq2seq.num_layers,
           l->source_weights);
  printf("}");
}

/* The reason alone has text from outside, as paths, that JSON needs escaped. */
static void print_json_reason(const tri_error *err) {
  printf("],\"fits\":false,\"kv_tokens\":0,\"reason\":\"");
  for (const char *c = err->message; *c; c++) {
    if (*c == '"' || *c == '\\') putchar('\\');
    putchar((unsigned char)*c < ' ' ? ' ' : *c);
  }
  printf("\"}\n");
}

/* ---- both ---- */

/* The ranks of each replica by host. */
static void print_places(const struct plan *p) {
  int ranks = p->num_ranks, all = p->layout.replicas * ranks;
  if (!p->places) return;
  printf(p->o->json ? ",\"places\":[" : "\ngroup  ranks        places    of  host\n");
  for (int at = 0, n; at < all; at += n) {
    const tri_place *first = p->places + at;
    const tri_host *host = &p->hosts.list[first->host];
    int group = at / ranks, rank = at % ranks;
    for (n = 1; rank + n < ranks && first[n].host == first->host;) n++;
    if (p->o->json)
      printf("%s{\"group\":%d,\"ranks\":[%d,%d],\"host\":\"%s\",\"first\":%d,\"of\":%lld}", at ? "," : "", group, rank,
             rank + n - 1, host->name, first->index, host->used);
    else
      printf("%5d %4d-%-5d %4d-%-5d %4lld  %s\n", group, rank, rank + n - 1, first->index, first->index + n - 1,
             host->used, host->name);
  }
  if (p->o->json) printf("]");
}

void plan_print(const struct plan *p, const tri_error *err) {
  bool fits = err->status == TRI_OK;
  if (p->o->json)
    print_json_head(p);
  else
    print_head(p);
  for (int i = 0; i < p->num_made; i++) {
    if (p->o->json)
      print_json_rank(p, &p->ranks[i], i);
    else
      print_rank(p, &p->ranks[i], i);
  }
  if (p->o->json && !fits) {
    print_json_reason(err);
    return;
  }
  if (p->o->json)
    printf("],\"streamed\":%s,\"fits\":true,\"kv_tokens\":%lld", p->streaming.on ? "true" : "false",
           (long long)p->tokens * p->layout.dp);
  else if (fits)
    print_fits(p);
  else
    printf("\n");
  if (!p->o->json) print_longest(p);
  if (fits) plan_print_host_experts(p);
  if (fits) plan_print_streaming(p);
  if (fits) print_places(p);
  if (p->o->json) printf("}\n");
}
