/* SPDX-License-Identifier: Apache-2.0 */
/* Many streams of completions over HTTP at once, for benchmarks of servers, and the floor of such a server.
 *
 *   http_streams load PORT STREAMS TOKENS   asks for so many streams of so many tokens, and prints a line of JSON
 *   http_streams idle PORT CONNECTIONS      opens connections that ask for nothing, says "open", and waits for a signal
 *   http_streams serve PORT STEP_US TOKENS  answers each request with a token every STEP_US, by epoll alone
 *
 * The text of each token is the monotonic clock's nanoseconds of the step that made it, all streams' being the same,
 * which is how the client knows how late an event comes. The first two steps of a stream are not counted. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 8192, MOST_STEPS = 1 << 16, EVENTS = 256, SKIPPED = 2 };

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void need(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "http_streams: %s: %s\n", what, strerror(errno));
  exit(1);
}

static struct sockaddr_in address(int port) {
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void watch(int loop, int fd, uint32_t events, void *who) {
  struct epoll_event e = {.events = events, .data.ptr = who};
  need(!epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e), "epoll_ctl");
}

/* ---- the client ---- */

typedef struct stream {
  int fd, tokens;
  int64_t asked_ns;
  size_t len;
  char data[BUFFER];
} stream;

/* A step, by its stamp, and the last of its events. */
typedef struct step {
  int64_t stamp, last_ns;
  int events;
} step;

typedef struct client {
  stream *streams;
  int num, open, failed;
  step *steps;
  int num_steps;
  int64_t *late, *first; /* of each counted event, and of each stream's first one, in ns */
  size_t num_late, room_late, num_first;
} client;

static int connect_to(int port) {
  struct sockaddr_in to = address(port);
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
  need(fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to), "connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void ask(stream *s, int tokens) {
  char body[200], head[200];
  int n =
      snprintf(body, sizeof body, "{\"model\":\"fake\",\"prompt\":\"x\",\"max_tokens\":%d,\"stream\":true}", tokens);
  int m = snprintf(head, sizeof head,
                   "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                   "Content-Length: %d\r\n\r\n%s",
                   n, body);
  s->asked_ns = now_ns();
  need(write(s->fd, head, (size_t)m) == m, "write");
}

static step *step_of(client *c, int64_t stamp) {
  for (int i = c->num_steps; i-- > 0 && i > c->num_steps - 64;)
    if (c->steps[i].stamp == stamp) return &c->steps[i];
  need(c->num_steps < MOST_STEPS, "steps");
  c->steps[c->num_steps] = (step){.stamp = stamp};
  return &c->steps[c->num_steps++];
}

static void take_token(client *c, stream *s, int64_t stamp, int64_t now) {
  if (!s->tokens++) c->first[c->num_first++] = now - s->asked_ns;
  if (s->tokens <= SKIPPED) return;
  step *t = step_of(c, stamp);
  t->last_ns = now;
  t->events++;
  if (c->num_late < c->room_late) c->late[c->num_late++] = now - stamp;
}

/* Takes whole lines; the rest stays. */
static void take_lines(client *c, stream *s, int64_t now) {
  size_t at = 0;
  for (char *end; (end = memchr(s->data + at, '\n', s->len - at));) {
    *end = 0;
    char *text = strstr(s->data + at, "\"text\":\" ");
    if (text) take_token(c, s, strtoll(text + strlen("\"text\":\" "), NULL, 10), now);
    at = (size_t)(end - s->data) + 1;
  }
  memmove(s->data, s->data + at, s->len - at);
  s->len -= at;
}

/* The server's end of chunks is the stream's. */
static bool is_over(const stream *s) { return strstr(s->data, "[DONE]") != NULL; }

static void receive(client *c, stream *s) {
  ssize_t n = read(s->fd, s->data + s->len, BUFFER - 1 - s->len);
  bool over = false;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) {
    s->len += (size_t)n;
    s->data[s->len] = 0;
    over = is_over(s);
    take_lines(c, s, now_ns());
  }
  if (n > 0 && !over) return;
  c->failed += !over;
  close(s->fd);
  c->open--;
}

static int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static double at_ms(const int64_t *sorted, size_t num, double share) {
  return num ? (double)sorted[(size_t)(share * (double)(num - 1))] * 1e-6 : 0;
}

/* Writes how late the last event came of each step that all streams had one of, and returns how many these are. */
static size_t last_of_steps(const client *c, int64_t *out) {
  size_t n = 0;
  for (int i = 0; i < c->num_steps; i++)
    if (c->steps[i].events == c->num) out[n++] = c->steps[i].last_ns - c->steps[i].stamp;
  return n;
}

static void report(client *c) {
  int64_t *last = calloc((size_t)c->num_steps + 1, sizeof *last);
  need(last != NULL, "memory");
  size_t steps = last_of_steps(c, last);
  qsort(last, steps, sizeof *last, by_size);
  qsort(c->late, c->num_late, sizeof *c->late, by_size);
  qsort(c->first, c->num_first, sizeof *c->first, by_size);
  printf("{\"streams\":%d,\"failed\":%d,\"events\":%zu,\"median_ms\":%.3f,\"p99_ms\":%.3f,\"steps\":%zu,"
         "\"last_median_ms\":%.3f,\"last_p99_ms\":%.3f,\"first_median_ms\":%.3f}\n",
         c->num, c->failed, c->num_late, at_ms(c->late, c->num_late, 0.5), at_ms(c->late, c->num_late, 0.99), steps,
         at_ms(last, steps, 0.5), at_ms(last, steps, 0.99), at_ms(c->first, c->num_first, 0.5));
  free(last);
}

static int load(int port, int num, int tokens) {
  client c = {.num = num, .room_late = (size_t)num * (size_t)tokens};
  struct epoll_event events[EVENTS];
  int loop = epoll_create1(EPOLL_CLOEXEC);
  c.streams = calloc((size_t)num, sizeof *c.streams);
  c.steps = calloc(MOST_STEPS, sizeof *c.steps);
  c.late = calloc(c.room_late + 1, sizeof *c.late);
  c.first = calloc((size_t)num, sizeof *c.first);
  need(loop >= 0 && c.streams && c.steps && c.late && c.first, "memory");
  for (int i = 0; i < num; i++, c.open++) {
    stream *s = &c.streams[i];
    s->fd = connect_to(port);
    ask(s, tokens);
    need(!fcntl(s->fd, F_SETFL, O_NONBLOCK), "fcntl");
    watch(loop, s->fd, EPOLLIN, s);
  }
  while (c.open) {
    int n = epoll_wait(loop, events, EVENTS, 30000);
    need(n > 0 || errno == EINTR, "nothing came for 30 s");
    for (int i = 0; i < n; i++) receive(&c, events[i].data.ptr);
  }
  report(&c);
  return c.failed ? 1 : 0;
}

static int idle(int port, int num) {
  for (int i = 0; i < num; i++) connect_to(port);
  puts("open");
  fflush(stdout);
  pause();
  return 0;
}

/* ---- the floor: a server that does nothing but write ---- */

typedef struct answer {
  struct answer *next, **at;
  int fd, tokens;
} answer;

static void begin(int loop, int listener, answer **all) {
  static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), one = 1;
  char request[BUFFER];
  if (fd < 0) return;
  answer *a = calloc(1, sizeof *a);
  need(a && read(fd, request, sizeof request) > 0, "read");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  need(write(fd, head, sizeof head - 1) > 0, "write");
  *a = (answer){.next = *all, .at = all, .fd = fd};
  if (a->next) a->next->at = &a->next;
  *all = a;
  watch(loop, fd, EPOLLRDHUP, a);
}

static void finish(answer *a) {
  *a->at = a->next;
  if (a->next) a->next->at = a->at;
  close(a->fd);
  free(a);
}

static void step_all(answer *all, int tokens) {
  char event[400], chunk[440];
  int64_t stamp = now_ns();
  int n = snprintf(event, sizeof event,
                   "data: {\"id\":\"cmpl-00000000000000000000000000000000\",\"object\":\"text_completion\","
                   "\"created\":1764000000,\"model\":\"fake\",\"choices\":[{\"index\":0,\"text\":\" %lld\","
                   "\"logprobs\":null,\"finish_reason\":null}]}\n\n",
                   (long long)stamp);
  int m = snprintf(chunk, sizeof chunk, "%x\r\n%s\r\n", (unsigned)n, event);
  for (answer *a = all, *next; a; a = next) {
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    next = a->next;
    if (write(a->fd, chunk, (size_t)m) < 0) continue;
    if (++a->tokens < tokens) continue;
    need(write(a->fd, end, sizeof end - 1) > 0, "write");
    finish(a);
  }
}

static _Noreturn void serve(int port, int step_us, int tokens) {
  struct sockaddr_in here = address(port);
  struct epoll_event events[EVENTS];
  struct itimerspec every = {.it_interval.tv_nsec = (long)step_us * 1000, .it_value.tv_nsec = (long)step_us * 1000};
  answer *all = NULL;
  int loop = epoll_create1(EPOLL_CLOEXEC), one = 1;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  need(!bind(listener, (struct sockaddr *)&here, sizeof here) && !listen(listener, 4096), "bind");
  need(!timerfd_settime(timer, 0, &every, NULL), "timer");
  watch(loop, listener, EPOLLIN, &listener);
  watch(loop, timer, EPOLLIN, &timer);
  for (;;) {
    int n = epoll_wait(loop, events, EVENTS, -1);
    for (int i = 0; i < n; i++) {
      uint64_t times;
      if (events[i].data.ptr == &listener) {
        begin(loop, listener, &all);
      } else if (events[i].data.ptr == &timer) {
        if (read(timer, &times, sizeof times) > 0) step_all(all, tokens);
      } else {
        finish(events[i].data.ptr);
      }
    }
  }
}

int main(int argc, char **argv) {
  struct rlimit files;
  signal(SIGPIPE, SIG_IGN);
  if (!getrlimit(RLIMIT_NOFILE, &files)) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  if (argc == 5 && !strcmp(argv[1], "load")) return load(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
  if (argc == 4 && !strcmp(argv[1], "idle")) return idle(atoi(argv[2]), atoi(argv[3]));
  if (argc == 5 && !strcmp(argv[1], "serve")) serve(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
  fputs("usage: http_streams load PORT STREAMS TOKENS | idle PORT CONNECTIONS | serve PORT STEP_US TOKENS\n", stderr);
  return 2;
}
