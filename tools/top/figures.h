/* SPDX-License-Identifier: Apache-2.0 */
/* Figures that `trireme top` makes of the coordinator's metrics: quantiles and rates of the recent past, and bars.
 *
 * Counters and histograms only count up: what happened lately is the difference of two looks, the oldest and the newest
 * of the history. */
#ifndef TRI_TOOLS_TOP_FIGURES_H
#define TRI_TOOLS_TOP_FIGURES_H

#include <stdbool.h>
#include <stdint.h>

enum { TOP_SAMPLES = 61, TOP_BUCKETS = 24, TOP_TEXT = 96 };

/* A histogram's buckets as Prometheus has them: each counts what is in those before it, too. */
typedef struct top_histogram {
  int num;
  double bounds[TOP_BUCKETS]; /* the last one is infinite */
  double counts[TOP_BUCKETS];
} top_histogram;

typedef struct top_sample {
  double seconds; /* of a clock */
  uint64_t tokens;
  top_histogram first, next; /* time to the first token, and between tokens */
} top_sample;

/* The last looks, oldest first. */
typedef struct top_history {
  top_sample samples[TOP_SAMPLES];
  int num;
} top_history;

/* Reads a sample without labels; false: the metrics have none of this name. */
bool top_read_value(const char *metrics, const char *name, double *out);
/* Leaves no buckets where there is no such histogram. */
void top_read_histogram(const char *metrics, const char *name, top_histogram *out);

/* Adds a look. Counts that have shrunk are those of another coordinator, with which the history begins anew. */
void top_note(top_history *h, const top_sample *s);
double top_history_seconds(const top_history *h); /* from its first look to its last one */
/* Writes "12.3 ms", of what came between the first look and the last one; "-" where nothing did. */
const char *top_quantile_text(const top_histogram *from, const top_histogram *to, double q, char out[TOP_TEXT]);
/* Writes the tokens per second from one look to the next, a character each, the highest as '#'; the last `width`. */
const char *top_spark_text(const top_history *h, int width, char out[TOP_TEXT]);
/* Writes "[||||      ]" of `width` characters in all. */
const char *top_bar_text(double share, int width, char out[TOP_TEXT]);

#endif
