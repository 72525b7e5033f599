/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a GGUF file: refused with a reason, or keys and tensors that lie inside it; and what is made of them: a
 * config, tensors under a folder's names, a tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/model/arch.h"
#include "runtime/model/gguf_model.h"
#include "text/tokenizer/files/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void need(bool ok) {
  if (!ok) abort();
}

static void check(const tri_gguf *g, const uint8_t *data, size_t size) {
  uint64_t end = g->header_bytes;
  need(end <= size);
  for (size_t i = 0; i < g->num_keys; i++) {
    const tri_gguf_value *v = &g->keys[i];
    need(v->data >= data && v->bytes <= (size_t)(data + size - v->data) && tri_gguf_find(g, v->name) == v);
    size_t at = 0, len;
    const char *s;
    for (uint64_t k = 0; v->type == TRI_GGUF_STRING && k < v->count; k++) tri_gguf_next_text(v, &at, &s, &len);
    need(v->type != TRI_GGUF_STRING || at == v->bytes);
    double x;
    for (uint64_t k = 0; v->type != TRI_GGUF_STRING && k < v->count; k++) tri_gguf_item_number(v, k, &x);
  }
  for (size_t i = 0; i < g->num_tensors; i++) {
    const tri_gguf_tensor *t = &g->tensors[i];
    need(t->rank >= 1 && t->rank <= TRI_GGUF_MAX_RANK && t->offset >= end && t->bytes <= size - t->offset);
    end = t->offset + t->bytes;
  }
}

static void make_config(const tri_gguf *g) {
  tri_gguf_config made = {0};
  tri_model_config c;
  tri_error err = {0};
  if (tri_gguf_config_make(g, "model.gguf", &made, &err) != TRI_OK) {
    need(err.message[0]);
    return;
  }
  tri_error why = {0};
  if (tri_model_config_parse(made.text.data, made.text.len, NULL, 0, (tri_config_rules){0}, &c, &why) == TRI_OK)
    tri_gguf_config_finish(&made, &c, &why);
  else
    need(why.status != TRI_CORRUPT || !strstr(why.message, "JSON")); /* the text itself is always right */
  tri_buf_free(&made.text);
}

static void make_tensors(const tri_gguf *g, size_t size) {
  tri_error err = {0};
  tri_st_tensor *tensors = NULL;
  size_t count = 0;
  char *names = NULL;
  const tri_gguf_arch *arch = tri_gguf_arch_of(g, &err);
  if (!arch) return;
  if (tri_gguf_tensors(g, g, arch, &tensors, &count, &names, &err) == TRI_OK)
    for (size_t i = 0; i < count; i++)
      need(tensors[i].offset <= size && tensors[i].bytes <= size - tensors[i].offset && strlen(tensors[i].name) < 320);
  else
    need(err.message[0]);
  tri_free(tensors);
  tri_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_gguf *g = NULL;
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  if (tri_gguf_parse(data, size, size, &g, &err) != TRI_OK) {
    need(err.status != TRI_OK && err.message[0] && !g);
    return 0;
  }
  check(g, data, size);
  make_config(g);
  make_tensors(g, size);
  if (tok_gguf_read(g, &t, &err) == TRI_OK)
    tri_tokenizer_destroy(t);
  else
    need(err.message[0]);
  tri_gguf_close(g);
  return 0;
}
