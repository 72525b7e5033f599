/* SPDX-License-Identifier: Apache-2.0 */
/* Options: spellings, limits, sources and their order, suggestions, help, configuration files. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options/gateway_options.h"
#include "base/options/options.h"

Suite *suite_options(void);

typedef enum color { RED, GREEN } color;
static const char *const colors[] = {"red", "green", NULL};

typedef struct config {
  int64_t tp, offset;
  int small;
  unsigned plain;
  uint64_t space, seed;
  double ratio, rate, bandwidth;
  bool eager, fast;
  const char *model, *load;
  color tint;
  tri_opt_list hosts, names;
  int aside;
} config;

static const tri_option table[] = {
    {TRI_OPT(config, tp), .name = "tensor-parallel-size", .alias = "tp", .min = 1, .max = 64, .fallback = "1",
     .help = "ranks of a layer", .group = "Layout"},
    {TRI_OPT(config, aside), .name = "aside", .group = "Elsewhere", .hidden = true},
    {TRI_OPT(config, offset), .name = "offset", .fallback = "0", .help = "any number"},
    {TRI_OPT(config, small), .name = "small"},
    {TRI_OPT(config, plain), .name = "plain"},
    {TRI_OPT(config, seed), .name = "seed", .no_letters = true},
    {TRI_OPT(config, space), .name = "swap-space", .min = 1024, .max = 1099511627776.0, .fallback = "4G",
     .help = "bytes"},
    {TRI_OPT(config, ratio), .name = "gpu-memory-utilization", .min = 0.1, .max = 1, .fallback = "0.9",
     .env = "TRI_TEST_RATIO"},
    {TRI_OPT(config, rate), .name = "rate", .min = 0.001, .max = INFINITY, .fallback = "inf"},
    {TRI_OPT(config, bandwidth), .name = "bandwidth", .letters = true, .min = 0, .max = 1e15},
    {TRI_OPT(config, eager), .name = "enforce-eager", .help = "no graphs"},
    {TRI_OPT(config, fast), .name = "fast", .fallback = "true"},
    {TRI_OPT(config, model), .name = "model", .metavar = "DIR"},
    {TRI_OPT(config, load), .name = "load-format", .choices = (const char *const[]){"auto", "dummy", NULL},
     .fallback = "auto"},
    {TRI_OPT(config, tint), .name = "tint", .choices = colors, .fallback = "green"},
    {TRI_OPT(config, hosts), .name = "host"},
    {TRI_OPT(config, names), .name = "people", .several = true},
};

static const tri_option elsewhere[] = {{.name = "port", .type = TRI_OPT_INT}};
static const tri_options_spec spec = {.program = "demo",
                                      .usage = "[OPTION]... FILE...",
                                      .summary = "Does things.",
                                      .epilog = "Bye.\n",
                                      .version = "demo 1",
                                      .config_file = true,
                                      TRI_OPTIONS(table),
                                      .elsewhere = elsewhere,
                                      .num_elsewhere = 1,
                                      .min_args = 0,
                                      .max_args = 2};

/* Words of a line, split at blanks. */
static tri_status parse(const char *line, config *c, tri_options **o, tri_error *err) {
  static char copy[1024];
  static char *argv[64];
  int argc = 1;
  snprintf(copy, sizeof copy, "%s", line);
  argv[0] = (char[]){"demo"};
  for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) argv[argc++] = w;
  *c = (config){0};
  *err = (tri_error){0};
  *o = NULL;
  return tri_options_parse(&spec, c, argc, argv, o, err);
}

static void accept_line(const char *line, config *c, tri_options **o) {
  tri_error err;
  ck_assert_msg(parse(line, c, o, &err) == TRI_OK, "%s: %s: %s", line, err.field, err.message);
}

START_TEST(defaults) {
  config c;
  tri_options *o;
  accept_line("--aside 3", &c, &o);
  ck_assert_int_eq(c.aside, 3);
  tri_options_free(o);
  accept_line("", &c, &o);
  ck_assert(c.tp == 1 && c.space == UINT64_C(4) << 30 && c.ratio == 0.9 && isinf(c.rate) && !c.eager && c.fast &&
            !c.model && c.tint == GREEN && !c.hosts.count);
  ck_assert_str_eq(c.load, "auto");
  ck_assert(!tri_options_given(o, "tensor-parallel-size") && tri_options_num_args(o) == 0 && !tri_options_arg(o, 0));
  tri_options_free(o);
}
END_TEST

START_TEST(spellings) {
  static const char *const four[] = {"-tp 4",
                                     "--tp 4",
                                     "--tp=4",
                                     "-tp=4",
                                     "--tensor-parallel-size 4",
                                     "--tensor_parallel_size=4",
                                     "--tensor-parallel_size 4",
                                     "-tp 9 -tp 4"};
  config c;
  tri_options *o;
  for (size_t i = 0; i < sizeof four / sizeof *four; i++) {
    accept_line(four[i], &c, &o);
    ck_assert_msg(c.tp == 4, "%s", four[i]);
    ck_assert(tri_options_given(o, "tp") && tri_options_given(o, "tensor_parallel_size"));
    tri_options_free(o);
  }
  accept_line(
      "a --enforce_eager --no-fast --offset -3 --host x --host=y --model=a=b --tint red --load_format dummy -- --b", &c,
      &o);
  ck_assert(c.eager && !c.fast && c.offset == -3 && c.tint == RED && c.hosts.count == 2);
  ck_assert_str_eq(c.hosts.items[1], "y");
  ck_assert_str_eq(c.model, "a=b");
  ck_assert_str_eq(c.load, "dummy");
  ck_assert_int_eq(tri_options_num_args(o), 2);
  ck_assert_str_eq(tri_options_arg(o, 0), "a");
  ck_assert_str_eq(tri_options_arg(o, 1), "--b");
  tri_options_free(o);
  accept_line("--enforce-eager=false --fast=no -", &c, &o);
  ck_assert(!c.eager && !c.fast);
  ck_assert_str_eq(tri_options_arg(o, 0), "-");
  tri_options_free(o);
}
END_TEST

/* Names up to the next option. */
START_TEST(several_values) {
  config c;
  tri_options *o;
  accept_line("first --people a b c --enforce-eager --people=d e --host x -- y", &c, &o);
  ck_assert(c.names.count == 5 && c.eager && c.hosts.count == 1);
  for (size_t i = 0; i < c.names.count; i++) ck_assert(c.names.items[i][0] == "abcde"[i]);
  ck_assert_int_eq(tri_options_num_args(o), 2);
  ck_assert_str_eq(tri_options_arg(o, 1), "y");
  tri_options_free(o);
  accept_line("--people a -- b", &c, &o);
  ck_assert(c.names.count == 1 && tri_options_num_args(o) == 1);
  tri_options_free(o);
}
END_TEST

START_TEST(sizes) {
  static const struct {
    const char *text;
    uint64_t value;
  } good[] = {{"1024", 1024},
              {"64K", 64 << 10},
              {"64k", 64 << 10},
              {"1M", 1 << 20},
              {"2G", UINT64_C(2) << 30},
              {"1T", UINT64_C(1) << 40},
              {"1.5G", UINT64_C(3) << 29},
              {"8GiB", UINT64_C(8) << 30},
              {"8gib", UINT64_C(8) << 30},
              {"80GB", UINT64_C(80000000000)},
              {"80gb", UINT64_C(80000000000)},
              {"1.5MB", 1500000},
              {"1TB", UINT64_C(1000000000000)},
              {"64KB", 64000},
              {"2048B", 2048}};
  config c;
  tri_options *o;
  char line[64];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    snprintf(line, sizeof line, "--swap-space %s", good[i].text);
    accept_line(line, &c, &o);
    ck_assert_msg(c.space == good[i].value, "%s", line);
    tri_options_free(o);
  }
}
END_TEST

/* A rate of bytes is a number of any form, and has the units of sizes. */
START_TEST(rates) {
  static const struct {
    const char *text;
    double value;
  } good[] = {{"3.5e9", 3.5e9}, {"3.5G", 3.5 * 0x1p30}, {"3.5GB", 3.5e9}, {".5KiB", 512}, {"1e3K", 1024e3}, {"0", 0}};
  config c;
  tri_options *o;
  char line[64];
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    snprintf(line, sizeof line, "--bandwidth %s", good[i].text);
    accept_line(line, &c, &o);
    ck_assert_msg(c.bandwidth == good[i].value, "%s", line);
    tri_options_free(o);
  }
}
END_TEST

START_TEST(mistakes) {
  static const struct {
    const char *line;
    tri_status status;
    const char *words; /* in the message */
  } bad[] = {
      {"-tp 0", TRI_OUT_OF_RANGE, "--tensor-parallel-size is 0; allowed are 1 to 64"},
      {"-tp 65", TRI_OUT_OF_RANGE, "1 to 64"},
      {"-tp 99999999999999999999", TRI_OUT_OF_RANGE, "1 to 64"},
      {"-tp x", TRI_INVALID_ARGUMENT, "needs an integer, not \"x\""},
      {"-tp 4x", TRI_INVALID_ARGUMENT, "integer"},
      {"-tp 1.5", TRI_INVALID_ARGUMENT, "integer"},
      {"-tp=", TRI_INVALID_ARGUMENT, "integer"},
      {"-tp", TRI_INVALID_ARGUMENT, "needs a value"},
      {"--small 2147483648", TRI_OUT_OF_RANGE, "2147483647"},
      {"--plain -1", TRI_OUT_OF_RANGE, "0 to 4294967295"},
      {"--offset 9223372036854775808", TRI_OUT_OF_RANGE, "offset"},
      {"--swap-space 1", TRI_OUT_OF_RANGE, "1K to 1T"},
      {"--swap-space 2T", TRI_OUT_OF_RANGE, "1K to 1T"},
      {"--swap-space 99999999999T", TRI_OUT_OF_RANGE, "1K to 1T"},
      {"--swap-space -1", TRI_INVALID_ARGUMENT, "--swap-space is -1; it must not be negative"},
      {"--bandwidth 1X", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--bandwidth G", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--bandwidth 1025T", TRI_OUT_OF_RANGE, "0 to 1e+15"},
      {"--rate 1K", TRI_INVALID_ARGUMENT, "needs a number, not"},
      {"--swap-space 1X", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--swap-space 1.5", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--swap-space 1.5e3G", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--swap-space 1GBit", TRI_INVALID_ARGUMENT, "KB ... for 1000"},
      {"--swap-space 1Bi", TRI_INVALID_ARGUMENT, "K, M, G or T"},
      {"--swap-space 20000000TB", TRI_OUT_OF_RANGE, "1K to 1T"},
      {"--seed abc", TRI_INVALID_ARGUMENT, "--seed needs an integer from 0 to 18446744073709551615, not \"abc\""},
      {"--seed 1K", TRI_INVALID_ARGUMENT, "needs an integer"},
      {"--seed 1.5", TRI_INVALID_ARGUMENT, "needs an integer"},
      {"--seed 18446744073709551616", TRI_OUT_OF_RANGE, "--seed"},
      {"--gpu-memory-utilization nan", TRI_INVALID_ARGUMENT, "number"},
      {"--gpu-memory-utilization 1.1", TRI_OUT_OF_RANGE, "0.1 to 1"},
      {"--gpu-memory-utilization inf", TRI_OUT_OF_RANGE, "0.1 to 1"},
      {"--rate 0", TRI_OUT_OF_RANGE, "0.001 to inf"},
      {"--enforce-eager=maybe", TRI_INVALID_ARGUMENT, "true or false"},
      {"--tint blue", TRI_INVALID_ARGUMENT, "it can be red, green"},
      {"--load-format x", TRI_INVALID_ARGUMENT, "auto, dummy"},
      {"--tensor-paralel-size 2", TRI_UNKNOWN_FIELD, "did you mean --tensor-parallel-size?"},
      {"--modle x", TRI_UNKNOWN_FIELD, "did you mean --model?"},
      {"--load x", TRI_UNKNOWN_FIELD, "did you mean --load-format?"},
      {"--xyzzy", TRI_UNKNOWN_FIELD, "there is no option --xyzzy"},
      {"--no-model", TRI_UNKNOWN_FIELD, "no option --no-model"},
      {"a b c", TRI_INVALID_ARGUMENT, "\"c\" is one argument too many"},
      {"--config /no/such/file", TRI_NOT_FOUND, "/no/such/file"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    config c;
    tri_options *o;
    tri_error err;
    tri_status st = parse(bad[i].line, &c, &o, &err);
    ck_assert_msg(st == bad[i].status && strstr(err.message, bad[i].words), "%s: %s: %s", bad[i].line,
                  tri_status_name(st), err.message);
    ck_assert_ptr_null(o);
  }
}
END_TEST

START_TEST(near_names) {
  static const char *const names[] = {"up", "submit", "status", "top", "plan", "keygen"};
  static const struct {
    const char *given;
    int near;
  } cases[] = {{"submti", 1}, {"statuss", 2}, {"tops", 3}, {"topp", 3},  {"plna", 4}, {"foo", -1},
               {"x", -1},     {"serve", -1},  {"stat", 2}, {"list", -1}, {"run", -1}, {"keyegn", 5}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(tri_nearest_name(cases[i].given, names, 6, sizeof *names) == cases[i].near, "%s", cases[i].given);
}
END_TEST

/* ---- files ---- */

static tri_status with_file(const char *text, const char *line, config *c, tri_options **o, tri_error *err) {
  char path[] = "/tmp/tri-options-XXXXXX", full[256];
  int fd = mkstemp(path);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
  snprintf(full, sizeof full, "--config %s %s", path, line);
  tri_status st = parse(full, c, o, err);
  unlink(path);
  return st;
}

START_TEST(sources) {
  config c;
  tri_options *o;
  tri_error err;
  const char *text = "# a comment\ntensor-parallel-size: 8\nswap_space: 2G\nenforce-eager: "
                     "yes\ngpu-memory-utilization: 0.5\nhost: [a, b]\nport: 99\nmodel: \"x y\"\n";
  ck_assert_msg(with_file(text, "", &c, &o, &err) == TRI_OK, "%s", err.message);
  ck_assert(c.tp == 8 && c.space == UINT64_C(2) << 30 && c.eager && c.ratio == 0.5 && c.hosts.count == 2);
  ck_assert_str_eq(c.model, "x y");
  ck_assert(tri_options_given(o, "tp") && !tri_options_commanded(o, "tp"));
  tri_options_free(o);
  setenv("TRI_TEST_RATIO", "0.7", 1);
  ck_assert_msg(with_file(text, "-tp 2 --host z --no-enforce-eager", &c, &o, &err) == TRI_OK, "%s", err.message);
  ck_assert(c.tp == 2 && !c.eager && c.ratio == 0.7 && c.hosts.count == 1);
  ck_assert(tri_options_commanded(o, "tp") && tri_options_given(o, "gpu-memory-utilization") &&
            !tri_options_commanded(o, "gpu-memory-utilization"));
  ck_assert_str_eq(c.hosts.items[0], "z");
  tri_options_free(o);
  accept_line("--gpu-memory-utilization 0.8", &c, &o);
  ck_assert(c.ratio == 0.8);
  tri_options_free(o);
  setenv("TRI_TEST_RATIO", "7", 1);
  ck_assert_int_eq(parse("", &c, &o, &err), TRI_OUT_OF_RANGE);
  ck_assert_ptr_nonnull(strstr(err.message, "TRI_TEST_RATIO: "));
  unsetenv("TRI_TEST_RATIO");
  ck_assert_int_eq(with_file("", "", &c, &o, &err), TRI_OK);
  tri_options_free(o);
}
END_TEST

/* What a program gives to another one as it was given. */
START_TEST(texts) {
  config c;
  tri_options *o;
  accept_line("-tp 2 --swap_space=1GiB --no-fast --host a --host b --load-format dummy", &c, &o);
  ck_assert_str_eq(tri_options_text(o, "tensor-parallel-size"), "2");
  ck_assert_str_eq(tri_options_text(o, "swap-space"), "1GiB");
  ck_assert_str_eq(tri_options_text(o, "fast"), "false");
  ck_assert_str_eq(tri_options_text(o, "host"), "b");
  ck_assert_str_eq(tri_options_text(o, "load-format"), "dummy");
  ck_assert_ptr_null(tri_options_text(o, "gpu-memory-utilization"));
  ck_assert_ptr_null(tri_options_text(o, "nothing"));
  tri_options_free(o);
}
END_TEST

START_TEST(bad_files) {
  static const struct {
    const char *text;
    tri_status status;
    const char *words;
  } bad[] = {
      {"model: x\ntensor-parallel-size: 100\n", TRI_OUT_OF_RANGE, ":2:23: --tensor-parallel-size is 100"},
      {"tensor-paralel-size: 1\n", TRI_UNKNOWN_FIELD,
       ":1:1: there is no option \"tensor-paralel-size\"; did you mean tensor-parallel-size?"},
      {"tp: 1\ntensor-parallel-size: 2\n", TRI_INVALID_ARGUMENT, ":2:1: this option is there twice"},
      {"model: [a]\n", TRI_INVALID_ARGUMENT, ":1:8: needs one value"},
      {"host: {a: b}\n", TRI_INVALID_ARGUMENT, ":1:7: needs a value or a list"},
      {"host: [[a]]\n", TRI_INVALID_ARGUMENT, "plain values only"},
      {"- a\n", TRI_INVALID_ARGUMENT, "name: value"},
      {"just text\n", TRI_INVALID_ARGUMENT, "name: value"},
      {"model: \"a\n", TRI_CORRUPT, ":2:"},
      {"model: &x a\nload-format: *x\n", TRI_UNSUPPORTED, "aliases"},
      {"model: a\n---\nmodel: b\n", TRI_UNSUPPORTED, "one document"},
      {"model: \"a\\0b\"\n", TRI_INVALID_ARGUMENT, "NUL"},
      {"[a]: b\n", TRI_INVALID_ARGUMENT, "name of an option"},
      {"\xff\xfe\xff", TRI_CORRUPT, ""},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    config c;
    tri_options *o;
    tri_error err;
    tri_status st = with_file(bad[i].text, "", &c, &o, &err);
    ck_assert_msg(st == bad[i].status && strstr(err.message, bad[i].words), "case %zu: %s: %s", i, tri_status_name(st),
                  err.message);
  }
}
END_TEST

START_TEST(help) {
  config c;
  tri_options *o;
  char *text = NULL;
  size_t len = 0;
  FILE *f = open_memstream(&text, &len);
  tri_options_print_help(&spec, false, f);
  fclose(f);
  static const char *const parts[] = {"Usage: demo [OPTION]... FILE...",
                                      "Does things.",
                                      "Layout:",
                                      "-tp, --tp, --tensor-parallel-size N",
                                      "[1 to 64; default 1]",
                                      "1K to 1T",
                                      "default 4G",
                                      "environment TRI_TEST_RATIO",
                                      "--[no-]fast",
                                      "{red,green}",
                                      "repeatable",
                                      "--config FILE",
                                      "--version",
                                      "Bye."};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    ck_assert_msg(strstr(text, parts[i]), "%s\n%s", parts[i], text);
  ck_assert_msg(!strstr(text, "aside") && !strstr(text, "Elsewhere"), "%s", text);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) ck_assert_msg(strlen(line) <= 100, "%s", line);
  free(text);
  accept_line("-tp 4 --help --modle", &c, &o); /* whatever else is wrong after it is not looked at */
  tri_options_free(o);
}
END_TEST

/* A program with usual options shows these alone, each in a line; the others come with --help-all. */
START_TEST(usual_help) {
  static const tri_usual_option usual[] = {{"tensor-parallel-size", "GPUs that split every layer"}};
  tri_options_spec of_many = spec;
  of_many.usual = usual;
  of_many.num_usual = 1;
  for (int all = 0; all < 2; all++) {
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    tri_options_print_help(&of_many, all, f);
    fclose(f);
    ck_assert_msg((strstr(text, "GPUs that split every layer") == NULL) == (all != 0), "%s", text);
    ck_assert_msg((strstr(text, "Layout:") != NULL) == (all != 0), "%s", text);
    ck_assert_msg(strstr(text, "  --help-all") != NULL, "%s", text);
    free(text);
  }
}
END_TEST

START_TEST(main_codes) {
  config c = {0};
  tri_options *o = NULL;
  char *good[] = {"demo", "-tp", "2", NULL}, *bad[] = {"demo", "-tp", "x", NULL};
  char *missing[] = {"demo", "--config", "/no/such/file", NULL};
  ck_assert_int_eq(tri_options_main(&spec, &c, 3, good, &o), -1);
  tri_options_free(o);
  o = NULL;
  FILE *saved = stderr;
  stderr = fopen("/dev/null", "w");
  ck_assert_int_eq(tri_options_main(&spec, &c, 3, bad, &o), TRI_EXIT_USAGE);
  ck_assert_int_eq(tri_options_main(&spec, &c, 3, missing, &o), TRI_EXIT_USAGE);
  fclose(stderr);
  stderr = saved;
  ck_assert_ptr_null(o);
}
END_TEST

/* What other programs call the same. */
START_TEST(words) {
  static const tri_option_word others[] = {{.words = "np parallel", .option = "tensor-parallel-size"},
                                           {.words = "no-mmap numa", .why = "say --swap-space"},
                                           {.words = "cb cont-batching"},
                                           {.words = "eagerly", .instead = "it is never so"},
                                           {.words = "space", .instead = "no", .values = TRI_WORD_VALUE},
                                           {.words = "fa", .instead = "no", .values = TRI_WORD_SWITCH},
                                           {.words = "sizes", .instead = "no", .values = TRI_WORD_NUMBERS},
                                           {.words = "quick", .option = "fast"}};
  tri_options_spec with = spec;
  with.words = others;
  with.num_words = sizeof others / sizeof *others;
  config c = {0};
  tri_options *o = NULL;
  tri_error err = {0};
  char *good[] = {"demo", "-np", "3", "-cb", "--cont_batching", "--quick=false", "-tp", "2", "--parallel=5", "file"};
  ck_assert_msg(tri_options_parse(&with, &c, 10, good, &o, &err) == TRI_OK, "%s", err.message);
  ck_assert(c.tp == 5 && !c.fast && tri_options_num_args(o) == 1);
  ck_assert_str_eq(tri_options_text(o, "tensor-parallel-size"), "5");
  tri_options_free(o);
  /* Words that change nothing are noted, and take their arguments with them. */
  char *without[] = {"demo", "--eagerly", "--no-eagerly", "--space", "4", "-fa",       "file", "-fa",
                     "on",   "--space=3", "--sizes",      "1",       "2", "--sizes=4", "-tp",  "6"};
  o = NULL;
  ck_assert_msg(tri_options_parse(&with, &c, 16, without, &o, &err) == TRI_OK, "%s", err.message);
  ck_assert(c.tp == 6 && tri_options_num_args(o) == 1);
  ck_assert_str_eq(tri_options_note(o, 0), "--eagerly has no effect: it is never so");
  ck_assert_str_eq(tri_options_note(o, 5), "--space has no effect: no");
  ck_assert(tri_options_note(o, 7) && !tri_options_note(o, 8) && !tri_options_note(o, -1));
  tri_options_free(o);
  char *short_word[] = {"demo", "--space"};
  ck_assert_int_eq(tri_options_parse(&with, &c, 2, short_word, &o, &err), TRI_INVALID_ARGUMENT);
  err = (tri_error){0};
  char *refused[] = {"demo", "--no-mmap=1"}, *unknown[] = {"demo", "--nump"}, *short_of[] = {"demo", "--parallel"};
  ck_assert_int_eq(tri_options_parse(&with, &c, 2, refused, &o, &err), TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.message, "there is no option --no-mmap: say --swap-space");
  err = (tri_error){0};
  ck_assert_int_eq(tri_options_parse(&with, &c, 2, unknown, &o, &err), TRI_UNKNOWN_FIELD);
  ck_assert_str_eq(err.message, "there is no option --nump");
  err = (tri_error){0};
  ck_assert_int_eq(tri_options_parse(&with, &c, 2, short_of, &o, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.message, "--parallel needs a value");
}
END_TEST

START_TEST(http_places) {
  static const struct {
    const char *text, *address;
    int port;
    bool loopback;
  } rows[] = {{"8000", "127.0.0.1", 8000, true},
              {"127.0.0.2:0", "127.0.0.2", 0, true},
              {"[::1]:65535", "::1", 65535, true},
              {"0.0.0.0:80", "0.0.0.0", 80, false}};
  static const char *const wrong[] = {"x",         "1.2.3.4",     ":",       "8000x",       "65536",   "-1",
                                      "0.0.0.0:1", "999.1.1.1:1", "1.2.3:1", "1.2.3.4.5:1", "[::g]:1", "127.0.0.1:1x"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tri_gateway_options g = {.listen = rows[i].text, .http_open = !rows[i].loopback};
    tri_gateway_place place;
    tri_error err = {0};
    ck_assert_msg(tri_gateway_place_make(&g, &place, &err) == TRI_OK, "%s: %s", rows[i].text, err.message);
    ck_assert_str_eq(place.address, rows[i].address);
    ck_assert(place.port == rows[i].port && place.loopback == rows[i].loopback);
  }
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    tri_gateway_place place;
    tri_error err = {0};
    ck_assert_int_eq(tri_gateway_place_make(&(tri_gateway_options){.listen = wrong[i]}, &place, &err), TRI_USAGE);
    ck_assert_str_eq(err.field, "http");
  }
}
END_TEST

Suite *suite_options(void) {
  Suite *s = suite_create("options");
  TCase *c = tcase_create("options");
  const TTest *const tests[] = {defaults, spellings,  several_values, sizes, rates,
                                mistakes, near_names, sources,        texts, bad_files,
                                help,     usual_help, main_codes,     words, http_places};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
