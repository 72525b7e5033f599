/* `trireme plan`: the byte ledger of every rank of a layout, before anything is loaded. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/hosts.h"
#include "runtime/base/log.h"
#include "runtime/forward/kv_cache.h"
#include "runtime/engine/ledger.h"
#include "runtime/model/sentence.h"
#include "runtime/step/limits.h"
#include "runtime/base/serve_options.h"
#include "runtime/base/version.h"

struct plan_options {
  tri_serve_options serve;
  uint64_t memory;
  const char *hosts;
  bool json;
};

static const tri_option own_options[] = {
    {TRI_OPT(struct plan_options, memory), .name = "memory-per-rank", .fallback = "0", .metavar = "BYTES",
     .group = "Plan",
     .help = "what each rank may use; 0: what is free, of this host shared by the ranks, or on its device"},
    {TRI_OPT(struct plan_options, hosts), .name = "hosts", .metavar = "H:N,...", .group = "Plan",
     .help = "hosts and ranks on each, as for trireme up: where each rank would be"},
    {TRI_OPT(struct plan_options, json), .name = "json", .fallback = "false", .group = "Plan",
     .help = "one JSON object instead of a table"},
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static tri_options_spec spec = {
    .program = "trireme plan",
    .usage = "--model DIR [-tp N] [-pp N] [OPTION]...",
    .summary = "What each rank would need: weights, activations, KV cache, and the tokens of KV that fit. Exit code 3 "
               "when it does not fit.",
    .epilog = "The other options of trireme-worker are understood and change nothing, so that a file can serve both.\n",
    .version = "trireme plan " TRIREME_VERSION,
    .config_file = true,
};

static double mib(size_t n) { return (double)n / 0x1p20; }

/* The numbers that the ranks have in common. */
struct plan {
  const struct plan_options *o;
  const tri_model_config *c;
  const tri_checkpoint *ckpt;
  tri_limits limits;
  tri_ledger_config ledger;
  int64_t tokens; /* of KV on the smallest rank */
  tri_hosts hosts;
  tri_place *places; /* of every group's ranks; NULL: no hosts were given */
};

static void print_head(const struct plan *p) {
  const tri_serve_options *v = &p->o->serve;
  const tri_model_config *c = p->c;
  char source[64] = "", memory[TRI_MEMORY_TEXT];
  const char *whose = c->seq2seq.on ? "decoder " : "";
  if (p->o->json) {
    printf("{\"model\":\"%s\",\"encoder\":%s,\"tp\":%d,\"pp\":%d,\"memory_per_rank\":%lld,\"ranks\":[",
           c->arch->model_type, c->encoder ? "true" : "false", v->tp, v->pp, (long long)p->ledger.memory);
    return;
  }
  if (c->seq2seq.on) snprintf(source, sizeof source, "%lld encoder layers and ", (long long)c->seq2seq.num_layers);
  printf("%s: %s%lld %slayers, hidden %lld, %lld heads over %lld KV heads, vocabulary %lld\n%d %s with %s each, "
         "%d tokens per sequence, %d tokens per step\n\n"
         "rank  pp  tp   layers     q heads kv heads  weights MiB  activ. MiB  %12s    total MiB %12s\n",
         c->arch->model_type, source, (long long)c->num_layers, whose, (long long)c->hidden_size,
         (long long)c->attention.num_heads, (long long)c->attention.num_kv_heads, (long long)c->vocab_size,
         v->tp * v->pp, v->tp * v->pp == 1 ? "rank" : "ranks", tri_memory_text((uint64_t)p->ledger.memory, memory),
         p->limits.max_model_len, v->max_num_batched_tokens, c->encoder ? "K and V MiB" : "KV cache MiB",
         c->encoder ? "of tokens" : "KV tokens");
}

static void print_json_rank(const struct plan *p, const tri_shard *s, const tri_ledger *l, int rank) {
  printf("%s{\"rank\":%d,\"tp_rank\":%d,\"pp_rank\":%d,\"layers\":[%d,%d],\"q_heads\":%d,\"kv_heads\":%d,\"weights\":"
         "%zu,\"activations\":%zu,\"kv_cache\":%zu,"
         "\"kv_pages\":%lld,\"kv_tokens\":%lld",
         rank ? "," : "", rank, s->p.tp_rank, s->p.pp_rank, s->layers.first, s->layers.first + s->layers.count,
         s->q_heads.count, s->kv_heads.count, l->weights, l->activations, l->kv, (long long)l->num_blocks,
         (long long)l->kv_tokens);
  if (l->reserve) printf(",\"workspace\":%zu,\"reserve\":%zu", l->workspace, l->reserve);
  if (p->c->seq2seq.on)
    printf(",\"encoder_layers\":[0,%lld],\"encoder_weights\":%zu", (long long)p->c->seq2seq.num_layers,
           l->source_weights);
  printf("}");
}

static void print_rank(const struct plan *p, const tri_shard *s, const tri_ledger *l, int rank) {
  if (p->o->json) {
    print_json_rank(p, s, l, rank);
    return;
  }
  printf("%4d %3d %3d %5d-%-5d %7d %8d %12.1f %12.1f %12.1f %12.1f %12lld\n", rank, s->p.pp_rank, s->p.tp_rank,
         s->layers.first, s->layers.first + s->layers.count - 1, s->q_heads.count, s->kv_heads.count, mib(l->weights),
         mib(l->activations), mib(l->kv), mib(l->weights + l->activations + l->workspace + l->reserve + l->kv),
         (long long)l->kv_tokens);
  if (l->reserve)
    printf(
        "              of the total %.1f MiB for the ops' workspace, %.1f MiB in reserve for the device's libraries\n",
        mib(l->workspace), mib(l->reserve));
  if (p->c->seq2seq.on)
    printf("              of the weights %.1f MiB for the encoder's layers 0-%lld, %.1f MiB for the decoder\n",
           mib(l->source_weights), (long long)p->c->seq2seq.num_layers - 1, mib(l->weights - l->source_weights));
}

/* The ranks of each group by host. */
static void print_places(const struct plan *p) {
  const tri_serve_options *v = &p->o->serve;
  int ranks = v->tp * v->pp;
  if (!p->places) return;
  printf(p->o->json ? ",\"places\":[" : "\ngroup  ranks        places    of  host\n");
  for (int at = 0, n; at < v->dp * ranks; at += n) {
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

static tri_status place(struct plan *p, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  int ranks = v->tp * v->pp;
  if (!p->o->hosts) return TRI_OK;
  TRI_CHECK(tri_hosts_parse(p->o->hosts, &p->hosts, err));
  p->places = tri_calloc((size_t)v->dp * (size_t)ranks, sizeof *p->places);
  if (!p->places) return TRI_NO_MEMORY;
  if (tri_hosts_place(&p->hosts, v->dp, ranks, false, p->places) == TRI_OK) return TRI_OK;
  return tri_fail(err, TRI_USAGE, "hosts",
                  "--hosts \"%.100s\" has too few places: tensor-parallel %d x pipeline-parallel %d x data-parallel %d "
                  "needs %d",
                  p->o->hosts, v->tp, v->pp, v->dp, v->dp * ranks);
}

static void print_fits(const struct plan *p) {
  int64_t len = p->limits.max_model_len, step = p->limits.max_num_batched_tokens;
  bool sources = p->c->seq2seq.on; /* each with as many tokens as a sequence, and KV of its own */
  if (p->c->encoder)
    printf(
        "\nfits: texts of up to %lld tokens, %lld tokens of texts in a step. An encoder keeps no KV cache: its K and V "
        "are those of the steps under way\n",
        (long long)len, (long long)(p->tokens < step ? p->tokens : step));
  else
    printf("\nfits: %lld tokens of KV in the group (the smallest rank's), %lld sequences of full length%s\n",
           (long long)p->tokens, (long long)(p->tokens / len / (sources ? 2 : 1)),
           sources ? " with their sources" : "");
}

static void print_json_reason(const tri_error *err) {
  printf("],\"fits\":false,\"kv_tokens\":0,\"reason\":\"");
  for (const char *c = err->message; *c; c++) {
    if (*c == '"' || *c == '\\') putchar('\\');
    putchar((unsigned char)*c < ' ' ? ' ' : *c);
  }
  printf("\"}\n");
}

/* The worst of the ranks': TRI_NO_CAPACITY does not keep the others from being shown. */
static tri_status plan_ranks(struct plan *p, tri_error *err) {
  const tri_serve_options *v = &p->o->serve;
  tri_shard first;
  /* A layout that this model cannot have has no table. */
  tri_status worst = tri_shard_make(p->c, (tri_parallel){.tp = v->tp, .pp = v->pp}, &first, err);
  if (worst != TRI_OK && !p->o->json) return worst;
  worst = TRI_OK;
  p->tokens = INT64_MAX;
  print_head(p);
  for (int rank = 0; rank < v->tp * v->pp; rank++) {
    tri_shard shard;
    tri_ledger l = {0};
    tri_status st = tri_shard_make(
        p->c, (tri_parallel){.tp = v->tp, .pp = v->pp, .tp_rank = rank % v->tp, .pp_rank = rank / v->tp}, &shard, err);
    if (st == TRI_OK) st = tri_ledger_make(p->c, &shard, p->ckpt, &p->limits, v->pp, &p->ledger, &l, err);
    if (st != TRI_OK) worst = st;
    if (st != TRI_OK && st != TRI_NO_CAPACITY) break;
    if (l.kv_tokens < p->tokens) p->tokens = l.kv_tokens;
    print_rank(p, &shard, &l, rank);
  }
  if (worst == TRI_OK && !p->o->json) print_fits(p);
  if (p->o->json && worst == TRI_OK) printf("],\"fits\":true,\"kv_tokens\":%lld", (long long)p->tokens);
  if (worst == TRI_OK) print_places(p);
  if (p->o->json && worst == TRI_OK)
    printf("}\n");
  else if (p->o->json)
    print_json_reason(err);
  return worst;
}

/* Finds whether ranks have devices, and what each may use: of a device its own memory, if this host has one. As with
 * `up`, `auto` takes a device where there is one; whether there is one for each rank is not looked at. */
static tri_status find_memory(const struct plan_options *o, int64_t *out, bool *device, tri_error *err) {
  const tri_serve_options *v = &o->serve;
  tri_backend *be = NULL;
  tri_error why = {0};
  bool insists = !strcmp(v->backend, "cuda"), may = insists || !strcmp(v->backend, "auto");
  *out = o->memory ? (int64_t)o->memory : tri_host_memory_available() / (v->tp * v->pp * v->dp);
  *device = insists;
  if (!may || (insists && o->memory)) return TRI_OK;
  tri_status st =
      tri_backend_create(&(tri_backend_config){.name = v->backend, .deterministic = v->deterministic}, &be, &why);
  if (st != TRI_OK)
    return tri_fail(err, TRI_UNSUPPORTED, "memory-per-rank",
                    "--memory-per-rank must say what the device has, which cannot be asked here: %s", why.message);
  *device = !be->host_memory;
  if (*device && !o->memory) *out = be->ops.mem_available(be);
  tri_backend_destroy(be);
  return TRI_OK;
}

static tri_status plan(const struct plan_options *o, const tri_model_config *c, const tri_checkpoint *ckpt,
                       tri_error *err) {
  const tri_serve_options *v = &o->serve;
  struct plan p = {.o = o, .c = c, .ckpt = ckpt};
  tri_limits_config config = {.max_num_seqs = v->max_num_seqs,
                              .max_num_batched_tokens = v->max_num_batched_tokens,
                              .block_size = v->block_size,
                              .max_model_len = v->max_model_len};
  int64_t memory = 0;
  tri_status st = tri_limits_make(c, &config, &p.limits, err);
  bool device = false;
  if (st == TRI_OK && tri_limits_stretch(c, &p.limits)) /* `up` serves it, and warns, too */
    fprintf(stderr, "trireme plan: warning: max_model_len %d exceeds the %lld positions that the model was made for\n",
            p.limits.max_model_len, (long long)c->max_position_embeddings);
  if (st == TRI_OK) st = find_memory(o, &memory, &device, err);
  if (st != TRI_OK) return st;
  p.ledger = (tri_ledger_config){.dtype = v->dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT : (tri_dtype)v->dtype,
                                 .kv_dtype = v->kv_cache_dtype == TRI_SERVE_AUTO ? TRI_DTYPE_COUNT
                                                                                 : (tri_dtype)v->kv_cache_dtype,
                                 .quantization = (tri_quantization)v->quantization,
                                 .memory = memory,
                                 .kv_bytes = (int64_t)v->kv_cache_memory,
                                 .num_kv_blocks = v->num_kv_blocks,
                                 .device = device};
  p.ledger.kv_dtype = tri_kv_dtype(c, p.ledger.kv_dtype, p.ledger.dtype, device);
  st = place(&p, err);
  if (st == TRI_OK) st = plan_ranks(&p, err);
  tri_hosts_free(&p.hosts);
  tri_free(p.places);
  return st;
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct plan_options o;
  tri_options *opts = NULL;
  tri_error err = {0};
  tri_model_config *config = tri_calloc(1, sizeof *config);
  tri_checkpoint *ckpt = NULL;
  size_t n = tri_serve_options_copy(table, TRI_FOR_PLAN, own_options, NUM_OWN);
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &o, argc, argv, &opts);
  if (code < 0) {
    tri_status st = config ? TRI_OK : TRI_NO_MEMORY;
    if (st == TRI_OK && !o.serve.model) st = tri_fail(&err, TRI_USAGE, "model", "--model is missing");
    if (st == TRI_OK) st = tri_model_config_load(o.serve.model, config, &err);
    if (st == TRI_OK && o.serve.load_format != 2) st = tri_checkpoint_open(o.serve.model, &ckpt, &err);
    if (st == TRI_OK) st = tri_model_config_pool(o.serve.model, (tri_pooling)o.serve.pooling, config, &err);
    if (st == TRI_OK) st = plan(&o, config, ckpt, &err);
    code = tri_exit_code(st);
    /* A cache of a size that was given is too small whatever the memory. */
    bool own_limit = strcmp(err.field, "memory") != 0 && (o.serve.kv_cache_memory || o.serve.num_kv_blocks);
    if (st != TRI_OK)
      fprintf(stderr, "trireme plan: %s%s (%s)%s\n", code == TRI_EXIT_REFUSED ? "refused: " : "", err.message,
              err.field, st == TRI_NO_CAPACITY && !own_limit ? "; --memory-per-rank says what each rank may use" : "");
  }
  tri_checkpoint_close(ckpt);
  tri_free(config);
  tri_options_free(opts);
  return code;
}
