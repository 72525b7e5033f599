/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/expert_placement.h"
#include "runtime/model/layout.h"

Suite *suite_expert_placement(void);

/* Layer 1 of three has no experts. */
static tri_model_config model(int experts) {
  tri_model_config c = {.num_layers = 3, .moe = {.num_experts = experts}};
  c.layer_flags[0] = c.layer_flags[2] = TRI_LAYER_SPARSE;
  return c;
}

static tri_expert_placement *make(const tri_model_config *c, tri_expert_placement_config config) {
  tri_expert_placement *p = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_expert_placement_make(c, &config, &p, &err) == TRI_OK, "%s", err.message);
  return p;
}

/* Every expert has a slot, and no share an expert twice. */
static void check_sound(const tri_expert_placement *p, int ep) {
  for (int row = 0; row < p->num_rows; row++) {
    const int32_t *of = p->expert_of + row * p->num_slots;
    for (int e = 0; e < p->num_experts; e++) {
      int n = 0;
      for (int s = 0; s < p->num_slots; s++) n += of[s] == e;
      ck_assert_int_ge(n, 1);
    }
    for (int share = 0; share < ep; share++) {
      tri_range own = tri_range_part(p->num_slots, ep, share);
      for (int a = own.first; a < own.first + own.count; a++)
        for (int b = own.first; b < a; b++)
          ck_assert_msg(of[a] != of[b], "%d slots in %d shares: %d has expert %d twice", p->num_slots, ep, share,
                        of[a]);
    }
  }
}

static void check_row(const tri_expert_placement *p, const int *want) {
  ck_assert_int_eq(p->num_rows, 2);
  ck_assert_int_eq(p->row_of[0], 0);
  ck_assert_int_eq(p->row_of[1], -1);
  ck_assert_int_eq(p->row_of[2], 1);
  for (int s = 0; s < p->num_slots; s++) {
    ck_assert_int_eq(tri_expert_of_slot(p, 0, s), want[s]);
    ck_assert_int_eq(tri_expert_of_slot(p, 2, s), want[s]);
  }
}

START_TEST(strategies) {
  tri_model_config c = model(7);
  ck_assert_ptr_null(make(&c, (tri_expert_placement_config){.ep = 3}));
  ck_assert_int_eq(tri_expert_slots(NULL, &c), 7);
  ck_assert_int_eq(tri_expert_of_slot(NULL, 2, 5), 5);
  tri_expert_placement *p = make(&c, (tri_expert_placement_config){.ep = 3, .strategy = TRI_EXPERTS_ROUND_ROBIN});
  check_row(p, (int[]){0, 3, 1, 4, 2, 5, 6}); /* shares of 2, 2 and 3 */
  tri_expert_placement_free(p);
  p = make(&c, (tri_expert_placement_config){.ep = 3, .num_redundant = 2});
  check_row(p, (int[]){0, 1, 2, 3, 4, 0, 5, 6, 1});
  tri_expert_placement_free(p);
  p = make(&c, (tri_expert_placement_config){.ep = 2, .num_redundant = 7});
  check_sound(p, 2);
  ck_assert_int_eq(tri_expert_most_copies(p), 2);
  tri_expert_placement_free(p);
}
END_TEST

START_TEST(no_share_has_an_expert_twice) {
  for (int experts = 1; experts <= 9; experts++)
    for (int ep = 1; ep <= experts; ep++)
      for (int r = 0; r <= experts * (ep - 1); r++)
        for (int s = 0; s < 2; s++) {
          tri_model_config c = model(experts);
          tri_expert_placement *p =
              make(&c, (tri_expert_placement_config){.ep = ep, .strategy = (tri_expert_strategy)s, .num_redundant = r});
          if (!p) continue;
          ck_assert_int_eq(p->num_slots, experts + r);
          check_sound(p, ep);
          tri_expert_placement_free(p);
        }
}
END_TEST

START_TEST(tables_of_slots) {
  tri_model_config c = model(2);
  tri_expert_placement *p = tri_expert_placement_alloc(&c, 5);
  int32_t table[2][4];
  memcpy(p->expert_of + 5, (int32_t[]){1, 0, 1, 1, 0}, 5 * sizeof(int32_t));
  p->expert_of[4] = 1;
  ck_assert_int_eq(tri_expert_most_copies(p), 4);
  p->expert_of[0] = 1;
  ck_assert_int_eq(tri_expert_most_copies(p), 3);
  tri_expert_slot_table(p, 2, 3, &table[0][0]);
  ck_assert_mem_eq(table, ((int32_t[2][4]){{2, 1, 4, 0}, {3, 0, 2, 3}}), sizeof table);
  uint64_t h = tri_expert_placement_hash(p);
  p->expert_of[0] = 0;
  ck_assert(h != tri_expert_placement_hash(p));
  ck_assert_uint_eq(tri_expert_placement_hash(NULL), 0);
  tri_expert_placement_free(p);
}
END_TEST

/* ---- files ---- */

static const char path[] = TRI_TEST_SCRATCH "/expert_location.json";

static tri_status read(const tri_model_config *c, const char *text, tri_expert_placement **out, tri_error *err) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  return tri_expert_placement_read(c, path, out, err);
}

START_TEST(files) {
  tri_model_config c = model(3);
  tri_expert_placement *p;
  tri_error err = {0};
  ck_assert_int_eq(read(&c,
                        "{\"num_experts\": 3, \"num_slots\": 4, \"layers\": [[2, 0, 1, 0], [1, 1, 2, 0]], \"more\": 1}",
                        &p, &err),
                   TRI_OK);
  ck_assert_int_eq(tri_expert_of_slot(p, 0, 0), 2);
  ck_assert_int_eq(tri_expert_of_slot(p, 2, 1), 1);
  tri_expert_placement_free(p);
  ck_assert_int_eq(read(&c, "{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[2, 0, 1]]}", &p, &err), TRI_OK);
  check_row(p, (int[]){2, 0, 1}); /* one for all */
  tri_expert_placement_free(p);
}
END_TEST

static const struct {
  const char *text, *why;
} wrong[] = {
    {"[", "malformed"},
    {"[]", "it is no JSON object"},
    {"{\"num_slots\": 3, \"layers\": [[0, 1, 2]]}", "no number num_experts"},
    {"{\"num_experts\": 3, \"layers\": [[0, 1, 2]]}", "no number num_slots"},
    {"{\"num_experts\": 4, \"num_slots\": 4, \"layers\": [[0, 1, 2, 3]]}", "num_experts is 4, the model has 3"},
    {"{\"num_experts\": 3, \"num_slots\": 2, \"layers\": [[0, 1]]}", "num_slots is 2: the range is 3 to"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": []}", "layers has 0 rows, the model has 2 layers"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, 2], [0, 1, 2], [0, 1, 2]]}", "layers has 3 rows"},
    {"{\"num_experts\": 3, \"num_slots\": 3}", "layers has 0 rows"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, 2], [0, 1]]}", "layer 2 has 2 slots, num_slots is 3"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, 2], 3]}", "layer 2 has 0 slots"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, 2], [0, 3, 1]]}", "layer 2, slot 1: 3 is no expert"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, -1]]}", "layer 0, slot 2: -1 is no expert"},
    {"{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[0, 1, \"2\"]]}", "layer 0, slot 2: "},
    {"{\"num_experts\": 3, \"num_slots\": 4, \"layers\": [[0, 1, 1, 0]]}", "layer 0: no slot has expert 2"},
};

START_TEST(refused_files) {
  tri_model_config c = model(3);
  tri_expert_placement *p = NULL;
  tri_error err = {0};
  tri_status st = read(&c, wrong[_i].text, &p, &err);
  ck_assert_msg(st != TRI_OK && strstr(err.message, _i ? wrong[_i].why : path), "%s: %s", wrong[_i].why, err.message);
  ck_assert_msg(strstr(err.message, path), "no file is named: %s", err.message);
  ck_assert_ptr_null(p);
}
END_TEST

START_TEST(refused_numbers) {
  tri_model_config c = model(3), dense = model(0);
  tri_expert_placement *p;
  tri_error err = {0};
  tri_expert_placement_config one = {.ep = 1, .num_redundant = 1}, many = {.ep = 2, .num_redundant = 4};
  ck_assert_int_eq(tri_expert_placement_make(&c, &one, &p, &err), TRI_OUT_OF_RANGE);
  ck_assert_str_eq(err.field, "num_redundant_experts");
  ck_assert_int_eq(tri_expert_placement_make(&c, &many, &p, NULL), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_expert_placement_make(&dense, &one, &p, NULL), TRI_UNSUPPORTED);
  read(&c, "{\"num_experts\": 3, \"num_slots\": 3, \"layers\": [[2, 0, 1]]}", &p, NULL);
  tri_expert_placement_free(p);
  tri_expert_placement_config file = {.ep = 2, .num_redundant = 1, .file = path};
  err = (tri_error){0};
  ck_assert_int_eq(tri_expert_placement_make(&c, &file, &p, &err), TRI_OUT_OF_RANGE);
  ck_assert_ptr_nonnull(strstr(err.message, "has slots for 0 copies, but 1"));
  ck_assert_ptr_null(p);
}
END_TEST

Suite *suite_expert_placement(void) {
  Suite *s = suite_create("expert_placement");
  TCase *c = tcase_create("expert_placement");
  tcase_add_test(c, strategies);
  tcase_add_test(c, no_share_has_an_expert_twice);
  tcase_add_test(c, tables_of_slots);
  tcase_add_test(c, files);
  tcase_add_loop_test(c, refused_files, 0, (int)(sizeof wrong / sizeof *wrong));
  tcase_add_test(c, refused_numbers);
  suite_add_tcase(s, c);
  return s;
}
