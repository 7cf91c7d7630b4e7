// Convolutions of rows of positions, as blocks whose sums stay in registers and whose weights stay in a cache. Every sum
// has one order, so neither the number of positions nor that of threads changes a bit.

#ifndef SONORANT_CONVOLUTIONS_H
#define SONORANT_CONVOLUTIONS_H

#include "threads.h"
#include "vectors.h"

#define BLOCK (LANES == 16 ? 8 : 6)  // positions that a convolution computes together: their sums fit into registers
#define PACKED 16         // outputs whose weights lie side by side; LANES in library.py
#define NEAR_INPUTS 1536  // whose weights stay in a cache while all positions are computed
#define STRETCH 240       // positions that a thread computes in one turn

typedef struct {
  int64_t in, out, taps, dilation;
  int64_t tail;         // offset of its last inputs, [(taps - 1) * dilation, in], in a slot's tails
  const float *weight;  // [out / PACKED, taps, in, PACKED]
  const float *bias;    // [out]
} Conv;

// A convolution of some rows, as threads share it: a turn computes `width` outputs of a stretch of positions.
typedef struct {
  float *y;
  const float *x;
  const Conv *conv;
  int64_t rows, n, width, stretches;
} Convolution;

// Adds inputs `first` to before `end`, counted through all taps, to `vectors` vectors of outputs of some positions.
// `positions` and `vectors` must be constants, so that the compiler can unroll the loops.
INLINE void convolve_block(float *y, const float *x, const Conv *c, const float *weight, const float *bias, int64_t first,
                           int64_t end, int positions, int vectors) {
  Floats sums[BLOCK][2];
  int64_t apart = LANES == PACKED ? c->taps * c->in * PACKED : LANES;  // from one vector of weights to the next
  for (int p = 0; p < positions; p++)
    for (int v = 0; v < vectors; v++) sums[p][v] = load(first ? y + p * c->out + v * LANES : bias + v * LANES);
  weight += first * PACKED;
  for (int64_t tap = first / c->in, i = first % c->in; first < end; tap++, i = 0) {
    const float *from = x + tap * c->dilation * c->in;
    int64_t stop = least(c->in, i + end - first);
    first += stop - i;
    for (; i < stop; i++, weight += PACKED) {
      Floats weights[2];
      for (int v = 0; v < vectors; v++) weights[v] = load(weight + v * apart);
      for (int p = 0; p < positions; p++)
        for (int v = 0; v < vectors; v++) sums[p][v] = fused(all(from[p * c->in + i]), weights[v], sums[p][v]);
    }
  }
  for (int p = 0; p < positions; p++)
    for (int v = 0; v < vectors; v++) store(y + p * c->out + v * LANES, sums[p][v]);
}

INLINE void convolve_outputs(float *y, const float *x, const Conv *c, const float *weight, const float *bias, int64_t n,
                             int vectors) {
  for (int64_t first = 0, all = c->taps * c->in; first < all; first += NEAR_INPUTS) {
    int64_t end = least(all, first + NEAR_INPUTS), p = 0;
    for (; p + BLOCK <= n && p + BLOCK + 2 != n; p += BLOCK)  // 4 and 4 are quicker than 6, 1 and 1
      convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, BLOCK, vectors);
    for (; p + 4 <= n; p += 4)
      convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, 4, vectors);
    for (; p < n; p++) convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, 1, vectors);
  }
}

static void convolve_turns(const void *what, int64_t first, int64_t end) {
  const Convolution *job = what;
  const Conv *c = job->conv;
  int64_t stride = (job->n + (c->taps - 1) * c->dilation) * c->in;
  for (int64_t turn = first; turn < end; turn++) {
    int64_t o = turn / job->stretches * job->width, begin = turn % job->stretches * STRETCH;
    int64_t count = least(job->n - begin, STRETCH);
    const float *weight = c->weight + o / PACKED * PACKED * c->taps * c->in + o % PACKED;
    for (int64_t r = 0; r < job->rows; r++) {
      float *to = job->y + (r * job->n + begin) * c->out + o;
      const float *from = job->x + r * stride + begin * c->in;
      if (job->width == LANES) convolve_outputs(to, from, c, weight, c->bias + o, count, 1);
      else convolve_outputs(to, from, c, weight, c->bias + o, count, 2);
    }
  }
}

// Computes y [rows, n, out] from x [rows, past inputs + n, in]. Weights are read from memory once for all rows.
static void convolve(float *y, const float *x, const Conv *c, int64_t rows, int64_t n) {
  int64_t width = c->out % (2 * LANES) ? LANES : 2 * LANES, stretches = (n + STRETCH - 1) / STRETCH;
  Convolution job = {y, x, c, rows, n, width, stretches};
  share(convolve_turns, &job, c->out / width * stretches, 1, rows * n * c->taps * c->in * c->out);
}

#endif
