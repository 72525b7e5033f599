/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics: the coordinator's figures under the names that dashboards look for, and the gateway's own. The coordinator
 * writes `trireme:NAME`; here it becomes PREFIX:NAME, and each sample gets the label model_name. Lines that do not
 * begin so are passed on as they are. */
#include <string.h>

#include "client/gateway/tasks.h"

static const int statuses[] = {200, 400, 401, 403, 404, 405, 408, 413, 414,
                               415, 417, 429, 431, 500, 501, 503, 504, 505};
enum { NUM_STATUSES = sizeof statuses / sizeof *statuses };
_Static_assert((int)NUM_STATUSES < (int)GW_MAX_STATUSES, "all others come after them");

static const char own[] = "trireme:"; /* what the coordinator's names begin with */
enum { OWN_LEN = sizeof own - 1 };

void gw_count_answer(gateway *g, unsigned route, int status) {
  int i = 0;
  while (i < NUM_STATUSES && statuses[i] != status) i++;
  g->counts.answers[route][i]++;
}

/* ---- the coordinator's ---- */

static void add(tri_buf *b, const char *text) { tri_text_add(b, text, strlen(text)); }

/* A label's value: backslashes, quotes and line ends are escaped. */
static void add_label(tri_buf *b, const char *name, const char *value) {
  add(b, name);
  add(b, "=\"");
  for (; *value; value++) {
    if (*value == '\n') {
      add(b, "\\n");
      continue;
    }
    if (*value == '"' || *value == '\\') add(b, "\\");
    tri_text_add(b, value, 1);
  }
  add(b, "\"");
}

static void add_name(const gateway *g, tri_buf *b, const char *rest, size_t len) {
  add(b, g->o.http.metrics_prefix);
  add(b, ":");
  tri_text_add(b, rest, len);
}

/* A sample: NAME VALUE, or NAME{LABELS} VALUE. */
static void add_sample(const gateway *g, tri_buf *b, const char *line, size_t len) {
  size_t name = 0;
  while (name < len && line[name] != '{' && line[name] != ' ') name++;
  bool labels = name < len && line[name] == '{';
  add_name(g, b, line, name);
  add(b, "{");
  add_label(b, "model_name", g->name);
  add(b, labels ? "," : "}");
  tri_text_add(b, line + name + labels, len - name - labels);
}

static void add_line(const gateway *g, tri_buf *b, const char *line, size_t len) {
  static const char help[] = "# HELP ", type[] = "# TYPE ";
  const size_t head = sizeof help - 1;
  bool comment = len > head && (!memcmp(line, help, head) || !memcmp(line, type, head));
  size_t skip = comment ? head : 0;
  if (len < skip + OWN_LEN || memcmp(line + skip, own, OWN_LEN) != 0) {
    tri_text_add(b, line, len);
  } else if (comment) {
    tri_text_add(b, line, head);
    add_name(g, b, line + skip + OWN_LEN, len - skip - OWN_LEN);
  } else {
    add_sample(g, b, line + OWN_LEN, len - OWN_LEN);
  }
  add(b, "\n");
}

/* ---- the gateway's ---- */

static void begin(const gateway *g, tri_buf *b, const char *name, const char *type, const char *help) {
  const char *prefix = g->o.http.metrics_prefix;
  tri_text_printf(b, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", prefix, name, help, prefix, name, type);
}

static void add_answers(const gateway *g, tri_buf *b) {
  begin(g, b, "http_requests_total", "counter", "Requests that were answered, by path and status.");
  for (unsigned r = 0; r <= GW_NUM_PATHS; r++)
    for (int i = 0; i <= NUM_STATUSES; i++) {
      uint64_t n = g->counts.answers[r][i];
      const char *path = r < GW_NUM_PATHS ? gw_paths[r].path : "other";
      if (!n || !path) continue;
      add_name(g, b, "http_requests_total{", strlen("http_requests_total{"));
      add_label(b, "path", path);
      tri_text_printf(b, ",code=\"%.3d\"} %llu\n", i < NUM_STATUSES ? statuses[i] : 0, (unsigned long long)n);
    }
}

static void add_own(const gateway *g, tri_buf *b) {
  const gw_counts *c = &g->counts;
  const char *prefix = g->o.http.metrics_prefix;
  add_answers(g, b);
  begin(g, b, "http_connections", "gauge", "Connections of clients.");
  tri_text_printf(b, "%s:http_connections %u\n", prefix, g->server ? http_server_connections(g->server) : 0);
  begin(g, b, "http_cancelled_total", "counter", "Requests whose client did not wait, by what it did.");
  tri_text_printf(b, "%s:http_cancelled_total{why=\"closed\"} %llu\n%s:http_cancelled_total{why=\"slow\"} %llu\n",
                  prefix, (unsigned long long)c->gone[HTTP_GONE_CLOSED], prefix,
                  (unsigned long long)c->gone[HTTP_GONE_SLOW]);
  begin(g, b, "http_request_bytes", "gauge",
        "Memory of requests: documents that are read, and what is kept until answers end.");
  tri_text_printf(b, "%s:http_request_bytes{of=\"documents\"} %zu\n%s:http_request_bytes{of=\"kept\"} %zu\n", prefix,
                  tri_json_memory(), prefix, g->tasks ? gw_tasks_kept(g->tasks) : 0);
  begin(g, b, "template_seconds", "summary", "Time to render and tokenize requests.");
  tri_text_printf(b, "%s:template_seconds_sum %.6f\n%s:template_seconds_count %llu\n", prefix,
                  (double)c->template_ns * 1e-9, prefix, (unsigned long long)c->templates);
}

void gw_metrics_write(const gateway *g, const char *text, size_t len, tri_buf *out) {
  for (size_t at = 0, n; at < len; at += n + 1) {
    const char *end = memchr(text + at, '\n', len - at);
    n = end ? (size_t)(end - text) - at : len - at;
    add_line(g, out, text + at, n);
  }
  add_own(g, out);
}
