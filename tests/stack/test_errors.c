/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the gateway without the model: paths, methods, headers, other origins, keys, and models that it cannot
 * chat with. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "tests/stack/stack.h"

#define PATH "/v1/completions"
#define MODEL TRI_SOURCE "/tests/models/abacus"
#define FOLDER TRI_TEST_SCRATCH "/stack_folder"
#define JSON "Content-Type: application/json\r\n"
#define SUM "{'messages':[{'role':'user','content':'5+'}],'temperature':0}"

static stack *s;

static void open_all(void) { s = stack_open(NULL, "--max-model-len 8192", "--model " MODEL); }
static void close_all(void) { stack_close(s); }

static void again(const char *options) {
  stack_close_gateway(s);
  log_clear();
  stack_open_gateway(s, options);
}

static void write_file(const char *path, const char *text, mode_t mode) {
  unlink(path);
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  ck_assert(!fclose(f) && !chmod(path, mode));
}

START_TEST(paths_and_methods) {
  static const exchange list[] = {
      {.path = "/health", .status = 200, .json = "{'...':0,'status':'ok'}"},
      {.path = "/metrics", .status = 200, .text = "\ntrireme:num_requests_running\\{model_name=\"abacus\"\\} 0\n"},
      {.path = "/metrics",
       .status = 200,
       .text = "\ntrireme:http_requests_total\\{path=\"/metrics\",code=\"200\"\\} 1\n"},
      {.path = "/v2?key=secret",
       .status = 404,
       .json =
           "{'error':{'...':0,'message':'/there is no such path: .v2; the paths are .v1.completions, .*.metrics.*/'}}"},
      {.path = "/",
       .status = 200,
       .json = "{'server':'/trireme [0-9.]+/','model':'abacus','paths':'/.v1.completions, .*/'}"},
      {.path = PATH, .status = 405, .field = "Allow: POST", .text = "takes POST"},
      {.path = "/v1/models", .body = "{}", .status = 405, .field = "Allow: GET, HEAD"},
      {.path = "/v1/models",
       .fields = "Host: evil.example\r\n",
       .status = 403,
       .text = "Host is another name: with --api-key-file it may be any"},
      {.path = PATH, .body = "{}", .fields = "Content-Type: text/plain\r\n", .status = 415, .text = "Content-Type"},
      {.path = PATH,
       .body = "{}",
       .fields = JSON "Content-Encoding: gzip\r\n",
       .status = 415,
       .json = "{'error':{'...':0,'param':'Content-Encoding'}}"},
      {.path = PATH,
       .body = "{}",
       .fields = JSON "Content-Encoding: deflate\r\n",
       .status = 415,
       .json = "{'error':{'...':0,'param':'Content-Encoding'}}"},
      {.path = PATH,
       .body = "{}",
       .fields = JSON "Content-Encoding: zstd\r\n",
       .status = 415,
       .json = "{'error':{'...':0,'param':'Content-Encoding'}}"},
      {.path = PATH,
       .body = "{}",
       .fields = JSON "Content-Encoding: identity, gzip\r\n",
       .status = 415,
       .json = "{'error':{'...':0,'param':'Content-Encoding'}}"},
      {.path = PATH,
       .body = "{}",
       .fields = JSON "Content-Encoding: Identity\r\n",
       .status = 400,
       .json = "{'error':{'...':0,'param':'prompt'}}"},
      {.method = "OPTIONS",
       .path = PATH,
       .fields = "Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n",
       .status = 405,
       .text = "no pages of other origins"},
  };
  expect_list(s, list);
}
END_TEST

/* A refused request has a line in the log with the id of its answer, and nothing else of what it asked. */
START_TEST(refusals_in_the_log) {
  log_clear();
  expect(s, .path = "/v2?key=secret", .status = 404);
  ck_assert_msg(log_has(" request: id=req-[0-9a-f]{32} from=127.0.0.1:[0-9]+ method=GET path=/v2 status=404$"), "%s",
                log_text());
  ck_assert(!log_has("secret"));
}
END_TEST

START_TEST(large_body) {
  static const char head[] =
      "POST " PATH " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n";
  call *c = ask_raw(s, head, sizeof head - 1);
  stack_until(s, c->whole);
  ck_assert_int_eq(c->status, 413);
  expect_json(c, "{'error':{'...':0,'message':'/.*limit of 4194304 bytes .--http-max-body.*/','code':'too_large'}}");
  leave(s, c);
}
END_TEST

/* Requests that clients sent which people have: tests/data/client-requests.txt. */
START_TEST(requests_of_clients) {
  char line[4096], client[64], method[16], path[128];
  int status, at, num = 0;
  FILE *f = fopen(TRI_SOURCE "/tests/data/client-requests.txt", "r");
  ck_assert_ptr_nonnull(f);
  while (fgets(line, sizeof line, f)) {
    if (*line == '#') continue;
    ck_assert_int_eq(sscanf(line, "%63s %15s %127s %d %n", client, method, path, &status, &at), 4);
    line[strcspn(line, "\n")] = '\0';
    expect(s, .method = method, .path = path, .body = line[at] ? line + at : NULL, .status = status,
           .field = "Content-Type: (application/json|text/).*");
    num++;
  }
  fclose(f);
  ck_assert_int_ge(num, 27);
}
END_TEST

/* ---- pages of other origins ---- */

#define ASKS "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: "
#define APP "Origin: https://app.example\r\n"

static const exchange of_origins[] = {
    {.method = "OPTIONS",
     .path = PATH,
     .fields = APP ASKS "authorization, content-type\r\n",
     .status = 200,
     .field = "Access-Control-Allow-Origin: https://app.example"},
    {.method = "OPTIONS",
     .path = PATH,
     .fields = "Origin: http://localhost:3000\r\n" ASKS "authorization, content-type, x-stainless-os\r\n",
     .status = 200,
     .field = "Access-Control-Allow-Headers: authorization, content-type, x-stainless-os"},
    {.method = "OPTIONS",
     .path = PATH,
     .fields = APP ASKS "authorization\r\n",
     .status = 200,
     .field = "Access-Control-Allow-Methods: GET, HEAD, POST"},
    {.method = "OPTIONS",
     .path = PATH,
     .fields = "Origin: https://other.example\r\n" ASKS "authorization\r\n",
     .status = 403,
     .field = "Vary: Origin"},
    {.method = "OPTIONS", .path = PATH, .fields = APP ASKS "a;b\r\n", .status = 400, .text = "no list of names"},
    {.path = PATH,
     .body = "{'prompt':'1+1=','max_tokens':1}",
     .fields = APP,
     .status = 200,
     .field = "Access-Control-Allow-Origin: https://app.example"},
    {.path = PATH,
     .body = "{'prompt':'1+1=','max_tokens':1,'stream':true}",
     .fields = APP,
     .status = 200,
     .field = "Access-Control-Allow-Origin: https://app.example"},
    {.path = PATH, .body = "{'prompt':'1+1=','max_tokens':1}", .status = 200, .field = "Vary: Origin"},
    {.path = PATH, .body = "{'prompt':'1+1=','max_tokens':1,'stream':true}", .status = 200, .field = "Vary: Origin"},
    {.path = PATH,
     .body = "{",
     .fields = "Origin: http://localhost:3000\r\n",
     .status = 400,
     .field = "Access-Control-Allow-Origin: http://localhost:3000"},
    {.method = "POST",
     .path = PATH,
     .fields = APP JSON "Content-Length: 5000000\r\n",
     .status = 413,
     .field = "Access-Control-Allow-Origin: https://app.example"},
    {.method = "OPTIONS", .path = PATH, .status = 405, .text = "takes POST"},
    {.path = "/v1/chat/completions", .body = "{}", .status = 501, .text = "start it with --model"},
    {.path = "/tokenize", .body = "{}", .status = 501, .text = "start it with --model"},
};

START_TEST(origins) {
  again("--cors-origin https://app.example --cors-origin http://localhost:3000");
  expect_list(s, of_origins);
  for (int stream = 0; stream < 2; stream++) {
    char value[128];
    call *c = ask(s, "POST", PATH, "Origin: https://other.example\r\n",
                  stream ? "{'prompt':'1+1=','max_tokens':1,'stream':true}" : "{'prompt':'1+1=','max_tokens':1}");
    stack_until(s, c->whole);
    call_field(c, "Access-Control-Allow-Origin", value, sizeof value);
    ck_assert_str_eq(value, "");
    leave(s, c);
  }
}
END_TEST

/* ---- keys ---- */

START_TEST(keys) {
  static const char file[] = TRI_TEST_SCRATCH "/stack_keys";
#define KEY(name) "Authorization: Bearer key-of-" name "\r\n"
  static const exchange list[] = {
      {.path = "/v1/models", .status = 401, .field = "WWW-Authenticate: Bearer"},
      {.path = "/v1/models",
       .fields = KEY("an") "X-Request-Id: of-mine\r\n",
       .status = 401,
       .text = "missing or wrong"},
      {.path = "/", .status = 200, .json = "{'server':'/trireme [0-9.]+/','paths':'*'}"}, /* to whom it says no model */
      {.path = "/health", .status = 200, .json = "{'...':0,'status':'ok'}"},
      {.path = "/v1/models", .fields = KEY("ann"), .status = 200, .text = "abacus"},
      {.path = "/v1/models", .fields = KEY("ann") "Host: any.example\r\n", .status = 200},
      {.path = PATH,
       .fields = KEY("ann"),
       .body = "{'prompt':'x','zip':1}",
       .status = 400,
       .json = "{'error':{'...':0,'param':'zip','code':'unknown_field'}}"},
  };
  static const exchange later[] = {
      {.path = "/v1/models", .fields = KEY("ann"), .status = 401, .text = "missing or wrong"},
      {.path = "/v1/models", .fields = KEY("bob"), .status = 200, .text = "abacus"},
  };
  write_file(file, "ann key-of-ann\n", 0600);
  again("--api-key-file " TRI_TEST_SCRATCH "/stack_keys --reject-unknown-fields --model " MODEL);
  expect_list(s, list);
  ck_assert(log_has(" request: id=of-mine from=.* path=/v1/models status=401$"));
  /* The coordinator hears whose key it is. */
  int aborts = replica_aborts(s->r);
  call *c = ask(s, "POST", PATH, KEY("ann"), "{'prompt':'37+48=','ignore_eos':true,'max_tokens':4000,'stream':true}");
  stack_until(s, c->body.len > 0);
  leave(s, c);
  stack_until(s, replica_aborts(s->r) > aborts && log_has("finish=abort$"));
  ck_assert_msg(
      log_has("^DEBUG .* client=uid:[0-9]+ caller=ann prompt_tokens=7 generation_tokens=[0-9]+ .* finish=abort$"), "%s",
      log_text());
  write_file(file, "bob key-of-bob\n", 0600);
  raise(SIGHUP);
  stack_until(s, log_has("the API keys were read again"));
  expect_list(s, later);
  unlink(file);
}
END_TEST

START_TEST(refused_starts) {
  static const struct {
    const char *keys;
    mode_t mode;
    const char *options, *why;
  } cases[] = {
      {"", 0600, "--http 0.0.0.0:0", "give --api-key-file, or --http-open"},
      {"ann key-of-ann\n", 0644, "--api-key-file " TRI_TEST_SCRATCH "/stack_keys", "chmod 600"},
      {"alone\n", 0600, "--api-key-file " TRI_TEST_SCRATCH "/stack_keys",
       TRI_TEST_SCRATCH "/stack_keys: line 1 is not NAME KEY"},
      {"", 0600, "--tool-parser hermse --model " MODEL, "--tool-parser is \"hermse\"; it can be auto, none, hermes, "},
      {"", 0600, "--chat-template /nowhere --model " MODEL, "/nowhere"},
      {"", 0600, "--http localhost:x", "--http"},
  };
  stack_close_gateway(s);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    write_file(TRI_TEST_SCRATCH "/stack_keys", cases[i].keys, cases[i].mode);
    tri_status st = stack_refused(s, cases[i].options, &err);
    ck_assert_msg(st != TRI_OK && strstr(err.message, cases[i].why), "%s: %s", cases[i].options, err.message);
  }
  unlink(TRI_TEST_SCRATCH "/stack_keys");
  stack_open_gateway(s, "");
}
END_TEST

/* ---- models without chats ---- */

static void copy_file(const char *name) {
  char text[256];
  unlink(FOLDER);
  snprintf(text, sizeof text, "cp " MODEL "/%s " FOLDER, name);
  ck_assert_int_eq(system(text), 0);
}

static void empty_folder(void) { ck_assert_int_eq(system("rm -rf " FOLDER " && mkdir " FOLDER), 0); }

/* A folder without a tokenizer is named; one whose template cannot be read, too, also in the log; a template of one's
 * own has its special tokens. */
START_TEST(folders) {
  empty_folder();
  copy_file("config.json");
  again("--model " FOLDER);
  expect(s, .path = "/v1/chat/completions", .body = "{}", .status = 501, .text = "stack_folder has no tokenizer.json");
  empty_folder();
  copy_file("tokenizer.json");
  write_file(FOLDER "/tokenizer_config.json", "{\"chat_template\":\"{{ messages }}\",\"eos_token\":1e}", 0600);
  again("--model " FOLDER);
  expect(s, .path = "/v1/chat/completions", .body = SUM, .status = 501,
         .text = "stack_folder/tokenizer_config.json: JSON line 1");
  ck_assert(log_has("chat is not served: .*stack_folder/tokenizer_config.json: JSON line 1"));
  write_file(FOLDER "/tokenizer_config.json",
             "{\"eos_token\":\"=\",\"model_max_length\":1000000000000000019884624838656}", 0600);
  write_file(FOLDER "/own.jinja", "<|begin|>{{ messages[-1].content }}1{{ eos_token }}", 0600);
  again("--model " FOLDER " --chat-template " FOLDER "/own.jinja");
  expect(s, .path = "/v1/chat/completions", .body = SUM, .status = 200,
         .json = "{'...':0,'choices':[{'...':0,'message':{'...':0,'content':'6'}}]}");
  ck_assert_int_eq(system("rm -rf " FOLDER), 0);
}
END_TEST

Suite *suite_errors(void) {
  Suite *suite = suite_create("errors");
  TCase *t = tcase_create("errors");
  tcase_add_unchecked_fixture(t, open_all, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, paths_and_methods);
  tcase_add_test(t, refusals_in_the_log);
  tcase_add_test(t, large_body);
  tcase_add_test(t, requests_of_clients);
  tcase_add_test(t, origins);
  tcase_add_test(t, keys);
  tcase_add_test(t, refused_starts);
  tcase_add_test(t, folders);
  suite_add_tcase(suite, t);
  return suite;
}
