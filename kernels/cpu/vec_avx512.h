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
