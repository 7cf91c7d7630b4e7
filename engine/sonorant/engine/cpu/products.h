// Products of rows with matrices whose numbers are float32, bfloat16, or whole numbers of eight or four bits with scales.
//
// A row of eight-bit weights has `inputs` of them and then a float32 scale for each GROUP. One of four-bit weights has two
// in a byte, 8 added to each: byte i of a GROUP4 has weights i and GROUP4 / 2 + i. Then come bfloat16 scales. The row that
// they are multiplied with is rounded to sixteen bits, so that nearly all of the error is that of the weights. Sums of a
// group are whole numbers, hence exact; those of groups are floats in one order.

#ifndef SONORANT_PRODUCTS_H
#define SONORANT_PRODUCTS_H

#include "threads.h"
#include "vectors.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define WIDTH 4  // outputs that a product computes together
#define MOST_ROWS 8
#define GROUP 128  // weights that share a scale; as in sonorant.engine.model.rounded
#define GROUP4 32

enum { BFLOAT16, FLOAT32, INT8, INT4 };  // formats of matrices

typedef uint32_t Words __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t Halves __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef int16_t Shorts __attribute__((vector_size(LANES * 4), aligned(2), may_alias));
typedef int8_t Bytes __attribute__((vector_size(LANES * 2), aligned(1), may_alias));
typedef int8_t Half4 __attribute__((vector_size(GROUP4 / 2), aligned(1), may_alias));

// A product: y [rows, n_out] = x [rows, n_in] w^T, or += if `adds`.
typedef struct {
  float *y;
  const float *x;
  const int16_t *rounded;  // x of a product with rounded weights, with its scales
  const float *scales;
  const void *w;
  int64_t rows, n_in, n_out;
  int adds;
} Product;

INLINE int64_t row_bytes(int64_t n_in, int format) {
  if (format == INT4) return n_in / 2 + n_in / GROUP4 * 2;
  return format == FLOAT32 ? 4 * n_in : format == BFLOAT16 ? 2 * n_in : n_in + n_in / GROUP * 4;
}

INLINE Floats widened(const char *weights, int64_t at, int format) {
  if (format == FLOAT32) return load((const float *)weights + at);
  Halves halves = *(const Halves *)((const uint16_t *)weights + at);
  return (Floats)(__builtin_convertvector(halves, Words) << 16);
}

// Returns sum + the products of neighbours, added up in pairs. A sum of a group fits into 32 bits.
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

// Compute a block of a product, from row `r` and output `n` on. `rows`, `outputs` and `format` must be constants, so that
// the compiler can unroll the loops.

INLINE void finish(const Product *p, int64_t r, int64_t n, int rows, int outputs, Floats sums[MOST_ROWS][WIDTH]) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < outputs; j++) {
      float *y = p->y + (r + i) * p->n_out + n + j;
      float sum = total(sums[i][j]);
      if (p->scales) sum *= p->scales[r + i];
      *y = p->adds ? *y + sum : sum;
    }
}

INLINE void float_block(const Product *p, int64_t r, int64_t n, int rows, int outputs, int format) {
  Floats sums[MOST_ROWS][WIDTH] = {{{0}}};
  const char *w = (const char *)p->w + n * row_bytes(p->n_in, format);
  for (int64_t k = 0; k < p->n_in; k += LANES)
    for (int j = 0; j < outputs; j++) {
      Floats weight = widened(w + j * row_bytes(p->n_in, format), k, format);
      for (int i = 0; i < rows; i++) sums[i][j] = fused(weight, load(p->x + (r + i) * p->n_in + k), sums[i][j]);
    }
  finish(p, r, n, rows, outputs, sums);
}

INLINE void int8_block(const Product *p, int64_t r, int64_t n, int rows, int outputs) {
  Floats sums[MOST_ROWS][WIDTH] = {{{0}}};
  int64_t stride = row_bytes(p->n_in, INT8);
  const int8_t *w = (const int8_t *)p->w + n * stride;
  for (int64_t g = 0; g < p->n_in; g += GROUP) {
    Ints group[MOST_ROWS][WIDTH] = {{{0}}};
    for (int64_t k = g; k < g + GROUP; k += 2 * LANES)
      for (int j = 0; j < outputs; j++) {
        if (k % 64 == 0) __builtin_prefetch(w + (j + WIDTH) * stride + k);  // the next block; halves the time
        Shorts weight = __builtin_convertvector(*(const Bytes *)(w + j * stride + k), Shorts);
        for (int i = 0; i < rows; i++)
          group[i][j] = add_pairs(group[i][j], weight, *(const Shorts *)(p->rounded + (r + i) * p->n_in + k));
      }
    for (int j = 0; j < outputs; j++) {
      float scale = ((const float *)(w + j * stride + p->n_in))[g / GROUP];
      for (int i = 0; i < rows; i++)
        sums[i][j] = fused(__builtin_convertvector(group[i][j], Floats), all(scale), sums[i][j]);
    }
  }
  finish(p, r, n, rows, outputs, sums);
}

// Unpacks the weights of a group.
INLINE void unpack(Shorts weights[GROUP4 / 2 / LANES], const uint8_t *packed) {
  Half4 both = *(const Half4 *)packed, low = (both & 15) - 8, high = (both >> 4 & 15) - 8;
#if LANES == 16
  weights[0] = (Shorts)_mm512_cvtepi8_epi16(_mm256_set_m128i((__m128i)high, (__m128i)low));
#elif LANES == 8
  weights[0] = __builtin_convertvector(low, Shorts), weights[1] = __builtin_convertvector(high, Shorts);
#else
  Half4 halves[2] = {low, high};
  for (int v = 0; v < GROUP4 / 2 / LANES; v++)
    weights[v] = __builtin_convertvector(*(const Bytes *)((const int8_t *)halves + v * 2 * LANES), Shorts);
#endif
}

INLINE void int4_block(const Product *p, int64_t r, int64_t n, int rows, int outputs) {
  Floats sums[MOST_ROWS][WIDTH] = {{{0}}};
  int64_t stride = row_bytes(p->n_in, INT4);
  const uint8_t *w = (const uint8_t *)p->w + n * stride;
  for (int64_t k = 0; k < p->n_in; k += GROUP4)
    for (int j = 0; j < outputs; j++) {
      const uint8_t *row = w + j * stride;
      if (k % 128 == 0) __builtin_prefetch(row + WIDTH * stride + k / 2);
      Shorts weights[GROUP4 / 2 / LANES];
      unpack(weights, row + k / 2);
      uint32_t bits = (uint32_t)((const uint16_t *)(row + p->n_in / 2))[k / GROUP4] << 16;
      float scale;
      memcpy(&scale, &bits, sizeof scale);
      for (int i = 0; i < rows; i++) {
        Ints group = {0};
        for (int v = 0; v < GROUP4 / 2 / LANES; v++)
          group = add_pairs(group, weights[v], *(const Shorts *)(p->rounded + (r + i) * p->n_in + k + v * 2 * LANES));
        sums[i][j] = fused(__builtin_convertvector(group, Floats), all(scale), sums[i][j]);
      }
    }
  finish(p, r, n, rows, outputs, sums);
}

INLINE void block(const Product *p, int64_t r, int64_t n, int rows, int outputs, int format) {
  if (format == INT8) int8_block(p, r, n, rows, outputs);
  else if (format == INT4) int4_block(p, r, n, rows, outputs);
  else float_block(p, r, n, rows, outputs, format);
}

INLINE void outputs_of(const Product *p, int64_t first, int64_t end, int format) {
  for (int64_t n = first; n < end; n += WIDTH) {
    int64_t r = 0;
    for (; r + MOST_ROWS <= p->rows; r += MOST_ROWS) {
      block(p, r, n, MOST_ROWS, 2, format);
      block(p, r, n + 2, MOST_ROWS, 2, format);
    }
    for (; r + 4 <= p->rows; r += 4) block(p, r, n, 4, WIDTH, format);
    for (; r + 2 <= p->rows; r += 2) block(p, r, n, 2, WIDTH, format);
    if (r < p->rows) block(p, r, n, 1, WIDTH, format);
  }
}

static void bfloat16_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, BFLOAT16); }
static void float32_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, FLOAT32); }
static void int8_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, INT8); }
static void int4_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, INT4); }

// Rounds each row to whole numbers up to 32767, and returns in `scales` what one is worth: NaN if a number of the row is
// NaN or infinite.
static void round_rows(int16_t *rounded, float *scales, const float *x, int64_t rows, int64_t n) {
  const Ints sign = (Ints){0} + INT32_MIN;
  for (int64_t r = 0; r < rows; r++, x += n, rounded += n) {
    Floats largest = {0}, spoilt = {0};
    for (int64_t i = 0; i < n; i += LANES) {
      Floats size = (Floats)((Ints)load(x + i) & ~sign);
      Ints is_larger = size > largest;
      largest = (Floats)(((Ints)size & is_larger) | ((Ints)largest & ~is_larger));
      spoilt += size * 0.0f;
    }
    float most = 0;
    for (int i = 0; i < LANES; i++) most = largest[i] > most ? largest[i] : most;
    scales[r] = most / 32767 + total(spoilt);
    float to = most > 0 ? 32767 / most : 0;
    for (int64_t i = 0; i < n; i += LANES) {
      Floats whole = load(x + i) * to + 12582912.0f;  // rounded to a whole number in the low bits
      *(Halves *)(rounded + i) = __builtin_convertvector((Words)whole, Halves);
    }
  }
}

// Computes a product. Each weight is read from memory once for all rows, or for eight of many. `room` is for the rounded
// rows: rows * (n_in / 2 + 1) floats. A row with NaN or infinity gives NaN.
static void product(float *y, const float *x, const void *w, int64_t rows, int64_t n_in, int64_t n_out, int format,
                    int adds, float *room) {
  Product p = {y, x, NULL, NULL, w, rows, n_in, n_out, adds};
  if (format == INT8 || format == INT4) {
    p.scales = room, p.rounded = (int16_t *)(room + rows);
    round_rows((int16_t *)p.rounded, room, x, rows, n_in);
  }
  Part *const parts[] = {bfloat16_outputs, float32_outputs, int8_outputs, int4_outputs};
  share(parts[format], &p, n_out, WIDTH, rows * n_in * n_out);
}

#endif
