/* SPDX-License-Identifier: Apache-2.0 */
/* Vector primitives on AVX2, FMA and F16C: eight floats. See kern_math.h for how the three vec_*.h are used. */
#ifndef TRI_KERNELS_CPU_VEC_AVX2_H
#define TRI_KERNELS_CPU_VEC_AVX2_H

#define V_REGISTERS 16
enum { W = 8 };
typedef __m256 vf;
typedef __m256 vm; /* lanes all ones or all zeros */

static inline vf v_zero(void) { return _mm256_setzero_ps(); }
static inline vf v_set1(float a) { return _mm256_set1_ps(a); }
static inline vf v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
/* b where either is NaN */
static inline vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf v_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf v_copysign(vf a, vf sign) {
  return _mm256_or_ps(v_abs(a), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
static inline vm v_ge(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
static inline vf v_select(vm m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
static inline unsigned v_bits(vm m) { return (unsigned)_mm256_movemask_ps(m); }
/* 2^n for t = V_SHIFT + n, integral n in [-126, 127]: the last bits of t are n */
#define V_SHIFT 0x1.8p23f
static inline vf v_pow2(vf t) {
  __m256i n = _mm256_slli_epi32(_mm256_castps_si256(t), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(n, _mm256_castps_si256(_mm256_set1_ps(1.0f))));
}

static inline __m256i v_first(int n) { /* the first n lanes */
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_loadn(const float *p, int n) { return _mm256_maskload_ps(p, v_first(n)); }
static inline void v_storen(float *p, vf a, int n) { _mm256_maskstore_ps(p, v_first(n), a); }

static inline vf v_load_bf16(const void *p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
}
static inline vf v_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline vf v_load_i8(const void *p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p))); }

/* See vec_scalar.h for the arithmetic. */
static inline vf v_load_f8(const void *p) {
  __m256i code = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p)), size = _mm256_and_si256(code, _mm256_set1_epi32(0x7f));
  __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), size); /* -1 where it is */
  __m256i bias = _mm256_sub_epi32(_mm256_set1_epi32(120 << 23), _mm256_slli_epi32(small, 23));
  vf a = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(size, 20), bias));
  a = _mm256_sub_ps(a, _mm256_and_ps(_mm256_castsi256_ps(small), _mm256_set1_ps(0x1p-6f)));
  return _mm256_or_ps(a, _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(code, 24)), _mm256_set1_ps(-0.0f)));
}

/* The same as in vec_avx512.h. Both bytes of a number of the smallest exponent are looked up. */
static inline void v_load_f8x2(const void *p, vf *low, vf *high) {
  const __m256i subnormals = _mm256_setr_epi16(0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60, 0, 0x3b00,
                                               0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60);
  __m256i code = _mm256_cvtepu8_epi16(_mm_shuffle_epi32(_mm_loadu_si128(p), _MM_SHUFFLE(3, 1, 2, 0)));
  __m256i size = _mm256_and_si256(code, _mm256_set1_epi16(0x7f));
  __m256i small = _mm256_cmpgt_epi16(_mm256_set1_epi16(8), size);
  __m256i bits = _mm256_add_epi16(_mm256_slli_epi16(size, 4), _mm256_set1_epi16(120 << 7));
  __m256i bytes = _mm256_or_si256(_mm256_slli_epi16(size, 1), _mm256_slli_epi16(size, 9));
  bytes = _mm256_add_epi16(bytes, _mm256_set1_epi16(0x100));
  bits = _mm256_blendv_epi8(bits, _mm256_shuffle_epi8(subnormals, bytes), small);
  bits = _mm256_or_si256(bits, _mm256_and_si256(_mm256_slli_epi16(code, 8), _mm256_set1_epi16(INT16_MIN)));
  *low = _mm256_castsi256_ps(_mm256_unpacklo_epi16(_mm256_setzero_si256(), bits));
  *high = _mm256_castsi256_ps(_mm256_unpackhi_epi16(_mm256_setzero_si256(), bits));
}

static inline void v_load_f8x4(const void *p, vf out[4]) {
  v_load_f8x2(p, out, out + 1);
  v_load_f8x2((const uint8_t *)p + 2 * W, out + 2, out + 3);
}

static inline void v_store_f16(void *p, vf a) { _mm_storeu_si128(p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
/* Rounds to nearest even: half of what is cut off, less one, and the last kept bit are added. A NaN is made quiet in
 * place of that, as the addition could carry it to infinity. */
static inline void v_store_bf16(void *p, vf a) {
  __m256i u = _mm256_castps_si256(a), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  r = _mm256_blendv_epi8(r, quiet, _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  _mm_storeu_si128(p, _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}

static inline void v_store_i16(void *p, vf a) { /* of integral values within int16 */
  __m256i i = _mm256_cvtps_epi32(a);
  _mm_storeu_si128(p, _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1)));
}

/* Vectors of VI int16, and of int32 sums of neighbouring pairs. */
enum { VI = 16 };
typedef __m256i vi;
static inline vi vi_zero(void) { return _mm256_setzero_si256(); }
static inline vi vi_load16(const int16_t *p) { return _mm256_loadu_si256((const void *)p); }
static inline vi vi_load8(const int8_t *p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p)); }
static inline vi vi_madd(vi sum, vi a, vi b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
static inline vf vi_float(vi a) { return _mm256_cvtepi32_ps(a); }

/* Lane i of the result: the sum of the lanes of the i-th argument, always added in the same order. */
static inline __m128 v_sum4(vf a, vf b, vf c, vf d) {
  vf t = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
static inline float v_sum(vf a) { return _mm_cvtss_f32(v_sum4(a, a, a, a)); }
static inline float v_maximum(vf a) {
  __m128 t = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  t = _mm_max_ps(t, _mm_movehl_ps(t, t));
  return _mm_cvtss_f32(_mm_max_ss(t, _mm_shuffle_ps(t, t, 1)));
}
static inline void v_sum4_to(float *out, vf a, vf b, vf c, vf d) { _mm_storeu_ps(out, v_sum4(a, b, c, d)); }

/* The sums of eight vectors' lanes, always added in the same order: first halves, then quarters. */
static inline vf v_fold2(vf a, vf b) {
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x21), _mm256_blend_ps(a, b, 0xf0));
}
static inline vf v_fold4(vf a, vf b) {
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(1, 0, 3, 2)), _mm256_blend_ps(a, b, 0xcc));
}
static inline void v_sum8_to(float *low, float *high, const vf a[8]) {
  vf t = v_fold4(v_fold2(a[0], a[4]), v_fold2(a[1], a[5])), u = v_fold4(v_fold2(a[2], a[6]), v_fold2(a[3], a[7]));
  vf even = _mm256_shuffle_ps(t, u, _MM_SHUFFLE(2, 0, 2, 0)), odd = _mm256_shuffle_ps(t, u, _MM_SHUFFLE(3, 1, 3, 1));
  vf sum = _mm256_add_ps(even, odd);
  _mm_storeu_ps(low, _mm256_castps256_ps128(sum));
  _mm_storeu_ps(high, _mm256_extractf128_ps(sum, 1));
}

/* Lane j of a[i] becomes lane i of a[j]. */
static inline void v_transpose(vf a[W]) {
  vf t[W];
  for (int i = 0; i < 8; i += 4) { /* pairs of rows, then pairs of pairs, within each half */
    vf low0 = _mm256_unpacklo_ps(a[i], a[i + 1]), high0 = _mm256_unpackhi_ps(a[i], a[i + 1]);
    vf low1 = _mm256_unpacklo_ps(a[i + 2], a[i + 3]), high1 = _mm256_unpackhi_ps(a[i + 2], a[i + 3]);
    t[i] = _mm256_shuffle_ps(low0, low1, _MM_SHUFFLE(1, 0, 1, 0));
    t[i + 1] = _mm256_shuffle_ps(low0, low1, _MM_SHUFFLE(3, 2, 3, 2));
    t[i + 2] = _mm256_shuffle_ps(high0, high1, _MM_SHUFFLE(1, 0, 1, 0));
    t[i + 3] = _mm256_shuffle_ps(high0, high1, _MM_SHUFFLE(3, 2, 3, 2));
  }
  for (int i = 0; i < 4; i++) {
    a[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    a[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

/* Eight elements of sixteen rows of bfloat16, ldw bytes apart, into eight rows of sixteen floats. They are turned while
 * they are narrow, the lower halves apart from the upper ones: three times vector i is interleaved with vector i + 4,
 * in names and not in arrays, which the compiler would keep in memory. The rows are dealt out to the halves so that
 * widening, which does not cross them either, leaves them in order. */
#define V_TURN_BF16 1
static inline __m256i v_two_rows(const char *w, size_t ldw, size_t row) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(w + row * ldw))),
                                 _mm_loadu_si128((const void *)(w + (row + 4) * ldw)), 1);
}
static inline void v_widen_two(float *out, __m256i a) {
  __m256i zero = _mm256_setzero_si256();
  v_store(out, _mm256_castsi256_ps(_mm256_unpacklo_epi16(zero, a)));
  v_store(out + 8, _mm256_castsi256_ps(_mm256_unpackhi_epi16(zero, a)));
}
static inline void v_turn_bf16(float *out, const char *w, size_t ldw) {
  __m256i a0 = v_two_rows(w, ldw, 0), a1 = v_two_rows(w, ldw, 1), a2 = v_two_rows(w, ldw, 2);
  __m256i a3 = v_two_rows(w, ldw, 3), a4 = v_two_rows(w, ldw, 8), a5 = v_two_rows(w, ldw, 9);
  __m256i a6 = v_two_rows(w, ldw, 10), a7 = v_two_rows(w, ldw, 11);
  __m256i b0 = _mm256_unpacklo_epi16(a0, a4), b1 = _mm256_unpackhi_epi16(a0, a4);
  __m256i b2 = _mm256_unpacklo_epi16(a1, a5), b3 = _mm256_unpackhi_epi16(a1, a5);
  __m256i b4 = _mm256_unpacklo_epi16(a2, a6), b5 = _mm256_unpackhi_epi16(a2, a6);
  __m256i b6 = _mm256_unpacklo_epi16(a3, a7), b7 = _mm256_unpackhi_epi16(a3, a7);
  a0 = _mm256_unpacklo_epi16(b0, b4);
  a1 = _mm256_unpackhi_epi16(b0, b4);
  a2 = _mm256_unpacklo_epi16(b1, b5);
  a3 = _mm256_unpackhi_epi16(b1, b5);
  a4 = _mm256_unpacklo_epi16(b2, b6);
  a5 = _mm256_unpackhi_epi16(b2, b6);
  a6 = _mm256_unpacklo_epi16(b3, b7);
  a7 = _mm256_unpackhi_epi16(b3, b7);
  v_widen_two(out, _mm256_unpacklo_epi16(a0, a4));
  v_widen_two(out + 16, _mm256_unpackhi_epi16(a0, a4));
  v_widen_two(out + 32, _mm256_unpacklo_epi16(a1, a5));
  v_widen_two(out + 48, _mm256_unpackhi_epi16(a1, a5));
  v_widen_two(out + 64, _mm256_unpacklo_epi16(a2, a6));
  v_widen_two(out + 80, _mm256_unpackhi_epi16(a2, a6));
  v_widen_two(out + 96, _mm256_unpacklo_epi16(a3, a7));
  v_widen_two(out + 112, _mm256_unpackhi_epi16(a3, a7));
}

#endif
