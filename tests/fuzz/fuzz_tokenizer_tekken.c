/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as tekken.json: refused with a reason, or a tokenizer that encodes and decodes. */
#include "tests/fuzz/tokenizer_family.h"
#include "tests/fuzz/tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_status st = parse_of_family("tekken.json", (const char *)data, size, &t, &err);
  use_result(st, t, &err);
  return 0;
}
