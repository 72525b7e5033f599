/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model, term by term against what a pencil gives, and what must hold whatever the figures are. */
#include <check.h>
#include <math.h>
#include <stdio.h>

#include "runtime/cost/machine.h"

Suite *suite_cost(void);

static const tri_machine machine = {
    .row_shares = {1}, /* measured by rows: what takes longer hides the other */
    .read_bytes_per_s = 1e9,
    .flops_per_s = 1e12,
    .attention_flops_per_s = 1e10,
    .op_s = 1e-6,
    .near_sum = {2e-6, 1e-6, 1e9},
    .far_sum = {20e-6, 2e-6, 1e8},
    .near_all2all = {3e-6, 2e-6, 1e9},
    .far_all2all = {30e-6, 3e-6, 1e8},
    .near_transfer = {5e-6, 0, 1e9},
    .far_transfer = {50e-6, 0, 1e8},
};

static tri_cost_share share(void) {
  return (tri_cost_share){.dense_bytes = 1e6,
                          .dense_flops = 1e6,
                          .head_bytes = 2e5,
                          .head_flops = 4e5,
                          .key_bytes = 100,
                          .key_flops = 50,
                          .local_key_bytes = 100,
                          .local_key_flops = 50,
                          .layers = 4,
                          .ops = 40,
                          .sums = 9};
}

static void near(double got, double want, const char *what) {
  ck_assert_msg(fabs(got - want) <= 1e-9 * fabs(want), "%s: %.9g, not %.9g", what, got, want);
}

START_TEST(terms_of_a_decode_step) {
  tri_cost_share s = share();
  tri_cost_model m = {.machine = machine, .p = {.tp = 4, .pp = 1}, .hidden_size = 250, .stages = &s};
  tri_cost c;
  double period = tri_cost_decode(&m, 3, 1000, &c);
  /* matrices 1.2 MB once; 3 sequences x 1000 keys x 4 layers x 100 bytes */
  near(c.reads, 1.2e-3 + 1.2e-3, "reads");
  near(c.gemms + 1, 1, "products");
  near(c.launches, 40e-6, "launches");
  near(c.sums, 9 * (2e-6 + 4 * 1e-6 + 3 * 250 * 4 / 1e9), "sums");
  near(c.all2all + c.transfers + 1, 1, "exchange, transfers");
  near(period, tri_cost_seconds(&c), "period");
}
END_TEST

START_TEST(products_bound_what_is_large) {
  tri_cost_share s = share();
  tri_cost_model m = {.machine = machine, .p = {.tp = 1, .pp = 1}, .hidden_size = 250, .stages = &s};
  tri_cost c = tri_cost_prompt(&m, 2000);
  /* 2000 tokens x 1 MFLOP; one row of logits, whose weights take longer to read; half of 2000 x 2000 pairs in 4 layers
   */
  near(c.gemms, 2e-3 + 2000 * 1000 * 4 * 50 / 1e10, "products");
  near(c.reads, 2e-4, "reads");
  near(c.sums + 1, 1, "sums of one rank");
}
END_TEST

/* A device's rates are those of large products and plain reads: where both take about as long, neither is hidden. */
START_TEST(neither_hides_the_other_whole) {
  tri_cost_share s = share();
  tri_cost_model m = {.machine = machine, .p = {.tp = 1, .pp = 1}, .hidden_size = 250, .stages = &s};
  tri_cost_load l = {.tokens = 1000, .all_tokens = 1000, .queries = 1};
  m.machine.row_shares[0] = 0;
  tri_cost c = tri_cost_step(&m, &l);
  near(c.reads, sqrt(2) * 1e-3 + 2e-4, "1 MB and 1000 products of 1 MFLOP"); /* the head has no rows */
  l.tokens = 10;
  c = tri_cost_step(&m, &l);
  near(c.reads, hypot(1e-3, 1e-5) + 2e-4, "few rows");
}
END_TEST

START_TEST(windows_bound_keys) {
  tri_cost_share s = share();
  s.local_layers = 3;
  tri_cost_model m = {.machine = machine, .p = {.tp = 1, .pp = 1}, .hidden_size = 250, .window = 10, .stages = &s};
  tri_cost c;
  tri_cost_decode(&m, 1, 1000, &c);
  near(c.reads, 1.2e-3 + (1000 + 3 * 10) * 100 / 1e9, "reads");
}
END_TEST

START_TEST(stages_and_micro_batches) {
  tri_cost_share s[2] = {share(), share()};
  s[1].dense_bytes = 3e6;
  tri_cost_model m = {.machine = machine, .p = {.tp = 2, .pp = 2}, .hidden_size = 250, .stages = s};
  tri_cost_load l = {.tokens = 4, .all_tokens = 4, .sampled = 4, .sequences = 4, .context = 10, .queries = 1};
  tri_cost first = tri_cost_stage(&m, 0, &l), second = tri_cost_stage(&m, 1, &l), both;
  near(first.transfers, 5e-6 + 4 * 250 * 4 / 1e9, "transfer");
  near(second.transfers + 1, 1, "behind the last stage");
  /* Eight sequences are two micro-batches of four, which wait for the slower stage; one is one micro-batch. */
  near(tri_cost_decode(&m, 8, 10, &both), 2 * tri_cost_seconds(&second), "period");
  near(tri_cost_seconds(&both), tri_cost_seconds(&first) + tri_cost_seconds(&second), "latency");
  double alone = tri_cost_decode(&m, 1, 10, &both);
  near(alone, tri_cost_seconds(&both), "one lane");
  /* Stages of two ranks each on hosts of two: the transfer goes over the network. */
  m.machine.ranks_per_host = 2;
  near(tri_cost_stage(&m, 0, &l).transfers, 50e-6 + 4 * 250 * 4 / 1e8, "transfer between hosts");
  ck_assert(!tri_cost_crosses(&m.machine, 2) && tri_cost_crosses(&m.machine, 4));
  m.machine.ranks_per_host = 1;
  near(tri_cost_stage(&m, 0, &l).sums, 9 * (20e-6 + 2 * 2e-6 + 4 * 250 * 4 / 1e8), "sums between hosts");
}
END_TEST

START_TEST(experts_and_their_exchange) {
  tri_cost_share s = share();
  s.sparse_layers = 3;
  s.expert_bytes = 1e5;
  s.expert_flops = 1e5;
  tri_cost_model m = {.machine = machine,
                      .p = {.tp = 2, .pp = 1, .dp = 4, .ep = 8},
                      .hidden_size = 250,
                      .experts = 16,
                      .top_k = 1,
                      .stages = &s};
  tri_cost c;
  tri_cost_decode(&m, 1, 0, &c);
  /* One token reads one expert of one rank; of four shards it reaches another one three times in four. */
  near(c.reads, 1.2e-3 + 3 * 1e5 / 1e9, "reads");
  near(c.all2all, 3 * 2 * (3e-6 + 4 * 2e-6 + 0.75 * 250 * 2 / 1e9), "exchange");
  m.machine.ranks_per_host = 4; /* the shards of a stage are on two hosts */
  tri_cost_decode(&m, 1, 0, &c);
  near(c.all2all, 3 * 2 * (30e-6 + 4 * 3e-6 + 0.75 * 250 * 2 / 1e8), "exchange between hosts");
}
END_TEST

/* The host's rates are for the layers whose experts it has, behind the device's work and in turn with it. */
START_TEST(experts_on_the_host) {
  tri_cost_share s = share();
  s.host_layers = 3;
  s.expert_bytes = 1e5;
  s.expert_flops = 4e5;
  tri_cost_model m = {
      .machine = machine, .p = {.tp = 1, .pp = 1}, .hidden_size = 250, .experts = 16, .top_k = 2, .stages = &s};
  tri_cost c;
  m.machine.host_read_bytes_per_s = 1e8;
  m.machine.host_flops_per_s = 1e9;
  double all = tri_cost_decode(&m, 1, 0, &c);
  near(c.host, 3 * 2 * 1e5 / 1e8, "reads of a token's experts");
  near(c.reads, 1.2e-3, "the device's reads");
  near(all, tri_cost_seconds(&c), "a step");
  ck_assert(all > c.host + c.reads);
  near(tri_cost_host_experts(&m, 0, 1000), 3 * 1000 * 2 * 4e5 / 1e9, "products of many tokens");
  m.machine.host_flops_per_s = INFINITY;
  near(tri_cost_host_experts(&m, 0, 1000), 3 * 16 * 1e5 / 1e8, "reads of all experts");
  /* A fourth of them on the device, too: the rest is the host's, until the device takes longer. */
  s.hot_share = 0.25;
  near(tri_cost_host_experts(&m, 0, 1), 3 * 2 * 1e5 / 1e8 * 0.75, "the host's part of a token");
  m.machine.read_bytes_per_s = 1e7;
  near(tri_cost_host_experts(&m, 0, 1), 3 * 2 * 1e5 / 1e7 * 0.25, "the device's part of a token");
  m.machine.flops_per_s = 1e6;
  near(tri_cost_host_experts(&m, 0, 1000), 3 * 1000 * 2 * 4e5 / 1e6 * 0.25, "its products of many");
  s.hot_share = 1;
  near(tri_cost_host_experts(&m, 0, 1), 3 * 2 * 4e5 / 1e6, "all of them");
  s.host_layers = 0;
  ck_assert(tri_cost_host_experts(&m, 0, 1000) == 0);
}
END_TEST

/* DeepSpeed-MoE, section 5.3: p ranks with tensor groups of L exchange in O(p / L) + O(L), not in O(p). */
START_TEST(the_coordinated_exchange) {
  tri_machine m = tri_machine_make(tri_device_kind_of("h200")->best, tri_device_kind_of("h200"), 0);
  for (int tp = 2; tp <= 8; tp *= 2)
    for (int ranks = 32; ranks <= 256; ranks *= 2) {
      tri_parallel p = {.tp = tp, .pp = 1, .dp = ranks / tp, .ep = ranks};
      double flat = tri_cost_all2all(&m, p, 0, true), coordinated = tri_cost_all2all(&m, p, 0, false);
      near(flat, m.near_all2all.start_s + m.near_all2all.rank_s * ranks, "O(p)");
      near(coordinated, m.near_all2all.start_s + m.near_all2all.rank_s * (ranks / tp), "O(p / L)");
      double with_sum = coordinated + tri_cost_link(&m.near_sum, tp, 0);
      ck_assert_msg(with_sum < flat, "%d ranks in groups of %d", ranks, tp);
    }
  tri_parallel p = {.tp = 8, .pp = 1, .dp = 16, .ep = 128};
  near(tri_cost_all2all(&m, p, 0, true), 63.96e-6, "128 ranks, flat");
  near(tri_cost_all2all(&m, p, 0, false), 11.32e-6, "128 ranks in groups of 8");
  tri_parallel alone = {.tp = 8, .pp = 1, .ep = 8};
  ck_assert(tri_cost_all2all(&m, alone, 1e6, false) <= 0);
}
END_TEST

/* All ways to choose, one by one: the mean of the most different experts and choices of a share. */
static void brute_force(int experts, int top_k, int shares, int tokens, double *distinct, double *choices) {
  int subsets[64], count = 0;
  for (int s = 0; s < 1 << experts; s++)
    if (__builtin_popcount((unsigned)s) == top_k) subsets[count++] = s;
  double ways = pow(count, tokens);
  *distinct = *choices = 0;
  for (int64_t way = 0; way < (int64_t)ways; way++) {
    int n[16] = {0}, most = 0, busiest = 0;
    int64_t rest = way;
    for (int t = 0; t < tokens; t++, rest /= count)
      for (int e = 0; e < experts; e++) n[e] += subsets[rest % count] >> e & 1;
    for (int s = 0; s < shares; s++) {
      tri_range own = tri_range_part(experts, shares, s);
      int seen = 0, sum = 0;
      for (int e = own.first; e < own.first + own.count; e++) {
        seen += n[e] > 0;
        sum += n[e];
      }
      if (seen > most) most = seen;
      if (sum > busiest) busiest = sum;
    }
    *distinct += most / ways;
    *choices += busiest / ways;
  }
}

START_TEST(busiest_share_by_brute_force) {
  static const struct {
    int experts, top_k, shares, tokens;
  } cases[] = {{4, 1, 1, 1}, {4, 1, 2, 2}, {4, 2, 2, 3}, {5, 2, 2, 3},
               {5, 2, 5, 4}, {6, 3, 3, 3}, {8, 2, 4, 3}, {3, 3, 2, 4}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double distinct, choices;
    brute_force(cases[i].experts, cases[i].top_k, cases[i].shares, cases[i].tokens, &distinct, &choices);
    tri_expert_load l = tri_cost_experts(cases[i].experts, cases[i].top_k, cases[i].shares, cases[i].tokens);
    ck_assert_msg(fabs(l.experts / distinct - 1) < 0.1, "case %zu: %.3f experts, not %.3f", i, l.experts, distinct);
    ck_assert_msg(fabs(l.choices / choices - 1) < 0.1, "case %zu: %.3f choices, not %.3f", i, l.choices, choices);
  }
  /* So many tokens read all, and choices come near their mean. */
  tri_expert_load l = tri_cost_experts(60, 4, 8, 4096);
  near(l.experts, 8, "experts of the largest share");
  near(l.choices, 4096 * 4 * 8 / 60.0, "choices");
  ck_assert(tri_cost_experts(0, 0, 1, 10).experts <= 0);
}
END_TEST

/* Products of few rows have a rate of their own, also those of an expert's tokens, and so has attention of single
 * queries; what goes row by row takes its time for each token. */
START_TEST(rates_by_rows) {
  tri_cost_share s = share();
  tri_cost_model m = {.machine = machine, .p = {.tp = 1, .pp = 1}, .hidden_size = 250, .stages = &s};
  tri_cost c;
  double *at = m.machine.row_shares;
  for (int i = 0; i < TRI_CPU_GEMM_ROWS; i++) at[i] = i < 4 ? 1e-4 : 1;
  at[4] = 3e-4;
  near(tri_cost_gemm_rate(&m.machine, 1), 1e8, "one row");
  near(tri_cost_gemm_rate(&m.machine, 8), 1e8, "eight rows");
  near(tri_cost_gemm_rate(&m.machine, 16), 3e8, "sixteen rows");
  near(tri_cost_gemm_rate(&m.machine, sqrt(8 * 16)), 2e8, "half way");
  near(tri_cost_gemm_rate(&m.machine, 1 << 20), 1e12, "many rows");
  near(tri_cost_gemm_rate(&machine, 3), 1e12, "nothing is known of few rows");
  tri_cost_decode(&m, 8, 1, &c);
  near(c.gemms, (8 * 1e6 + 8 * 4e5) / 1e8, "products of eight rows");
  m.machine.query_flops_per_s = 1e8; /* 8 sequences x 1000 keys x 4 layers x 50, where reading them takes 3.2 ms */
  tri_cost_decode(&m, 8, 1000, &c);
  near(c.gemms, (8 * 1e6 + 8 * 4e5) / 1e8 + 8 * 1000 * 4 * 50 / 1e8, "single queries");
  s.row_elements = 1000;
  m.machine.element_s = 1e-8;
  tri_cost_decode(&m, 8, 1000, &c);
  near(c.launches, 40e-6 + 8 * 1000 * 1e-8, "rows");
  s.sparse_layers = 1;
  s.expert_bytes = 1;
  s.expert_flops = 1e6;
  m.experts = 2;
  m.top_k = 1;
  tri_cost_decode(&m, 32, 1, &c); /* 16 tokens for each expert, or near it; reading bounds the matrices */
  tri_expert_load busy = tri_cost_experts(2, 1, 1, 32);
  near(c.gemms, 32 * 4 * 50 / 1e8 + 32 * 1e6 / tri_cost_gemm_rate(&m.machine, 32 / busy.experts), "experts");
}
END_TEST

/* Products as they are timed now; how fast they are depends on what else the machine does. */
START_TEST(rates_of_this_host) {
  tri_cost_share s = {.dense_bytes = 1 << 24,
                      .sample = {.gemms = {{1024, 512, TRI_BF16, false}, {512, 1024, TRI_I8, true}},
                                 .num_gemms = 2,
                                 .hidden = 512,
                                 .q_heads = 8,
                                 .kv_heads = 2,
                                 .head_dim = 64}};
  tri_host_figures f;
  tri_error err = {0};
  ck_assert_msg(tri_machine_measure(&s, 1, 0, &f, &err) == TRI_OK, "%s", err.message);
  for (int i = 0; i < TRI_CPU_GEMM_ROWS; i++) ck_assert(isfinite(f.ops.gemms[i]) && f.ops.gemms[i] > 0);
  ck_assert(f.ops.attention > 0 && f.ops.queries > 0 && f.ops.op_s > 0 && f.ops.element_s > 0);
  tri_machine m = tri_machine_make(f.best, NULL, 1);
  tri_machine_take_ops(&m, &f.ops);
  near(tri_cost_gemm_rate(&m, 1), f.ops.gemms[0], "one row");
  s.sample.num_gemms = 0;
  ck_assert_int_eq(tri_machine_measure(&s, 1, 0, &f, NULL), TRI_UNSUPPORTED);
}
END_TEST

/* More of anything that is fast is never slower. */
START_TEST(more_bandwidth_is_never_slower) {
  tri_cost_share s[2] = {share(), share()};
  for (int i = 0; i < 2; i++) {
    s[i].sparse_layers = 2;
    s[i].expert_bytes = 3e5;
    s[i].expert_flops = 3e5;
  }
  tri_cost_model m = {.machine = machine,
                      .p = {.tp = 2, .pp = 2, .dp = 2, .ep = 4},
                      .hidden_size = 250,
                      .experts = 16,
                      .top_k = 2,
                      .stages = s};
  double *const rates[] = {&m.machine.read_bytes_per_s,         &m.machine.flops_per_s,
                           &m.machine.attention_flops_per_s,    &m.machine.near_sum.bytes_per_s,
                           &m.machine.near_all2all.bytes_per_s, &m.machine.near_transfer.bytes_per_s};
  for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
    for (int sequences = 1; sequences < 5000; sequences *= 4) {
      tri_cost c;
      double kept = *rates[i], before = tri_cost_decode(&m, sequences, 500, &c);
      tri_cost prompt = tri_cost_prompt(&m, sequences);
      double prompt_before = tri_cost_seconds(&prompt);
      *rates[i] = 2 * kept;
      ck_assert(tri_cost_decode(&m, sequences, 500, &c) <= before);
      prompt = tri_cost_prompt(&m, sequences);
      ck_assert(tri_cost_seconds(&prompt) <= prompt_before);
      *rates[i] = kept;
    }
}
END_TEST

/* A rank's share of the tests' Llama: 4 layers, hidden 64, 8 heads of 8 over 2, 176 units, 509 ids, float32. */
START_TEST(shares_of_a_model) {
  tri_model_config c;
  tri_error err = {0};
  ck_assert_msg(tri_model_config_load(TRI_TEST_DATA "/checkpoints/llama", (tri_config_rules){0}, &c, &err) == TRI_OK,
                "%s", err.message);
  for (int tp = 1; tp <= 2; tp++) {
    tri_cost_share got = {0};
    for (int rank = 0; rank < tp; rank++) {
      tri_shard s;
      tri_parallel p = {.tp = tp, .pp = 1, .tp_rank = rank};
      ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
      ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_DTYPE_COUNT, TRI_QUANTIZE_NONE, TRI_F32, &got, &err), TRI_OK);
    }
    double layer = (12 * 8 * 64 + 64 * 64 + 2 * 176 * 64 + 64 * 176) / tp, head = (tp == 1 ? 509 : 255) * 64;
    near(got.dense_bytes, 4 * 4 * layer, "bytes");
    near(got.dense_flops, 4 * 2 * layer, "operations");
    near(got.last_flops, 2 * (layer - 12 * 8 * 64.0 / tp), "operations behind the last layer's attention");
    near(got.head_bytes, 4 * head, "bytes of the head");
    near(got.key_bytes, 2 * 2 * 8 * 4 / tp, "bytes of a key and value");
    near(got.key_flops, 4 * 8 * 8 / tp, "operations of a query");
    ck_assert_int_eq(got.ops, 4 * 8 + 4);
    ck_assert_int_eq(got.sums, 4 * 2 + 2);
  }
}
END_TEST

/* Layers without a window have one KV head of 24, the others two of 16. */
START_TEST(keys_differ_by_kind_of_layer) {
  tri_model_config c;
  tri_error err = {0};
  tri_shard s;
  tri_cost_share got = {0};
  ck_assert_msg(tri_model_config_load(TRI_TEST_DATA "/checkpoints/gemma4_text", (tri_config_rules){0}, &c, &err) ==
                    TRI_OK,
                "%s", err.message);
  ck_assert_int_eq(tri_shard_make(&c, (tri_parallel){.tp = 2, .pp = 1}, &s, &err), TRI_OK);
  ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_BF16, TRI_QUANTIZE_NONE, TRI_BF16, &got, &err), TRI_OK);
  ck_assert_int_eq(got.local_layers, 2);
  near(got.key_bytes, 2 * 1 * 24 * 2, "bytes of a key and value");
  near(got.key_flops, 4 * 2 * 24, "operations of a query");
  near(got.local_key_bytes, 2 * 1 * 16 * 2, "the same with a window");
  near(got.local_key_flops, 4 * 2 * 16, "the same with a window");
  double local = (2 + 2) * 16 * 48 + 2 * 16 * 48, global = (2 + 2) * 24 * 48 + 2 * 24 * 48, mlp = 3 * 32 * 48;
  near(got.dense_bytes, 2 * (2 * local + global + 3 * mlp), "bytes of matrices");
}
END_TEST

/* Bytes of experts are one expert's, as far as the rank has it. */
START_TEST(shares_of_experts) {
  tri_model_config c;
  tri_error err = {0};
  tri_shard s;
  tri_cost_share got = {0};
  ck_assert_msg(tri_model_config_load(TRI_TEST_DATA "/checkpoints/mixtral_odd", (tri_config_rules){0}, &c, &err) ==
                    TRI_OK,
                "%s", err.message);
  tri_parallel p = {.tp = 2, .pp = 1, .dp = 2, .ep = 2};
  ck_assert_int_eq(tri_shard_make(&c, p, &s, &err), TRI_OK);
  ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_BF16, TRI_QUANTIZE_NONE, TRI_BF16, &got, &err), TRI_OK);
  near(got.expert_bytes, 2 * 3 * 96 * 26.0, "bytes of half an expert");
  near(got.expert_flops, 2 * 3 * 96 * 26.0, "operations");
  ck_assert_int_eq(got.sparse_layers, 3);
  ck_assert_int_eq(got.last_sparse, 0); /* shards exchange the rows of all layers */
  ck_assert_int_eq(got.local_layers, 3);
  ck_assert_int_eq(got.host_layers, 0);
  s.p.host_experts = 2;
  got = (tri_cost_share){0};
  ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_BF16, TRI_QUANTIZE_NONE, TRI_BF16, &got, &err), TRI_OK);
  near(got.expert_bytes, 2 * 3 * 96 * 26.0, "bytes of half an expert, wherever it lies");
  ck_assert_int_eq(got.sparse_layers, 1);
  ck_assert_int_eq(got.host_layers, 2);
  ck_assert(got.hot_share == 0);
  got = (tri_cost_share){0};
  for (int hot = 2; hot; hot--) { /* of two or three experts of a share */
    s.p.hot_experts = hot;
    ck_assert_int_eq(tri_cost_share_add(&c, &s, TRI_BF16, TRI_QUANTIZE_NONE, TRI_BF16, &got, &err), TRI_OK);
    near(got.hot_share, (double)hot / s.slots.count, "the least of any rank");
  }
}
END_TEST

Suite *suite_cost(void) {
  Suite *s = suite_create("cost");
  TCase *t = tcase_create("cost");
  tcase_add_test(t, terms_of_a_decode_step);
  tcase_add_test(t, products_bound_what_is_large);
  tcase_add_test(t, neither_hides_the_other_whole);
  tcase_add_test(t, windows_bound_keys);
  tcase_add_test(t, stages_and_micro_batches);
  tcase_add_test(t, experts_and_their_exchange);
  tcase_add_test(t, experts_on_the_host);
  tcase_add_test(t, the_coordinated_exchange);
  tcase_add_test(t, busiest_share_by_brute_force);
  tcase_add_test(t, more_bandwidth_is_never_slower);
  tcase_add_test(t, rates_by_rows);
  tcase_add_test(t, rates_of_this_host);
  tcase_add_test(t, shares_of_a_model);
  tcase_add_test(t, keys_differ_by_kind_of_layer);
  tcase_add_test(t, shares_of_experts);
  suite_add_tcase(s, t);
  return s;
}
