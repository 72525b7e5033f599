/* SPDX-License-Identifier: Apache-2.0 */
#include "offload/striped_pack.h"

#include "base/mem.h"

tri_status tri_striped_pack_open(const tri_pack_paths *paths, const tri_weight_pack_layout *layout,
                                 tri_striped_pack **out, tri_error *err) {
  tri_status st;
  tri_striped_pack *p = tri_calloc(1, sizeof *p);
  if (!p) return tri_fail(err, TRI_NO_MEMORY, paths->list[0], "no memory for the pack %s", paths->list[0]);
  TRI_TRY(tri_stripes_make(paths->list[0], layout, paths->count, &p->stripes, err));
  for (int i = 0; i < paths->count; i++)
    TRI_TRY(tri_weight_pack_open(paths->list[i], &p->stripes->files[i], &p->files[i], err));
  *out = p;
  return TRI_OK;
cleanup:
  tri_striped_pack_close(p);
  return st;
}

void tri_striped_pack_close(tri_striped_pack *p) {
  if (!p) return;
  for (int i = 0; i < TRI_STRIPES_MAX_FILES; i++) tri_weight_pack_close(p->files[i]);
  tri_stripes_free(p->stripes);
  tri_free(p);
}
