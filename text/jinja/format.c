/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways in which Python formats strings: '%s' % x and '{}'.format(x). Widths, precisions and the conversions
 * that templates use are here; the others are refused by their letter. */
#include <stdio.h>
#include <string.h>

#include "text/jinja/exec.h"

/* How a value is to be written. */
typedef struct spec {
  char fill, align, sign, type; /* 0: not given */
  bool alternate, grouped;
  int width, precision; /* -1: not given */
} spec;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Reads a number of at most three digits; -1: there is none.
 *
 * Widths and precisions stay below 1000, so that a short format cannot make a long text. */
static int read_number(const char *s, size_t n, size_t *at) {
  int value = -1;
  for (int digits = 0; *at < n && is_digit(s[*at]) && digits < 3; digits++, ++*at)
    value = (value < 0 ? 0 : value * 10) + (s[*at] - '0');
  return value;
}

static void pad(jbuf *b, const spec *how, jv text, char fallback_align) {
  int64_t room = how->width - j_count_characters(text.str), before = 0;
  char align = how->align ? how->align : fallback_align, fill = how->fill ? how->fill : ' ';
  if (room < 0) room = 0;
  if (align == '>') before = room;
  if (align == '^') before = room / 2;
  for (int64_t i = 0; i < before; i++) j_put_char(b, fill);
  j_put_str(b, text.str);
  for (int64_t i = before; i < room; i++) j_put_char(b, fill);
}

/* Zeros stand between the sign and the digits; all other fill stands outside. */
static void pad_number(jbuf *b, const spec *how, const char *digits) {
  size_t n = strlen(digits), sign = *digits == '-' || *digits == '+' || *digits == ' ';
  if (how->fill == '0' && !how->align) {
    j_put(b, digits, sign);
    for (int i = (int)n; i < how->width; i++) j_put_char(b, '0');
    j_put(b, digits + sign, n - sign);
    return;
  }
  pad(b, how, j_str(b->x, digits, n), '>');
}

enum { NUMBER_TEXT = 400 };

/* Puts a comma between groups of three digits of the whole part. */
static void group(char text[NUMBER_TEXT]) {
  char out[NUMBER_TEXT];
  size_t n = strlen(text), first = *text == '-' || *text == '+' || *text == ' ', whole = first, o = 0;
  while (whole < n && is_digit(text[whole])) whole++;
  for (size_t i = 0; i < n && o + 2 < sizeof out; i++) {
    if (i > first && i < whole && (whole - i) % 3 == 0) out[o++] = ',';
    out[o++] = text[i];
  }
  out[o] = 0;
  memcpy(text, out, o + 1);
}

/* Writes a number as C does, which Python's conversions follow. False: the conversion is not one of numbers. */
static bool number_text(jv v, const spec *how, char out[NUMBER_TEXT]) {
  char form[16], type = how->type;
  int precision = how->precision;
  const char *sign = how->sign == '+' ? "+" : "";
  if (how->sign == ' ') sign = " ";
  if (strchr("dixXo", type) && type) {
    int64_t i = j_is(v, J_FLOAT) ? (int64_t)v.f : j_integer(v);
    bool decimal = type == 'd' || type == 'i';
    snprintf(form, sizeof form, "%%%s%s", sign, how->alternate ? "#" : "");
    snprintf(form + strlen(form), sizeof form - strlen(form), "%s%c", "ll", decimal ? 'd' : type);
    snprintf(out, NUMBER_TEXT, form, (long long)i);
    return true;
  }
  double f = j_is(v, J_FLOAT) ? v.f : (double)j_integer(v);
  if (type == '%') f *= 100;
  if (!type || !strchr("eEfFgG%", type)) return false;
  snprintf(form, sizeof form, "%%%s.*%c", sign, type == '%' ? 'f' : type);
  snprintf(out, NUMBER_TEXT, form, precision < 0 ? 6 : precision, f);
  if (type == '%') strncat(out, "%", NUMBER_TEXT - strlen(out) - 1);
  return true;
}

static void put_number(jbuf *b, jv v, const spec *how) {
  char text[NUMBER_TEXT];
  if (j_is(v, J_LARGE)) {
    j_too_large(b->x);
    return;
  }
  if (!j_is_number(v)) {
    j_fail(b->x, TRI_JINJA_TYPE, "a number is required for the format %c, not %s", how->type, j_type_name(v));
    return;
  }
  if (how->type && strchr("dixXo", how->type) && j_is(v, J_FLOAT) && !j_fits_int(v.f)) {
    j_too_large(b->x);
    return;
  }
  if (!number_text(v, how, text)) {
    j_fail(b->x, TRI_JINJA_TYPE, "unsupported format character '%c'", how->type);
    return;
  }
  if (how->grouped) group(text);
  pad_number(b, how, text);
}

static jv cut(jx *x, jv text, int precision) {
  size_t n;
  if (precision < 0 || j_count_characters(text.str) <= precision) return text;
  const jv *characters = j_characters(x, text.str, &n).list->items;
  size_t bytes = 0;
  for (int i = 0; i < precision && i < (int)n; i++) bytes += characters[i].str->n;
  return j_slice(x, text.str, 0, bytes);
}

/* ---- '%' ---- */

static size_t read_percent_spec(const char *s, size_t n, size_t at, spec *how) {
  *how = (spec){.width = 0, .precision = -1};
  for (; at < n && strchr("-+ 0#", s[at]) && s[at]; at++) {
    if (s[at] == '-') how->align = '<';
    if (s[at] == '+' || (s[at] == ' ' && !how->sign)) how->sign = s[at];
    if (s[at] == '0') how->fill = '0';
    if (s[at] == '#') how->alternate = true;
  }
  int width = read_number(s, n, &at);
  how->width = width < 0 ? 0 : width;
  if (at < n && s[at] == '.') {
    at++;
    how->precision = read_number(s, n, &at);
    if (how->precision < 0) how->precision = 0;
  }
  how->type = at < n ? s[at++] : 0;
  return at;
}

static void put_percent(jbuf *b, const spec *how, jv v) {
  if (how->type == 's') {
    pad(b, how, cut(b->x, j_to_str(b->x, v), how->precision), '>');
  } else if (how->type == 'r') {
    jbuf repr = j_begin(b->x);
    j_put_repr(&repr, v);
    pad(b, how, cut(b->x, j_end(&repr), how->precision), '>');
  } else {
    put_number(b, v, how);
  }
}

/* The arguments, with their strings as markup takes them. */
static jargs escaped(jx *x, const jargs *args) {
  jargs out = *args;
  jv *list = j_alloc(x, args->n, sizeof *list);
  jpair *named = j_alloc(x, args->num_named, sizeof *named);
  for (size_t i = 0; list && i < args->n; i++)
    list[i] = j_is(args->list[i], J_STR) ? j_escape(x, args->list[i]) : args->list[i];
  for (size_t i = 0; named && i < args->num_named; i++) {
    named[i] = args->named[i];
    if (j_is(named[i].value, J_STR)) named[i].value = j_escape(x, named[i].value);
  }
  out.list = list;
  out.named = named;
  return out;
}

static jv fill_percent(jx *x, const jstr *format, const jargs *args, bool may_be_unused) {
  jbuf b = j_begin(x);
  size_t used = 0, at = 0;
  while (at < format->n && j_ok(x)) {
    const char *sign = memchr(format->s + at, '%', format->n - at);
    size_t next = sign ? (size_t)(sign - format->s) : format->n;
    j_put_part(&b, format, at, next);
    if (!sign) break;
    spec how;
    at = read_percent_spec(format->s, format->n, next + 1, &how);
    if (how.type == '%') {
      j_put_char(&b, '%');
    } else if (used == args->n) {
      return j_fail(x, TRI_JINJA_TYPE, "not enough arguments for format string");
    } else {
      put_percent(&b, &how, args->list[used++]);
    }
  }
  if (used < args->n && !may_be_unused)
    return j_fail(x, TRI_JINJA_TYPE, "not all arguments converted during string formatting");
  return j_end(&b);
}

/* ---- str.format ---- */

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_format_spec(const char *s, size_t n, spec *how) {
  size_t at = 0;
  *how = (spec){.precision = -1};
  if (n > 1 && strchr("<>^", s[1]) && s[1]) {
    how->fill = s[0];
    how->align = s[1];
    at = 2;
  } else if (n && strchr("<>^", s[0]) && s[0]) {
    how->align = s[0];
    at = 1;
  }
  if (at < n && strchr("+- ", s[at])) how->sign = s[at++];
  if (at < n && s[at] == '#') how->alternate = s[at++] == '#';
  if (at < n && s[at] == '0') how->fill = s[at++];
  int width = read_number(s, n, &at);
  how->width = width < 0 ? 0 : width;
  if (at < n && s[at] == ',') how->grouped = s[at++] == ',';
  if (at < n && s[at] == '.') {
    at++;
    how->precision = read_number(s, n, &at);
    if (how->precision < 0) return false;
  }
  if (at < n) how->type = s[at++];
  return at == n;
}

/* Python's format(): numbers stand on the right and texts on the left where the format does not say it; a bool without
 * a type is a text. */
static void put_formatted(jbuf *b, jv v, const spec *how) {
  bool number = j_is_number(v) && !j_is(v, J_BOOL);
  if (number && (how->type || how->precision >= 0 || how->grouped)) {
    spec full = *how;
    if (!full.type) full.type = j_is(v, J_FLOAT) ? 'g' : 'd';
    put_number(b, v, &full);
  } else if (how->type && how->type != 's') {
    put_number(b, v, how);
  } else {
    pad(b, how, cut(b->x, j_to_str(b->x, v), how->precision), number ? '>' : '<');
  }
}

/* The value of a field: a number, a name or nothing, then .names and [keys]. */
static jv field_value(jx *x, const jargs *args, const char *s, size_t n, size_t *automatic) {
  size_t end = 0;
  while (end < n && s[end] != '.' && s[end] != '[') end++;
  const jv *v = NULL;
  size_t digits = 0;
  int index = read_number(s, end, &digits);
  if (!end)
    v = j_argument(args, (*automatic)++, NULL);
  else if (digits == end)
    v = j_argument(args, (size_t)index, NULL);
  else
    for (size_t i = 0; i < args->num_named; i++)
      if (args->named[i].key.str->n == end && !memcmp(args->named[i].key.str->s, s, end)) v = &args->named[i].value;
  if (!v) return j_fail(x, TRI_JINJA_TYPE, "the format names an argument that is not there: '%.*s'", (int)end, s);
  if (end < n) return j_fail(x, TRI_JINJA_TYPE, "a format with attributes of an argument is not supported");
  return *v;
}

static void put_field(jbuf *b, const jargs *args, const char *s, size_t n, size_t *automatic) {
  size_t name = 0, colon;
  spec how = {.precision = -1};
  while (name < n && s[name] != '!' && s[name] != ':') name++;
  jv v = field_value(b->x, args, s, name, automatic);
  colon = name;
  if (name + 1 < n && s[name] == '!') {
    jbuf converted = j_begin(b->x);
    if (s[name + 1] == 'r')
      j_put_repr(&converted, v);
    else
      j_put_value(&converted, v);
    v = j_end(&converted);
    colon = name + 2;
  }
  if (!j_ok(b->x)) return;
  if (colon < n && (s[colon] != ':' || !read_format_spec(s + colon + 1, n - colon - 1, &how))) {
    j_fail(b->x, TRI_JINJA_TYPE, "Invalid format specifier '%.*s'", (int)(n - colon), s + colon);
    return;
  }
  put_formatted(b, v, &how);
}

static jv fill_format(jx *x, const jstr *format, const jargs *args) {
  jbuf b = j_begin(x);
  size_t automatic = 0;
  for (size_t at = 0; at < format->n && j_ok(x);) {
    char c = format->s[at], next = at + 1 < format->n ? format->s[at + 1] : 0;
    if ((c == '{' || c == '}') && next == c) {
      j_put_char(&b, c);
      at += 2;
    } else if (c == '{') {
      const char *end = memchr(format->s + at, '}', format->n - at);
      if (!end) return j_fail(x, TRI_JINJA_TYPE, "expected '}' before end of string");
      put_field(&b, args, format->s + at + 1, (size_t)(end - format->s) - at - 1, &automatic);
      at = (size_t)(end - format->s) + 1;
    } else if (c == '}') {
      return j_fail(x, TRI_JINJA_TYPE, "Single '}' encountered in format string");
    } else {
      j_put_part(&b, format, at, at + 1);
      at++;
    }
  }
  return j_end(&b);
}

jv j_percent(jx *x, const jstr *format, const jargs *args, bool may_be_unused) {
  if (!format->is_markup) return fill_percent(x, format, args, may_be_unused);
  jargs own = escaped(x, args);
  return j_ok(x) ? j_markup(x, fill_percent(x, format, &own, may_be_unused)) : j_undefined(NULL);
}

jv j_format(jx *x, const jstr *format, const jargs *args) {
  if (!format->is_markup) return fill_format(x, format, args);
  jargs own = escaped(x, args);
  return j_ok(x) ? j_markup(x, fill_format(x, format, &own)) : j_undefined(NULL);
}
