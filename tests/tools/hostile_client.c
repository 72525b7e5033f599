/* SPDX-License-Identifier: Apache-2.0 */
/* A client that means ill, on a unix socket, without the ZeroMQ library: it speaks ZMTP 3 itself, so that it can speak
 * it wrongly.
 *
 *   hostile_client PATH MODE [NUMBER]...
 *
 * - noise N: N connections of random bytes, every cut of a greeting, wrong greetings and commands.
 * - half N MS: N connections that say nothing for MS ms.
 * - flood N MS: N connections at a time that greet for a security the other side has not, and go; for MS ms.
 * - payloads: proper connections, then bytes that are no request: each gets an error or a closed connection.
 * - multipart: messages of several frames: the same.
 * - endless N BYTES MS: N connections send one message without end in frames of BYTES, for MS ms, again when thrown
 * out.
 * - long N MS: N connections send requests of a million token ids, which are refused, as fast as they are taken.
 * - mute N MS: N clients submit large jobs and read nothing for MS ms.
 * - unread N: a client sends N requests that are refused, and then reads: it gets all answers, or is cut off.
 * - vanish N: N clients submit, read a little and are gone.
 *
 * Exit code 0: the other side did what it should. Everything is bounded in count and time. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
  GREETING = 64,
  MAX_REQUEST = 1 << 20,
  ANSWER_MS = 60000, /* it ends what hangs, and nothing that a busy machine makes slow */
  MAX_CONNECTIONS = 16384,
  MORE = 1,
  LONG = 2,
  COMMAND = 4
};

typedef struct bytes {
  uint8_t *p;
  size_t len, cap;
} bytes;

static const char *path;
static uint64_t random_state = 0x9e3779b97f4a7c15;
static unsigned answered, closed, failures;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint32_t draw(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33);
}

static void die(const char *what) {
  fprintf(stderr, "hostile_client: %s: %s\n", what, strerror(errno));
  exit(2);
}

/* ---- bytes ---- */

static void put(bytes *b, const void *data, size_t len) {
  if (b->len + len > b->cap) {
    b->cap = 2 * (b->len + len) + 64;
    if (!(b->p = realloc(b->p, b->cap))) die("realloc");
  }
  if (len) memcpy(b->p + b->len, data, len);
  b->len += len;
}
static void put8(bytes *b, unsigned v) { put(b, &(uint8_t){(uint8_t)v}, 1); }
static void put_be(bytes *b, uint64_t v, int size) {
  while (size-- > 0) put8(b, (unsigned)(v >> (8 * size) & 255));
}
static void put_text(bytes *b, const char *s) { /* msgpack str 8 */
  put8(b, 0xd9), put8(b, (unsigned)strlen(s)), put(b, s, strlen(s));
}
static void put_fill(bytes *b, unsigned v, size_t count) {
  for (size_t i = 0; i < count; i++) put8(b, v);
}

/* ---- connections ---- */

static int dial(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
  for (int64_t until = now_ms() + ANSWER_MS; connect(fd, (struct sockaddr *)&a, sizeof a);) {
    if (now_ms() > until) die("connect");
    usleep(1000);
  }
  return fd;
}

/* False: the other side has closed, or does not read for ANSWER_MS. */
static bool send_all(int fd, const void *data, size_t len) {
  const uint8_t *p = data;
  while (len) {
    struct pollfd f = {.fd = fd, .events = POLLOUT | POLLIN};
    if (poll(&f, 1, ANSWER_MS) <= 0) return false;
    ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) return false;
    p += n, len -= (size_t)n;
  }
  return true;
}

static bool read_all(int fd, void *data, size_t len, int64_t until) {
  uint8_t *p = data;
  while (len) {
    struct pollfd f = {.fd = fd, .events = POLLIN};
    int64_t left = until - now_ms();
    if (left < 0 || poll(&f, 1, (int)left) <= 0) return false;
    ssize_t n = recv(fd, p, len, 0);
    if (n <= 0) return false;
    p += n, len -= (size_t)n;
  }
  return true;
}

static void greeting(uint8_t g[GREETING]) {
  memset(g, 0, GREETING);
  g[0] = 0xff, g[9] = 0x7f, g[10] = 3;
  memcpy(g + 12, "NULL", 4);
}

static void put_frame(bytes *b, unsigned flags, const void *data, size_t len) {
  put8(b, flags | (len > 255 ? LONG : 0));
  put_be(b, len, len > 255 ? 8 : 1);
  put(b, data, len);
}

/* Reads one frame; *flags tells what it is. A body beyond the buffer is cut. Negative: closed or too late. */
static ssize_t read_frame(int fd, uint8_t *flags, uint8_t *body, size_t cap, int64_t until) {
  uint8_t head[8], waste[4096];
  if (!read_all(fd, flags, 1, until)) return -1;
  size_t bytes_of_size = *flags & LONG ? 8 : 1, kept;
  uint64_t len = 0;
  if (!read_all(fd, head, bytes_of_size, until)) return -1;
  for (size_t i = 0; i < bytes_of_size; i++) len = len << 8 | head[i];
  kept = len < cap ? (size_t)len : cap;
  if (!read_all(fd, body, kept, until)) return -1;
  for (uint64_t left = len - kept; left;) {
    size_t n = left < sizeof waste ? (size_t)left : sizeof waste;
    if (!read_all(fd, waste, n, until)) return -1;
    left -= n;
  }
  return (ssize_t)kept;
}

/* A proper connection as a DEALER. */
static int shake_hands(void) {
  static const char ready[] = "\5READY\13Socket-Type\0\0\0\6DEALER";
  uint8_t g[GREETING], flags, body[512];
  bytes b = {0};
  int fd = dial();
  int64_t until = now_ms() + ANSWER_MS;
  greeting(g);
  put(&b, g, sizeof g);
  put_frame(&b, COMMAND, ready, sizeof ready - 1);
  bool ok = send_all(fd, b.p, b.len) && read_all(fd, g, sizeof g, until) &&
            read_frame(fd, &flags, body, sizeof body, until) > 5;
  free(b.p);
  if (ok && flags & COMMAND && !memcmp(body + 1, "READY", 5)) return fd;
  close(fd);
  return -1;
}

static int must_shake_hands(void) {
  int fd = shake_hands();
  if (fd < 0) die("no handshake");
  return fd;
}

/* ---- requests ---- */

static void put_submit(bytes *b, unsigned id, unsigned tokens, unsigned n) {
  put8(b, 0x89);
  put_text(b, "v"), put8(b, 1);
  put_text(b, "op"), put_text(b, "submit");
  put_text(b, "id"), put8(b, id);
  put_text(b, "prompt"), put_text(b, "37+48=");
  put_text(b, "max_tokens"), put8(b, 0xcd), put_be(b, tokens, 2);
  put_text(b, "temperature"), put8(b, 0);
  put_text(b, "ignore_eos"), put8(b, 0xc3);
  put_text(b, "n"), put8(b, n);
  put_text(b, "logprobs"), put8(b, n > 1 ? 5 : 0xc2);
}

static bool has(const uint8_t *p, size_t len, const char *word) { return memmem(p, len, word, strlen(word)) != NULL; }

/* Reads frames until one says `word`. 1: said; 0: closed; -1: neither. */
static int await(int fd, const char *word) {
  static uint8_t body[65536];
  uint8_t flags;
  int64_t until = now_ms() + ANSWER_MS;
  for (;;) {
    ssize_t n = read_frame(fd, &flags, body, sizeof body, until);
    if (n < 0) return now_ms() < until ? 0 : -1;
    if (!(flags & COMMAND) && has(body, (size_t)n, word)) return 1;
  }
}

/* Sends frames; an `error` must come back or the connection must be closed. The connection is used again while it
 * lives. */
static int send_bad(int fd, const bytes *frames, const char *what) {
  if (fd < 0) fd = must_shake_hands();
  int got = send_all(fd, frames->p, frames->len) ? await(fd, "error") : 0;
  if (got > 0) {
    answered++;
    return fd;
  }
  if (!got)
    closed++;
  else
    failures++, fprintf(stderr, "hostile_client: no answer to %s\n", what);
  close(fd);
  return -1;
}

static int send_payload(int fd, const bytes *payload, const char *what) {
  bytes b = {0};
  put_frame(&b, 0, payload->p, payload->len);
  fd = send_bad(fd, &b, what);
  free(b.p);
  return fd;
}

static void report(const char *what) {
  printf("%s: %u answered with an error, %u closed, %u neither\n", what, answered, closed, failures);
}

/* ---- what it does ---- */

static void noise(int count) {
  uint8_t g[GREETING], waste[512];
  for (int i = 0; i < count; i++) {
    int fd = dial();
    for (size_t k = 0; k < sizeof waste; k++) waste[k] = (uint8_t)draw();
    send_all(fd, waste, 1 + draw() % sizeof waste);
    close(fd);
  }
  for (size_t cut = 0; cut <= GREETING; cut++) {
    int fd = dial();
    greeting(g);
    send_all(fd, g, cut);
    close(fd);
  }
  for (int i = 0; i < count; i++) { /* greetings and commands with a few wrong bytes */
    bytes b = {0};
    int fd = dial();
    greeting(g);
    if (i % 2) g[draw() % GREETING] ^= (uint8_t)(1 + draw() % 255);
    put(&b, g, sizeof g);
    put8(&b, draw() % 8);
    put_be(&b, draw() % 3 ? draw() % 64 : UINT64_MAX - draw(), b.p[b.len - 1] & LONG ? 8 : 1);
    for (int k = 0; k < 64; k++) put8(&b, draw());
    send_all(fd, b.p, b.len);
    close(fd);
    free(b.p);
  }
  printf("noise: %d connections\n", 2 * count + GREETING + 1);
}

/* Opens a connection without waiting for anybody but, while *patience lasts, for room in the listener's queue. */
static int dial_half(int *patience) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  while (connect(fd, (struct sockaddr *)&a, sizeof a) && (*patience)-- > 0) usleep(1000);
  return fd;
}

static void half_open(int count, int ms) {
  static int fds[MAX_CONNECTIONS];
  uint8_t g[GREETING];
  int open_now = 0;
  int patience = 1000;
  greeting(g);
  for (int i = 0; i < count && i < MAX_CONNECTIONS; i++) {
    int fd = dial_half(&patience);
    if (fd < 0) break;
    if (i % 2) send(fd, g, draw() % GREETING, MSG_NOSIGNAL | MSG_DONTWAIT);
    fds[open_now++] = fd;
  }
  printf("half: %d connections that say nothing\n", open_now);
  fflush(stdout);
  usleep((useconds_t)ms * 1000);
  for (int i = 0; i < open_now; i++) close(fds[i]);
}

/* They come and go together, which is the most work at a time for the other side. */
static void flood(int count, int ms) {
  static int fds[MAX_CONNECTIONS];
  uint8_t g[GREETING];
  unsigned total = 0;
  greeting(g);
  memcpy(g + 12, "CURVE", 5);
  for (int64_t until = now_ms() + ms; now_ms() < until;) {
    int open_now = 0;
    while (open_now < count && open_now < MAX_CONNECTIONS && now_ms() < until) {
      int patience = 1000;
      int fd = dial_half(&patience);
      if (fd < 0) break;
      fds[open_now++] = fd;
    }
    for (int i = 0; i < open_now; i++) send(fds[i], g, sizeof g, MSG_NOSIGNAL | MSG_DONTWAIT);
    usleep(200000);
    for (int i = 0; i < open_now; i++) close(fds[i]);
    total += (unsigned)open_now;
  }
  printf("flood: %u connections, %d at a time\n", total, count);
}

static void payloads(void) {
  static const uint8_t claims[][5] = {
      {0xdd, 255, 255, 255, 255}, {0xdf, 255, 255, 255, 255}, {0xdb, 255, 255, 255, 255}, {0xc6, 255, 255, 255, 255},
      {0xc9, 255, 255, 255, 255}, {0xdc, 255, 255, 0, 0},     {0xde, 255, 255, 0, 0},     {0xd8, 1, 2, 3, 4},
      {0xc1, 0, 0, 0, 0},         {0xc7, 255, 1, 2, 3}};
  bytes good = {0}, b = {0};
  int fd = -1;
  put_submit(&good, 7, 4, 1);
  for (size_t cut = 0; cut < good.len; cut++) fd = send_payload(fd, &(bytes){good.p, cut, 0}, "a cut request");
  for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
    fd = send_payload(fd, &(bytes){(uint8_t *)claims[i], 5, 0}, "a claim alone");
    /* as the value of a field */
    b.len = 0;
    put8(&b, 0x84), put_text(&b, "v"), put8(&b, 1), put_text(&b, "op"), put_text(&b, "submit"), put_text(&b, "id"),
        put8(&b, 9);
    put_text(&b, i % 2 ? "token_ids" : "stop"), put(&b, claims[i], 5), put_fill(&b, 0, 300);
    fd = send_payload(fd, &b, "a claim in a field");
  }
  for (int kind = 0; kind < 3; kind++) { /* depth: arrays, maps, and a bomb as a field */
    b.len = 0;
    if (kind == 2) put8(&b, 0x81), put_text(&b, "stop");
    for (int i = 0; i < 200000; i++) {
      put8(&b, kind == 1 ? 0x81 : 0x91);
      if (kind == 1) put8(&b, 0xa0);
    }
    fd = send_payload(fd, &b, "a bomb of depth");
  }
  b.len = 0;
  put_fill(&b, 0xc0, MAX_REQUEST);
  fd = send_payload(fd, &b, "1 MiB of nil");
  put8(&b, 0xc0);
  fd = send_payload(fd, &b, "1 MiB and a byte");
  for (int i = 0; i < 300; i++) { /* random bytes, and a good request with a few of its bytes changed */
    b.len = 0;
    if (i % 2) {
      put(&b, good.p, good.len);
      b.p[0] = 0xc1; /* never good again */
      for (unsigned k = draw() % 4; k; k--) b.p[draw() % b.len] = (uint8_t)draw();
      b.p[0] = 0xc1;
    } else {
      for (unsigned k = 1 + draw() % 200; k; k--) put8(&b, draw());
    }
    fd = send_payload(fd, &b, "random bytes");
  }
  /* After all that the same connection, or a new one, is served. */
  if (fd < 0) fd = must_shake_hands();
  b.len = 0;
  put_frame(&b, 0, good.p, good.len);
  if (!send_all(fd, b.p, b.len) || await(fd, "done") != 1)
    failures++, fprintf(stderr, "hostile_client: a good request after the bad ones is not answered\n");
  close(fd);
  free(b.p);
  free(good.p);
  report("payloads");
}

static void multipart(void) {
  bytes good = {0}, b = {0};
  int fd = -1;
  put_submit(&good, 7, 4, 1);
  for (int frames = 2; frames <= 1000; frames = frames * 3 + 1) {
    b.len = 0;
    for (int i = 0; i < frames; i++) put_frame(&b, i < frames - 1 ? MORE : 0, good.p, good.len);
    fd = send_bad(fd, &b, "a message of several frames");
    b.len = 0;
    for (int i = 0; i < frames; i++) put_frame(&b, i < frames - 1 ? MORE : 0, NULL, 0);
    fd = send_bad(fd, &b, "a message of empty frames");
  }
  if (fd >= 0) close(fd);
  free(b.p);
  free(good.p);
  report("multipart");
}

/* Sends the same bytes again and again over each connection, and reads what comes back. */
static void pour(const char *what, int count, const bytes *b, int ms) {
  static uint8_t waste[65536];
  int fds[64];
  uint64_t sent = 0;
  unsigned thrown_out = 0;
  int64_t until = now_ms() + ms;
  if (count > 64) count = 64;
  for (int i = 0; i < count; i++) fds[i] = must_shake_hands();
  /* Partial sends would break the framing: where each connection is within b. */
  size_t at[64] = {0};
  while (now_ms() < until) {
    struct pollfd p[64];
    for (int i = 0; i < count; i++) p[i] = (struct pollfd){.fd = fds[i], .events = POLLOUT};
    poll(p, (nfds_t)count, 50);
    for (int i = 0; i < count; i++) {
      if (fds[i] < 0) {
        fds[i] = shake_hands();
        at[i] = 0;
        continue;
      }
      if (!p[i].revents) continue;
      while (recv(fds[i], waste, sizeof waste, MSG_DONTWAIT) > 0) continue;
      ssize_t n = send(fds[i], b->p + at[i], b->len - at[i], MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) sent += (uint64_t)n, at[i] = (at[i] + (size_t)n) % b->len;
      if (n > 0 || errno == EAGAIN) continue;
      thrown_out++;
      close(fds[i]);
      fds[i] = -1;
    }
  }
  for (int i = 0; i < count; i++)
    if (fds[i] >= 0) close(fds[i]);
  printf("%s: %d connections: %.0f MiB sent in %.1f s, thrown out %u times\n", what, count, (double)sent / 0x1p20,
         ms / 1000.0, thrown_out);
}

static void endless(int count, size_t frame, int ms) {
  bytes b = {0}, body = {0};
  put_fill(&body, 'x', frame);
  do put_frame(&b, MORE, body.p, body.len);
  while (b.len < 65536);
  printf("frames of %zu bytes, ", frame);
  pour("endless", count, &b, ms);
  free(b.p);
  free(body.p);
}

static void long_requests(int count, int ms) {
  enum { IDS = 1040000 };
  bytes b = {0}, body = {0};
  put8(&body, 0x84);
  put_text(&body, "v"), put8(&body, 1);
  put_text(&body, "op"), put_text(&body, "submit");
  put_text(&body, "id"), put8(&body, 1);
  put_text(&body, "token_ids"), put8(&body, 0xdd), put_be(&body, IDS, 4), put_fill(&body, 1, IDS);
  put_frame(&b, 0, body.p, body.len);
  pour("long", count, &b, ms);
  free(b.p);
  free(body.p);
}

static void submit_from(int count, unsigned tokens, unsigned n, bool read_some, int ms) {
  static int fds[MAX_CONNECTIONS];
  bytes good = {0}, b = {0};
  put_submit(&good, 7, tokens, n);
  put_frame(&b, 0, good.p, good.len);
  for (int i = 0; i < count && i < MAX_CONNECTIONS; i++) {
    fds[i] = must_shake_hands();
    if (!send_all(fds[i], b.p, b.len)) failures++;
  }
  for (int i = 0; read_some && i < count; i++)
    if (await(fds[i], "tokens") != 1) failures++;
  usleep((useconds_t)ms * 1000);
  for (int i = 0; i < count; i++) close(fds[i]);
  printf("%s: %d clients\n", read_some ? "vanish" : "mute", count);
  free(b.p);
  free(good.p);
}

/* Counts the errors in a frame, which may hold several messages. */
static int count_errors(const uint8_t *p, size_t len) {
  static const char word[] = "op\xa5"
                             "error";
  int n = 0;
  for (const uint8_t *at = p; (at = memmem(at, len - (size_t)(at - p), word, sizeof word - 1)); at++) n++;
  return n;
}

/* The other side keeps some answers, but not without end, and loses none without a word. */
static void unread(int count) {
  static uint8_t body[1 << 17];
  bytes bad = {0}, b = {0};
  uint8_t flags;
  int fd = must_shake_hands(), errors = 0;
  put8(&bad, 0xc1);
  put_frame(&b, 0, bad.p, bad.len);
  for (int i = 0; i < count; i++)
    if (!send_all(fd, b.p, b.len)) break;
  usleep(500000);
  for (int64_t until = now_ms() + ANSWER_MS; errors < count; until = now_ms() + ANSWER_MS) {
    ssize_t n = read_frame(fd, &flags, body, sizeof body, until);
    if (n < 0 && now_ms() >= until) failures++;
    if (n < 0) break;
    errors += count_errors(body, (size_t)n);
  }
  close(fd);
  printf("unread: %d of %d answered\n", errors, count);
  free(b.p);
  free(bad.p);
}

static int number(char **argv, int argc, int i, int fallback) { return i < argc ? atoi(argv[i]) : fallback; }

int main(int argc, char **argv) {
  struct rlimit files;
  if (argc < 3) {
    fprintf(
        stderr,
        "Usage: hostile_client PATH noise|half|flood|payloads|multipart|endless|long|mute|unread|vanish [NUMBER]...\n");
    return 2;
  }
  path = argv[1];
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  const char *what = argv[2];
  if (!strcmp(what, "noise"))
    noise(number(argv, argc, 3, 500));
  else if (!strcmp(what, "half"))
    half_open(number(argv, argc, 3, 2000), number(argv, argc, 4, 2000));
  else if (!strcmp(what, "flood"))
    flood(number(argv, argc, 3, 16000), number(argv, argc, 4, 10000));
  else if (!strcmp(what, "payloads"))
    payloads();
  else if (!strcmp(what, "multipart"))
    multipart();
  else if (!strcmp(what, "endless"))
    endless(number(argv, argc, 3, 4), (size_t)number(argv, argc, 4, 65536), number(argv, argc, 5, 2000));
  else if (!strcmp(what, "long"))
    long_requests(number(argv, argc, 3, 4), number(argv, argc, 4, 2000));
  else if (!strcmp(what, "mute"))
    submit_from(number(argv, argc, 3, 4), 900, 32, false, number(argv, argc, 4, 1000));
  else if (!strcmp(what, "unread"))
    unread(number(argv, argc, 3, 20000));
  else if (!strcmp(what, "vanish"))
    submit_from(number(argv, argc, 3, 16), 900, 4, true, 0);
  else
    return 2;
  return failures > 0;
}
