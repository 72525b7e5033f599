/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/top/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading metrics ---- */

/* Returns what follows `name` on the next line that begins with it. */
static const char *behind(const char *metrics, const char *name) {
  size_t len = strlen(name);
  for (const char *line = metrics; line && *line; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    if (!strncmp(line, name, len)) return line + len;
  }
  return NULL;
}

bool top_read_value(const char *metrics, const char *name, double *out) {
  const char *rest = behind(metrics, name);
  if (!rest || *rest != ' ') return false;
  *out = strtod(rest, NULL);
  return true;
}

/* Takes the buckets in the order of the text, which is that of their bounds. */
void top_read_histogram(const char *metrics, const char *name, top_histogram *out) {
  char begin[TOP_TEXT];
  *out = (top_histogram){.num = 0};
  snprintf(begin, sizeof begin, "%s_bucket{le=\"", name);
  for (const char *at = metrics; out->num < TOP_BUCKETS && (at = behind(at, begin)); out->num++) {
    char *end;
    out->bounds[out->num] = strtod(at, &end); /* it reads +Inf, too */
    out->counts[out->num] = strncmp(end, "\"} ", 3) ? 0 : strtod(end + 3, NULL);
  }
}

/* ---- the recent past ---- */

/* Fewer tokens than before are those of a coordinator that has been restarted: the history begins anew. */
void top_note(top_history *h, const top_sample *s) {
  if (h->num && s->tokens < h->samples[h->num - 1].tokens) h->num = 0;
  if (h->num == TOP_SAMPLES) memmove(h->samples, h->samples + 1, (size_t)--h->num * sizeof *h->samples);
  h->samples[h->num++] = *s;
}

double top_history_seconds(const top_history *h) {
  return h->num ? h->samples[h->num - 1].seconds - h->samples[0].seconds : 0;
}

/* Counts of buckets are cumulative, over values and over time. A sample with other buckets, of before the first token,
 * has nothing to subtract. */
static double grown(const top_histogram *from, const top_histogram *to, int i) {
  return to->counts[i] - (from->num == to->num ? from->counts[i] : 0);
}

/* A value lies evenly between the bounds of its bucket, as Prometheus assumes; beyond the last bound that is all that
 * is known of it. */
const char *top_quantile_text(const top_histogram *from, const top_histogram *to, double q, char out[TOP_TEXT]) {
  double all = to->num ? grown(from, to, to->num - 1) : 0, want = q * all;
  int i = 0;
  snprintf(out, TOP_TEXT, "-");
  if (!(all > 0)) return out;
  while (i < to->num - 1 && grown(from, to, i) < want) i++;
  double low = i ? to->bounds[i - 1] : 0, before = i ? grown(from, to, i - 1) : 0;
  bool beyond = isinf(to->bounds[i]);
  double inside = grown(from, to, i) - before;
  double s = beyond || !(inside > 0) ? low : low + (to->bounds[i] - low) * (want - before) / inside;
  if (s < 1)
    snprintf(out, TOP_TEXT, "%s%.1f ms", beyond ? ">" : "", s * 1e3);
  else
    snprintf(out, TOP_TEXT, "%s%.2f s", beyond ? ">" : "", s);
  return out;
}

/* Tokens per second from sample i - 1 to sample i: i is at least 1. */
static double rate(const top_history *h, int i) {
  const top_sample *a = &h->samples[i - 1], *b = &h->samples[i];
  return b->seconds > a->seconds ? (double)(b->tokens - a->tokens) / (b->seconds - a->seconds) : 0;
}

const char *top_spark_text(const top_history *h, int width, char out[TOP_TEXT]) {
  static const char marks[] = "_.-:=+*#";
  enum { LEVELS = sizeof marks - 2 };
  int n = 0, first;
  double highest = 0;
  if (width > TOP_TEXT - 1) width = TOP_TEXT - 1;
  first = h->num > width ? h->num - width : 1;
  for (int i = first; i < h->num; i++) highest = fmax(highest, rate(h, i));
  for (int i = first; i < h->num; i++) out[n++] = marks[highest > 0 ? (int)ceil(LEVELS * rate(h, i) / highest) : 0];
  out[n] = '\0';
  return out;
}

const char *top_bar_text(double share, int width, char out[TOP_TEXT]) {
  if (width > TOP_TEXT - 1) width = TOP_TEXT - 1;
  double part = fmin(fmax(share, 0), 1);
  int inside = width > 2 ? width - 2 : 0, full = (int)(part * inside + 0.5);
  if (part > 0 && !full && inside) full = 1; /* a little is not nothing */
  snprintf(out, TOP_TEXT, "[%.*s%*s]", full, "||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||||",
           inside - full, "");
  return out;
}
