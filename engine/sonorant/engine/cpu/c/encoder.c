// The codec's encoder on the CPU: a recording in, codes out. Torch computes its convolutions with few channels and many
// positions at a fifth of what the processor can, and allocates every activation; here a chunk of a recording passes
// through the layers of a stage before the next one is begun, so that its activations stay in a cache.
//
// The arithmetic is that of `sonorant.engine.model.codec.codec_encoder` in float32. Activations are [positions, channels].
// A position's result does not depend on the chunks or on the number of threads. Sizes are multiples of PACKED, except for
// the one channel of samples. Python's lock is not held during calls.

#include "convolutions.h"

#define CHUNK 1200   // positions of a stage's input
#define TAPS 7       // of the first convolution
#define UNIT_TAPS 3  // of the residual unit, and of the last convolution
#define SHARED 8     // a stage with at least so many chunks has its chunks shared, and others their convolutions

// Activations

// Replaces what is below 0 by e^x - 1.
INLINE void elu(float *y, const float *x, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) {
    Floats at = load(x + i);
    Ints is_low = at < 0.0f;
    Floats low = exponential((Floats)((Ints)at & is_low)) - 1.0f;
    store(y + i, (Floats)(((Ints)at & ~is_low) | ((Ints)low & is_low)));
  }
}

INLINE void centered(float *y, const float *x, const float *weight, const float *bias, int64_t n, double eps) {
  Floats sum = {0}, squares = {0};
  for (int64_t i = 0; i < n; i += LANES) sum += load(x + i);
  float mean = total(sum) / n;
  for (int64_t i = 0; i < n; i += LANES) {
    Floats off = load(x + i) - mean;
    squares = fused(off, off, squares);
  }
  float scale = 1.0f / sqrtf(total(squares) / n + (float)eps);
  for (int64_t i = 0; i < n; i += LANES)
    store(y + i, fused((load(x + i) - mean) * scale, load(weight + i), load(bias + i)));
}

// Convolutions, stage by stage

// A stage of a recording, as threads share it: a turn is a chunk. x [n, channels]; without it, `samples` [n] come first.
typedef struct {
  const Stage *stage;
  const Conv *first;
  const float *samples, *x;
  float *y;  // [ceil(n / stride), outputs]
  int64_t n;
  int *failed;  // there was no memory
} Recording;

// y [count, width] = the rows from `from` on, where rows before the first and behind the last are zeros.
static void cut(float *y, const float *x, int64_t from, int64_t count, int64_t n, int64_t width) {
  int64_t before = least(count, most(0, -from)), inside = most(0, least(count, n - from) - before);
  memset(y, 0, before * width * sizeof *y);
  memcpy(y + before * width, x + (from + before) * width, inside * width * sizeof *y);
  memset(y + (before + inside) * width, 0, (count - before - inside) * width * sizeof *y);
}

// Sets the rows [count, width] of x to zeros that are before the first of n rows or behind the last one.
static void clear_outside(float *x, int64_t from, int64_t count, int64_t n, int64_t width) {
  for (int64_t p = 0; p < count; p++)
    if (from + p < 0 || from + p >= n) memset(x + p * width, 0, width * sizeof *x);
}

static int64_t chunk_outputs(const Stage *s) { return CHUNK / s->stride; }

static void stage_turns(const void *what, int64_t first, int64_t end) {
  const Recording *job = what;
  const Stage *s = job->stage;
  int64_t outputs = (job->n + s->stride - 1) / s->stride, each = chunk_outputs(s), past = UNIT_TAPS - 1, c = s->channels;
  int64_t room = (each + 1) * s->stride + past;
  float *x = malloc(((room + TAPS) + 3 * room * c) * sizeof *x);
  if (!x) {
    *job->failed = 1;
    return;
  }
  float *active = x + room * c, *y = active + room * c, *samples = y + room * c;
  for (int64_t turn = first; turn < end; turn++) {
    int64_t begin = turn * each, count = least(each, outputs - begin);
    int64_t from = (begin - 1) * s->stride, inputs = (count + 1) * s->stride;
    if (job->samples) {
      cut(samples, job->samples, from - past - (TAPS - 1), inputs + past + TAPS - 1, job->n, 1);
      convolve(x, samples, job->first, 1, inputs + past, NULL);
      clear_outside(x, from - past, inputs + past, job->n, c);
    } else {
      cut(x, job->x, from - past, inputs + past, job->n, c);
    }
    elu(active, x, (inputs + past) * c);
    convolve(y, active, &s->wide, 1, inputs, NULL);
    elu(y, y, inputs * s->wide.out);
    convolve(active, y, &s->narrow, 1, inputs, NULL);
    add(active, x + past * c, inputs * c);
    elu(active, active, inputs * c);
    clear_outside(active, from, inputs, job->n, c);
    convolve(job->y + begin * s->down.out, active, &s->down, 1, count, NULL);
  }
  free(x);
}

// Returns vectors [*n, hidden], which the caller frees, and how many there are; NULL if there is no memory.
static float *convolved(const CodecEncoder *c, const float *samples, int64_t *n) {
  float *x = NULL;
  int failed = 0;
  for (int64_t i = 0; i < c->num_stages && !failed; i++) {
    const Stage *s = c->stages + i;
    int64_t outputs = (*n + s->stride - 1) / s->stride, chunks = (outputs + chunk_outputs(s) - 1) / chunk_outputs(s);
    float *y = malloc(outputs * s->down.out * sizeof *y);
    failed = !y;
    Recording job = {s, &c->first, i ? NULL : samples, x, y, *n, &failed};
    if (y && chunks >= SHARED) share(stage_turns, &job, chunks, 1, *n * s->channels * s->down.out);
    else if (y) stage_turns(&job, 0, chunks);
    free(x);
    x = y, *n = outputs;
  }
  int64_t past = UNIT_TAPS - 1, in = c->last.in;
  float *padded = failed ? NULL : malloc((*n + past) * in * sizeof *padded);
  float *y = failed ? NULL : malloc(*n * c->last.out * sizeof *y);
  if (padded && y) {
    cut(padded, x, -past, *n + past, *n, in);
    elu(padded, padded, (*n + past) * in);
    convolve(y, padded, &c->last, 1, *n, NULL);
  } else {
    free(y), y = NULL;
  }
  free(x), free(padded);
  return y;
}

// The transformer, which attends to the whole past

// Attention, as threads share it: a turn is a head. out [n, heads, d] from qkv [n, heads + 2 kv_heads, d], already rotated.
typedef struct {
  const CodecEncoder *encoder;
  float *out, *scores;  // [heads, n + LANES]
  const float *qkv;
  int64_t n;
} Attention;

static void attend_turns(const void *what, int64_t first, int64_t end) {
  const Attention *job = what;
  const CodecEncoder *c = job->encoder;
  int64_t d = c->head_dim, width = (c->heads + 2 * c->kv_heads) * d;
  for (int64_t h = first; h < end; h++) {
    const float *keys = job->qkv + (c->heads + h * c->kv_heads / c->heads) * d, *values = keys + c->kv_heads * d;
    float *scores = job->scores + h * (job->n + LANES);
    for (int64_t i = 0; i < job->n; i++)
      attend_row(job->out + (i * c->heads + h) * d, job->qkv + i * width + h * d, keys, values, width, i + 1, d, scores);
  }
}

// Passes x [n, hidden] through all layers, in place; `a` and `b` have room for any layer's output.
static void transform(const CodecEncoder *c, float *x, int64_t n, const float *cos, const float *sin, float *a, float *b,
                      float *scores) {
  int64_t h = c->last.out, d = c->head_dim, rotating = c->heads + c->kv_heads, width = (rotating + c->kv_heads) * d;
  Attention job = {c, a, scores, b, n};
  for (int64_t l = 0; l < c->num_layers; l++) {
    const EncoderLayer *layer = c->layers + l;
    for (int64_t p = 0; p < n; p++) centered(a + p * h, x + p * h, layer->norm, layer->norm_bias, h, c->eps);
    convolve(b, a, &layer->qkv, 1, n, NULL);
    for (int64_t p = 0; p < n; p++)
      for (int64_t head = 0; head < rotating; head++)
        rotated(b + p * width + head * d, cos + p * d, sin + p * d, d, scores);
    share(attend_turns, &job, c->heads, 1, n * n * c->heads * d);
    convolve(b, a, &layer->out, 1, n, NULL);
    add(x, b, n * h);
    for (int64_t p = 0; p < n; p++) centered(a + p * h, x + p * h, layer->mlp_norm, layer->mlp_norm_bias, h, c->eps);
    convolve(b, a, &layer->widen, 1, n, NULL);
    for (int64_t i = 0; i < n * layer->widen.out; i += LANES) store(b + i, gelu(load(b + i)));
    convolve(a, b, &layer->narrow, 1, n, NULL);
    add(x, a, n * h);
  }
}

// The quantizers

// Writes codes [frames, num_books], from number `first` on to before `end`, of the nearest entries, each of what the ones
// before left of x [frames, size], which changes.
static void quantize(const CodecEncoder *c, float *x, int64_t frames, int64_t first, int64_t end, float *scores,
                     int16_t *codes) {
  for (int64_t number = first; number < end; number++) {
    const Conv *book = c->books + number;
    convolve(scores, x, book, 1, frames, NULL);
    for (int64_t f = 0; f < frames; f++) {
      const float *score = scores + f * book->out;
      int64_t nearest = 0;
      for (int64_t i = 1; i < book->out; i++)
        if (score[i] > score[nearest]) nearest = i;
      codes[f * c->num_books + number] = (int16_t)nearest;
      const float *entry = (const float *)book->weight + nearest / PACKED * PACKED * book->used + nearest % PACKED;
      for (int64_t i = 0; i < book->used; i++) x[f * book->in + i] -= entry[i * PACKED];
    }
  }
}

// Entry

int encode_recording(const CodecEncoder *c, const float *samples, int64_t n, const float *cos, const float *sin,
                     int16_t *codes) {
  float *x = convolved(c, samples, &n);  // n: vectors from now on
  if (!x) return -1;
  int64_t h = c->last.out, frames = (n + 1) / 2, widest = most(c->downsample.in, h);
  for (int64_t l = 0; l < c->num_layers; l++)
    widest = most(widest, most(c->layers[l].qkv.out, c->layers[l].widen.out));
  widest = most(widest, most(c->heads * c->head_dim, c->books[0].out));
  int64_t size = (n + 4) * widest;
  float *a = malloc((2 * size + c->heads * (n + LANES) + c->head_dim) * sizeof *a);
  if (!a) {
    free(x);
    return -1;
  }
  float *b = a + size, *scores = b + size;
  transform(c, x, n, cos, sin, a, b, scores);
  // Two vectors make a frame, with the two before them. The first and the last one are repeated where there are none.
  for (int64_t p = -2; p < 2 * frames; p++) memcpy(a + (p + 2) * h, x + most(0, least(p, n - 1)) * h, h * sizeof *a);
  convolve(b, a, &c->downsample, 1, frames, NULL);
  convolve(a, b, &c->semantic, 1, frames, NULL);
  quantize(c, a, frames, 0, c->num_semantic, b + frames * h, codes);
  convolve(a, b, &c->acoustic, 1, frames, NULL);
  quantize(c, a, frames, c->num_semantic, c->num_books, b + frames * h, codes);
  free(a), free(x);
  return 0;
}
