/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/load_pipe.h"

#include <string.h>

/* A buffer's way: reading (the reader's) -> here, maybe early (waits for its side) -> finish -> copy under way ->
 * released. Copies are retired in the order in which they were queued, each with an event of the backend, which frees
 * the buffer and the room that it reads. Two rooms let the host fill one while the device copies the other. Every wait
 * is for something that is under way, so that the pipe cannot stop: a reader without a free buffer has reads or copies
 * to wait for. */
enum { ROOMS = 2, ROOM_PIECES = 3, NO_ROOM = -1 };

/* Copies under way: the buffer and the room that they read. */
struct copy {
  int slot, room;
};

/* A piece that is there before what it waits for. */
struct arrival {
  int slot;
  void *data;
};

struct tri_load_pipe {
  tri_backend *be;
  const tri_checkpoint *ckpt;
  tri_error *err;
  tri_reader *reader;
  size_t piece_bytes, memory_bytes;
  char *memory;
  char *rooms[ROOMS];
  bool room_taken[ROOMS];
  int next_room, taken;  /* taken: by the finish under way, or NO_ROOM */
  tri_piece *pieces;     /* [num_buffers] of the reader */
  struct arrival *early; /* [num_buffers] */
  int num_early;
  struct copy copies[TRI_UPLOAD_EVENTS]; /* a ring; a copy's index is its event */
  int first_copy, num_copies;
};

/* ---- copies ---- */

/* Waits for the oldest copy. */
static tri_status retire(tri_load_pipe *p) {
  struct copy *c = &p->copies[p->first_copy];
  tri_status st = p->be->ops.event_wait(p->be, TRI_EVENT_UPLOAD + p->first_copy);
  if (st != TRI_OK) {
    p->be->ops.stream_sync(p->be); /* finds the words */
    return tri_fail(p->err, st, "device", "cannot copy weights: %s", p->be->failure);
  }
  tri_reader_release(p->reader, c->slot);
  if (c->room != NO_ROOM) p->room_taken[c->room] = false;
  p->first_copy = (p->first_copy + 1) % TRI_UPLOAD_EVENTS;
  p->num_copies--;
  return TRI_OK;
}

/* Also where a finish has queued nothing: the buffer is then released with what was queued before. */
static tri_status note_copy(tri_load_pipe *p, int slot) {
  TRI_CHECK(p->num_copies == TRI_UPLOAD_EVENTS ? retire(p) : TRI_OK);
  int at = (p->first_copy + p->num_copies) % TRI_UPLOAD_EVENTS;
  p->copies[at] = (struct copy){slot, p->taken};
  p->num_copies++;
  p->be->ops.event_record(p->be, TRI_EVENT_UPLOAD + at, TRI_STREAM_COPY);
  return TRI_OK;
}

void tri_load_pipe_send(tri_load_pipe *p, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                        size_t rows) {
  p->be->ops.upload_rows(p->be, to, to_pitch, from, from_pitch, width, rows);
}

tri_status tri_load_pipe_room(tri_load_pipe *p, void **room) {
  tri_status st = TRI_OK;
  while (p->room_taken[p->next_room] && st == TRI_OK) st = retire(p);
  if (st != TRI_OK) return st;
  p->taken = p->next_room;
  p->room_taken[p->taken] = true;
  *room = p->rooms[p->taken];
  p->next_room = (p->next_room + 1) % ROOMS;
  return TRI_OK;
}

/* ---- reads ---- */

/* slot -1: no read in particular. */
static tri_status cannot_read(tri_load_pipe *p, int slot, tri_status st, const tri_error *why) {
  if (slot < 0) return tri_fail(p->err, st, "model", "cannot read the checkpoint: %.250s", why->message);
  const char *name = p->pieces[slot].tensor->name;
  return tri_fail(p->err, st, name, "cannot read tensor %.80s: %.250s", name, why->message);
}

static bool is_early(const tri_piece *piece) { return piece->waits_for && *piece->waits_for; }

/* Takes a piece that need not wait any longer; slot -1 without one. */
static struct arrival take_early(tri_load_pipe *p) {
  for (int i = 0; i < p->num_early; i++) {
    struct arrival a = p->early[i];
    if (is_early(&p->pieces[a.slot])) continue;
    p->early[i] = p->early[--p->num_early];
    return a;
  }
  return (struct arrival){.slot = -1};
}

/* Calls the piece's finish with data that is aligned for its type. */
static tri_status finish_piece(tri_load_pipe *p, int slot, void *data) {
  const tri_piece *piece = &p->pieces[slot];
  /* A header of odd length puts a tensor anywhere. */
  size_t unit = piece->tensor->block ? 1 : tri_dtype_size(piece->tensor->dtype); /* blocks are read byte by byte */
  if ((uintptr_t)data % unit) {
    void *aligned = (void *)((uintptr_t)data & ~(uintptr_t)(sizeof(float) - 1));
    memmove(aligned, data, p->piece_bytes);
    data = aligned;
  }
  p->taken = NO_ROOM;
  __atomic_fetch_add(&p->be->loaded, 1, __ATOMIC_RELAXED);
  tri_status st = piece->finish(p, piece, data);
  return st == TRI_OK ? note_copy(p, slot) : st;
}

/* One read or one copy less under way. TRI_AGAIN: there was none. */
static tri_status advance(tri_load_pipe *p) {
  tri_error why = {0};
  int slot = -1;
  void *data;
  struct arrival ready = take_early(p);
  if (ready.slot >= 0) return finish_piece(p, ready.slot, ready.data);
  tri_status st = tri_reader_next(p->reader, &slot, &data, &why);
  if (st == TRI_AGAIN) return p->num_copies ? retire(p) : TRI_AGAIN;
  if (st != TRI_OK) return cannot_read(p, slot, st, &why);
  if (!is_early(&p->pieces[slot])) return finish_piece(p, slot, data);
  p->early[p->num_early++] = (struct arrival){slot, data};
  return TRI_OK;
}

tri_status tri_load_pipe_read(tri_load_pipe *p, const tri_piece *piece, uint64_t at, size_t bytes) {
  tri_error why = {0};
  const tri_st_tensor *t = piece->tensor;
  int slot = 0;
  tri_status st;
  if (!bytes) return TRI_OK; /* an empty share */
  while ((st = tri_reader_start(p->reader, t->file, t->offset + at, bytes, &slot, &why)) == TRI_AGAIN) {
    st = advance(p);
    if (st != TRI_OK) return st;
  }
  p->pieces[slot] = *piece;
  return st == TRI_OK ? TRI_OK : cannot_read(p, slot, st, &why);
}

tri_status tri_load_pipe_drain(tri_load_pipe *p) {
  tri_status st;
  while ((st = advance(p)) == TRI_OK) continue;
  return st == TRI_AGAIN ? TRI_OK : st;
}

void tri_load_pipe_tell(tri_load_pipe *p, tri_error *err) { p->err = err; }
size_t tri_load_pipe_room_bytes(const tri_load_pipe *p) { return ROOM_PIECES * p->piece_bytes; }
size_t tri_load_pipe_piece_bytes(const tri_load_pipe *p) { return p->piece_bytes; }
uint64_t tri_load_pipe_bytes_read(const tri_load_pipe *p) { return tri_reader_bytes(p->reader); }

/* ---- from nothing and back ---- */

static tri_status take_memory(tri_load_pipe *p, tri_reader_config *io) {
  size_t room = ROOM_PIECES * io->piece_bytes, buffers = tri_reader_memory_bytes(io);
  p->memory_bytes = buffers + ROOMS * room;
  if (!buffers || p->memory_bytes > TRI_LOAD_PIPE_MOST)
    return tri_fail(p->err, TRI_TOO_LARGE, "memory", "%d buffers of %zu bytes to read weights through exceed %zu MiB",
                    io->num_buffers, io->piece_bytes, TRI_LOAD_PIPE_MOST >> 20);
  tri_status st = p->be->ops.host_alloc(p->be, p->memory_bytes, (void **)&p->memory);
  if (st != TRI_OK)
    return tri_fail(p->err, st, "memory", "the system gives no %.1f MiB of %s memory to read weights through",
                    (double)p->memory_bytes / 0x1p20, p->be->host_memory ? "host" : "pinned host");
  io->memory = p->memory;
  for (int i = 0; i < ROOMS; i++) p->rooms[i] = p->memory + buffers + (size_t)i * room;
  return TRI_OK;
}

static tri_status add_files(tri_load_pipe *p) {
  tri_status st = TRI_OK;
  int number;
  for (int i = 0; st == TRI_OK && i < tri_checkpoint_num_files(p->ckpt); i++)
    st =
        tri_reader_add_file(p->reader, tri_checkpoint_fd(p->ckpt, i), tri_checkpoint_path(p->ckpt, i), &number, p->err);
  return st;
}

/* Buffers and weights are the same memory on a host: a model that is small is read through fewer buffers, with a fourth
 * of its bytes, as long as there are enough to keep a disk busy. */
static void spare_memory(tri_reader_config *rc, uint64_t most_bytes) {
  enum { FEWEST = 8 };
  uint64_t fourth = rc->piece_bytes ? most_bytes / rc->piece_bytes / 4 : 0;
  if (fourth < FEWEST) fourth = FEWEST;
  if (fourth < (uint64_t)rc->num_buffers) rc->num_buffers = (int)fourth;
}

tri_status tri_load_pipe_create(tri_backend *be, const tri_checkpoint *ckpt, const tri_reader_config *io,
                                uint64_t most_bytes, tri_load_pipe **out, tri_error *err) {
  tri_status st;
  tri_reader_config rc = *io;
  tri_load_pipe *p = tri_calloc(1, sizeof *p);
  if (!p) return tri_fail(err, TRI_NO_MEMORY, "model", "no memory to read weights");
  uint64_t pieces = rc.piece_bytes ? most_bytes / rc.piece_bytes + TRI_UPLOAD_EVENTS : 0;
  if (pieces < (uint64_t)rc.num_buffers) rc.num_buffers = (int)pieces;
  if (be->host_memory) spare_memory(&rc, most_bytes);
  *p = (tri_load_pipe){.be = be, .ckpt = ckpt, .err = err, .piece_bytes = rc.piece_bytes};
  TRI_TRY(take_memory(p, &rc));
  p->pieces = tri_calloc((size_t)rc.num_buffers, sizeof *p->pieces);
  p->early = tri_calloc((size_t)rc.num_buffers, sizeof *p->early);
  if (!p->pieces || !p->early) TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "model", "no memory to read weights"));
  TRI_TRY(tri_reader_create(&rc, &p->reader, err));
  TRI_TRY(add_files(p));
  *out = p;
  p = NULL;
cleanup:
  tri_load_pipe_destroy(p);
  return st;
}

void tri_load_pipe_destroy(tri_load_pipe *p) {
  if (!p) return;
  p->be->ops.event_record(p->be, TRI_EVENT_UPLOAD, TRI_STREAM_COPY); /* copies read what is about to go */
  p->be->ops.event_wait(p->be, TRI_EVENT_UPLOAD);
  bool ended = tri_reader_destroy(p->reader);
  if (p->memory && ended) p->be->ops.host_free(p->be, p->memory, p->memory_bytes);
  tri_free(p->pieces);
  tri_free(p->early);
  tri_free(p);
}
