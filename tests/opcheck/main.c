/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/opcheck/opcheck.h"

static void usage(void) {
  puts("opcheck [--backend cpu] [--isa scalar|avx2|avx512|avx512vbmi|amx] [--op NAME] [--seed N] [--cases N]\n"
       "        [--threads N] [--deterministic] [--bench [--quick]]\n"
       "Compares the ops of a backend with the reference; --deterministic also demands the same bits whatever the "
       "batch\n"
       "and the threads; --bench times each op against the memory and the arithmetic it cannot do without.");
}

static bool parse(int argc, char **argv, oc_options *o) {
  *o = (oc_options){.backend = "cpu", .seed = 1, .cases = 120, .threads = 2};
  for (int i = 1; i < argc; i++) {
    const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (!strcmp(flag, "--bench"))
      o->bench = true;
    else if (!strcmp(flag, "--quick"))
      o->quick = true;
    else if (!strcmp(flag, "--deterministic"))
      o->deterministic = true;
    else if (!value)
      return false;
    else if (i++, !strcmp(flag, "--backend"))
      o->backend = value;
    else if (!strcmp(flag, "--isa"))
      o->isa = value;
    else if (!strcmp(flag, "--op"))
      o->op = value;
    else if (!strcmp(flag, "--seed"))
      o->seed = strtoull(value, NULL, 10);
    else if (!strcmp(flag, "--cases"))
      o->cases = atoi(value);
    else if (!strcmp(flag, "--threads"))
      o->threads = atoi(value);
    else
      return false;
  }
  return o->threads > 0 && o->cases > 0;
}

static tri_backend *open_backend(const char *name, const oc_options *o, tri_pool *pool) {
  tri_error err = {0};
  tri_backend *be = NULL;
  tri_backend_config config = {.name = name, .deterministic = o->deterministic, .pool = pool};
  config.isa = strcmp(name, "cpu") ? NULL : o->isa;
  if (tri_backend_create(&config, &be, &err) != TRI_OK) {
    bool not_here = !strcmp(name, "cuda") || strstr(err.message, "this processor cannot run");
    bool skipped = not_here && err.status == TRI_UNSUPPORTED;
    fprintf(stderr, "opcheck: %s%s: %s\n", skipped ? "skipped: " : "", err.field, err.message);
    exit(skipped ? 77 : 2);
  }
  return be;
}

static tri_pool *open_pool(int threads, int spin_us) {
  tri_pool *pool = NULL;
  if (tri_pool_create(threads, NULL, spin_us, &pool) != TRI_OK) {
    fprintf(stderr, "opcheck: cannot make %d threads\n", threads);
    exit(2);
  }
  return pool;
}

static bool wanted(const oc *c, const char *op) { return !c->opt.op || !strcmp(c->opt.op, op); }

static void begin(oc *c, const char *op) {
  c->cases = c->failures = 0;
  c->worst = 0;
  c->rng = c->opt.seed * 0x9E3779B97F4A7C15u;
  for (const char *p = op; *p; p++) c->rng = c->rng * 31 + (uint64_t)*p;
}

static int end(oc *c, const char *op, const char *kind) {
  printf("%-4s %-16s %-14s cases %4d  worst error %.2e\n", c->failures ? "FAIL" : "ok", op, kind, c->cases, c->worst);
  fflush(stdout);
  return c->failures;
}

static int check(oc *c) {
  static const struct {
    const char *name;
    void (*fn)(oc *, int);
  } cases[] = {
#define X(op) {#op, oc_case_##op},
      TRI_OP_LIST(X) X(latent_attention) X(latent_prompt) X(decode_attention) X(prompt_attention) X(upload_rows)
          X(fill_random) X(count_not_finite) X(tune)
#undef X
  };
  int failures = 0;
  for (size_t op = 0; op < sizeof cases / sizeof *cases; op++) {
    if (!wanted(c, cases[op].name) || (cases[op].fn == oc_case_tune && !c->be->tunes)) continue;
    begin(c, cases[op].name);
    for (; c->cases < c->opt.cases; c->cases++) {
      cases[op].fn(c, c->cases);
      oc_release(c);
    }
    failures += end(c, cases[op].name, "accuracy");
  }
  return failures;
}

static int check_deterministic(oc *c) {
  static const struct {
    const char *name;
    void (*fn)(oc *, tri_backend **, int, int);
  } tests[] = {{"linear", oc_deterministic_linear},
               {"head_linear", oc_deterministic_heads},
               {"attention", oc_deterministic_attention},
               {"moe_experts", oc_deterministic_experts},
               {"norm", oc_deterministic_rows}};
  enum { OTHERS = 3 };
  static const int threads[OTHERS] = {1, 2, 5};
  tri_pool *pools[OTHERS];
  tri_backend *others[OTHERS];
  int failures = 0;
  for (int i = 0; i < OTHERS; i++) {
    pools[i] = open_pool(threads[i], 50);
    others[i] = open_backend(c->opt.backend, &c->opt, pools[i]);
  }
  for (size_t t = 0; t < sizeof tests / sizeof *tests; t++) {
    if (!wanted(c, tests[t].name)) continue;
    begin(c, tests[t].name);
    for (; c->cases < (c->opt.cases + 3) / 4; c->cases++) {
      tests[t].fn(c, others, OTHERS, c->cases);
      oc_release(c);
    }
    failures += end(c, tests[t].name, "same bits");
  }
  for (int i = 0; i < OTHERS; i++) {
    tri_backend_destroy(others[i]);
    tri_pool_destroy(pools[i]);
  }
  return failures;
}

int main(int argc, char **argv) {
  oc *c = calloc(1, sizeof *c);
  if (!c || !parse(argc, argv, &c->opt)) {
    usage();
    free(c);
    return 2;
  }
  tri_pool *pool = open_pool(c->opt.threads, c->opt.bench ? 5000 : 50);
  c->ref = open_backend("ref", &c->opt, NULL);
  c->be = open_backend(c->opt.backend, &c->opt, pool);
  printf("backend %s, %s, %d threads, seed %llu%s\n", c->be->name, c->be->isa, c->opt.threads,
         (unsigned long long)c->opt.seed, c->opt.deterministic ? ", deterministic" : "");
  int failures = 0;
  if (c->opt.bench)
    failures = c->be->host_memory ? oc_bench(c) : oc_bench_device(c);
  else {
    failures = check(c);
    if (c->opt.deterministic) failures += check_deterministic(c);
  }
  tri_backend_destroy(c->be);
  tri_backend_destroy(c->ref);
  tri_pool_destroy(pool);
  free(c);
  if (failures) printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
