/* SPDX-License-Identifier: Apache-2.0 */
/* A pack of a few parts, and a maker of it that does as it is told: shared by the suites of packs. */
#ifndef TESTS_UNIT_PACK_KIT_H
#define TESTS_UNIT_PACK_KIT_H

#include "offload/striped_pack.h"

enum { KIT_PARTS = 12 };

typedef struct pack_kit {
  tri_pack_paths paths;
  const char *path;                        /* the first of them */
  char part[256];                          /* the file until it is the pack's */
  char others[TRI_STRIPES_MAX_FILES][256]; /* the others until they are */
  size_t sizes[KIT_PARTS];
  tri_weight_pack_layout layout;
  tri_weight_pack_maker maker;
  int fail_at, stop_at; /* parts; -1: none */
  atomic_bool stop;
  int fills, last_done;
  uint64_t bytes_done, bytes; /* as progress had them */
  bool odd;                   /* memory or the descriptor was not as promised, or progress went back */
} pack_kit;

/* largest: bytes of one of the parts. Removes what lies at the path, too. */
void pack_kit_init(pack_kit *k, const char *path, size_t largest);
/* Spreads the pack over one more file. */
void pack_kit_spread(pack_kit *k, const char *path);
uint64_t pack_kit_file_bytes(const pack_kit *k, int file);
unsigned char pack_kit_byte(const pack_kit *k, int part, size_t i);
/* Returns what tri_striped_pack_make says, with its parts in *made; closes the pack. Asserts nothing. */
tri_status pack_kit_make(pack_kit *k, int *made, tri_error *err);
bool pack_kit_exists(const char *path);
/* The files at the paths are the whole pack, and nothing lies beside them: NULL, or what is wrong. */
const char *pack_kit_fault(const pack_kit *k);

#endif
