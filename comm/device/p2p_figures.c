/* SPDX-License-Identifier: Apache-2.0 */
/* Which algorithm of an all-reduce is fastest, by what was measured. Without CUDA's headers, so that every build has
 * its test. */
#include "comm/device/p2p.h"

double tri_p2p_us(const tri_p2p_figures *f, tri_p2p_algorithm algorithm, size_t bytes) {
  int k = 0;
  while (k < TRI_P2P_SIZES && bytes > tri_p2p_size(k)) k++;
  if (k == TRI_P2P_SIZES) return 0;
  double high = f->us[k][algorithm], low = k ? f->us[k - 1][algorithm] : high;
  if (high <= 0 || low <= 0 || !k) return high;
  double part = (double)(bytes - tri_p2p_size(k - 1)) / (double)(tri_p2p_size(k) - tri_p2p_size(k - 1));
  return low + (high - low) * part;
}

tri_p2p_algorithm tri_p2p_fastest(const tri_p2p_figures *f, size_t bytes) {
  tri_p2p_algorithm fastest = TRI_P2P_LIBRARY;
  double least = tri_p2p_us(f, fastest, bytes);
  for (int w = 0; w < TRI_P2P_LIBRARY; w++) {
    double us = tri_p2p_us(f, (tri_p2p_algorithm)w, bytes);
    if (us <= 0 || us >= least) continue;
    fastest = (tri_p2p_algorithm)w;
    least = us;
  }
  return fastest;
}
