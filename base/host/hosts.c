/* SPDX-License-Identifier: Apache-2.0 */
#include "base/host/hosts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- lists ---- */

static tri_status add(tri_hosts *h, const char *name, size_t len, long long slots, tri_error *err) {
  if (!h->list && !(h->list = tri_calloc(TRI_HOSTS_MAX, sizeof *h->list)))
    return tri_fail(err, TRI_NO_MEMORY, "hosts", "no memory");
  for (int i = 0; i < h->count; i++) {
    if (strlen(h->list[i].name) != len || strncmp(h->list[i].name, name, len)) continue;
    h->list[i].slots += slots;
    return TRI_OK;
  }
  if (h->count == TRI_HOSTS_MAX)
    return tri_fail(err, TRI_USAGE, "hosts", "more than %d hosts are too many", TRI_HOSTS_MAX);
  if (!len || len >= TRI_HOST_NAME)
    return tri_fail(err, TRI_USAGE, "hosts", "--hosts has an entry without a name: it takes HOST:RANKS,...");
  tri_host *host = &h->list[h->count++];
  memcpy(host->name, name, len);
  host->slots = slots;
  return TRI_OK;
}

tri_status tri_hosts_parse(const char *text, tri_hosts *out, tri_error *err) {
  *out = (tri_hosts){0};
  for (const char *at = text;; at++) {
    size_t len = strcspn(at, ","), name = strcspn(at, ":,");
    long long slots = 1;
    int digits = 0;
    if (name < len &&
        (sscanf(at + name + 1, "%9lld%n", &slots, &digits) != 1 || slots < 1 || name + 1 + (size_t)digits != len))
      return tri_fail(err, TRI_USAGE, "hosts", "--hosts \"%.100s\": \"%.*s\" is no HOST:RANKS", text,
                      len > 100 ? 100 : (int)len, at);
    TRI_CHECK(add(out, at, name, slots, err));
    at += len;
    if (!*at) return TRI_OK;
  }
}

static tri_status unclear(tri_error *err) {
  return tri_fail(err, TRI_USAGE, "hosts",
                  "the list of a Slurm job's nodes is not understood: --hosts H:N,... says it");
}

/* The numbers of a bracket, "1-2,07]", after a prefix. Moves *at after the bracket. */
static tri_status add_numbered(tri_hosts *h, const char *prefix, int len, const char **at, tri_error *err) {
  const char *p = *at;
  while (*p != ']') {
    char name[TRI_HOST_NAME], *end;
    int width = (int)strspn(p, "0123456789");
    long first = strtol(p, &end, 10), last = first;
    if (!width) return unclear(err);
    if (*end == '-') last = strtol(end + 1, &end, 10);
    if (last < first || last - first >= TRI_HOSTS_MAX || (*end != ',' && *end != ']')) return unclear(err);
    for (long i = first; i <= last; i++) {
      int n = snprintf(name, sizeof name, "%.*s%0*ld", len, prefix, width, i);
      TRI_CHECK(add(h, name, (size_t)n, 0, err));
    }
    p = end + (*end == ',');
  }
  *at = p + 1;
  return TRI_OK;
}

/* "4(x2),3": numbers for the hosts in their order; 1 for those after the end. */
static void take_slots(tri_hosts *h, const char *tasks) {
  long long slots = 1;
  for (int i = 0; i < h->count;) {
    int n = 0, times = 1;
    if (sscanf(tasks, "%9lld%n", &slots, &n) != 1) slots = 1;
    tasks += n;
    n = 0;
    if (sscanf(tasks, "(x%6d)%n", &times, &n) == 1) tasks += n;
    tasks += *tasks == ',';
    for (int k = 0; k < times && i < h->count; k++) h->list[i++].slots = slots;
    if (times < 1) return;
  }
}

/* Slurm's compressed lists, "node[1-3,07],login": one bracket for a name at most. Widths with leading zeros are kept.
 */
tri_status tri_hosts_parse_slurm(const char *nodes, const char *tasks, tri_hosts *out, tri_error *err) {
  *out = (tri_hosts){0};
  for (const char *at = nodes; *at; at += *at == ',') {
    size_t len = strcspn(at, ",[");
    const char *prefix = at;
    at += len;
    if (*at == '[') {
      at++;
      TRI_CHECK(add_numbered(out, prefix, len < TRI_HOST_NAME ? (int)len : 0, &at, err));
    } else {
      TRI_CHECK(add(out, prefix, len, 0, err));
    }
    if (*at && *at != ',') return unclear(err); /* several brackets in one name */
  }
  take_slots(out, tasks);
  return out->count ? TRI_OK : unclear(err);
}

void tri_hosts_free(tri_hosts *h) {
  tri_free(h->list);
  *h = (tri_hosts){0};
}

/* ---- places ---- */

static void take(tri_hosts *h, int host, int ranks, tri_place *out) {
  for (int i = 0; i < ranks; i++) out[i] = (tri_place){.host = host, .index = (int)h->list[host].used++};
}

static long long room(const tri_hosts *h, int host, long long times) {
  return h->list[host].slots * times - h->list[host].used;
}

/* Replicas stay on one host where that is possible, since ranks of a replica exchange data in every layer; a replica
 * that fits nowhere as a whole takes what is free in the order of the list. */
tri_status tri_hosts_place(tri_hosts *h, int replicas, int ranks, bool more, tri_place *out) {
  long long slots = 0, needed = (long long)replicas * ranks;
  for (int i = 0; i < h->count; i++) slots += h->list[i].slots;
  for (int i = 0; i < h->count; i++) h->list[i].used = 0;
  if (slots < 1 || (slots < needed && !more)) return TRI_NO_CAPACITY;
  long long times = slots < needed ? (needed + slots - 1) / slots : 1;
  for (int g = 0; g < replicas; g++) {
    int whole = 0, placed = 0;
    while (whole < h->count && room(h, whole, times) < ranks) whole++;
    for (int i = whole < h->count ? whole : 0; i < h->count && placed < ranks; i++) {
      long long free_slots = room(h, i, times), left = ranks - placed;
      int n = (int)(free_slots < left ? free_slots : left);
      take(h, i, n, out + placed);
      placed += n;
    }
    out += ranks;
  }
  return TRI_OK;
}

/* How many of the ranks from the first one on are on its host, one after the other. */
static int run_of(const tri_place *places, int ranks) {
  int n = 1;
  while (n < ranks && places[n].host == places[0].host) n++;
  return n;
}

static bool append(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool append(char *out, size_t cap, const char *fmt, ...) {
  size_t used = strlen(out);
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(out + used, cap - used, fmt, ap);
  va_end(ap);
  return n >= 0 && (size_t)n < cap - used;
}

bool tri_hosts_list(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_HOSTS_TEXT]) {
  bool fits = true;
  out[0] = '\0';
  for (int r = 0, n; r < ranks && fits; r += n) {
    n = run_of(places + r, ranks - r);
    fits = append(out, TRI_HOSTS_TEXT, "%s%s:%d", r ? "," : "", h->list[places[r].host].name, n);
  }
  return fits;
}

bool tri_hosts_names(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_HOSTS_TEXT]) {
  bool fits = true;
  out[0] = '\0';
  for (int r = 0; r < ranks && fits; r++)
    fits = append(out, TRI_HOSTS_TEXT, "%s%s", r ? "," : "", h->list[places[r].host].name);
  return fits;
}

bool tri_hosts_shares(const tri_hosts *h, const tri_place *places, int ranks, char out[TRI_PLACES_TEXT]) {
  bool fits = true;
  out[0] = '\0';
  for (int r = 0, n; r < ranks && fits; r += n) {
    n = run_of(places + r, ranks - r);
    fits = append(out, TRI_PLACES_TEXT, "%s%d@%d/%lld", r ? "," : "", n, places[r].index, h->list[places[r].host].used);
  }
  return fits;
}

/* Reads what tri_hosts_shares writes, "RANKS@FIRST/OF" for each run of ranks on one host, up to the run that has the
 * rank. */
bool tri_hosts_read_share(const char *text, int rank, int local_size, int *first, int *count) {
  for (int before = 0, ranks, n = 0; sscanf(text, "%6d@%6d/%6d%n", &ranks, first, count, &n) == 3; text += n) {
    n += text[n] == ',';
    if (ranks < 1) return false;
    if (rank < before + ranks) return ranks == local_size && *first + ranks <= *count;
    before += ranks;
  }
  return false;
}
