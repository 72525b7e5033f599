/* SPDX-License-Identifier: Apache-2.0 */
/* A harness with a planted crash three mutations away from its seed: shows that the driver finds such things. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fuzz/mutate.h"

size_t tri_fuzz_seed(unsigned i, uint8_t *buf, size_t cap) {
  static const char seed[] = "{\"count\":12,\"items\":[1,2,3]}";
  if (i || cap < sizeof seed) return 0;
  memcpy(buf, seed, sizeof seed - 1);
  return sizeof seed - 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const char large[] = "4294967296", head[] = "{\"count\":";
  if (size < sizeof head + sizeof large || memcmp(data, head, sizeof head - 1)) return 0;
  if (memcmp(data + sizeof head - 1, large, sizeof large - 1)) return 0;
  for (size_t i = 0; i < size; i++)
    if (data[i] == 0xff) {
      puts("planted crash reached");
      fflush(stdout);
      _exit(1);
    }
  return 0;
}
