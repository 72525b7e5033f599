/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/model/quantization.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

/* A reader for each quant_method turns the file's words into schemes (tri_stored_scheme): bits, and the block of
 * weights that shares a scale. Several schemes are alternatives: a tensor must fit one of them, and its shape says
 * which. Everything that would change the numbers and has no scheme is refused here, before gigabytes are read. */
/* ---- refusals ---- */

static tri_status refuse(const char *field, const char *value, const char *supported, tri_error *err) {
  return tri_fail(err, TRI_UNSUPPORTED, field, "quantization_config: %s \"%.60s\" is not supported: %s", field, value,
                  supported);
}

/* A name that must be one of `names`, ending with NULL, or absent. */
static tri_status check_name(const tri_json *q, const char *key, const char *names, const char *supported,
                             tri_error *err) {
  const tri_json *v = tri_json_get(q, key);
  const char *name = tri_json_as_str(v, NULL);
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (name && tri_has_word(names, name)) return TRI_OK;
  return refuse(key, name ? name : "(no string)", supported, err);
}

/* An integer in a range, or absent. */
static tri_status read_int(const tri_json *q, const char *key, int64_t least, int64_t most, int64_t *out,
                           tri_error *err) {
  const tri_json *v = tri_json_get(q, key);
  int64_t n;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (!tri_json_as_int(v, &n))
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "quantization_config: %s must be an integer", key);
  if (n < least || n > most)
    return tri_fail(err, TRI_UNSUPPORTED, key, "quantization_config: %s %lld is not supported: %lld to %lld", key,
                    (long long)n, (long long)least, (long long)most);
  *out = n;
  return TRI_OK;
}

static tri_status check_bits(const char *key, int64_t bits, bool four, bool eight, tri_error *err) {
  const char *supported = "4 and 8";
  char value[24];
  if ((bits == 4 && four) || (bits == 8 && eight)) return TRI_OK;
  if (!four) supported = "8";
  if (!eight) supported = "4";
  snprintf(value, sizeof value, "%lld", (long long)bits);
  return refuse(key, value, supported, err);
}

static tri_status add_scheme(tri_stored *s, tri_stored_scheme scheme, tri_error *err) {
  if (s->num_schemes == TRI_MAX_SCHEMES)
    return tri_fail(err, TRI_TOO_LARGE, "config_groups", "quantization_config has more than %d schemes",
                    TRI_MAX_SCHEMES);
  s->schemes[s->num_schemes++] = scheme;
  return TRI_OK;
}

/* Rows and columns of a block of weights that share a scale. */
static tri_status read_block(const tri_json *q, const char *key, tri_stored_scheme *scheme, tri_error *err) {
  enum { MOST = 1 << 20 };
  const tri_json *v = tri_json_get(q, key);
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  if (tri_json_size(v) != 2 || !tri_json_as_int(tri_json_at(v, 0), &scheme->rows) ||
      !tri_json_as_int(tri_json_at(v, 1), &scheme->cols) || scheme->rows < 1 || scheme->cols < 1 ||
      scheme->rows > MOST || scheme->cols > MOST)
    return tri_fail(err, TRI_INVALID_ARGUMENT, key, "quantization_config: %s must be two sizes, as [128, 128]", key);
  return TRI_OK;
}

/* ---- methods ---- */

/* A scale for each block, or else for each row or for the whole. */
static tri_status read_fp8(const tri_json *q, tri_stored *s, tri_error *err) {
  tri_stored_scheme block = {.bits = 8, .is_float = true}, row = {.bits = 8, .is_float = true, .rows = 1},
                    whole = block;
  TRI_CHECK(check_name(q, "fmt", "e4m3 float8_e4m3fn", "e4m3", err));
  TRI_CHECK(read_block(q, "weight_block_size", &block, err));
  if (block.rows) return add_scheme(s, block, err);
  TRI_CHECK(add_scheme(s, whole, err));
  return add_scheme(s, row, err);
}

/* FBGEMM's FP8: a scale for each output. */
static tri_status read_fbgemm(const tri_json *q, tri_stored *s, tri_error *err) {
  (void)q;
  return add_scheme(s, (tri_stored_scheme){.bits = 8, .is_float = true, .rows = 1}, err);
}

/* ModelOpt's FP8: a scale for the whole, for each output, or for blocks. */
static tri_status read_modelopt(const tri_json *q, tri_stored *s, tri_error *err) {
  static const char names[] = "FP8 FP8_PER_CHANNEL_PER_TOKEN FP8_PB_WO";
  const char *algorithm = tri_json_get_str(q, "quant_algo");
  tri_stored_scheme scheme = {.bits = 8, .is_float = true};
  if (!algorithm || !tri_has_word(names, algorithm))
    return refuse("quant_algo", algorithm ? algorithm : "(none)", "FP8, FP8_PER_CHANNEL_PER_TOKEN and FP8_PB_WO", err);
  if (!strcmp(algorithm, "FP8_PER_CHANNEL_PER_TOKEN")) scheme.rows = 1;
  if (!strcmp(algorithm, "FP8_PB_WO")) scheme.rows = scheme.cols = 128;
  return add_scheme(s, scheme, err);
}

/* MX (OCP Microscaling): 4-bit floats, a power of two for each 32 of a row. */
static tri_status read_mxfp4(const tri_json *q, tri_stored *s, tri_error *err) {
  (void)q;
  return add_scheme(s, (tri_stored_scheme){.bits = 4, .is_float = true, .rows = 1, .cols = 32}, err);
}

/* Sizes of groups of inputs; -1: all of them. */
static tri_status read_group(const tri_json *q, const char *key, tri_stored_scheme *scheme, tri_error *err) {
  int64_t size = scheme->cols ? scheme->cols : -1;
  TRI_CHECK(read_int(q, key, -1, 1 << 24, &size, err));
  if (!size) return refuse(key, "0", "a size, or -1", err);
  scheme->cols = size < 0 ? 0 : size;
  return TRI_OK;
}

static tri_status read_gptq_scheme(const tri_json *q, tri_stored_scheme *scheme, tri_error *err) {
  int64_t bits = scheme->bits;
  TRI_CHECK(read_int(q, "bits", 1, 64, &bits, err));
  TRI_CHECK(check_bits("bits", bits, true, true, err));
  scheme->bits = (int)bits;
  return read_group(q, "group_size", scheme, err);
}

/* GPTQModel's exceptions, by patterns of layers' names; "-:" leaves them as they are. */
struct dynamic {
  tri_stored *s;
  tri_stored_scheme usual;
  tri_error *err;
};

static tri_status read_dynamic(void *ctx, const char *key, const tri_json *value) {
  struct dynamic *d = ctx;
  tri_stored_scheme scheme = d->usual;
  if (!strncmp(key, "-:", 2)) return TRI_OK;
  TRI_CHECK(read_gptq_scheme(value, &scheme, d->err));
  return add_scheme(d->s, scheme, d->err);
}

static tri_status read_gptq(const tri_json *q, tri_stored *s, tri_error *err) {
  const char *format = tri_json_get_str(q, "checkpoint_format");
  const tri_json *dynamic = tri_json_get(q, "dynamic");
  tri_stored_scheme scheme = {.rows = 1, .cols = 128};
  bool marlin = false;
  TRI_CHECK(check_name(q, "checkpoint_format", "gptq gptq_v2", "gptq and gptq_v2", err));
  if (!format) TRI_CHECK(check_name(q, "format", "gptq gptq_v2", "gptq and gptq_v2", err));
  if (!format) format = tri_json_get_str(q, "format");
  TRI_CHECK(check_name(q, "pack_dtype", "int32", "int32", err));
  if (tri_json_as_bool(tri_json_get(q, "is_marlin_format"), &marlin) && marlin)
    return refuse("is_marlin_format", "true", "the checkpoint formats gptq and gptq_v2", err);
  TRI_CHECK(read_gptq_scheme(q, &scheme, err));
  TRI_CHECK(add_scheme(s, scheme, err));
  s->zeros_less_one = !format || !strcmp(format, "gptq");
  struct dynamic d = {.s = s, .usual = scheme, .err = err};
  return tri_json_kind_of(dynamic) == TRI_JSON_OBJECT ? tri_json_each(dynamic, read_dynamic, &d) : TRI_OK;
}

/* AutoAWQ writes w_bit and q_group_size, transformers bits and group_size. */
static tri_status read_awq(const tri_json *q, tri_stored *s, tri_error *err) {
  tri_stored_scheme scheme = {.rows = 1, .cols = 128};
  int64_t bits = 4;
  TRI_CHECK(check_name(q, "version", "gemm GEMM", "gemm", err));
  TRI_CHECK(read_int(q, "bits", 1, 64, &bits, err));
  TRI_CHECK(read_int(q, "w_bit", 1, 64, &bits, err));
  TRI_CHECK(check_bits("bits", bits, true, false, err));
  scheme.bits = (int)bits;
  TRI_CHECK(read_group(q, "q_group_size", &scheme, err));
  TRI_CHECK(read_group(q, "group_size", &scheme, err));
  return add_scheme(s, scheme, err);
}

/* ---- compressed-tensors ---- */

static const char formats[] = "float-quantized naive-quantized int-quantized pack-quantized mixed-precision dense";
static const char supported_formats[] = "float-quantized, naive-quantized, int-quantized and pack-quantized";

/* How weights share scales: strategy, and what goes with it. */
static tri_status read_strategy(const tri_json *w, tri_stored_scheme *scheme, tri_error *err) {
  const char *name = tri_json_get_str(w, "strategy");
  scheme->cols = 0;
  scheme->rows = 0;
  TRI_CHECK(check_name(w, "strategy", "tensor channel group block", "tensor, channel, group and block", err));
  if (!name && tri_json_kind_of(tri_json_get(w, "group_size")) != TRI_JSON_NULL) name = "group";
  if (!name || !strcmp(name, "tensor")) return TRI_OK;
  if (!strcmp(name, "block")) {
    TRI_CHECK(read_block(w, "block_structure", scheme, err));
    if (scheme->rows) return TRI_OK;
    return tri_fail(err, TRI_INVALID_ARGUMENT, "block_structure",
                    "quantization_config: blocks without a block_structure");
  }
  scheme->rows = 1;
  return strcmp(name, "group") ? TRI_OK : read_group(w, "group_size", scheme, err);
}

struct groups {
  tri_stored *s;
  tri_error *err;
};

/* A group's targets are not read: a layer's tensors say themselves whether they are quantized. */
static tri_status read_config_group(void *ctx, const char *key, const tri_json *group) {
  struct groups *g = ctx;
  tri_error *err = g->err;
  const tri_json *w = tri_json_get(group, "weights");
  const char *type = tri_json_get_str(w, "type");
  tri_stored_scheme scheme = {0};
  int64_t bits = 8;
  (void)key;
  TRI_CHECK(check_name(group, "format", formats, supported_formats, err));
  if (tri_json_kind_of(w) == TRI_JSON_NULL) return TRI_OK; /* activations alone */
  TRI_CHECK(check_name(w, "type", "int float", "int and float", err));
  TRI_CHECK(read_int(w, "num_bits", 1, 64, &bits, err));
  scheme.is_float = type && !strcmp(type, "float");
  TRI_CHECK(check_bits("num_bits", bits, !scheme.is_float, true, err));
  scheme.bits = (int)bits;
  TRI_CHECK(read_strategy(w, &scheme, err));
  return add_scheme(g->s, scheme, err);
}

static tri_status read_compressed(const tri_json *q, tri_stored *s, tri_error *err) {
  const tri_json *groups = tri_json_get(q, "config_groups"), *sparsity = tri_json_get(q, "sparsity_config");
  const char *sparse = tri_json_get_str(sparsity, "format");
  TRI_CHECK(check_name(q, "format", formats, supported_formats, err));
  /* frozen: older releases */
  TRI_CHECK(check_name(q, "quantization_status", "compressed frozen", "compressed and frozen", err));
  if (tri_json_size(tri_json_get(tri_json_get(q, "transform_config"), "config_groups")))
    return refuse("transform_config", "config_groups", "weights without rotations", err);
  if (sparse && strcmp(sparse, "dense")) return refuse("sparsity_config", sparse, "dense", err);
  struct groups g = {s, err};
  if (tri_json_kind_of(groups) == TRI_JSON_OBJECT) TRI_CHECK(tri_json_each(groups, read_config_group, &g));
  if (s->num_schemes) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, "config_groups", "quantization_config: config_groups has no weights");
}

/* ---- which of them ---- */

static const struct {
  const char *name, *text;
  tri_stored_method method;
  tri_status (*read)(const tri_json *q, tri_stored *s, tri_error *err);
} methods[] = {
    {"fp8", "FP8", TRI_STORED_FP8, read_fp8},
    {"fbgemm_fp8", "FP8", TRI_STORED_FP8, read_fbgemm},
    {"modelopt", "FP8", TRI_STORED_FP8, read_modelopt},
    {"mxfp4", "MXFP4", TRI_STORED_MXFP4, read_mxfp4},
    {"compressed-tensors", "compressed-tensors", TRI_STORED_COMPRESSED, read_compressed},
    {"gptq", "GPTQ", TRI_STORED_GPTQ, read_gptq},
    {"awq", "AWQ", TRI_STORED_AWQ, read_awq},
};
enum { NUM_METHODS = sizeof methods / sizeof *methods };

static tri_status refuse_method(const char *key, const char *method, tri_error *err) {
  const char *way = "take a release in one of these, or the bfloat16 one that it was made from";
  if (!strcmp(method, "bitsandbytes"))
    way = "take a release in one of these or in bfloat16, or load it with transformers, then .dequantize() and "
          ".save_pretrained(DIR)";
  return tri_fail(
      err, TRI_UNSUPPORTED, key,
      "%s: quant_method \"%.40s\" is not read, only fp8, fbgemm_fp8, modelopt, mxfp4, compressed-tensors, gptq and "
      "awq: "
      "%s (--quantization int8 rounds any of them while it is loaded)",
      key, method, way);
}

static tri_status read_method(const char *key, const tri_json *q, tri_stored *s, tri_error *err) {
  const char *method = tri_json_get_str(q, "quant_method");
  if (!method && !strcmp(key, "compression_config")) method = "compressed-tensors";
  s->has_kv_scales = tri_json_kind_of(tri_json_get(q, "kv_cache_scheme")) == TRI_JSON_OBJECT ||
                     tri_json_get_str(q, "kv_cache_quant_algo");
  if (!method) return refuse_method(key, "(none is named)", err);
  for (int i = 0; i < NUM_METHODS; i++) {
    if (strcmp(method, methods[i].name) != 0) continue;
    s->method = methods[i].method;
    return methods[i].read(q, s, err);
  }
  return refuse_method(key, method, err);
}

tri_status tri_stored_read(const tri_json *config, tri_dtype model_dtype, tri_stored *out, tri_error *err) {
  static const char *const keys[] = {"quantization_config", "compression_config"};
  tri_stored s = {.widened = model_dtype == TRI_F16 ? TRI_F16 : TRI_BF16};
  for (size_t k = 0; k < 2 && s.method == TRI_STORED_PLAIN; k++) {
    const tri_json *q = tri_json_get(config, keys[k]);
    if (tri_json_kind_of(q) != TRI_JSON_NULL) TRI_CHECK(read_method(keys[k], q, &s, err));
  }
  *out = s;
  return TRI_OK;
}

bool tri_stored_has_fp8(const tri_stored *s) {
  for (int i = 0; i < s->num_schemes; i++)
    if (s->schemes[i].is_float && s->schemes[i].bits == 8) return true;
  return false;
}

bool tri_stored_widens_blocks(const tri_stored *s) {
  enum { WIDE = 128 }; /* tri_groups_are_wide in kernels/tensor.h */
  for (int i = 0; i < s->num_schemes && s->wide_blocks_only; i++) {
    const tri_stored_scheme *b = &s->schemes[i];
    if (b->is_float && b->bits == 8 && b->cols && b->cols != WIDE) return true;
  }
  return false;
}

bool tri_stored_has_int8_blocks(const tri_stored *s) {
  const uint64_t numbers = 1ull << TRI_GGUF_BLOCK_F32 | 1ull << TRI_GGUF_BLOCK_F16 | 1ull << TRI_GGUF_BLOCK_BF16;
  return s->method == TRI_STORED_GGUF && (s->blocks & ~numbers) == 1ull << TRI_GGUF_BLOCK_Q8_0;
}

tri_quantization tri_stored_quantization(const tri_stored *s, tri_quantization asked, bool prefers_fp8) {
  if (asked != TRI_QUANTIZE_AUTO) return asked;
  if (tri_stored_has_int8_blocks(s) && !s->wide_blocks_only) return TRI_QUANTIZE_INT8;
  return prefers_fp8 && tri_stored_has_fp8(s) ? TRI_QUANTIZE_FP8 : TRI_QUANTIZE_NONE;
}

tri_status tri_stored_read_modelopt(const tri_json *file, tri_dtype model_dtype, tri_stored *out, tri_error *err) {
  tri_stored s = {.widened = model_dtype == TRI_F16 ? TRI_F16 : TRI_BF16, .method = TRI_STORED_FP8};
  const tri_json *q = tri_json_get(file, "quantization");
  s.has_kv_scales = tri_json_get_str(q, "kv_cache_quant_algo");
  if (s.has_kv_scales && tri_json_kind_of(tri_json_get(q, "quant_algo")) == TRI_JSON_NULL)
    s.method = TRI_STORED_PLAIN; /* its cache alone */
  else
    TRI_CHECK(read_modelopt(q, &s, err));
  *out = s;
  return TRI_OK;
}

static void shared_by(const tri_stored_scheme *s, char *out, size_t size) {
  if (!s->rows && !s->cols)
    snprintf(out, size, "a scale for each matrix");
  else if (!s->cols)
    snprintf(out, size, "a scale for each row");
  else if (s->rows == 1)
    snprintf(out, size, "a scale for %lld weights", (long long)s->cols);
  else
    snprintf(out, size, "a scale for %lld x %lld weights", (long long)s->rows, (long long)s->cols);
}

/* Types of blocks, which are widened: numbers are not named. */
static const char *blocks_text(uint64_t blocks, char out[TRI_STORED_TEXT]) {
  size_t n = (size_t)snprintf(out, TRI_STORED_TEXT, "GGUF");
  const char *before = ": ";
  for (int id = 0; id < 64 && n < TRI_STORED_TEXT; id++) {
    const tri_gguf_block *b = blocks >> id & 1 ? tri_gguf_block_find((uint32_t)id) : NULL;
    if (!b || b->weights == 1) continue;
    n += (size_t)snprintf(out + n, TRI_STORED_TEXT - n, "%s%s", before, b->name);
    before = ", ";
  }
  return out;
}

const char *tri_stored_text(const tri_stored *s, char out[TRI_STORED_TEXT]) {
  if (s->method == TRI_STORED_GGUF) return blocks_text(s->blocks, out);
  const char *name = "";
  char scales[80];
  for (int i = NUM_METHODS - 1; i >= 0; i--)
    if (methods[i].method == s->method) name = methods[i].text;
  shared_by(&s->schemes[0], scales, sizeof scales);
  if (s->num_schemes > 1)
    snprintf(out, TRI_STORED_TEXT, "%s", name);
  else if (s->method == TRI_STORED_FP8 || s->method == TRI_STORED_MXFP4)
    snprintf(out, TRI_STORED_TEXT, "%s (%s)", name, scales);
  else
    snprintf(out, TRI_STORED_TEXT, "%s (%s of %d bits, %s)", name, s->schemes[0].is_float ? "floats" : "integers",
             s->schemes[0].bits, scales);
  return out;
}
