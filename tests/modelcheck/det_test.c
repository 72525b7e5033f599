/* SPDX-License-Identifier: Apache-2.0 */
/* The same bits: with deterministic backends and communicators a sequence's logits may not depend on the batch that it
 * runs in, on how its tokens are cut into chunks, on having been preempted and computed again in other blocks, or on
 * the number of threads.
 *
 *   det_test [-tp N] DIR...        mpirun -n N det_test -tp N DIR...
 *
 * Each sequence runs alone and whole first; then everything else must give the same bits. All ranks make the same plans
 * by themselves. Without --deterministic the same is counted, not demanded: that shows what the test can see.
 *
 * Then tokens are sampled with parameters of all kinds, in steps whose logits somebody looks at, so that they are
 * brought together, and in the same steps again without: what the ranks sample from candidates of their parts must be
 * the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/engine/engine.h"

enum { SAMPLED_STEPS = 40 };
enum { SEQS = 5, MAX_TOKENS = 128, BLOCK = 8, LEN = 64, BLOCKS_PER_SEQ = LEN / BLOCK, LIVES = 4, SCHEDULES = 12 };

static const int length[SEQS] = {61, 1, 17, 40, 33};

struct bench {
  const char *dir;
  tri_replica replica;
  tri_engine *engine;
  tri_plan_writer *writer;
  float *want[SEQS]; /* [length][vocab]: alone and whole, one thread */
  float *rows;       /* of the last step, where the logits are */
  int num_rows;
  bool learning, looks, drawing;
  tri_sample_result sampled[2][SAMPLED_STEPS * SEQS]; /* looked at, and not */
  int num_sampled;
  int life[SEQS]; /* times that a sequence has begun: each in other blocks */
  uint64_t step, rng;
  long compared, different;
  double worst;
};

static void stop(const char *what) {
  fprintf(stderr, "det_test: %s\n", what);
  if (getenv("OMPI_COMM_WORLD_SIZE")) tri_mpi_abort(1);
  exit(1);
}

static uint64_t mix(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

static int range(struct bench *b, int lo, int hi) {
  b->rng = mix(b->rng);
  return lo + (int)(b->rng % (uint64_t)(hi - lo + 1));
}

static size_t vocab(const struct bench *b) { return (size_t)b->engine->model.vocab_size; }

static void see_logits(void *ctx, tri_mat logits) {
  struct bench *b = ctx;
  for (int i = 0; i < logits.rows; i++)
    memcpy(b->rows + (size_t)i * vocab(b), logits.data + (size_t)i * (size_t)logits.ld, vocab(b) * sizeof(float));
  b->num_rows = logits.rows;
}

/* ---- steps ---- */

struct feed {
  int seq, start, n;
};

static uint32_t token_of(const struct bench *b, int seq, int position) {
  return (uint32_t)(mix((uint64_t)(seq * 1000 + position)) % vocab(b));
}

/* In some steps all are greedy, and in every second one a row needs more than candidates. */
static tri_sample_params some_params(const struct bench *b, int seq, tri_logit_bias *bias, uint32_t *banned) {
  tri_sample_params p = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1, .seed = mix(b->step)};
  uint64_t r = mix(b->step * SEQS + (uint64_t)seq);
  if (b->step % 5 == 0) return p;
  if (r % 4) p.temperature = 0.4f + 0.3f * (float)(r >> 8 & 7);
  p.top_k = 1 + (int)((r >> 16) % TRI_SAMPLE_CANDIDATES);
  if (r >> 24 & 1) p.top_p = 0.8f;
  if (r >> 25 & 1) p.min_p = 0.02f;
  bias[0] = (tri_logit_bias){(uint32_t)((r >> 32) % vocab(b)), 2.5f};
  banned[0] = (uint32_t)((r >> 40) % vocab(b));
  if (r >> 26 & 1) p.logit_bias = bias, p.num_logit_bias = 1, p.banned = banned, p.num_banned = 1;
  if (seq || b->step % 2) return p;
  int what = (int)(b->step / 2 % 3);
  if (what == 0) p.top_k = 0;
  if (what == 1) { /* what the bias favours is in the history */
    bias[0] = (tri_logit_bias){token_of(b, seq, 0), 9};
    p.logit_bias = bias, p.num_logit_bias = 1;
    p.repetition_penalty = 4;
  }
  if (what == 2) p.num_logprobs = 3;
  return p;
}

static void add(struct bench *b, const struct feed *f) {
  tri_sample_params params = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  tri_logit_bias bias;
  uint32_t banned;
  uint32_t ids[LEN];
  int32_t blocks[BLOCKS_PER_SEQ];
  int first = (f->start + BLOCK - 1) / BLOCK, end = (f->start + f->n + BLOCK - 1) / BLOCK;
  if (!f->start) b->life[f->seq] = (b->life[f->seq] + 1) % LIVES;
  for (int i = first; i < end; i++) /* far apart, and backwards in every other life */
    blocks[i - first] =
        (b->life[f->seq] % 2 ? BLOCKS_PER_SEQ - 1 - i : i) * SEQS * LIVES + f->seq * LIVES + b->life[f->seq];
  for (int i = 0; i < f->n; i++) ids[i] = token_of(b, f->seq, f->start + i);
  bool decode = f->start && f->n == 1;
  tri_plan_seq s = {.slot = (uint32_t)f->seq,
                    .kind = decode ? TRI_SEQ_DECODE : TRI_SEQ_CHUNK,
                    .flags =
                        (uint8_t)(TRI_SEQ_FLAG_ALL_LOGITS | (f->start ? 0 : TRI_SEQ_FLAG_FIRST | TRI_SEQ_FLAG_PARAMS)),
                    .counter = (uint64_t)f->start,
                    .num_tokens = (uint32_t)f->n,
                    .start = (uint32_t)f->start,
                    .first_block = (uint32_t)first,
                    .num_blocks = (uint32_t)(end - first)};
  if (b->drawing) {
    params = some_params(b, f->seq, &bias, &banned);
    s.flags = TRI_SEQ_FLAG_SAMPLE | TRI_SEQ_FLAG_PARAMS | TRI_SEQ_FLAG_BAN | (f->start ? 0 : TRI_SEQ_FLAG_FIRST);
  }
  tri_plan_add(b->writer, &s, ids, blocks, &params, (uint32_t)length[f->seq]);
}

static void compare(struct bench *b, const struct feed *f, const float *got) {
  size_t v = vocab(b);
  for (int i = 0; i < f->n; i++, got += v) {
    float *want = b->want[f->seq] + (size_t)(f->start + i) * v;
    if (b->learning) memcpy(want, got, v * sizeof *want);
    b->compared++;
    if (!memcmp(want, got, v * sizeof *want)) continue;
    b->different++;
    for (size_t k = 0; k < v; k++) b->worst = fmax(b->worst, fabs((double)want[k] - got[k]));
  }
}

static void run(struct bench *b, const struct feed *f, int num) {
  size_t len;
  const tri_step_result *result;
  tri_plan_begin(b->writer, 0, ++b->step);
  for (int i = 0; i < num; i++) add(b, &f[i]);
  const void *plan = tri_plan_finish(b->writer, &len);
  b->num_rows = 0;
  if (tri_engine_step(b->engine, plan, len, &result) != TRI_OK) stop("a step failed");
  if (!tri_replica_is_sampler(&b->replica)) return;
  if (b->drawing) {
    if (result->num_tokens != (uint32_t)num) stop("not every sequence has a draw");
    for (int i = 0; i < num; i++) b->sampled[!b->looks][b->num_sampled++] = result->tokens[i].sample;
    return;
  }
  const float *got = b->rows;
  for (int i = 0; i < num; got += (size_t)f[i].n * vocab(b), i++) compare(b, &f[i], got);
  if (got != b->rows + (size_t)b->num_rows * vocab(b)) stop("not every token has logits");
}

/* ---- schedules ---- */

static void alone(struct bench *b, int chunk) {
  for (int s = 0; s < SEQS; s++)
    for (int at = 0; at < length[s]; at += chunk)
      run(b, &(struct feed){s, at, length[s] - at < chunk ? length[s] - at : chunk}, 1);
}

/* Half the sequence as a prompt, then token by token. */
static void decoded(struct bench *b) {
  for (int s = 0; s < SEQS; s++) {
    int half = (length[s] + 1) / 2;
    run(b, &(struct feed){s, 0, half}, 1);
    for (int at = half; at < length[s]; at++) run(b, &(struct feed){s, at, 1}, 1);
  }
}

/* Some of the sequences, in any order, each with some of its tokens; now and then one starts again. */
static void scheduled(struct bench *b) {
  int done[SEQS] = {0}, left = SEQS;
  while (left) {
    struct feed f[SEQS];
    int num = 0, first = range(b, 0, SEQS - 1), room = MAX_TOKENS;
    for (int k = 0; k < SEQS; k++) {
      int s = (first + k * 2) % SEQS, rest = length[s] - done[s]; /* 2 and SEQS have no common divisor */
      if (!rest || range(b, 1, 3) == 1) continue;
      if (done[s] && range(b, 1, 12) == 1) done[s] = 0, rest = length[s]; /* preempted */
      int n = range(b, 1, 3) == 1 ? 1 : range(b, 1, rest);
      n = n < room ? n : room;
      if (!n) continue;
      f[num++] = (struct feed){s, done[s], n};
      done[s] += n, room -= n;
      left -= done[s] == length[s];
    }
    if (num) run(b, f, num);
  }
}

static void all_schedules(struct bench *b) {
  static const int chunks[] = {1, 3, 7, 16, LEN};
  for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) alone(b, chunks[i]);
  decoded(b);
  for (int i = 0; i < SCHEDULES; i++) scheduled(b);
}

/* The whole of some prompts and then token by token, whatever is sampled. */
static void sample_all(struct bench *b, bool looks) {
  b->looks = looks, b->num_sampled = 0;
  b->step = 1000; /* what is asked for depends on it */
  for (int k = 0; k < SAMPLED_STEPS; k++) {
    struct feed f[SEQS];
    for (int s = 0; s < SEQS; s++) f[s] = (struct feed){s, k ? s + k : 0, k ? 1 : s + 1};
    run(b, f, SEQS);
  }
}

static void samples(struct bench *b) {
  int changes = 0;
  b->drawing = true;
  sample_all(b, true);
  sample_all(b, false);
  b->drawing = false, b->looks = true;
  if (!tri_replica_is_sampler(&b->replica)) return;
  for (int i = 0; i < SAMPLED_STEPS * SEQS; i++) {
    b->compared++;
    b->different += memcmp(&b->sampled[0][i], &b->sampled[1][i], sizeof b->sampled[0][i]) != 0;
    changes += i && b->sampled[0][i].token != b->sampled[0][i - 1].token;
  }
  if (changes < SAMPLED_STEPS) stop("one token is drawn again and again");
}

/* ---- engines ---- */

static void with_engine(struct bench *b, bool deterministic, int threads, void (*fn)(struct bench *)) {
  tri_error err = {0};
  tri_pool *pool;
  tri_backend *backend;
  tri_backend_config bc = {.name = "cpu", .deterministic = deterministic};
  tri_engine_config ec = {.model_dir = b->dir,
                          .dtype = TRI_DTYPE_COUNT,
                          .kv_dtype = TRI_F32,
                          .max_num_seqs = SEQS,
                          .max_num_batched_tokens = MAX_TOKENS,
                          .block_size = BLOCK,
                          .max_model_len = LEN,
                          .num_kv_blocks = SEQS * BLOCKS_PER_SEQ * LIVES,
                          .observer = {.ctx = b, .looks = &b->looks, .logits = see_logits}};
  if (tri_pool_create(threads, NULL, 0, &pool) != TRI_OK) stop("no threads");
  bc.pool = pool;
  if (tri_backend_create(&bc, &backend, &err) != TRI_OK) stop(err.message);
  if (tri_engine_create(&ec, backend, &b->replica, &b->engine, &err) != TRI_OK) stop(err.message);
  fn(b);
  tri_engine_destroy(b->engine);
  tri_backend_destroy(backend);
  tri_pool_destroy(pool);
}

static void learn(struct bench *b) {
  b->rows = tri_calloc(MAX_TOKENS * vocab(b), sizeof *b->rows);
  for (int s = 0; s < SEQS; s++) b->want[s] = tri_calloc((size_t)length[s] * vocab(b), sizeof(float));
  b->learning = true;
  alone(b, LEN);
  b->learning = false;
  /* All zero would be equal as well. */
  if (tri_replica_is_sampler(&b->replica) && !(fabsf(b->want[0][1]) > 0)) stop("no logits were seen");
  b->compared = b->different = 0;
  b->worst = 0;
}

/* Rows that differ. */
static long check(const char *dir, int tp, bool deterministic) {
  tri_comm_config cc = {.deterministic = deterministic, .policy = {.yield_us = 200000}, .timeout_ms = 30000};
  tri_error err = {0};
  tri_comm *world;
  struct bench b = {.dir = dir, .rng = 1, .looks = true};
  bool mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  if ((mpi ? tri_comm_mpi_world(&cc, &world) : tri_comm_self_create(&cc, &world)) != TRI_OK) stop("no communicator");
  if (tri_replica_create(world, (tri_parallel){.tp = tp, .pp = 1}, &b.replica, &err) != TRI_OK) stop(err.message);
  if (tri_plan_writer_create(&(tri_plan_sizes){.seqs = SEQS, .ids = MAX_TOKENS, .blocks = MAX_TOKENS}, &b.writer) !=
      TRI_OK)
    stop("no memory");
  with_engine(&b, deterministic, 1, learn);
  for (int threads = 1; threads <= 3; threads++) with_engine(&b, deterministic, threads, all_schedules);
  with_engine(&b, deterministic, 2, samples);
  if (tri_replica_is_leader(&b.replica))
    printf("%s tp %d%s: %ld of %ld rows differ, by %.1e at most\n", dir, tp, deterministic ? " deterministic" : "",
           b.different, b.compared, b.worst);
  for (int s = 0; s < SEQS; s++) tri_free(b.want[s]);
  tri_free(b.rows);
  tri_plan_writer_destroy(b.writer);
  tri_replica_destroy(&b.replica);
  return b.different;
}

int main(int argc, char **argv) {
  tri_error err = {0};
  int first = 1, tp = 1;
  long different = 0;
  bool mpi = getenv("OMPI_COMM_WORLD_SIZE") != NULL;
  if (mpi && tri_mpi_init(&argc, &argv, &err) != TRI_OK) return 1;
  if (argc > 2 && !strcmp(argv[1], "-tp")) tp = atoi(argv[2]), first = 3;
  if (first >= argc) stop("usage: det_test [-tp N] DIR...");
  for (int i = first; i < argc; i++) {
    different += check(argv[i], tp, true);
    check(argv[i], tp, false);
  }
  if (mpi) tri_mpi_finalize();
  return different != 0;
}
