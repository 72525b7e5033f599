/* SPDX-License-Identifier: Apache-2.0 */
/* The texts around the JSON of a constrained answer, as members of a constraint's map. */
#ifndef TRI_COMM_WIRE_CONSTRAINT_H
#define TRI_COMM_WIRE_CONSTRAINT_H

#include "comm/wire/pack.h"

/* Takes a member by its key. *known: whether it is one of a frame. */
tri_status tri_wire_frame_take(tri_unpacker *d, const tri_value *key, const tri_value *v, tri_wire_frame *f,
                               bool *known);
tri_status tri_wire_frame_check(const tri_wire_frame *f, tri_error *err);
/* Returns how many members a frame has on the wire. */
uint32_t tri_wire_frame_members(const tri_wire_frame *f);
void tri_wire_frame_write(tri_pack *p, const tri_wire_frame *f);

#endif
