/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting parts into stripes, from the layout alone: readers and makers compute the same cut, and no file says it. */
#include "offload/stripes.h"

#include "offload/pack_form.h"
#include "base/hash.h"
#include "base/mem.h"

_Static_assert(TRI_STRIPE_BYTES % TRI_READER_BLOCK == 0, "stripes are whole blocks");

/* Returns the bytes of a part's stripes but for the last one. As many rows of one stripe a file as it takes with
 * TRI_STRIPE_BYTES each, then stripes as equal as whole blocks allow, so that no drive has to read longer than the
 * others. */
static size_t stripe_bytes(size_t part, int num_files) {
  size_t row = (size_t)num_files * TRI_STRIPE_BYTES, rows = (part + row - 1) / row, all = rows * (size_t)num_files;
  size_t bytes = (part + all - 1) / all;
  return num_files == 1 ? part : tri_weight_pack_padded(bytes);
}

static size_t stripes_of(size_t part, int num_files) {
  size_t bytes = stripe_bytes(part, num_files);
  return (part + bytes - 1) / bytes;
}

/* Returns how many stripes there are; 0: too many. */
static size_t count(const tri_weight_pack_layout *layout, int num_files) {
  size_t all = 0;
  for (int i = 0; i < layout->num_parts; i++) {
    size_t of_part = stripes_of(layout->part_bytes[i], num_files);
    if (of_part > TRI_WEIGHT_PACK_MAX_PARTS - all) return 0;
    all += of_part;
  }
  return all;
}

static void cut_part(tri_stripes *s, int part, size_t bytes) {
  size_t most = stripe_bytes(bytes, s->num_files);
  int next = s->first[part];
  for (size_t at = 0; at < bytes; at += most) {
    size_t left = bytes - at;
    int file = (next - s->first[part]) % s->num_files;
    s->list[next++] = (tri_stripe){file, s->files[file].num_parts++, at, left < most ? left : most};
  }
  s->first[part + 1] = next;
}

/* Gives each file the sizes of its stripes. */
static void fill_layouts(tri_stripes *s) {
  size_t *of_file[TRI_STRIPES_MAX_FILES], *next = s->bytes;
  for (int i = 0; i < s->num_files; i++) {
    s->files[i].part_bytes = of_file[i] = next;
    next += s->files[i].num_parts;
  }
  for (int i = 0; i < s->first[s->num_parts]; i++) of_file[s->list[i].file][s->list[i].number] = s->list[i].bytes;
}

/* A file that was made for another number of files, or another place among them, is of another key, and counts as
 * absent. */
static tri_weight_pack_key key_of(const tri_weight_pack_key *pack, int num_files, int file) {
  uint64_t place = (uint64_t)num_files << 32 | (uint64_t)file;
  if (num_files == 1) return *pack;
  return (tri_weight_pack_key){{tri_mix64(pack->words[0] ^ place), tri_mix64(pack->words[1] + place)}};
}

tri_status tri_stripes_make(const char *name, const tri_weight_pack_layout *layout, int num_files, tri_stripes **out,
                            tri_error *err) {
  tri_status st;
  TRI_CHECK(tri_weight_pack_layout_check(name, layout, err));
  size_t all = count(layout, num_files);
  tri_stripes *s = tri_calloc(1, sizeof *s);
  if (!s) return tri_fail(err, TRI_NO_MEMORY, name, "no memory for the stripes of %s", name);
  s->num_files = num_files;
  s->num_parts = layout->num_parts;
  s->list = tri_calloc(all + 1, sizeof *s->list);
  s->bytes = tri_calloc(all + 1, sizeof *s->bytes);
  s->first = tri_calloc((size_t)layout->num_parts + 1, sizeof *s->first);
  if (!s->list || !s->bytes || !s->first)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, name, "no memory for the %zu stripes of %s", all, name));
  for (int i = 0; all && i < layout->num_parts; i++) cut_part(s, i, layout->part_bytes[i]);
  fill_layouts(s);
  for (int i = 0; i < num_files; i++) {
    s->files[i].key = key_of(&layout->key, num_files, i);
    if (!tri_weight_pack_file_bytes(&s->files[i]))
      TRI_TRY(tri_fail(err, TRI_OUT_OF_RANGE, name, "%s: no pack can have %d parts of these sizes in %d files", name,
                       layout->num_parts, num_files));
  }
  *out = s;
  return TRI_OK;
cleanup:
  tri_stripes_free(s);
  return st;
}

void tri_stripes_free(tri_stripes *s) {
  if (!s) return;
  tri_free(s->list);
  tri_free(s->first);
  tri_free(s->bytes);
  tri_free(s);
}
