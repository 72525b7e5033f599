/* SPDX-License-Identifier: Apache-2.0 */
/* Time and ends: timeouts of connections, a coordinator that hangs or goes, clients that leave or do not read, a
 * replica that is lost, and the gateway's own end. */
#include <signal.h>
#include <stdlib.h>

#include "tests/stack/stack.h"

#define PATH "/v1/completions"
#define MODEL TRI_SOURCE "/tests/models/abacus"
#define LONG "{'prompt':'37+48=','ignore_eos':true,'max_tokens':8000"
#define DRAINING "{'error':{'...':0,'code':'draining'}}"

static stack *s;

static void open_all(void) {
  s = stack_open(NULL, "--max-model-len 8192 --watchdog-timeout 600 --log-requests",
                 "--http-drain-timeout 10 --model " MODEL);
}

static void close_all(void) { stack_close(s); }

static call *begin(const char *body) { return ask(s, "POST", PATH, NULL, body); }

/* A request whose body never comes whole. */
static call *begin_half(void) {
  static const char text[] = "POST " PATH " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             "Content-Length: 100\r\n\r\n{";
  call *c = ask_raw(s, text, sizeof text - 1);
  stack_until(s, c->sent == c->out.len);
  return c;
}

/* ---- timeouts ---- */

/* A head has 10 s, a body 60 s, and a connection between requests 75 s. */
START_TEST(slow_requests) {
  call *head = ask_raw(s, "POST ", 5), *body = begin_half(), *idle = ask(s, "GET", "/live", NULL, NULL);
  stack_until(s, idle->whole && http_server_connections(s->g->server) == 3);
  stack_pass(s, 9500);
  ck_assert(!head->over && !head->status);
  stack_pass(s, 1000);
  stack_until(s, head->over);
  ck_assert_int_eq(head->status, 408);
  stack_pass(s, 49000);
  ck_assert(!body->over && !body->status);
  stack_pass(s, 1000);
  stack_until(s, body->over);
  ck_assert_int_eq(body->status, 408);
  ck_assert(!idle->over);
  stack_pass(s, 15000);
  stack_until(s, idle->over);
  ck_assert_int_eq(idle->status, 200);
}
END_TEST

/* A stream without events gets comments, so that nobody on the way takes it for dead. */
START_TEST(pings) {
  replica_hold(s->r, true);
  call *c = begin(LONG ",'stream':true}");
  stack_until(s, c->status == 200 && replica_jobs(s->r) == 1);
  size_t before = c->body.len;
  stack_pass(s, s->g->o.http.sse_ping * 1000 + 500);
  stack_until(s, c->body.len > before);
  ck_assert_msg(c->body.data[before] == ':', "%s", c->body.data);
  leave(s, c);
  replica_hold(s->r, false);
  stack_until(s, !replica_jobs(s->r));
}
END_TEST

/* A coordinator that hangs is no reason to say nothing. */
START_TEST(coordinator_hangs) {
  call *c = ask(s, "GET", "/health", NULL, NULL);
  s->serves = false;
  stack_turn(s);
  stack_pass(s, 60000);
  stack_until(s, c->whole);
  s->serves = true;
  ck_assert_int_eq(c->status, 504);
  expect_json(c, "{'error':{'...':0,'message':'/.*did not answer in time.*/'}}");
  leave(s, c);
  expect(s, .path = "/health", .status = 200, .json = "{'...':0,'status':'ok'}");
}
END_TEST

/* ---- clients ---- */

/* A client that goes takes its job with it, streamed or not. */
START_TEST(clients_leave) {
  for (int stream = 0; stream < 2; stream++) {
    int aborts = replica_aborts(s->r);
    call *c = begin(stream ? LONG ",'stream':true}" : LONG ",'n':4}");
    stack_until(s, replica_jobs(s->r) == 1);
    leave(s, c);
    stack_until(s, !replica_jobs(s->r));
    ck_assert_int_eq(replica_aborts(s->r), aborts + 1);
  }
  ck_assert_msg(log_has(" finish=abort$"), "%s", log_text());
}
END_TEST

/* Another connection does not wait until one with many prompts is done. */
START_TEST(short_beside_many) {
  tri_buf body = {0};
  tri_text_printf(&body, "{'prompt':['1+1='");
  for (int i = 1; i < 256; i++) tri_text_printf(&body, ",'1+1='");
  tri_text_printf(&body, "],'ignore_eos':true,'max_tokens':2000}");
  call *c = begin(body.data);
  stack_until(s, replica_jobs(s->r) > 100);
  expect(s, .path = PATH, .body = "{'prompt':'1+1=','temperature':0}", .status = 200,
         .json = "{'...':0,'choices':[{'...':0,'text':'2'}]}");
  ck_assert(!c->status && !c->over);
  leave(s, c);
  stack_until(s, !replica_jobs(s->r));
  tri_buf_free(&body);
}
END_TEST

/* Text that a slow reader has not had yet becomes one event of each choice; it gets all of the text nevertheless. */
START_TEST(behind) {
  call *c =
      begin("{'prompt':['1=','2=','3=','4=','5=','6=','7=','8='],'ignore_eos':true,'max_tokens':8000,'stream':true}");
  c->deaf = true;
  stack_until(s, replica_jobs(s->r) == 8);
  stack_until(s, !replica_jobs(s->r));
  c->deaf = false;
  stack_until(s, c->whole);
  json_t *events = stream_events(c);
  ck_assert_uint_lt(json_array_size(events), 64000);
  for (int i = 0; i < 8; i++) {
    char *text = stream_text(events, i, "text");
    ck_assert_uint_eq(strlen(text), 7999); /* the end of the text is a token, too, that says nothing */
    ck_assert_uint_eq(strspn(text + 1, "1"), 7998);
    tri_free(text);
  }
  json_decref(events);
  leave(s, c);
}
END_TEST

/* ---- what is lost ---- */

START_TEST(coordinator_goes) {
  call *c = begin(LONG "}");
  stack_until(s, replica_jobs(s->r) == 1);
  replica_close(s->r);
  s->r = NULL;
  stack_close_server(s);
  stack_until(s, c->whole);
  ck_assert_int_eq(c->status, 503);
  leave(s, c);
  expect(s, .path = "/health", .status = 503, .json = "{'error':{'...':0,'code':'closed'}}");
  expect(s, .path = "/live", .status = 200, .text = "ok");
  stack_open_server(s, "--max-model-len 4096");
  stack_open_replica(s);
  for (int i = 0; i < 1000 && !s->g->client; i++) stack_pass(s, 250);
  ck_assert_ptr_nonnull(s->g->client);
  expect(s, .path = PATH, .body = "{'prompt':'1+1='}", .status = 200,
         .json = "{'...':0,'choices':[{'...':0,'text':'2'}]}");
}
END_TEST

/* ---- the gateway's end ---- */

/* A drain: what runs ends, what comes new is refused, and health tells of it without a line in the log. */
START_TEST(drain) {
  call *c = begin(LONG ",'stream':true}");
  stack_until(s, c->body.len > 0);
  replica_hold(s->r, true);
  raise(SIGTERM);
  stack_until(s, s->g->leaving);
  stack_pass(s, (s->g->o.http.drain_delay + 1) * 1000);
  expect(s, .path = "/health", .status = 503, .text = "shutting down");
  ck_assert(!log_has("path=/health status=503"));
  expect(s, .path = PATH, .body = "{'prompt':'x'}", .status = 503, .field = "Retry-After: 1", .json = DRAINING);
  ck_assert(!c->whole);
  replica_hold(s->r, false);
  stack_until(s, c->whole);
  json_decref(stream_events(c));
  leave(s, c);
  stack_close_gateway(s);
  stack_open_gateway(s, "--model " MODEL);
}
END_TEST

/* A request that a drain has refused or cut off before its head: the client is to try again. */
static void expect_cut(const call *c) {
  char after[16];
  ck_assert_int_eq(c->status, 503);
  call_field(c, "Retry-After", after, sizeof after);
  ck_assert_str_eq(after, "1");
  expect_json(c, DRAINING);
}

/* Time for answers is over, or the gateway is asked twice: a stream ends with an event, other requests with a status,
 * also one whose body has not come and one that comes over a connection from before the drain. */
START_TEST(cut) {
  for (int twice = 0; twice < 2; twice++) {
    stack_close_gateway(s);
    stack_open_gateway(s, "--http-drain-timeout 10 --model " MODEL);
    call *text = begin(LONG ",'stream':true}"), *whole = begin(LONG "}"), *half = begin_half();
    call *late = ask_raw(s, "", 0);
    replica_hold(s->r, true);
    stack_until(s, replica_jobs(s->r) == 2 && text->status == 200 && http_server_connections(s->g->server) == 4);
    static const char again[] = "POST " PATH " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                "Content-Length: 14\r\n\r\n{\"prompt\":\"x\"}";
    raise(SIGTERM);
    stack_until(s, s->g->leaving);
    ck_assert_int_eq(tri_buf_append(&late->out, again, sizeof again - 1), TRI_OK);
    stack_pass(s, 5000);
    ck_assert(!text->whole && !whole->whole);
    if (twice)
      raise(SIGTERM);
    else
      stack_pass(s, 6000);
    stack_until(s, text->whole && whole->whole && half->whole && late->whole);
    expect_cut(whole);
    expect_cut(half);
    expect_cut(late);
    json_t *events = stream_events(text);
    char why[512];
    ck_assert_msg(!json_differs(json_array_get(events, json_array_size(events) - 1),
                                "{'error':{'...':0,'message':'/the gateway shuts down, .*/','code':'draining'}}", why,
                                sizeof why),
                  "%s", why);
    json_decref(events);
    leave(s, text);
    leave(s, whole);
    leave(s, half);
    leave(s, late);
    replica_hold(s->r, false);
    stack_until(s, !replica_jobs(s->r));
  }
}
END_TEST

/* ---- memory of requests ---- */

static long figure(const char *of) {
  char name[96];
  call *c = ask(s, "GET", "/metrics", NULL, NULL);
  stack_until(s, c->whole);
  snprintf(name, sizeof name, "\ntrireme:http_request_bytes{of=\"%s\"} ", of);
  const char *at = strstr(c->body.data, name);
  ck_assert_ptr_nonnull(at);
  long n = atol(at + strlen(name));
  leave(s, c);
  return n;
}

/* Bodies of objects take many times their bytes, and not for as long as their answers go on. */
START_TEST(kept_bytes) {
  static const char *const paths[] = {PATH, "/v1/chat/completions"};
  static const char *const begins[] = {"{'prompt':'1+2='", "{'messages':[{'role':'user','content':'1+2='}]"};
  call *calls[6];
  stack_close_gateway(s);
  stack_open_gateway(s, "--http-workers 4 --model " MODEL);
  ck_assert_int_eq(figure("documents"), 0);
  ck_assert_int_eq(figure("kept"), 0);
  replica_hold(s->r, true);
  for (int i = 0; i < 6; i++) {
    tri_buf body = {0};
    tri_text_printf(&body, "%s,'max_tokens':1000,'stream':true,'metadata':[", begins[i % 2]);
    for (int k = 0; k < 60000; k++) tri_text_add(&body, "{},", 3);
    tri_text_printf(&body, "0]}");
    calls[i] = ask(s, "POST", paths[i % 2], NULL, body.data);
    tri_buf_free(&body);
  }
  stack_until(s, replica_jobs(s->r) == 6);
  for (int i = 0; i < 1000 && figure("documents"); i++) {
  }
  ck_assert_int_eq(figure("documents"), 0);
  long kept = figure("kept");
  ck_assert_msg(kept > 6000 && kept < 200000, "%ld bytes", kept);
  for (int i = 0; i < 6; i++) leave(s, calls[i]);
  replica_hold(s->r, false);
  stack_until(s, !replica_jobs(s->r));
}
END_TEST

Suite *suite_life(void) {
  Suite *suite = suite_create("life");
  TCase *t = tcase_create("life");
  tcase_add_checked_fixture(t, open_all, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, slow_requests);
  tcase_add_test(t, pings);
  tcase_add_test(t, coordinator_hangs);
  tcase_add_test(t, clients_leave);
  tcase_add_test(t, short_beside_many);
  tcase_add_test(t, behind);
  tcase_add_test(t, coordinator_goes);
  tcase_add_test(t, drain);
  tcase_add_test(t, cut);
  tcase_add_test(t, kept_bytes);
  suite_add_tcase(suite, t);
  return suite;
}
