/* SPDX-License-Identifier: Apache-2.0 */
/* Vector primitives on AVX-512 F, BW, VL and DQ: sixteen floats. See kern_math.h for how the three vec_*.h are used. */
#ifndef TRI_KERNELS_CPU_VEC_AVX512_H
#define TRI_KERNELS_CPU_VEC_AVX512_H

#define V_REGISTERS 32
enum { W = 16 };
typedef __m512 vf;
typedef __mmask16 vm;

static inline vf v_zero(void) { return _mm512_setzero_ps(); }
static inline vf v_set1(float a) { return _mm512_set1_ps(a); }
static inline vf v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
static inline vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
/* b where either is NaN */
static inline vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf v_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf v_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf v_copysign(vf a, vf sign) {
  return _mm512_or_ps(_mm512_abs_ps(a), _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}
static inline vm v_ge(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
static inline vf v_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
static inline unsigned v_bits(vm m) { return m; }
/* 2^n for t = V_SHIFT + n, integral n in [-126, 127]: the last bits of t are n */
#define V_SHIFT 0x1.8p23f
static inline vf v_pow2(vf t) {
  __m512i n = _mm512_slli_epi32(_mm512_castps_si512(t), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(n, _mm512_castps_si512(_mm512_set1_ps(1.0f))));
}

static inline __mmask16 v_first(int n) { return (__mmask16)((1u << n) - 1); } /* the first n < 16 lanes */
static inline vf v_loadn(const float *p, int n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
static inline void v_storen(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, v_first(n), a); }

static inline vf v_load_bf16(const void *p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}
static inline vf v_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline vf v_load_i8(const void *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p))); }

/* See vec_scalar.h for the arithmetic. */
static inline vf v_load_f8(const void *p) {
  __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128(p)), size = _mm512_and_si512(code, _mm512_set1_epi32(0x7f));
  __mmask16 small = _mm512_cmplt_epi32_mask(size, _mm512_set1_epi32(8));
  __m512i bias = _mm512_mask_blend_epi32(small, _mm512_set1_epi32(120 << 23), _mm512_set1_epi32(121 << 23));
  vf a = _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(size, 20), bias));
  a = _mm512_mask_sub_ps(a, small, a, _mm512_set1_ps(0x1p-6f));
  enum { OR_AND = 0xf8 }; /* a | (b & c) */
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(code, 24),
                                                       _mm512_set1_epi32(INT32_MIN), OR_AND));
}

/* Four vectors of codes. bfloat16 has every number of them, so that a step in lanes of 16 bits does twice as many at
 * once, and one in bytes four times. */
#ifdef V_LOOKS_UP_BYTES
/* The bytes of each code's bfloat16 but its sign: 0x3c00 + (code << 4), or of the smallest exponent a multiple of 2^-9.
 * Eight codes a row. */
#define V_UPPER(row) 0x3c + (row) / 2
#define V_UPPERS(row)                                                                                                  \
  V_UPPER(row), V_UPPER(row), V_UPPER(row), V_UPPER(row), V_UPPER(row), V_UPPER(row), V_UPPER(row), V_UPPER(row)
#define V_LOWERS(row)                                                                                                  \
  (row) % 2 << 7, 16 | (row) % 2 << 7, 32 | (row) % 2 << 7, 48 | (row) % 2 << 7, 64 | (row) % 2 << 7,                  \
      80 | (row) % 2 << 7, 96 | (row) % 2 << 7, 112 | (row) % 2 << 7
#define V_ROWS(of)                                                                                                     \
  of(1), of(2), of(3), of(4), of(5), of(6), of(7), of(8), of(9), of(10), of(11), of(12), of(13), of(14), of(15)
static const uint8_t v_f8_upper[128] = {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c, V_ROWS(V_UPPERS)};
static const uint8_t v_f8_lower[128] = {0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60, V_ROWS(V_LOWERS)};

/* The place that each byte comes from, so that the halves of words that the last steps make float32s of are in order.
 */
#define V_FROM(at) ((at) >> 3 & 1) * 32 + ((at)&1) * 16 + ((at) >> 4) * 4 + ((at) >> 1 & 3)
#define V_FROM4(at) V_FROM(at), V_FROM((at) + 1), V_FROM((at) + 2), V_FROM((at) + 3)
#define V_FROM16(at) V_FROM4(at), V_FROM4((at) + 4), V_FROM4((at) + 8), V_FROM4((at) + 12)
static const uint8_t v_f8_order[64] = {V_FROM16(0), V_FROM16(16), V_FROM16(32), V_FROM16(48)};

static inline void v_load_f8x4(const void *p, vf out[4]) {
  __m512i code = _mm512_permutexvar_epi8(_mm512_loadu_si512(v_f8_order), _mm512_loadu_si512(p));
  __m512i lower = _mm512_permutex2var_epi8(_mm512_loadu_si512(v_f8_lower), code, _mm512_loadu_si512(v_f8_lower + 64));
  __m512i upper = _mm512_permutex2var_epi8(_mm512_loadu_si512(v_f8_upper), code, _mm512_loadu_si512(v_f8_upper + 64));
  enum { OR_AND = 0xf8 };
  upper = _mm512_ternarylogic_epi32(upper, code, _mm512_set1_epi8(INT8_MIN), OR_AND);
  __m512i low = _mm512_unpacklo_epi8(lower, upper), high = _mm512_unpackhi_epi8(lower, upper);
  const __m512i odd = _mm512_set1_epi32((int)0xffff0000u);
  out[0] = _mm512_castsi512_ps(_mm512_slli_epi32(low, 16));
  out[1] = _mm512_castsi512_ps(_mm512_and_si512(low, odd));
  out[2] = _mm512_castsi512_ps(_mm512_slli_epi32(high, 16));
  out[3] = _mm512_castsi512_ps(_mm512_and_si512(high, odd));
}
#else
/* A number of the smallest exponent is looked up. Words of four codes are first put in the order in which the last
 * step, which makes float32s of each quarter's halves, leaves them as they came. */
static inline void v_load_f8x2(const void *p, vf *low, vf *high) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m512i subnormals =
      _mm512_set_epi16(0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0, 0x3c60, 0x3c40, 0x3c20, 0x3c00,
                       0x3bc0, 0x3b80, 0x3b00, 0, 0x3c60, 0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0, 0x3c60,
                       0x3c40, 0x3c20, 0x3c00, 0x3bc0, 0x3b80, 0x3b00, 0);
  __m512i code = _mm512_cvtepu8_epi16(_mm256_permutevar8x32_epi32(_mm256_loadu_si256(p), order));
  __m512i size = _mm512_and_si512(code, _mm512_set1_epi16(0x7f));
  __mmask32 small = _mm512_cmplt_epi16_mask(size, _mm512_set1_epi16(8));
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(size, 4), _mm512_set1_epi16(120 << 7));
  bits = _mm512_mask_permutexvar_epi16(bits, small, size, subnormals);
  enum { OR_AND = 0xf8 };
  bits = _mm512_ternarylogic_epi32(bits, _mm512_slli_epi16(code, 8), _mm512_set1_epi16(INT16_MIN), OR_AND);
  *low = _mm512_castsi512_ps(_mm512_unpacklo_epi16(_mm512_setzero_si512(), bits));
  *high = _mm512_castsi512_ps(_mm512_unpackhi_epi16(_mm512_setzero_si512(), bits));
}
static inline void v_load_f8x4(const void *p, vf out[4]) {
  v_load_f8x2(p, out, out + 1);
  v_load_f8x2((const uint8_t *)p + 2 * W, out + 2, out + 3);
}
#endif

static inline void v_store_f16(void *p, vf a) { _mm256_storeu_si256(p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
/* See vec_avx2.h for the rounding. */
static inline void v_store_bf16(void *p, vf a) {
  __m512i u = _mm512_castps_si512(a), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  r = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), r, quiet);
  _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(r));
}

static inline void v_store_i16(void *p, vf a) { /* of integral values within int16 */
  _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a)));
}

/* Vectors of VI int16, and of int32 sums of neighbouring pairs. */
enum { VI = 32 };
typedef __m512i vi;
static inline vi vi_zero(void) { return _mm512_setzero_si512(); }
static inline vi vi_load16(const int16_t *p) { return _mm512_loadu_si512(p); }
static inline vi vi_load8(const int8_t *p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)p)); }
static inline vi vi_madd(vi sum, vi a, vi b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
static inline vf vi_float(vi a) { return _mm512_cvtepi32_ps(a); }

/* Lane i of the result: the sum of the lanes of the i-th argument, always added in the same order. */
static inline __m256 v_halve(vf a) { return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1)); }
static inline __m128 v_sum4(vf a, vf b, vf c, vf d) {
  __m256 t = _mm256_hadd_ps(_mm256_hadd_ps(v_halve(a), v_halve(b)), _mm256_hadd_ps(v_halve(c), v_halve(d)));
  return _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
}
static inline float v_sum(vf a) { return _mm_cvtss_f32(v_sum4(a, a, a, a)); }
static inline float v_maximum(vf a) { return _mm512_reduce_max_ps(a); }
static inline void v_sum4_to(float *out, vf a, vf b, vf c, vf d) { _mm_storeu_ps(out, v_sum4(a, b, c, d)); }

/* The sums of eight vectors' lanes, always added in the same order. */
static inline void v_sum8_to(float *low, float *high, const vf a[8]) {
  v_sum4_to(low, a[0], a[1], a[2], a[3]);
  v_sum4_to(high, a[4], a[5], a[6], a[7]);
}

/* Lane j of a[i] becomes lane i of a[j]. */
static inline void v_transpose(vf a[W]) {
  vf t[W];
  for (int i = 0; i < 16; i += 4) { /* pairs of rows, then pairs of pairs, within each quarter */
    vf low0 = _mm512_unpacklo_ps(a[i], a[i + 1]), high0 = _mm512_unpackhi_ps(a[i], a[i + 1]);
    vf low1 = _mm512_unpacklo_ps(a[i + 2], a[i + 3]), high1 = _mm512_unpackhi_ps(a[i + 2], a[i + 3]);
    t[i] = _mm512_shuffle_ps(low0, low1, _MM_SHUFFLE(1, 0, 1, 0));
    t[i + 1] = _mm512_shuffle_ps(low0, low1, _MM_SHUFFLE(3, 2, 3, 2));
    t[i + 2] = _mm512_shuffle_ps(high0, high1, _MM_SHUFFLE(1, 0, 1, 0));
    t[i + 3] = _mm512_shuffle_ps(high0, high1, _MM_SHUFFLE(3, 2, 3, 2));
  }
  for (int i = 0; i < 4; i++) { /* quarter q of t[4 r + i] to quarter r of a[4 q + i] */
    vf even0 = _mm512_shuffle_f32x4(t[i], t[i + 4], _MM_SHUFFLE(2, 0, 2, 0));
    vf odd0 = _mm512_shuffle_f32x4(t[i], t[i + 4], _MM_SHUFFLE(3, 1, 3, 1));
    vf even1 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], _MM_SHUFFLE(2, 0, 2, 0));
    vf odd1 = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], _MM_SHUFFLE(3, 1, 3, 1));
    a[i] = _mm512_shuffle_f32x4(even0, even1, _MM_SHUFFLE(2, 0, 2, 0));
    a[i + 8] = _mm512_shuffle_f32x4(even0, even1, _MM_SHUFFLE(3, 1, 3, 1));
    a[i + 4] = _mm512_shuffle_f32x4(odd0, odd1, _MM_SHUFFLE(2, 0, 2, 0));
    a[i + 12] = _mm512_shuffle_f32x4(odd0, odd1, _MM_SHUFFLE(3, 1, 3, 1));
  }
}

#endif
