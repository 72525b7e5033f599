/* Any bytes as tokenizer.json: refused with a reason, or a tokenizer that encodes and decodes. */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/model/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const tri_tokenizer *t) {
  static const char text[] = "Hello, ab ab\n 12\t<s> \xc3\xa9\xf0\x9f\x98\x80\xff end";
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count, len;
  char *back = NULL;
  if (tri_tokenizer_scratch_create(t, &s) != TRI_OK) return;
  if (tri_tokenizer_encode(t, s, text, sizeof text - 1, true, 1000, &ids, &count) == TRI_OK) {
    for (size_t i = 0; i < count; i++)
      if (!tri_tokenizer_token(t, ids[i])) abort();
    if (tri_tokenizer_decode(t, ids, count, false, &back, &len) == TRI_OK) tri_free(back);
  }
  tri_tokenizer_scratch_destroy(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  if (tri_tokenizer_parse((const char *)data, size, &t, &err) == TRI_OK)
    use(t);
  else if (err.status == TRI_OK || !err.message[0])
    abort(); /* a refusal without a reason */
  tri_tokenizer_destroy(t);
  return 0;
}
