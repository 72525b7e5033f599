/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors checkpoints: headers only. runtime/load/loader.c reads the bytes, by file and offset.
 *
 * The file is hostile until proven otherwise: the header is at most 100 MB, every tensor's bytes must match its shape
 * and type, and the tensors must cover the data contiguously, without overlap, gap or rest. */
#ifndef TRI_RUNTIME_MODEL_SAFETENSORS_H
#define TRI_RUNTIME_MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/gguf.h"
#include "base/status.h"

#define TRI_ST_MAX_HEADER ((uint64_t)100 << 20)
#define TRI_ST_MAX_RANK 8

typedef struct tri_st_tensor {
  const char *name;
  int file;        /* index into the checkpoint's files */
  tri_dtype dtype; /* TRI_DTYPE_COUNT: a type that Trireme has no name for */
  int rank;        /* dimensions */
  int64_t shape[TRI_ST_MAX_RANK];
  uint64_t offset, bytes;      /* in the file */
  const tri_gguf_block *block; /* of a GGUF file's tensor that is no numbers of a dtype; otherwise NULL */
  int64_t paired; /* rows of a head whose halves take turns in the file: row i of half s is the file's 2 i + s;
                     0: rows lie as the model has them */
} tri_st_tensor;

typedef struct tri_checkpoint tri_checkpoint;

/* One file. */
tri_status tri_checkpoint_open_file(const char *path, tri_checkpoint **out, tri_error *err);
/* DIR/model.safetensors, or the files that DIR/model.safetensors.index.json names; or a GGUF file or set, see
 * tri_gguf_files_find, whose tensors have the names of a folder (gguf_model.h). Files stay open until
 * tri_checkpoint_close: their bytes are read by descriptor. Tensors and names belong to the checkpoint, which does not
 * change, so that any thread may look things up. TRI_NOT_FOUND, TRI_UNSUPPORTED: no folder, or another format
 * (tri_folder_no_weights); TRI_CORRUPT: a file or the index is wrong. */
tri_status tri_checkpoint_open(const char *dir, tri_checkpoint **out, tri_error *err);
/* Adds the tensors of another file, whose names get a prefix. On an error the checkpoint can only be closed. */
tri_status tri_checkpoint_add(tri_checkpoint *c, const char *path, const char *prefix, tri_error *err);
void tri_checkpoint_close(tri_checkpoint *c); /* NULL is fine */

size_t tri_checkpoint_num_tensors(const tri_checkpoint *c);
const tri_st_tensor *tri_checkpoint_tensor(const tri_checkpoint *c, size_t i);       /* sorted by name */
const tri_st_tensor *tri_checkpoint_find(const tri_checkpoint *c, const char *name); /* NULL when absent */
int tri_checkpoint_num_files(const tri_checkpoint *c);
int tri_checkpoint_fd(const tri_checkpoint *c, int file);
const char *tri_checkpoint_path(const tri_checkpoint *c, int file);
uint64_t tri_checkpoint_data_start(const tri_checkpoint *c, int file); /* bytes of the file before the tensors */

/* Checks a header (header_len bytes of JSON before data_len bytes of data). Exposed for the fuzzer:
 * tri_checkpoint_open goes through it. *count tensors are written to *tensors (tri_free; names live in *names,
 * tri_free). */
tri_status tri_st_parse_header(const char *header, size_t header_len, uint64_t data_len, tri_st_tensor **tensors,
                               size_t *count, char **names, tri_error *err);

#endif
