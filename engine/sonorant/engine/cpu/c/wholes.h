// Vectors of whole numbers of sixteen bits, of which a vector holds twice as many as of floats, and rows rounded to them.

#ifndef SONORANT_WHOLES_H
#define SONORANT_WHOLES_H

#include "vectors.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

typedef uint32_t Words __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef int16_t Shorts __attribute__((vector_size(LANES * 4), aligned(2), may_alias));

// Returns sum + the products of neighbours, added up in pairs.
INLINE Ints add_pairs(Ints sum, Shorts a, Shorts b) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512BW__)
  return sum + (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
  return (Ints)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVX2__)
  return sum + (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__) && LANES == 4
  return sum + (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  Ints x = (Ints)a, y = (Ints)b;
  return sum + (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}

// Returns two neighbours, again and again.
INLINE Shorts pairs_of(const int16_t *at) {
  int32_t pair;
  memcpy(&pair, at, sizeof pair);
  return (Shorts)((Ints){0} + pair);
}

// Rounds a row to whole numbers up to `limit`, and returns what one is worth: NaN if a number of the row is NaN or infinite.
INLINE float round_row(int16_t *rounded, const float *x, int64_t n, float limit) {
  const Ints sign = (Ints){0} + INT32_MIN;
  Floats largest = {0}, spoilt = {0};
  for (int64_t i = 0; i < n; i += LANES) {
    Floats size = (Floats)((Ints)load(x + i) & ~sign);
    Ints is_larger = size > largest;
    largest = (Floats)(((Ints)size & is_larger) | ((Ints)largest & ~is_larger));
    spoilt += size * 0.0f;
  }
  float most = 0;
  for (int i = 0; i < LANES; i++) most = largest[i] > most ? largest[i] : most;
  float to = most > 0 ? limit / most : 0;
  for (int64_t i = 0; i < n; i += LANES) {
    Floats whole = load(x + i) * to + 12582912.0f;  // rounded to a whole number in the low bits
    *(Halves *)(rounded + i) = __builtin_convertvector((Words)whole, Halves);
  }
  return most / limit + total(spoilt);
}

#endif
