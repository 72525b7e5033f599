/* SPDX-License-Identifier: Apache-2.0 */
/* The room and the rights that a pack wants of its folders: what makers ask for, and whether they would get it. */
#ifndef TRI_OFFLOAD_PACK_ROOM_H
#define TRI_OFFLOAD_PACK_ROOM_H

#include <limits.h>
#include <sys/types.h>

#include "offload/striped_pack.h"

/* The room that packs which were looked at before take of the file systems; all zeros at first, but for `keys`. */
typedef struct tri_pack_rooms {
  struct tri_pack_room {
    dev_t device;
    uint64_t taken;
  } list[TRI_STRIPES_MAX_FILES];
  int count;
  tri_weight_pack_key *keys; /* [for each that is looked at], of which so many have been; the caller's */
  int num_keys;
} tri_pack_rooms;

/* Looks, and changes nothing: TRI_OK where the pack is there, or where its maker would find room for it and those in
 * `rooms`, to which it is added. All have the same folders. Otherwise fails as tri_striped_pack_make would: with
 * TRI_NO_CAPACITY (the file and both numbers), TRI_PERMISSION, or TRI_IO. */
tri_status tri_striped_pack_check(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                  tri_pack_rooms *rooms, tri_error *err);

/* A pack's file of so many bytes has no room, of which there is so much. code: why, of errno. */
tri_status tri_pack_refuse_room(const char *path, uint64_t bytes, uint64_t available, int code, tri_error *err);
/* A file `name` cannot be opened to be written: TRI_PERMISSION where that will not change by itself. */
tri_status tri_pack_refuse_open(const char *name, int code, tri_error *err);
/* TRI_IO: a file cannot be `what`. */
tri_status tri_pack_refuse(const char *name, const char *what, int code, tri_error *err);

/* Copies the name of the folder that a file is in. */
void tri_pack_folder(const char *path, char folder[static PATH_MAX]);

#endif
