/* Connecting: endpoints that cannot be right, and how long a client waits. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/trireme.h"
#include "comm/wire/endpoint.h"
#include "runtime/base/wait.h"

Suite *suite_client(void);

START_TEST(test_endpoints) {
  static const struct {
    const char *endpoint;
    tri_status status;
    const char *says;
  } cases[] = {
      {"ipc:///nowhere", TRI_OK, ""},
      {"tcp://127.0.0.1:5555", TRI_OK, ""},
      {"tcp://[::1]:5555", TRI_OK, ""},
      {"tcp://127.0.0.2;127.0.0.1:65535", TRI_OK, ""},
      {"tcp://127.0.0.1", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://127.0.0.1:", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://[::1]", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://:5", TRI_INVALID_ARGUMENT, "the host is missing"},
      {"tcp://127.0.0.1:x", TRI_INVALID_ARGUMENT, "\"x\" is no port"},
      {"tcp://127.0.0.1:*", TRI_INVALID_ARGUMENT, "\"*\" is no port"},
      {"tcp://127.0.0.1:5x", TRI_INVALID_ARGUMENT, "\"5x\" is no port"},
      {"tcp://127.0.0.1:-1", TRI_INVALID_ARGUMENT, "\"-1\" is no port"},
      {"tcp://127.0.0.1:0", TRI_OUT_OF_RANGE, "allowed are 1 to 65535"},
      {"tcp://127.0.0.1:99999", TRI_OUT_OF_RANGE, "port 99999 "},
      {"tcp://127.0.0.1:99999999999999999999999", TRI_OUT_OF_RANGE, "allowed are 1 to 65535"},
      {"tcp://no-such-host.invalid:5", TRI_NOT_FOUND, "\"no-such-host.invalid\" does not resolve"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    ck_assert_msg(tri_endpoint_check(cases[i].endpoint, &err) == cases[i].status, "%s: %s", cases[i].endpoint,
                  err.message);
    ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].endpoint, err.message);
    if (cases[i].status) ck_assert_str_eq(err.field, "endpoint");
  }
}
END_TEST

/* A socket that nobody listens at, there after a while. */
static void *bind_late(void *arg) {
  int *fd = arg;
  struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = TRI_TEST_SCRATCH "/late.sock"};
  nanosleep(&(struct timespec){.tv_nsec = 600 * 1000000L}, NULL);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return *fd < 0 || bind(*fd, (struct sockaddr *)&addr, sizeof addr) ? arg : NULL;
}

START_TEST(test_one_timeout) {
  pthread_t thread;
  void *failed;
  int fd = -1;
  unlink(TRI_TEST_SCRATCH "/late.sock");
  trireme *c = NULL;
  trireme_error error = {0};
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = "ipc://" TRI_TEST_SCRATCH "/late.sock";
  config.connect_timeout_ms = 1000;
  ck_assert_int_eq(pthread_create(&thread, NULL, bind_late, &fd), 0);
  int64_t start = tri_now_ns();
  trireme_result r = trireme_connect(&config, &c, &error);
  double seconds = (double)(tri_now_ns() - start) * 1e-9;
  ck_assert_int_eq(pthread_join(thread, &failed), 0);
  ck_assert_ptr_null(failed);
  close(fd);
  unlink(TRI_TEST_SCRATCH "/late.sock");
  ck_assert_msg(r == TRIREME_TIMEOUT && strstr(error.message, "no coordinator answers"), "%s", error.message);
  ck_assert_msg(seconds > 0.99 && seconds < 1.5, "%.3f s", seconds);
}
END_TEST

Suite *suite_client(void) {
  Suite *suite = suite_create("client");
  TCase *t = tcase_create("connecting");
  tcase_set_timeout(t, 30);
  tcase_add_test(t, test_endpoints);
  tcase_add_test(t, test_one_timeout);
  suite_add_tcase(suite, t);
  return suite;
}
