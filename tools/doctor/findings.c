/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tools/doctor/doctor.h"

/* The JSON goes both ways: a doctor on another host prints it, and this one reads it. Anything that it says of a level
 * other than ok and warn counts as fail. */
const char *const tri_level_names[] = {"ok", "warn", "fail"};

tri_finding *tri_findings_add(tri_findings *f, tri_level level, const char *check) {
  tri_finding *x = &f->list[f->count < TRI_DOCTOR_MOST ? f->count++ : TRI_DOCTOR_MOST - 1];
  *x = (tri_finding){.level = level};
  snprintf(x->check, sizeof x->check, "%s", check);
  return x;
}

tri_level tri_findings_worst(const tri_findings *all, int count) {
  tri_level worst = TRI_LEVEL_OK;
  for (int i = 0; i < count; i++)
    for (int k = 0; k < all[i].count; k++)
      if (all[i].list[k].level > worst) worst = all[i].list[k].level;
  return worst;
}

void tri_findings_print(const tri_findings *all, int count, FILE *out) {
  for (int i = 0; i < count; i++) {
    fprintf(out, "%s%s\n", i ? "\n" : "", all[i].host);
    for (int k = 0; k < all[i].count; k++) {
      const tri_finding *x = &all[i].list[k];
      fprintf(out, "  %-4s  %-12s %s", tri_level_names[x->level], x->check, x->value);
      if (x->limit[0]) fprintf(out, " (%s)", x->limit);
      fputc('\n', out);
      if (x->advice[0]) fprintf(out, "        %-12s %s\n", "", x->advice);
    }
  }
}

/* Escapes each byte beyond ASCII by itself: what other programs say need not be UTF-8. */
static void print_string(const char *s, FILE *out) {
  fputc('"', out);
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < ' ' || c > '~')
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

static void print_member(const char *key, const char *value, const char *behind, FILE *out) {
  fprintf(out, "\"%s\":", key);
  print_string(value, out);
  fputs(behind, out);
}

static void print_host(const tri_findings *f, FILE *out) {
  fputc('{', out);
  print_member("host", f->host, ",\"findings\":[", out);
  for (int k = 0; k < f->count; k++) {
    const tri_finding *x = &f->list[k];
    fputs(k ? ",{" : "{", out);
    print_member("check", x->check, ",", out);
    print_member("level", tri_level_names[x->level], ",", out);
    print_member("value", x->value, ",", out);
    print_member("limit", x->limit, ",", out);
    print_member("advice", x->advice, "}", out);
  }
  fputs("]}", out);
}

void tri_findings_print_json(const tri_findings *all, int count, FILE *out) {
  fputc('{', out);
  print_member("worst", tri_level_names[tri_findings_worst(all, count)], ",\"hosts\":[", out);
  for (int i = 0; i < count; i++) {
    if (i) fputc(',', out);
    print_host(&all[i], out);
  }
  fputs("]}\n", out);
}

/* ---- reading ---- */

static void copy(const tri_json *o, const char *key, char *to, size_t cap) {
  const char *s = tri_json_get_str(o, key);
  snprintf(to, cap, "%s", s ? s : "");
}

static tri_level read_level(const tri_json *o) {
  const char *s = tri_json_get_str(o, "level");
  for (int i = TRI_LEVEL_OK; s && i < TRI_LEVEL_FAIL; i++)
    if (!strcmp(s, tri_level_names[i])) return (tri_level)i;
  return TRI_LEVEL_FAIL;
}

tri_status tri_findings_read(const char *text, size_t len, tri_findings *out, tri_error *err) {
  tri_json_doc *doc = NULL;
  TRI_CHECK(tri_json_parse(text, len, &doc, err));
  const tri_json *host = tri_json_at(tri_json_get(tri_json_root(doc), "hosts"), 0);
  const tri_json *list = tri_json_get(host, "findings");
  tri_status st = TRI_OK;
  out->count = 0;
  if (tri_json_kind_of(list) != TRI_JSON_ARRAY) st = tri_fail(err, TRI_CORRUPT, "findings", "there are no findings");
  if (st == TRI_OK) copy(host, "host", out->host, sizeof out->host);
  for (size_t i = 0; st == TRI_OK && i < tri_json_size(list); i++) {
    const tri_json *o = tri_json_at(list, i);
    const char *check = tri_json_get_str(o, "check");
    tri_finding *x = tri_findings_add(out, read_level(o), check ? check : "");
    copy(o, "value", x->value, sizeof x->value);
    copy(o, "limit", x->limit, sizeof x->limit);
    copy(o, "advice", x->advice, sizeof x->advice);
  }
  tri_json_free(doc);
  return st;
}
