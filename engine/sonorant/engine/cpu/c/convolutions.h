// Convolutions of rows of positions, as blocks whose sums stay in registers and whose weights stay in a cache. Every sum
// has one order, so neither the number of positions nor that of threads changes a bit.
//
// Weights are floats, or whole numbers with a scale for each output. Then the inputs of each position are rounded, too: a
// vector multiplies twice as many. Both are of LIMIT at most, so that sums of SEGMENT inputs fit into 32 bits; those of
// segments are floats.

#ifndef SONORANT_CONVOLUTIONS_H
#define SONORANT_CONVOLUTIONS_H

#include "api.h"
#include "threads.h"
#include "wholes.h"

#define BLOCK (LANES == 16 ? 8 : 6)  // positions that a convolution computes together: their sums fit into registers
#define PACKED 16         // outputs whose weights lie side by side; LANES in library.py
#define NEAR_INPUTS 1536  // whose weights stay in a cache while all positions are computed
#define STRETCH 240       // positions that a thread computes in one turn
#define LIMIT 4095        // of rounded weights, as in library.py, and of inputs
#define SEGMENT 128       // LIMIT * LIMIT * SEGMENT < 2^31

// A convolution of some rows, as threads share it: a turn computes `width` outputs of a stretch of positions.
typedef struct {
  float *y;
  const float *x;
  const int16_t *rounded;  // x for whole weights, with the scale of each position
  const float *scales;
  const Conv *conv;
  int64_t rows, n, width, stretches;
} Convolution;

// Adds inputs `first` to before `end`, counted through all taps, to `vectors` vectors of outputs of some positions.
// `positions` and `vectors` must be constants, so that the compiler can unroll the loops.
INLINE void convolve_block(float *y, const float *x, const Conv *c, const float *weight, const float *bias, int64_t first,
                           int64_t end, int positions, int vectors) {
  Floats sums[BLOCK][2];
  int64_t apart = LANES == PACKED ? c->taps * c->used * PACKED : LANES;  // from one vector of weights to the next
  for (int p = 0; p < positions; p++)
    for (int v = 0; v < vectors; v++) sums[p][v] = load(first ? y + p * c->out + v * LANES : bias + v * LANES);
  weight += first * PACKED;
  for (int64_t tap = first / c->used, i = first % c->used; first < end; tap++, i = 0) {
    const float *from = x + tap * c->dilation * c->in;
    int64_t stop = least(c->used, i + end - first);
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
  for (int64_t first = 0, all = c->taps * c->used; first < all; first += NEAR_INPUTS) {
    int64_t end = least(all, first + NEAR_INPUTS), p = 0;
    for (; p + BLOCK <= n && p + BLOCK + 2 != n; p += BLOCK)  // 4 and 4 are quicker than 6, 1 and 1
      convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, BLOCK, vectors);
    for (; p + 4 <= n; p += 4)
      convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, 4, vectors);
    for (; p < n; p++) convolve_block(y + p * c->out, x + p * c->in, c, weight, bias, first, end, 1, vectors);
  }
}

// The same with whole weights: adds segments `first` to before `end`, counted through all taps.
INLINE void whole_block(float *y, const int16_t *x, const float *worth, const Conv *c, int64_t o, int64_t first,
                        int64_t end, int positions, int vectors) {
  Floats sums[BLOCK][2];
  int64_t segments = (c->in + SEGMENT - 1) / SEGMENT, apart = LANES == PACKED ? c->taps * c->in * PACKED : 2 * LANES;
  const int16_t *weights = (const int16_t *)c->weight + o / PACKED * PACKED * c->taps * c->in + o % PACKED * 2;
  for (int p = 0; p < positions; p++)
    for (int v = 0; v < vectors; v++) sums[p][v] = first ? load(y + p * c->out + v * LANES) : (Floats){0};
  for (int64_t segment = first; segment < end; segment++) {
    int64_t tap = segment / segments, i = segment % segments * SEGMENT, stop = least(c->in, i + SEGMENT);
    const int16_t *from = x + tap * c->dilation * c->in;
    const float *scales = worth + tap * c->dilation;
    Ints whole[BLOCK][2];
    for (int p = 0; p < positions; p++)
      for (int v = 0; v < vectors; v++) whole[p][v] = (Ints){0};
    for (; i < stop; i += 2) {
      Shorts weight[2];
      for (int v = 0; v < vectors; v++) weight[v] = *(const Shorts *)(weights + (tap * c->in + i) * PACKED + v * apart);
      for (int p = 0; p < positions; p++) {
        Shorts input = pairs_of(from + p * c->in + i);
        for (int v = 0; v < vectors; v++) whole[p][v] = add_pairs(whole[p][v], input, weight[v]);
      }
    }
    for (int p = 0; p < positions; p++)
      for (int v = 0; v < vectors; v++)
        sums[p][v] = fused(__builtin_convertvector(whole[p][v], Floats), all(scales[p]), sums[p][v]);
  }
  for (int p = 0; p < positions; p++)
    for (int v = 0; v < vectors; v++) {
      Floats sum = sums[p][v];
      if (end == segments * c->taps) sum = fused(sum, load(c->scales + o + v * LANES), load(c->bias + o + v * LANES));
      store(y + p * c->out + v * LANES, sum);
    }
}

INLINE void whole_outputs(float *y, const int16_t *x, const float *worth, const Conv *c, int64_t o, int64_t n,
                          int vectors) {
  int64_t segments = (c->in + SEGMENT - 1) / SEGMENT, all = segments * c->taps, near = NEAR_INPUTS / least(c->in, SEGMENT);
  for (int64_t first = 0; first < all; first += near) {
    int64_t end = least(all, first + near), p = 0;
    for (; p + BLOCK <= n && p + BLOCK + 2 != n; p += BLOCK)
      whole_block(y + p * c->out, x + p * c->in, worth + p, c, o, first, end, BLOCK, vectors);
    for (; p + 4 <= n; p += 4) whole_block(y + p * c->out, x + p * c->in, worth + p, c, o, first, end, 4, vectors);
    for (; p < n; p++) whole_block(y + p * c->out, x + p * c->in, worth + p, c, o, first, end, 1, vectors);
  }
}

static void convolve_turns(const void *what, int64_t first, int64_t end) {
  const Convolution *job = what;
  const Conv *c = job->conv;
  int64_t extended = job->n + (c->taps - 1) * c->dilation;
  for (int64_t turn = first; turn < end; turn++) {
    int64_t o = turn / job->stretches * job->width, begin = turn % job->stretches * STRETCH;
    int64_t count = least(job->n - begin, STRETCH);
    const float *weight = (const float *)c->weight + o / PACKED * PACKED * c->taps * c->used + o % PACKED;
    for (int64_t r = 0; r < job->rows; r++) {
      float *to = job->y + (r * job->n + begin) * c->out + o;
      int64_t at = r * extended + begin;
      const float *from = job->x + at * c->in;
      if (c->scales) {
        const int16_t *rounded = job->rounded + at * c->in;
        if (job->width == LANES) whole_outputs(to, rounded, job->scales + at, c, o, count, 1);
        else whole_outputs(to, rounded, job->scales + at, c, o, count, 2);
      } else if (job->width == LANES) {
        convolve_outputs(to, from, c, weight, c->bias + o, count, 1);
      } else {
        convolve_outputs(to, from, c, weight, c->bias + o, count, 2);
      }
    }
  }
}

static void round_turns(const void *what, int64_t first, int64_t end) {
  const Convolution *job = what;
  int64_t in = job->conv->in;
  for (int64_t p = first; p < end; p++)
    ((float *)job->scales)[p] = round_row((int16_t *)job->rounded + p * in, job->x + p * in, in, LIMIT);
}

// Computes y [rows, n, out] from x [rows, past inputs + n, in]. Weights are read from memory once for all rows. `room` is
// for the rounded inputs: as many floats as x has, and one more for each position.
static void convolve(float *y, const float *x, const Conv *c, int64_t rows, int64_t n, float *room) {
  int64_t width = c->out % (2 * LANES) ? LANES : 2 * LANES, stretches = (n + STRETCH - 1) / STRETCH;
  int64_t positions = rows * (n + (c->taps - 1) * c->dilation);
  Convolution job = {y, x, (int16_t *)(room + positions), room, c, rows, n, width, stretches};
  if (c->scales) share(round_turns, &job, positions, 4, positions * c->in * 4);
  share(convolve_turns, &job, c->out / width * stretches, 1, rows * n * c->taps * c->in * c->out);
}

#endif
