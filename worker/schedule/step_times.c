/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/step_times.h"

enum { QUARTERS = 4 };

/* ---- a curve ---- */

static int place_of(int size) {
  int place = 0;
  while (size > 1 && place < TRI_STEP_CURVE_POINTS - 1) {
    size /= 2;
    place++;
  }
  return place;
}

static void add(tri_step_curve *c, int size, double seconds) {
  int place = place_of(size);
  c->kept[place][c->num[place]++ % TRI_STEP_CURVE_KEPT] = (tri_step_point){size, seconds};
}

/* Returns the lower quartile, by seconds for each token, of the steps that are kept of a place. Sizes in it differ by
 * up to a factor of two; the point is one of the steps, and so on the curve whatever its form. */
static tri_step_point quartile(const tri_step_curve *c, int place) {
  int n = c->num[place] < TRI_STEP_CURVE_KEPT ? (int)c->num[place] : TRI_STEP_CURVE_KEPT;
  tri_step_point sorted[TRI_STEP_CURVE_KEPT] = {{0}};
  for (int i = 0; i < n; i++) {
    tri_step_point p = c->kept[place][i];
    int at = i;
    for (; at > 0 && p.seconds * sorted[at - 1].size < sorted[at - 1].seconds * p.size; at--)
      sorted[at] = sorted[at - 1];
    sorted[at] = p;
  }
  return sorted[(n - 1) / QUARTERS];
}

/* Gathers the points that are known, by their sizes; returns how many there are. A larger step never takes less: one
 * that seems to was measured at another time. */
static int points(const tri_step_curve *c, tri_step_point out[TRI_STEP_CURVE_POINTS]) {
  int n = 0;
  for (int place = 0; place < TRI_STEP_CURVE_POINTS; place++) {
    if (!c->num[place]) continue;
    out[n] = quartile(c, place);
    if (n && out[n].seconds < out[n - 1].seconds) out[n].seconds = out[n - 1].seconds;
    n++;
  }
  return n;
}

static double between(tri_step_point a, tri_step_point b, double size) {
  return a.seconds + (b.seconds - a.seconds) * (size - a.size) / (b.size - a.size);
}

/* Returns the seconds of a size beyond the last point, along the line from the first one. What few measured sizes say
 * of far larger ones is mostly their noise, so that the line ends. */
static double beyond(const tri_step_point *p, int n, double size) {
  enum { FARTHEST = 4 };
  tri_step_point last = p[n - 1];
  if (size > FARTHEST * last.size) size = FARTHEST * last.size;
  return 2 * p[0].size <= last.size ? between(p[0], last, size) : last.seconds;
}

/* ---- both curves ---- */

void tri_step_times_add(tri_step_times *t, int decodes, int prompt_tokens, double seconds) {
  if (!(seconds > 0)) return;
  if (prompt_tokens > 0) {
    double more = seconds - tri_step_times_of_decodes(t, decodes > 0 ? decodes : 1);
    add(&t->prompts, prompt_tokens, more > 0 ? more : 0);
  } else if (decodes > 0) {
    add(&t->decodes, decodes, seconds);
  }
}

bool tri_step_times_has_decodes(const tri_step_times *t, int decodes) {
  for (int place = place_of(decodes); place < TRI_STEP_CURVE_POINTS; place++)
    if (t->decodes.num[place]) return true;
  return false;
}

double tri_step_times_of_decodes(const tri_step_times *t, int decodes) {
  tri_step_point p[TRI_STEP_CURVE_POINTS];
  int n = points(&t->decodes, p);
  if (!n) return 0;
  if (decodes <= p[0].size) return p[0].seconds;
  for (int i = 1; i < n; i++)
    if (decodes <= p[i].size) return between(p[i - 1], p[i], decodes);
  return beyond(p, n, decodes);
}

int tri_step_times_prompt_tokens(const tri_step_times *t, double seconds, int most) {
  tri_step_point p[TRI_STEP_CURVE_POINTS], last = {0};
  int n = points(&t->prompts, p);
  double tokens = most;
  if (!n) return -1;
  if (!(seconds > 0)) return 0;
  for (int i = 0; i < n; i++) {
    if (p[i].seconds > seconds) {
      tokens = last.size + (p[i].size - last.size) * (seconds - last.seconds) / (p[i].seconds - last.seconds);
      return tokens < most ? (int)tokens : most;
    }
    last = p[i];
  }
  if (last.seconds > 0) tokens = last.size * (seconds / last.seconds);
  return tokens < most ? (int)tokens : most;
}
