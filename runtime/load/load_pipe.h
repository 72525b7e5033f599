/* SPDX-License-Identifier: Apache-2.0 */
/* The way from a checkpoint's files to the backend's memory: reads under way, then what the loader makes of each, then
 * copies under way, all at once. Host memory is a ring of buffers of fixed size, pinned where the backend is a device.
 *
 * tri_load_pipe_read is called for every byte range that is needed, and returns before it is there. piece.finish is
 * called for each, in the order in which the disk gives them, from inside these functions, and sends them on with
 * tri_load_pipe_send*. Pieces that wait for others must have been asked for after them. tri_load_pipe_drain returns
 * when everything has arrived.
 *
 * One thread uses a pipe. Its functions wait for the disk or the device where a buffer is needed, and allocate nothing
 * after create. */
#ifndef TRI_RUNTIME_LOAD_LOAD_PIPE_H
#define TRI_RUNTIME_LOAD_LOAD_PIPE_H

#include "offload/reader.h"
#include "runtime/load/weights.h"

/* Host memory of a rank's pipe, at most. */
#define TRI_LOAD_PIPE_MOST ((size_t)256 << 20)

typedef struct tri_load_pipe tri_load_pipe;

/* A piece that was asked for, and where it goes. */
typedef struct tri_piece {
  tri_status (*finish)(tri_load_pipe *pipe, const struct tri_piece *p, char *data);
  void *ctx; /* of finish */
  const tri_st_tensor *tensor;
  tri_weight_place place;
  tri_slice slice;
  int64_t first, count;    /* rows of the slice; columns, where the file holds the transpose */
  int64_t k;               /* columns of the destination */
  size_t from_pitch, skip; /* bytes in the piece: from row to row; before the first row's columns */
  /* of a quantized matrix: */
  struct tri_side *side;
  const int *waits_for;         /* finish is called when this is 0; NULL: at once */
  int64_t begin_row, begin_col; /* element of the file that the piece begins with */
  int64_t up_row; /* not 0: the rows between the slice's, which are ups, go below this row of the weight */
  char *to;       /* of scales and the like: where their bytes go */
  /* of scales that stay, of which the piece has rows from begin_row on: */
  int64_t group_rows; /* of the file */
  tri_dtype scale_type;
} tri_piece;

/* most_bytes: about what will be read; a pipe for little is small. */
tri_status tri_load_pipe_create(tri_backend *be, const tri_checkpoint *ckpt, const tri_reader_config *io,
                                uint64_t most_bytes, tri_load_pipe **out, tri_error *err);
/* Also in the middle, after a failure. NULL is fine. */
void tri_load_pipe_destroy(tri_load_pipe *pipe);

/* Failures from here on are written to err. */
void tri_load_pipe_tell(tri_load_pipe *pipe, tri_error *err);
size_t tri_load_pipe_piece_bytes(const tri_load_pipe *pipe);
uint64_t tri_load_pipe_bytes_read(const tri_load_pipe *pipe);

/* `bytes` bytes of the tensor from its byte `at` on. The piece is copied; data is aligned for the tensor's type, and
 * may be changed. Finishes of other pieces may run inside. A failure of any of them is returned here, or by
 * tri_load_pipe_drain, and the pipe is then good for tri_load_pipe_destroy alone. */
tri_status tri_load_pipe_read(tri_load_pipe *pipe, const tri_piece *piece, uint64_t at, size_t bytes);
tri_status tri_load_pipe_drain(tri_load_pipe *pipe);

/* For finish: from a piece's data, or from the room, to the backend's memory. */
void tri_load_pipe_send(tri_load_pipe *pipe, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                        size_t width, size_t rows);
/* Host memory for what finish makes of a piece, once for each call of it: three times a piece's bytes. */
size_t tri_load_pipe_room_bytes(const tri_load_pipe *pipe);
tri_status tri_load_pipe_room(tri_load_pipe *pipe, void **room);

#endif
