/* SPDX-License-Identifier: Apache-2.0 */
/* How a checkpoint's matrices are quantized, as config.json says it: quantization_config, or compression_config, as
 * compressed-tensors once called it; or hf_quant_config.json, where ModelOpt once wrote it alone.
 *
 * Which layers are quantized is not read from here. A layer that is has other tensors than one that is not (a list of
 * exceptions, modules_to_not_convert or ignore, says the same once more), and the shapes of its tensors say how many
 * bits its codes have and how many of them share a scale; they must be those of one of the schemes. Nor is it looked at
 * how activations would be rounded: products are those of the widened weights. */
#ifndef TRI_RUNTIME_MODEL_QUANTIZATION_H
#define TRI_RUNTIME_MODEL_QUANTIZATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/gguf.h"
#include "base/json/json.h"
#include "base/kinds.h"
#include "base/status.h"

enum { TRI_MAX_SCHEMES = 16 };

typedef enum tri_stored_method {
  TRI_STORED_PLAIN, /* not quantized */
  TRI_STORED_FP8,
  TRI_STORED_MXFP4,
  TRI_STORED_COMPRESSED, /* compressed-tensors */
  TRI_STORED_GPTQ,
  TRI_STORED_AWQ,
  TRI_STORED_GGUF /* each tensor says its own form */
} tri_stored_method;

/* Elements of a matrix [out, in] that share a scale. A size of 0 is the matrix's own. */
typedef struct tri_stored_scheme {
  int bits;
  bool is_float;      /* the codes are FP8 or FP4 numbers */
  int64_t rows, cols; /* that share a scale */
} tri_stored_scheme;

typedef struct tri_stored {
  tri_stored_method method;
  int num_schemes;
  tri_stored_scheme schemes[TRI_MAX_SCHEMES];
  bool zeros_less_one;   /* GPTQ: a zero point is stored as one less */
  bool has_kv_scales;    /* for a KV cache of FP8, which are not used; also where the matrices are not quantized */
  tri_dtype widened;     /* of matrices in memory, unless another type is asked for */
  uint64_t blocks;       /* GGUF: a bit for each type of the tensors (tri_gguf_block_id) */
  bool wide_blocks_only; /* of blocks only wide ones stay (tri_groups_are_wide): as the backend wants it */
  /* GGUF, for the tables: queries, keys and values are one tensor; the up-projections of keys and values are two */
  bool fused_qkv, split_kv_up;
} tri_stored;

/* model_dtype: the config's own. A model that is not quantized is TRI_STORED_PLAIN. Refuses, by the names of the field
 * and its value, what cannot be widened. */
tri_status tri_stored_read(const tri_json *config, tri_dtype model_dtype, tri_stored *out, tri_error *err);
/* The same from the root of hf_quant_config.json, of a model whose config.json says nothing of it. */
tri_status tri_stored_read_modelopt(const tri_json *file, tri_dtype model_dtype, tri_stored *out, tri_error *err);
/* Returns whether it has matrices of FP8. */
bool tri_stored_has_fp8(const tri_stored *s);
/* Returns whether blocks of its FP8 are widened because they are not wide (wide_blocks_only). */
bool tri_stored_widens_blocks(const tri_stored *s);
/* Returns whether it is a GGUF file whose matrices are numbers or int8 with a scale for 32 (Q8_0). */
bool tri_stored_has_int8_blocks(const tri_stored *s);
/* Returns what weights become where `asked` may be AUTO; prefers_fp8: the backend's. Never AUTO. */
tri_quantization tri_stored_quantization(const tri_stored *s, tri_quantization asked, bool prefers_fp8);
/* "FP8, a scale for 128 x 128 weights", for people. */
enum { TRI_STORED_TEXT = 160 };
const char *tri_stored_text(const tri_stored *s, char out[TRI_STORED_TEXT]);

#endif
