/* SPDX-License-Identifier: Apache-2.0 */
/* A deterministic mutation driver: the fuzz harnesses without clang and libFuzzer, for every test run.
 *
 *   mutate_NAME [--seconds S | --runs N] [--seed X] [FILE | FOLDER]...
 *
 * Feeds every seed as it is, then mutations of seeds, from a generator that the seed number fixes: the same numbers of
 * runs and seed give the same inputs. The input at hand lies in a file beside, which is left there after a crash:
 *
 *   mutate_NAME --replay mutate_NAME.PID.input */
#include "tests/fuzz/mutate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_LIMIT = 1 << 16, MAX_SEEDS = 4096, MAX_RSS_MIB = 3072 };

struct bytes {
  uint8_t *p;
  size_t n;
};

static struct bytes seeds[MAX_SEEDS];
static size_t num_seeds;
static uint64_t state;
static uint8_t *shown; /* the mapped file: 8 bytes of length, then the input */
static char shown_path[4096];

/* xorshift64*, Vigna 2016 */
static uint64_t next(void) {
  state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}
static size_t below(size_t n) { return n ? (size_t)(next() % n) : 0; }

static void add_seed(const void *p, size_t n) {
  if (num_seeds == MAX_SEEDS || n > INPUT_LIMIT) return;
  struct bytes *s = &seeds[num_seeds++];
  s->p = malloc(n ? n : 1);
  s->n = n;
  if (!s->p) abort();
  memcpy(s->p, p, n);
}

static void add_file(const char *path) {
  static uint8_t buf[INPUT_LIMIT + 1];
  FILE *f = fopen(path, "rb");
  if (!f) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(2);
  }
  add_seed(buf, fread(buf, 1, sizeof buf, f));
  fclose(f);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* In the order of the names, so that two machines run the same inputs. */
static void add_folder(DIR *d, const char *path) {
  static char *names[MAX_SEEDS];
  size_t n = 0;
  for (struct dirent *e; n < MAX_SEEDS && (e = readdir(d));)
    if (e->d_name[0] != '.') names[n++] = strdup(e->d_name);
  closedir(d);
  qsort(names, n, sizeof *names, by_name);
  for (size_t i = 0; i < n; i++) {
    char file[4096];
    snprintf(file, sizeof file, "%s/%s", path, names[i]);
    add_file(file);
    free(names[i]);
  }
}

/* An exact copy on the heap: a sanitizer sees the first byte read beyond it. */
static void run(const uint8_t *p, size_t n) {
  uint8_t *copy = malloc(n ? n : 1);
  if (!copy) abort();
  memcpy(copy, p, n);
  if (shown) {
    uint64_t len = n;
    memcpy(shown, &len, 8);
    memcpy(shown + 8, p, n);
  }
  LLVMFuzzerTestOneInput(copy, n);
  free(copy);
}

static const struct {
  const char *p;
  size_t n;
} words[] = {
#define W(s)                                                                                                           \
  { s, sizeof s - 1 }
    W("{"),
    W("}"),
    W("["),
    W("]"),
    W("\""),
    W(":"),
    W(","),
    W("null"),
    W("true"),
    W("false"),
    W("{}"),
    W("[]"),
    W("0"),
    W("1"),
    W("-1"),
    W("4"),
    W("255"),
    W("65536"),
    W("1e308"),
    W("1e-308"),
    W("0.5"),
    W("\\u0000"),
    W("\\ud800"),
    W("\\\\"),
    W("2147483648"),
    W("4294967295"),
    W("4294967296"),
    W("9223372036854775807"),
    W("-9223372036854775808"),
    W("18446744073709551615"),
    W("\xff\xff\xff\xff"),
    W("\x00\x00\x00\x00"),
    W("\x7f\xff\xff\xff"),
    W("\x80"),
    W("\xc0\x80"),
    W("\xed\xa0\x80"),
    W("\xf0\x9f\x98\x80"),
    W("\xe2\x80\x8d"),
    /* msgpack: nil, arrays and maps of 4 billion, strings and binaries longer than anything */
    W("\xc0"),
    W("\xdd\xff\xff\xff\xff"),
    W("\xdf\xff\xff\xff\xff"),
    W("\xdb\xff\xff\xff\xff"),
    W("\xc6\xff\xff\xff\xff"),
    W("\x91"),
    W("\x81"),
    W("\x9f"),
    W("\x8f"),
    W("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
    W("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"),
    W("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"),
    W("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"),
#undef W
};

/* Puts n bytes in place of `cut` bytes at `at`. */
static size_t replace(uint8_t *buf, size_t len, size_t at, size_t cut, const void *p, size_t n) {
  if (len - cut + n > INPUT_LIMIT) return len;
  memmove(buf + at + n, buf + at + cut, len - at - cut);
  memcpy(buf + at, p, n);
  return len - cut + n;
}

static size_t mutate_once(uint8_t *buf, size_t len) {
  static uint8_t piece[INPUT_LIMIT];
  size_t at = below(len + 1), rest = len - at, n, from;
  switch (below(12)) {
  case 0: /* one bit */
    if (rest) buf[at] ^= (uint8_t)(1u << below(8));
    return len;
  case 1: /* one byte */
    if (rest) buf[at] = (uint8_t)next();
    return len;
  case 2: /* cut short */ return below(4) ? len : at;
  case 3: /* a range away */ return replace(buf, len, at, below(rest < 32 ? rest + 1 : 32), "", 0);
  case 4: /* a range twice */
    n = below(rest < 64 ? rest + 1 : 64);
    memcpy(piece, buf + at, n);
    return replace(buf, len, at, 0, piece, n);
  case 5: /* a few random bytes */
    n = 1 + below(8);
    for (size_t i = 0; i < n; i++) piece[i] = (uint8_t)next();
    return replace(buf, len, at, below(2) ? 0 : (rest < n ? rest : n), piece, n);
  case 6: /* a part of another seed */
    if (!num_seeds) return len;
    from = below(num_seeds);
    if (!seeds[from].n) return len;
    n = below(seeds[from].n) + 1;
    if (n > 256) n = 256;
    return replace(buf, len, at, below(2) ? 0 : below(rest < 64 ? rest + 1 : 64),
                   seeds[from].p + below(seeds[from].n - n + 1), n);
  case 7:
  case 8: /* a word, put in or written over */
    from = below(sizeof words / sizeof *words);
    return replace(buf, len, at, below(2) ? 0 : (rest < words[from].n ? rest : words[from].n), words[from].p,
                   words[from].n);
  case 9: /* a number, a string or a bracket of the text replaced by another word: keeps JSON mostly whole */
    while (at < len && !(buf[at] >= '0' && buf[at] <= '9')) at++;
    for (n = 0; at + n < len && buf[at + n] >= '0' && buf[at + n] <= '9';) n++;
    from = below(sizeof words / sizeof *words);
    return n ? replace(buf, len, at, n, words[from].p, words[from].n) : len;
  case 10: /* two ranges change places */
    n = below(rest < 16 ? rest + 1 : 16);
    from = below(len - n + 1);
    memcpy(piece, buf + at, n);
    memmove(buf + at, buf + from, n);
    memcpy(buf + from, piece, n);
    return len;
  default: /* the same byte many times: depth, length */
    n = below(8) ? below(16) : below(5000);
    memset(piece, below(2) && rest ? buf[at] : (int)next() & 0xff, n);
    return replace(buf, len, at, 0, piece, n);
  }
}

static size_t make_input(uint8_t *buf) {
  size_t len = 0;
  if (num_seeds && below(100)) {
    const struct bytes *s = &seeds[below(num_seeds)];
    memcpy(buf, s->p, s->n);
    len = s->n;
    for (size_t n = (size_t)1 << below(5); n; n--) len = mutate_once(buf, len);
  } else {
    len = below(below(10) ? 64 : 4096);
    for (size_t i = 0; i < len; i++) buf[i] = (uint8_t)next();
  }
  return len;
}

static void show_inputs(const char *program) {
  const char *name = strrchr(program, '/');
  snprintf(shown_path, sizeof shown_path, "%s.%d.input", name ? name + 1 : program, (int)getpid());
  int fd = open(shown_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd >= 0 && !ftruncate(fd, 8 + INPUT_LIMIT)) {
    void *p = mmap(NULL, 8 + INPUT_LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED) shown = p;
  }
  if (fd >= 0) close(fd);
}

/* A file that show_inputs left: its first 8 bytes say how long the input is. */
static void replay(const char *path) {
  static uint8_t buf[8 + INPUT_LIMIT];
  uint64_t len;
  FILE *f = fopen(path, "rb");
  if (!f || fread(buf, 1, sizeof buf, f) < 8) {
    fprintf(stderr, "%s cannot be read\n", path);
    exit(2);
  }
  fclose(f);
  memcpy(&len, buf, 8);
  if (len > INPUT_LIMIT) len = INPUT_LIMIT;
  fprintf(stderr, "replaying %llu bytes of %s\n", (unsigned long long)len, path);
  run(buf + 8, (size_t)len);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
  static uint8_t buf[INPUT_LIMIT + 8192], made[INPUT_LIMIT];
  double seconds = 5;
  unsigned long long runs = 0, limit = ~0ull, seed = 1;
  for (int i = 1; i < argc; i++) {
    struct stat sb;
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--seconds")) {
      seconds = atof(value), i++;
    } else if (!strcmp(argv[i], "--runs")) {
      limit = strtoull(value, NULL, 10), seconds = 1e9, i++;
    } else if (!strcmp(argv[i], "--seed")) {
      seed = strtoull(value, NULL, 10), i++;
    } else if (!strcmp(argv[i], "--replay")) {
      replay(value);
      return 0;
    } else if (!stat(argv[i], &sb) && S_ISDIR(sb.st_mode)) {
      DIR *d = opendir(argv[i]);
      if (d) add_folder(d, argv[i]);
    } else if (!stat(argv[i], &sb)) {
      add_file(argv[i]);
    } else {
      fprintf(stderr, "no seeds in %s\n", argv[i]);
    }
  }
  for (unsigned i = 0; tri_fuzz_seed && i < MAX_SEEDS; i++) {
    size_t n = tri_fuzz_seed(i, made, sizeof made);
    if (!n) break;
    add_seed(made, n);
  }
  show_inputs(argv[0]);
  fprintf(stderr, "after a crash or a time-out: %s --replay %s\n", argv[0], shown_path);
  state = seed * 0x9e3779b97f4a7c15u + 1;
  double begin = now();
  run((const uint8_t *)"", 0);
  for (size_t i = 0; i < num_seeds; i++) run(seeds[i].p, seeds[i].n);
  for (; runs < limit && now() - begin < seconds; runs++) run(buf, make_input(buf));
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  printf("%zu seeds, %llu mutations, %.1f s, seed %llu, at most %ld MiB\n", num_seeds, runs, now() - begin, seed,
         use.ru_maxrss / 1024);
  unlink(shown_path);
  /* No input of 64 KiB may make its reader take gigabytes (a sanitizer's own memory included). */
  return use.ru_maxrss / 1024 > MAX_RSS_MIB;
}
