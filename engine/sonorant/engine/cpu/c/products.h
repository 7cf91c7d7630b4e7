// Products of rows with matrices whose numbers are float32, bfloat16, or whole numbers of eight or four bits with scales.
//
// A matrix of float32 is [outputs, inputs]. One of bfloat16 is read from start to end: [outputs / WIDTH, inputs / (2 * SIDE),
// WIDTH, SIDE, 2], with inputs that are SIDE apart in the last dimension, so that a shift and a mask make floats of a word.
//
// A matrix of whole numbers is made of tiles of TILE outputs, which are read from start to end. A tile has for each group of
// inputs the weights, those of two inputs side by side for each output, so that a vector's sums belong to outputs and
// none is added across; then the group's scale for each output, in bfloat16. Eight-bit groups have GROUP inputs;
// four-bit ones GROUP4, and a byte has the weights, 8 added to each, of two inputs that are two apart. The
// row that they are multiplied with is rounded to sixteen bits, so that nearly all of the error is that of the weights; both
// bytes of a number have a sign, so that machines may multiply them apart (NUMBER).
// Sums of a group are whole numbers, hence exact; those of groups are floats in one order.

#ifndef SONORANT_PRODUCTS_H
#define SONORANT_PRODUCTS_H

#include "api.h"
#include "threads.h"
#include "wholes.h"

#define WIDTH 4  // outputs that a product of floats computes together; as in sonorant.engine.cpu.model, like the next one
#define SIDE 16  // pairs of inputs that lie side by side
#define MOST_ROWS 8
#define TILE 16  // this and the next two as in sonorant.engine.model.rounded
#define GROUP 128
#define GROUP4 32
#define SCALE_BYTES 2
#define VECTORS (TILE / LANES)
#define NUMBER (127 * 256 + 127)  // of rounded rows, at most
#define AHEAD 4096  // bytes: how far before their use weights are asked for; machines do it too late

enum { BFLOAT16, FLOAT32, INT8, INT4 };  // formats of matrices

typedef int8_t Bytes __attribute__((vector_size(LANES * 2), aligned(1), may_alias));
typedef uint8_t Nibbles __attribute__((vector_size(LANES * 2), aligned(1), may_alias));

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

INLINE Floats widened(const char *weights, int format) {
  if (format == FLOAT32) return load((const float *)weights);
  return (Floats)(__builtin_convertvector(*(const Halves *)weights, Words) << 16);
}

// Compute a block of a product, from row `r` on: `outputs` outputs of the WIDTH from `n` on, from number `first` of them on.
// `first`, `rows`, `outputs` and `format` must be constants, so that the compiler can unroll the loops.

INLINE void float_block(const Product *p, int64_t r, int64_t n, int first, int rows, int outputs, int format) {
  Floats sums[4][WIDTH];
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < outputs; j++) sums[i][j] = (Floats){0};
  int step = format == FLOAT32 ? SIDE : 2 * SIDE;  // inputs
  int64_t apart = format == FLOAT32 ? p->n_in * 4 : SIDE * 4, size = format == FLOAT32 ? SIDE * 4 : WIDTH * SIDE * 4;
  const char *w = (const char *)p->w + n * p->n_in * (format == FLOAT32 ? 4 : 2) + first * apart;
  const float *x = p->x + r * p->n_in;
  for (int64_t k = 0; k < p->n_in; k += step, w += size) {
    if (format == BFLOAT16)
      for (int line = 0; line < outputs; line++) __builtin_prefetch(w + AHEAD + line * 64);
    for (int at = 0; at < step; at += LANES)
      for (int j = 0; j < outputs; j++) {
        Words both = *(const Words *)(w + j * apart + at % SIDE * 4);
        if (format == BFLOAT16) both = at < SIDE ? (Words)(both << 16) : (Words)(both & 0xFFFF0000u);
        Floats weight = (Floats)both;
        for (int i = 0; i < rows; i++) sums[i][j] = fused(weight, load(x + i * p->n_in + k + at), sums[i][j]);
      }
  }
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < outputs; j++) {
      float *y = p->y + (r + i) * p->n_out + n + first + j, sum = total(sums[i][j]);
      *y = p->adds ? *y + sum : sum;
    }
}

#if defined(__ARM_FEATURE_DOTPROD)

// Arm multiplies bytes: of each STEP inputs of a row come the upper bytes, then the lower ones, both with a sign. The
// machine adds up four products at once, or, where it multiplies matrices, those of both bytes with eight weights.
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define STEP 8
#else
#define STEP 4
#endif

INLINE void split_row(int16_t *rounded, int64_t n) {
  for (int64_t i = 0; i < n; i += STEP) {
    int8_t bytes[2 * STEP];
    for (int k = 0; k < STEP; k++) {
      bytes[k] = (int8_t)((rounded[i + k] + 128) >> 8);
      bytes[STEP + k] = (int8_t)(rounded[i + k] & 255);
    }
    memcpy(rounded + i, bytes, sizeof bytes);
  }
}

// Returns the weights of four outputs for four inputs, those of an output side by side.
INLINE int8x16_t four_inputs(const char *from, int format) {
  int8x8_t first, second;
  if (format == INT8) {
    first = vld1_s8((const int8_t *)from), second = vld1_s8((const int8_t *)from + 2 * TILE);
  } else {
    uint8x8_t both = vld1_u8((const uint8_t *)from);
    first = vsub_s8(vreinterpret_s8_u8(vand_u8(both, vdup_n_u8(15))), vdup_n_s8(8));
    second = vsub_s8(vreinterpret_s8_u8(vshr_n_u8(both, 4)), vdup_n_s8(8));
  }
  int16x8_t a = vreinterpretq_s16_s8(vcombine_s8(first, first)), b = vreinterpretq_s16_s8(vcombine_s8(second, second));
  return vreinterpretq_s8_s16(vzip1q_s16(a, b));
}

// Adds the products of STEP inputs of a row with the weights of four outputs to `sums`, two vectors.
INLINE void add_step(int32x4_t *sums, const int16_t *row, const int8x16_t *weights) {
#if STEP == 8
  int8x16_t x = vld1q_s8((const int8_t *)row);
  int32x4_t a = vreinterpretq_s32_s8(weights[0]), b = vreinterpretq_s32_s8(weights[1]);
  sums[0] = vmmlaq_s32(sums[0], x, vreinterpretq_s8_s32(vzip1q_s32(a, b)));
  sums[1] = vmmlaq_s32(sums[1], x, vreinterpretq_s8_s32(vzip2q_s32(a, b)));
#else
  sums[0] = vdotq_s32(sums[0], weights[0], (int8x16_t)pairs_of(row));
  sums[1] = vdotq_s32(sums[1], weights[0], (int8x16_t)pairs_of(row + 2));
#endif
}

// Returns the sums of four outputs: those of the upper bytes count 256 times.
INLINE Ints joined(const int32x4_t *sums) {
#if STEP == 8  // a vector has the sums of two outputs: of the upper bytes, then of the lower ones
  int64x2_t a = vreinterpretq_s64_s32(sums[0]), b = vreinterpretq_s64_s32(sums[1]);
  int32x4_t upper = vreinterpretq_s32_s64(vzip1q_s64(a, b)), lower = vreinterpretq_s32_s64(vzip2q_s64(a, b));
#else
  int32x4_t upper = sums[0], lower = sums[1];
#endif
  return (Ints)vaddq_s32(vshlq_n_s32(upper, 8), lower);
}

// As below.
INLINE void add_group(Ints sums[MOST_ROWS][2 * VECTORS], const Product *p, const char *w, int64_t apart, int64_t r, int64_t g,
                      int rows, int vectors, int chains, int format) {
  (void)chains;  // there are two sums anyway
  int32x4_t parts[MOST_ROWS][2 * VECTORS][2] = {{{{0}}}};
  int inputs = format == INT8 ? GROUP : GROUP4, in_byte = format == INT8 ? 1 : 2;
  for (int k = 0; k < inputs; k += STEP)
    for (int v = 0; v < vectors; v++) {
      const char *from = w + v / VECTORS * apart + v % VECTORS * 2 * LANES;
      if (v % VECTORS == 0) __builtin_prefetch(from + k * TILE / in_byte + AHEAD);
      int8x16_t weights[STEP / 4];
      for (int i = 0; i < STEP / 4; i++) weights[i] = four_inputs(from + (k + 4 * i) * TILE / in_byte, format);
      for (int i = 0; i < rows; i++) add_step(parts[i][v], p->rounded + (r + i) * p->n_in + g + k, weights);
    }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) sums[i][v] = joined(parts[i][v]);
}

#else

// Adds the products of a group's weights, from input `g` on, to `sums` of `vectors` vectors of outputs. Those of the next
// tile are `apart` bytes from the first one's. Whole numbers may be added in any order: `chains` sums of each output, added
// up at the end, do not wait for each other.
INLINE void add_group(Ints sums[MOST_ROWS][2 * VECTORS], const Product *p, const char *w, int64_t apart, int64_t r, int64_t g,
                      int rows, int vectors, int chains, int format) {
  Ints parts[2][MOST_ROWS][2 * VECTORS] = {{{{0}}}};
  int pairs = (format == INT8 ? GROUP : GROUP4) / 2, in_byte = format == INT8 ? 1 : 2;
  for (int k = 0; k < pairs; k += chains * in_byte)
    for (int c = 0; c < chains; c++) {
      int at = k + c * in_byte;
      for (int v = 0; v < vectors; v++) {
        const char *from = w + v / VECTORS * apart + at / in_byte * 2 * TILE + v % VECTORS * 2 * LANES;
        if ((at / in_byte) % 2 == 0 && v % VECTORS == 0) __builtin_prefetch(from + AHEAD);
        Shorts weights[2];
        if (format == INT8) {
          weights[0] = __builtin_convertvector(*(const Bytes *)from, Shorts);
        } else {
          Shorts both = __builtin_convertvector(*(const Nibbles *)from, Shorts);
          weights[0] = (both & 15) - 8, weights[1] = (both >> 4) - 8;
        }
        for (int i = 0; i < rows; i++)
          for (int b = 0; b < in_byte; b++) {
            Shorts x = pairs_of(p->rounded + (r + i) * p->n_in + g + 2 * (at + b));
            parts[c][i][v] = add_pairs(parts[c][i][v], weights[b], x);
          }
      }
    }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < vectors; v++) {
      sums[i][v] = parts[0][i][v];
      if (chains == 2) sums[i][v] += parts[1][i][v];
    }
}

#endif

// Computes `tiles` tiles at once: memory is read faster from two places.
INLINE void tile_block(const Product *p, int64_t r, int64_t n, int rows, int tiles, int format) {
  Floats sums[MOST_ROWS][2 * VECTORS] = {{{0}}};
  int64_t inputs = format == INT8 ? GROUP : GROUP4, numbers = format == INT8 ? GROUP * TILE : GROUP4 * TILE / 2;
  int64_t size = numbers + TILE * SCALE_BYTES, apart = p->n_in / inputs * size;
  int vectors = (int)least(MOST_ROWS / rows, tiles * VECTORS);
  const char *w = (const char *)p->w + n / TILE * apart;
  for (int64_t g = 0; g < p->n_in; g += inputs, w += size)
    for (int first = 0; first < tiles * VECTORS; first += vectors) {
      Ints group[MOST_ROWS][2 * VECTORS];
      const char *from = w + first / VECTORS * apart + first % VECTORS * 2 * LANES;
      add_group(group, p, from, apart, r, g, rows, vectors, rows == 1 ? 2 : 1, format);
      for (int v = first; v < first + vectors; v++) {
        const char *at = w + v / VECTORS * apart + numbers + v % VECTORS * LANES * SCALE_BYTES;
        Floats scale = widened(at, BFLOAT16);
        for (int i = 0; i < rows; i++)
          sums[i][v] = fused(__builtin_convertvector(group[i][v - first], Floats), scale, sums[i][v]);
      }
    }
  for (int i = 0; i < rows; i++)
    for (int v = 0; v < tiles * VECTORS; v++) {
      float *y = p->y + (r + i) * p->n_out + n + v * LANES;
      Floats sum = sums[i][v] * p->scales[r + i];
      if (p->adds) sum += load(y);
      store(y, sum);
    }
}

INLINE void outputs_of(const Product *p, int64_t first, int64_t end, int format) {
  for (int64_t n = first; n < end; n += WIDTH) {
    int64_t r = 0;
    for (; r + 4 <= p->rows; r += 4) {
      float_block(p, r, n, 0, 4, 2, format);
      float_block(p, r, n, 2, 4, 2, format);
    }
    for (; r + 2 <= p->rows; r += 2) float_block(p, r, n, 0, 2, WIDTH, format);
    if (r < p->rows) float_block(p, r, n, 0, 1, WIDTH, format);
  }
}

INLINE void tile_rows(const Product *p, int64_t n, int tiles, int format) {
  int64_t r = 0;
  for (; r + MOST_ROWS <= p->rows; r += MOST_ROWS)
    for (int t = 0; t < tiles; t++) tile_block(p, r, n + t * TILE, MOST_ROWS, 1, format);
  for (; r + 4 <= p->rows; r += 4)
    for (int t = 0; t < tiles; t++) tile_block(p, r, n + t * TILE, 4, 1, format);
  for (; r + 2 <= p->rows; r += 2) tile_block(p, r, n, 2, tiles, format);
  if (r < p->rows) tile_block(p, r, n, 1, tiles, format);
}

INLINE void tiles_of(const Product *p, int64_t first, int64_t end, int format) {
  int64_t n = first;
  for (; n + 2 * TILE <= end; n += 2 * TILE) tile_rows(p, n, 2, format);
  if (n < end) tile_rows(p, n, 1, format);
}

static void bfloat16_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, BFLOAT16); }
static void float32_outputs(const void *p, int64_t first, int64_t end) { outputs_of(p, first, end, FLOAT32); }
static void int8_outputs(const void *p, int64_t first, int64_t end) { tiles_of(p, first, end, INT8); }
static void int4_outputs(const void *p, int64_t first, int64_t end) { tiles_of(p, first, end, INT4); }

// Computes a product. Each weight is read from memory once for all rows, or for eight of many. `room` is for the rounded
// rows: rows * (n_in / 2 + 1) floats. A row with NaN or infinity gives NaN.
static void product(float *y, const float *x, const void *w, int64_t rows, int64_t n_in, int64_t n_out, int format,
                    int adds, float *room) {
  Product p = {y, x, NULL, NULL, w, rows, n_in, n_out, adds};
  if (format == INT8 || format == INT4) {
    p.scales = room, p.rounded = (int16_t *)(room + rows);
    for (int64_t r = 0; r < rows; r++) room[r] = round_row((int16_t *)p.rounded + r * n_in, x + r * n_in, n_in, NUMBER);
#if defined(__ARM_FEATURE_DOTPROD)
    split_row((int16_t *)p.rounded, rows * n_in);
#endif
  }
  Part *const parts[] = {bfloat16_outputs, float32_outputs, int8_outputs, int4_outputs};
  share(parts[format], &p, n_out, p.scales ? TILE : WIDTH, rows * n_in * n_out);
}

#endif
