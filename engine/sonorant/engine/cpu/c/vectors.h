// Vectors of floats, and functions on them that the files in C share. Every sum has one fixed order, whatever else
// is computed at the same time.

#ifndef SONORANT_VECTORS_H
#define SONORANT_VECTORS_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

// Floats in a vector: those of a machine vector. Of longer ones the compiler keeps every value in memory, which takes ten
// times as long. Sizes of models are multiples of 16.
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
#define INLINE static inline __attribute__((always_inline))

typedef float Floats __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE Floats load(const float *at) { return *(const Floats *)at; }
INLINE void store(float *at, Floats value) { *(Floats *)at = value; }
INLINE Floats all(float x) { return x - (Floats){0}; }

// Returns a * b + c, rounded once where the machine can. Compilers are told not to do it by themselves (-ffp-contract=off):
// they would in some copies of a loop and not in others, and a stream would sound different beside others.
INLINE Floats fused(Floats a, Floats b, Floats c) {
#if LANES == 16
  return (Floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
  return (Floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Floats)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

INLINE float total(Floats v) {  // adds always in this order
  float sums[LANES];
  memcpy(sums, &v, sizeof sums);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  return sums[0];
}

INLINE float dot(const float *a, const float *b, int64_t n) {
  Floats sum = {0};
  for (int64_t i = 0; i < n; i += LANES) sum = fused(load(a + i), load(b + i), sum);
  return total(sum);
}

// Returns e^x to 2 units in the last place; 0 below -87.
INLINE Floats exponential(Floats x) {
  const Floats low = all(-87.0f), high = all(88.0f);
  Ints is_low = x < low, is_high = x > high;
  x = (Floats)(((Ints)x & ~is_low) | ((Ints)low & is_low));
  x = (Floats)(((Ints)x & ~is_high) | ((Ints)high & is_high));
  Floats n = fused(x, all(1.44269504f), all(12582912.0f));  // rounded to a whole number in the low bits
  Ints power = (Ints)n << 23;
  n -= 12582912.0f;
  x = fused(n, all(2.12194440e-4f), fused(n, all(-0.693359375f), x));
  Floats y = all(1.9875691500e-4f);
  y = fused(y, x, all(1.3981999507e-3f));
  y = fused(y, x, all(8.3334519073e-3f));
  y = fused(y, x, all(4.1665795894e-2f));
  y = fused(y, x, all(1.6666665459e-1f));
  y = fused(y, x, all(5.0000001201e-1f));
  y = fused(y * x, x, x + 1.0f);
  y = (Floats)((Ints)y + power);
  return (Floats)((Ints)y & ~is_low);
}

// What a query [d] attends to, of `count` keys and values a `stride` apart. scores [count, rounded up to LANES] is room.
INLINE void attend_row(float *y, const float *q, const float *keys, const float *values, int64_t stride, int64_t count,
                       int64_t d, float *scores) {
  float highest = -INFINITY;
  for (int64_t t = 0; t < count; t++) {
    scores[t] = dot(q, keys + t * stride, d) / sqrtf((float)d);
    highest = scores[t] > highest ? scores[t] : highest;
  }
  for (int64_t t = count; t % LANES; t++) scores[t] = -INFINITY;
  Floats sum = {0};
  for (int64_t t = 0; t < count; t += LANES) {
    Floats e = exponential(load(scores + t) - highest);
    store(scores + t, e);
    sum += e;
  }
  float share = 1.0f / total(sum);
  for (int64_t k = 0; k < d; k += LANES) {
    Floats mixed = {0};
    for (int64_t t = 0; t < count; t++) mixed = fused(all(scores[t]), load(values + t * stride + k), mixed);
    store(y + k, mixed * share);
  }
}

INLINE void normed(float *y, const float *x, const float *weight, int64_t n, double eps) {
  float scale = 1.0f / sqrtf(dot(x, x, n) / n + (float)eps);
  for (int64_t i = 0; i < n; i += LANES) store(y + i, load(weight + i) * (load(x + i) * scale));
}

// gate = silu(gate) * up
INLINE void gated(float *gate, const float *up, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) {
    Floats g = load(gate + i);
    store(gate + i, g / (exponential(-g) + 1.0f) * load(up + i));
  }
}

// Returns x / 2 * (1 + erf(x / sqrt 2)), with erf to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
INLINE Floats gelu(Floats x) {
  const Ints sign = (Ints){0} + INT32_MIN;
  Floats a = (Floats)((Ints)x & ~sign) * 0.707106781f, t = 1.0f / (1.0f + 0.3275911f * a);
  Floats y = t * 1.061405429f - 1.453152027f;
  y = y * t + 1.421413741f;
  y = y * t - 0.284496736f;
  y = y * t + 0.254829592f;
  Floats erf = 1.0f - y * t * exponential(-a * a);
  erf = (Floats)((Ints)erf | ((Ints)x & sign));
  return x * 0.5f * (1.0f + erf);
}

INLINE void add(float *x, const float *y, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(x + i, load(x + i) + load(y + i));
}

// Rotates x in place; `spare` has room for a head.
INLINE void rotated(float *x, const float *cos, const float *sin, int64_t n, float *spare) {
  memcpy(spare, x + n / 2, n / 2 * sizeof *x);
  memcpy(spare + n / 2, x, n / 2 * sizeof *x);
  for (int64_t i = 0; i < n; i += LANES) store(x + i, load(x + i) * load(cos + i) + load(spare + i) * load(sin + i));
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

#endif
