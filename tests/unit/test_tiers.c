/* SPDX-License-Identifier: Apache-2.0 */
/* Which parts of the weights stay, and where those that are streamed lie in their ring. */
#include <check.h>
#include <string.h>

#include "base/hash.h"
#include "runtime/load/tiers.h"

Suite *suite_tiers(void);

enum { MOST = 40 };

static size_t number(uint64_t *seed, size_t most) { return (size_t)(tri_splitmix64(seed) % most) + 1; }

/* ---- the ring ---- */

static bool overlap(const size_t *bytes, const tri_ring_place *places, int a, int b) {
  return places[a].at < places[b].at + bytes[b] && places[b].at < places[a].at + bytes[a];
}

/* A part that comes at position p meets nobody who has not gone: all from p - back + 1 on are still there. */
static void expect_apart(const size_t *bytes, int n, const tri_ring_place *places, size_t ring) {
  for (int p = n; p < 2 * n; p++) {
    int part = p % n, back = places[part].back;
    ck_assert(back >= 1 && back <= n);
    ck_assert(places[part].at % TRI_RING_ALIGN == 0 && places[part].at + bytes[part] <= ring);
    for (int other = p - back + 1; other < p; other++) ck_assert(!overlap(bytes, places, part, other % n));
    ck_assert(back == n || overlap(bytes, places, part, (p - back) % n)); /* and waits for nobody else */
  }
}

START_TEST(parts_in_a_ring_meet_nobody) {
  uint64_t seed = 5;
  for (int round = 0; round < 800; round++) {
    int n = (int)number(&seed, MOST), parts = (int)number(&seed, 6);
    size_t bytes[MOST], largest = 0;
    tri_ring_place places[MOST];
    for (int i = 0; i < n; i++) {
      bytes[i] = number(&seed, round % 2 ? 100000 : 9000);
      if (bytes[i] > largest) largest = bytes[i];
    }
    size_t ring = tri_ring_bytes(bytes, n, parts);
    ck_assert_uint_ge(ring, largest);
    ck_assert(tri_ring_plan(bytes, n, ring, places));
    expect_apart(bytes, n, places, ring);
    ck_assert(tri_ring_plan(bytes, n, ring + number(&seed, 50000), places));
    ck_assert(!tri_ring_plan(bytes, n, (largest - 1) / TRI_RING_ALIGN * TRI_RING_ALIGN, places));
  }
}
END_TEST

/* Equal parts: rounds are as equal as can be, the last one of a pass, too. */
START_TEST(rounds_are_even) {
  size_t bytes[11];
  tri_ring_place places[11];
  for (int i = 0; i < 11; i++) bytes[i] = 3 * TRI_RING_ALIGN - 5;
  ck_assert_uint_eq(tri_ring_bytes(bytes, 11, 5), (size_t)15 * TRI_RING_ALIGN);
  ck_assert(tri_ring_plan(bytes, 11, (size_t)15 * TRI_RING_ALIGN, places));
  for (int i = 0; i < 11; i++) ck_assert_int_ge(places[i].back, 3); /* 4 + 4 + 3, and not 5 + 5 + 1 */
  ck_assert_uint_eq(tri_ring_bytes(bytes, 11, 100), (size_t)33 * TRI_RING_ALIGN);
  ck_assert(tri_ring_plan(bytes, 11, (size_t)33 * TRI_RING_ALIGN, places));
  for (int i = 0; i < 11; i++) ck_assert_int_eq(places[i].back, 11);
  bytes[3] = SIZE_MAX - 100;
  ck_assert_uint_eq(tri_ring_bytes(bytes, 11, 5), 0);
}
END_TEST

/* ---- tiers ---- */

static void expect_sound(const tri_tiers_config *c, const tri_tiers *t) {
  size_t resident = 0, streamed = 0;
  int next = 0;
  for (int i = 0; i < c->num_parts; i++) {
    if (t->number[i] == TRI_PART_STAYS) {
      resident += c->part_bytes[i];
      continue;
    }
    ck_assert_int_eq(t->number[i], next);
    ck_assert_int_eq(t->parts[next], i);
    ck_assert_uint_eq(t->bytes[next], c->part_bytes[i]);
    ck_assert_uint_gt(c->part_bytes[i], 0);
    streamed += c->part_bytes[i];
    next++;
  }
  ck_assert_int_eq(t->num_streamed, next);
  ck_assert(t->resident == resident && t->streamed == streamed);
  ck_assert_uint_le(t->resident + t->ring_bytes, c->room);
  ck_assert_uint_le(t->resident, c->max_resident);
  if (next) expect_apart(t->bytes, next, t->places, t->ring_bytes);
}

START_TEST(what_stays_has_room) {
  uint64_t seed = 7;
  int streams = 0, refused = 0;
  for (int round = 0; round < 800; round++) {
    size_t bytes[MOST], all = 0;
    int n = (int)number(&seed, MOST / TRI_LAYER_PARTS) * TRI_LAYER_PARTS;
    for (int i = 0; i < n; i++) {
      bytes[i] = number(&seed, 10) == 1 ? 0 : number(&seed, 1 << 20);
      all += bytes[i];
    }
    tri_tiers_config c = {.part_bytes = bytes,
                          .num_parts = n,
                          .room = number(&seed, all + (1 << 20)),
                          .max_resident = number(&seed, 4) == 1 ? number(&seed, all + 1) : SIZE_MAX,
                          .keep_layers = number(&seed, 4) == 1 ? (int)number(&seed, (size_t)n) - 1 : -1,
                          .ring_parts = (int)number(&seed, 6) + 1};
    tri_tiers *t = NULL;
    tri_error err = {0};
    tri_status st = tri_tiers_plan(&c, &t, &err);
    if (st == TRI_NO_CAPACITY) {
      ck_assert_ptr_nonnull(strstr(err.message, "MiB"));
      refused++;
      continue;
    }
    ck_assert_int_eq(st, TRI_OK);
    expect_sound(&c, t);
    streams += t->num_streamed > 0;
    tri_tiers_free(t);
  }
  ck_assert(streams > 150 && refused > 30);
  tri_tiers_free(NULL);
}
END_TEST

/* 20 layers of 1 and 3 MiB. */
static tri_tiers *plan(size_t room, int keep_layers, size_t bytes[40]) {
  for (int i = 0; i < 40; i++) bytes[i] = (size_t)(i % 2 ? 3 : 1) << 20;
  tri_tiers_config c = {.part_bytes = bytes,
                        .num_parts = 40,
                        .room = room,
                        .max_resident = SIZE_MAX,
                        .keep_layers = keep_layers,
                        .ring_parts = 4};
  tri_tiers *t = NULL;
  ck_assert_int_eq(tri_tiers_plan(&c, &t, NULL), TRI_OK);
  expect_sound(&c, t);
  return t;
}

START_TEST(what_streams_is_spread) {
  size_t bytes[40], half = 0;
  tri_tiers *t = plan((size_t)80 << 20, -1, bytes);
  ck_assert_int_eq(t->num_streamed, 0); /* all of it fits */
  tri_tiers_free(t);
  t = plan((size_t)48 << 20, -1, bytes); /* four parts take 8 to 12 */
  ck_assert(t->resident >= (size_t)34 << 20 && t->resident <= (size_t)40 << 20);
  for (int i = 0; i < 20; i++) half += t->number[i] == TRI_PART_STAYS ? bytes[i] : 0;
  ck_assert(half > t->resident / 2 - ((size_t)4 << 20) && half < t->resident / 2 + ((size_t)4 << 20));
  tri_tiers_free(t);
  t = plan((size_t)48 << 20, 5, bytes);
  for (int l = 0; l < 20; l++)
    for (int half_layer = 0; half_layer < 2; half_layer++)
      ck_assert((t->number[tri_part_of(l, half_layer)] == TRI_PART_STAYS) == (l % 4 == 3));
  tri_tiers_free(t);
  t = plan((size_t)80 << 20, 20, bytes);
  ck_assert_int_eq(t->num_streamed, 0);
  tri_tiers_free(t);
  t = plan((size_t)5 << 20, -1, bytes); /* a shorter ring */
  ck_assert(t->ring_parts == 2 && t->ring_bytes == (size_t)4 << 20);
  tri_tiers_free(t);
}
END_TEST

/* A plan has room from the least on, and with the most for what it would keep of any room. */
START_TEST(room_is_enough) {
  uint64_t seed = 11;
  for (int round = 0; round < 400; round++) {
    size_t bytes[MOST], least, ring, usual, most, all = 0;
    tri_tiers *t = NULL;
    tri_error err = {0};
    int layers = (int)number(&seed, MOST / TRI_LAYER_PARTS);
    tri_tiers_config c = {.part_bytes = bytes,
                          .num_parts = layers * TRI_LAYER_PARTS,
                          .max_resident = SIZE_MAX,
                          .keep_layers = round % 3 ? -1 : (int)number(&seed, (size_t)layers) - 1,
                          .ring_parts = 4};
    for (int i = 0; i < c.num_parts; i++) all += bytes[i] = number(&seed, 100000) + 1000;
    if (round % 3 == 1) c.max_resident = all / 2;
    ck_assert_int_eq(tri_tiers_room(&c, &least, &ring, &usual, &most), TRI_OK);
    ck_assert(ring <= least && least <= usual && usual <= most);
    c.room = least;
    ck_assert_int_eq(tri_tiers_plan(&c, &t, &err), TRI_OK);
    ck_assert(t->resident + t->ring_bytes <= least);
    tri_tiers_free(t);
    /* Where all is so little that it takes less than two parts and their alignment, it stays. */
    c.room = least - 1;
    if (c.keep_layers >= 0 || c.max_resident < all || all > c.room)
      ck_assert_int_eq(tri_tiers_plan(&c, &t, &err), TRI_NO_CAPACITY);
    size_t resident[2];
    for (int larger = 0; larger < 2; larger++) {
      c.room = larger ? SIZE_MAX / 2 : most;
      ck_assert_int_eq(tri_tiers_plan(&c, &t, &err), TRI_OK);
      resident[larger] = t->resident;
      tri_tiers_free(t);
    }
    /* Those that stream then may need another ring than all of them do. */
    ck_assert_uint_ge(resident[0] + ring, resident[1]);
  }
}
END_TEST

Suite *suite_tiers(void) {
  Suite *s = suite_create("tiers");
  TCase *t = tcase_create("tiers");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 60);
  tcase_add_test(t, parts_in_a_ring_meet_nobody);
  tcase_add_test(t, rounds_are_even);
  tcase_add_test(t, what_stays_has_room);
  tcase_add_test(t, room_is_enough);
  tcase_add_test(t, what_streams_is_spread);
  return s;
}
