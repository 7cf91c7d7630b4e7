// The speaker encoder on the CPU: a mel spectrogram in, the x-vector out.
//
// The arithmetic is that of `sonorant.engine.model.speaker_encoder` in float32. Activations are [frames, channels], with
// numbers of channels that are multiples of PACKED: `sonorant.engine.cpu.speaker` fills the others up with channels that
// are always zero. The result does not depend on the number of threads. Python's lock is not held during calls.

#include "convolutions.h"

#define VARIANCE_FLOOR 1e-12f

// Activations

INLINE Floats above(Floats x, float floor) {
  Ints is_low = x < floor;
  return (Floats)(((Ints)x & ~is_low) | ((Ints)all(floor) & is_low));
}

INLINE void relu(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) store(x + i, above(load(x + i), 0.0f));
}

INLINE Floats root(Floats x) {
  for (int i = 0; i < LANES; i++) x[i] = sqrtf(x[i]);
  return x;
}

// Convolutions

static int64_t reflected(int64_t p, int64_t n) { return p < 0 ? -p : p >= n ? 2 * (n - 1) - p : p; }

// y [n, out] = the rectified convolution of x [n, in], of which a row is `apart` floats from the next, plus `more` if it is
// not NULL; both ends are reflected. `room` is for the extended input.
static void delayed(float *y, const float *x, const float *more, int64_t apart, const Conv *c, int64_t n, float *room) {
  int64_t reach = (c->taps - 1) * c->dilation, before = reach / 2;
  if (reach || more || apart != c->in) {
    for (int64_t p = -before; p < n + reach - before; p++) {
      float *to = room + (p + before) * c->in;
      int64_t from = reflected(p, n) * apart;
      memcpy(to, x + from, c->in * sizeof *to);
      if (more) add(to, more + from, c->in);
    }
    x = room;
  }
  convolve(y, x, c, 1, n, NULL);
  relu(y, n * c->out);
}

// Passes x [n, channels] through a block, in place. `a` and `b` have room for its activations, and `room` for an input.
static void pass(const SpeakerBlock *block, float *x, int64_t n, float *a, float *b, float *room) {
  int64_t width = block->in.out, part = width / block->num_parts, channels = block->out.out;
  delayed(a, x, NULL, block->in.in, &block->in, n, room);
  for (int64_t i = 1; i < block->num_parts; i++) {
    float *own = a + i * part;
    delayed(b, own, i > 1 ? own - part : NULL, width, block->parts + i - 1, n, room);
    for (int64_t p = 0; p < n; p++) memcpy(own + p * width, b + p * part, part * sizeof *own);
  }
  delayed(b, a, NULL, width, &block->out, n, room);
  float *mean = room, *narrow = mean + channels, *gate = narrow + block->squeeze.out;
  memset(mean, 0, channels * sizeof *mean);
  for (int64_t p = 0; p < n; p++) add(mean, b + p * channels, channels);
  for (int64_t i = 0; i < channels; i += LANES) store(mean + i, load(mean + i) / (float)n);
  convolve(narrow, mean, &block->squeeze, 1, 1, NULL);
  relu(narrow, block->squeeze.out);
  convolve(gate, narrow, &block->excite, 1, 1, NULL);
  for (int64_t i = 0; i < channels; i += LANES) store(gate + i, 1.0f / (1.0f + exponential(-load(gate + i))));
  for (int64_t p = 0; p < n; p++)
    for (int64_t i = 0; i < channels; i += LANES) {
      float *at = x + p * channels + i;
      store(at, fused(load(b + p * channels + i), load(gate + i), load(at)));
    }
}

// Pooling

// statistics [2, channels] = mean and standard deviation of x [n, channels] over the frames, weighted by e^scores, or all
// alike if `scores` is NULL.
static void pool(float *statistics, const float *x, const float *scores, int64_t n, int64_t channels) {
  for (int64_t i = 0; i < channels; i += LANES) {
    Floats highest = all(-INFINITY), sum = {0}, weighted = {0}, squares = {0};
    for (int64_t p = 0; scores && p < n * channels; p += channels) {
      Floats score = load(scores + p + i);
      Ints is_higher = score > highest;
      highest = (Floats)(((Ints)score & is_higher) | ((Ints)highest & ~is_higher));
    }
    for (int64_t p = 0; p < n * channels; p += channels) {
      Floats weight = scores ? exponential(load(scores + p + i) - highest) : all(1.0f);
      sum += weight;
      weighted = fused(weight, load(x + p + i), weighted);
    }
    Floats mean = weighted / sum;
    for (int64_t p = 0; p < n * channels; p += channels) {
      Floats weight = scores ? exponential(load(scores + p + i) - highest) : all(1.0f), off = load(x + p + i) - mean;
      squares = fused(weight, off * off, squares);
    }
    store(statistics + i, mean);
    store(statistics + channels + i, root(above(squares / sum, VARIANCE_FLOOR)));
  }
}

// Makes the x-vector from x [n, channels]; `a`, `b` and `room` have room for a row of each frame.
static void embed(const SpeakerEncoder *s, float *x_vector, const float *x, int64_t n, float *a, float *b, float *room) {
  int64_t channels = s->joined.out;
  pool(room, x, NULL, n, channels);
  Conv attended = s->attended;
  float *bias = room + 2 * channels;
  convolve(bias, room, &s->whole, 1, 1, NULL);
  attended.bias = bias;
  convolve(a, x, &attended, 1, n, NULL);
  relu(a, n * attended.out);
  for (int64_t i = 0; i < n * attended.out; i += LANES)  // tanh of what is not negative
    store(a + i, 1.0f - 2.0f / (exponential(load(a + i) * 2.0f) + 1.0f));
  convolve(b, a, &s->scored, 1, n, NULL);
  pool(room, x, b, n, channels);
  convolve(x_vector, room, &s->last, 1, 1, NULL);
}

// Entry

int encode_speaker(const SpeakerEncoder *s, const float *mel, int64_t n, float *x_vector) {
  int64_t channels = s->first.out, joined = s->joined.in, widest = most(s->first.in, most(joined, s->joined.out));
  for (int64_t i = 0; i < s->num_blocks; i++) widest = most(widest, s->blocks[i].in.out);
  int64_t longest = n + s->first.taps, size;
  for (int64_t i = 0; i < s->num_blocks; i++)
    longest = most(longest, n + (s->blocks[i].parts->taps - 1) * s->blocks[i].parts->dilation);
  size = (longest + 2) * widest;  // `embed` and `pass` keep a few rows in `room`
  float *x = malloc((4 * size + n * joined) * sizeof *x);
  if (!x) return -1;
  float *a = x + size, *b = a + size, *room = b + size, *outputs = room + size;
  delayed(x, mel, NULL, s->first.in, &s->first, n, room);
  for (int64_t i = 0; i < s->num_blocks; i++) {
    pass(s->blocks + i, x, n, a, b, room);
    for (int64_t p = 0; p < n; p++)
      memcpy(outputs + p * joined + i * channels, x + p * channels, channels * sizeof *x);
  }
  delayed(x, outputs, NULL, joined, &s->joined, n, room);
  embed(s, x_vector, x, n, a, b, room);
  free(x);
  return 0;
}
