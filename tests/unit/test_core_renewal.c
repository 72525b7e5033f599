/* SPDX-License-Identifier: Apache-2.0 */
/* A journal that somebody removes under a request: its client hears that it was accepted once a start would find it. */
#include <poll.h>
#include <sys/stat.h>

#include "coordinator/journal/recorder.h"
#include "tests/unit/core_replay_kit.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_core_renewal(void);

static char folder[SCRATCH_BYTES];

static void set_up(void) { scratch_make(folder); }

static void tear_down(void) { scratch_remove(folder); }

static struct world *begin(void) {
  struct world *w = world_create(1);
  tri_error err = {0};
  tri_status st = tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  return w;
}

static void end(struct world *w) {
  tri_recorder_close(w->recorder);
  w->recorder = NULL;
  world_destroy(w);
}

/* Waits for the next word of the thread that syncs. */
static void take_sync(struct world *w) {
  struct pollfd word = {.fd = tri_recorder_fd(w->recorder), .events = POLLIN};
  ck_assert_int_eq(poll(&word, 1, 60000), 1);
  ck_assert(tri_recorder_take_sync(w->recorder, w->core, w->now, NULL) == TRI_OK);
}

START_TEST(told_once_it_is_recorded_again) {
  struct world *w = begin();
  struct stat about;
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.has_request_id = true;
  memset(&m.submit.request_id, 7, sizeof m.submit.request_id);
  m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  scratch_remove(folder);
  struct stream *s = submit(w, "a", &m);
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  take_sync(w);
  ck_assert_int_eq(s->accepted, 0);
  ck_assert_int_eq(stat(folder, &about), 0);
  for (int i = 0; i < 100 && !s->accepted; i++) {
    ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
    take_sync(w);
  }
  ck_assert_int_eq(s->accepted, 1);
  end(w);
  w = begin();
  ck_assert_int_eq(w->core->jobs->num_active, 1);
  end(w);
}
END_TEST

Suite *suite_core_renewal(void) {
  Suite *s = suite_create("core_renewal");
  TCase *t = add_case(s, "renewal");
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, told_once_it_is_recorded_again);
  return s;
}
