/* SPDX-License-Identifier: Apache-2.0 */
/* An input for a file whose family counts: a line with the model_type, then the file. */
#ifndef TRI_TESTS_FUZZ_TOKENIZER_FAMILY_H
#define TRI_TESTS_FUZZ_TOKENIZER_FAMILY_H

#include <stdio.h>
#include <string.h>

#include "text/tokenizer/tokenizer.h"

static inline tri_status parse_of_family(const char *file, const char *data, size_t len, tri_tokenizer **out,
                                         tri_error *err) {
  char config[80];
  const char *line = memchr(data, '\n', len < 32 ? len : 32);
  size_t n = line ? (size_t)(line - data) : 0, head = line ? n + 1 : 0;
  for (size_t i = 0; i < n; i++)
    if (data[i] < ' ' || data[i] == '"' || data[i] == '\\' || data[i] > '~') n = 0; /* not what is tested here */
  snprintf(config, sizeof config, "{\"model_type\":\"%.*s\"}", (int)n, data);
  tri_tokenizer_texts x = {
      .file = file, .data = data + head, .len = len - head, .config = config, .config_len = strlen(config)};
  return tri_tokenizer_parse_texts(&x, out, err);
}

#endif
