// Code2Wav on the CPU, of any size: for small models calling an operation costs more than its work, and large ones gain from
// convolutions that keep sums in registers and weights in a cache.
//
// The arithmetic is that of `sonorant.engine.model.codec.code2wav` in float32. Activations are [positions, channels], so the
// channels of a position are adjacent. A stream's past stays in its slot of the caller's state: the last inputs of each
// convolution, keys and values. A position's result does not depend on its chunk or on other streams. Channels are
// multiples of LANES: `sonorant.engine.cpu.codec_weights` fills groups up with channels that are always zero, which
// convolutions of floats do not read. Python's lock is not held during calls.

#include "convolutions.h"

#define TAPS 7           // of the depthwise convolutions, and of the last one, which has one output channel
#define CHUNK_FRAMES 4   // frames that the waveform's layers process at a time, so that activations stay in a cache

// Activations

// Returns sin(x)^2, which repeats after pi.
INLINE Floats sine_squared(Floats x) {
  Floats n = fused(x, all(0.318309886f), all(12582912.0f));  // rounded to a whole number
  n -= 12582912.0f;
  x = fused(n, all(-3.140625f), x);
  x = fused(n, all(-9.67502593994140625e-4f), x);
  x = fused(n, all(-1.509957990978376432e-7f), x);
  Floats s = x * x;
  Floats y = fused(all(-2.3889859e-8f), s, all(2.7525562e-6f));
  y = fused(y, s, all(-1.9840874e-4f));
  y = fused(y, s, all(8.3333310e-3f));
  y = fused(y, s, all(-1.6666667e-1f));
  y = fused(y * s, x, x);
  return y * y;
}

INLINE void snaked(float *y, const float *x, const Snake *snake, int64_t n, int64_t channels) {
  for (int64_t p = 0; p < n * channels; p += channels)
    for (int64_t i = 0; i < channels; i += LANES) {
      Floats at = load(x + p + i);
      store(y + p + i, fused(sine_squared(at * load(snake->frequency + i)), load(snake->magnitude + i), at));
    }
}

// Convolutions

// An activation, as threads share it: a turn is a position.
typedef struct {
  float *y;
  const float *x;
  const Snake *snake;
  int64_t channels;
} Activation;

static void snake_turns(const void *what, int64_t first, int64_t end) {
  const Activation *job = what;
  int64_t at = first * job->channels;
  snaked(job->y + at, job->x + at, job->snake, end - first, job->channels);
}

// y [kept + n, channels] = the tail, then x, activated if `snake`. The last `kept` positions become the new tail.
INLINE void extend(float *y, const float *x, const Snake *snake, float *tail, int64_t kept, int64_t n,
                   int64_t channels) {
  memcpy(y, tail, kept * channels * sizeof *y);
  float *new = y + kept * channels;
  Activation job = {new, x, snake, channels};
  if (snake) share(snake_turns, &job, n, 4, n * channels * 16);
  else memcpy(new, x, n * channels * sizeof *y);
  memcpy(tail, y + n * channels, kept * channels * sizeof *y);
}

// Computes one convolution of x [rows, n, in], with its activation before it; `room` is for the extended input.
static void convolved(float *y, const float *x, const Conv *c, const Snake *snake, const State *state,
                      const int64_t *slots, int64_t rows, int64_t n, float *room) {
  int64_t kept = (c->taps - 1) * c->dilation;
  for (int64_t r = 0; r < rows; r++) {
    float *tail = state->tails + slots[r] * state->tail_size + c->tail;
    extend(room + r * (kept + n) * c->in, x + r * n * c->in, snake, tail, kept, n, c->in);
  }
  convolve(y, room, c, rows, n, state->rounding);
}

// The transformer over the frames

// Rotates in place, for an absolute position.
INLINE void rotate(float *x, const float *periods, int64_t position, int64_t n) {
  for (int64_t i = 0; i < n / 2; i++) {
    float angle = (float)position / periods[i], c = cosf(angle), s = sinf(angle), a = x[i], b = x[n / 2 + i];
    x[i] = a * c - b * s;
    x[n / 2 + i] = b * c + a * s;
  }
}

// Attention of one row: out [n, heads, d] from qkv [n, heads + 2 kv_heads, d], already rotated. Also moves the window
// of kept keys and values on.
static void attend_window(const Codec *c, float *out, const float *qkv, float *kept_keys, float *kept_values,
                          int64_t num_before, int64_t n, float *room) {
  int64_t d = c->head_dim, kept = c->window - 1, width = (c->heads + 2 * c->kv_heads) * d;
  float *keys = room, *values = keys + (kept + n) * d, *scores = values + (kept + n) * d;
  for (int64_t kv = 0; kv < c->kv_heads; kv++) {
    float *old_keys = kept_keys + kv * kept * d, *old_values = kept_values + kv * kept * d;
    memcpy(keys, old_keys, kept * d * sizeof *keys);
    memcpy(values, old_values, kept * d * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
      memcpy(keys + (kept + i) * d, qkv + i * width + (c->heads + kv) * d, d * sizeof *keys);
      memcpy(values + (kept + i) * d, qkv + i * width + (c->heads + c->kv_heads + kv) * d, d * sizeof *values);
    }
    for (int64_t i = 0; i < n; i++) {
      int64_t from = most(i, kept - num_before), count = kept + i + 1 - from;
      for (int64_t h = kv * c->heads / c->kv_heads; h < (kv + 1) * c->heads / c->kv_heads; h++)
        attend_row(out + (i * c->heads + h) * d, qkv + i * width + h * d, keys + from * d, values + from * d, d, count, d,
                   scores);
    }
    memcpy(old_keys, keys + n * d, kept * d * sizeof *keys);
    memcpy(old_values, values + n * d, kept * d * sizeof *values);
  }
}

// Runs all layers on x [rows, n, hidden] in place; `a` and `b` have room for any layer's output.
static void transform(const Codec *c, float *x, const State *state, const int64_t *slots, int64_t rows, int64_t n,
                      float *a, float *b) {
  int64_t hidden = c->input.out, all = rows * n, d = c->head_dim, rotated = c->heads + c->kv_heads;
  int64_t width = (rotated + c->kv_heads) * d, kept = c->kv_heads * (c->window - 1) * d;
  for (int64_t l = 0; l < c->num_layers; l++) {
    const Layer *layer = c->layers + l;
    int64_t m = layer->down.in;
    for (int64_t p = 0; p < all; p++) normed(a + p * hidden, x + p * hidden, layer->input_norm, hidden, c->eps);
    convolve(b, a, &layer->qkv, 1, all, state->rounding);
    for (int64_t r = 0; r < rows; r++) {
      int64_t before = state->num_frames[slots[r]];
      float *own = b + r * n * width;
      for (int64_t i = 0; i < n; i++)
        for (int64_t h = 0; h < rotated; h++) rotate(own + i * width + h * d, c->periods, before + i, d);
      float *keys = state->keys + slots[r] * state->kept_size + l * kept;
      float *values = state->values + slots[r] * state->kept_size + l * kept;
      attend_window(c, a + r * n * c->heads * d, own, keys, values, before, n, b + all * width);
    }
    convolve(b, a, &layer->out, 1, all, state->rounding);
    add(x, b, all * hidden);
    for (int64_t p = 0; p < all; p++) normed(a + p * hidden, x + p * hidden, layer->mlp_norm, hidden, c->eps);
    convolve(b, a, &layer->gate_up, 1, all, state->rounding);
    for (int64_t p = 0; p < all; p++) {
      gated(b + p * 2 * m, b + p * 2 * m + m, m);
      memcpy(a + p * m, b + p * 2 * m, m * sizeof *a);
    }
    convolve(b, a, &layer->down, 1, all, state->rounding);
    add(x, b, all * hidden);
  }
}

// From frames to the latent rate

// y = x + mlp(norm(depthwise(x))), x [rows, n, channels] in place
static void mix(const Latent *c, float *x, const State *state, const int64_t *slots, int64_t rows, int64_t n, float *a,
                float *b) {
  int64_t ch = c->channels, kept = TAPS - 1;
  for (int64_t r = 0; r < rows; r++) {
    float *own = x + r * n * ch, *out = a + r * n * ch;
    extend(b, own, NULL, state->tails + slots[r] * state->tail_size + c->tail, kept, n, ch);
    for (int64_t p = 0; p < n; p++) {
      Floats sum = {0}, squares = {0};
      for (int64_t i = 0; i < ch; i += LANES) {
        Floats y = load(c->depthwise_bias + i);
        for (int64_t tap = 0; tap < TAPS; tap++)
          y = fused(load(b + (p + tap) * ch + i), load(c->depthwise + tap * ch + i), y);
        store(out + p * ch + i, y);
        sum += y;
      }
      float mean = total(sum) / c->normed;
      for (int64_t i = 0; i < ch; i += LANES) {
        Floats off = load(out + p * ch + i) - mean;
        squares += off * off;
      }
      float square = total(squares) - (ch - c->normed) * mean * mean;  // those that fill up are no part of it
      float scale = 1.0f / sqrtf(square / c->normed + 1e-6f);
      for (int64_t i = 0; i < ch; i += LANES) {
        Floats y = (load(out + p * ch + i) - mean) * scale;
        store(out + p * ch + i, y * load(c->norm + i) + load(c->norm_bias + i));
      }
    }
  }
  convolve(b, a, &c->widen, 1, rows * n, state->rounding);
  for (int64_t i = 0; i < rows * n * c->widen.out; i += LANES) store(b + i, gelu(load(b + i)));
  convolve(a, b, &c->narrow, 1, rows * n, state->rounding);
  add(x, a, rows * n * ch);
}

// What nobody hears: each layer makes only what the state of later layers needs

// Keeps the last `wanted` positions of each row of x [rows, n, width]. Returns how many there are now.
static int64_t keep_last(float *x, int64_t rows, int64_t n, int64_t wanted, int64_t width) {
  if (n <= wanted) return n;
  for (int64_t r = 0; r < rows; r++)
    memmove(x + r * wanted * width, x + (r * n + n - wanted) * width, wanted * width * sizeof *x);
  return wanted;
}

static int64_t reach_of(const Conv *c) { return (c->taps - 1) * c->dilation; }

static int64_t reach_of_units(const Block *block) {
  int64_t reach = 0;
  for (int u = 0; u < RESIDUAL_UNITS; u++) reach += reach_of(&block->units[u].wide);
  return reach;
}

// Returns of how many of the last positions before block number `first` its state and that of what follows is made.
static int64_t needed_by(const Codec *c, int64_t first) {
  int64_t n = TAPS - 1;
  for (int64_t i = c->num_blocks - 1; i >= first; i--) {
    const Block *block = c->blocks + i;
    n = (n + reach_of_units(block) + block->rate - 1) / block->rate + reach_of(&block->up);
  }
  return n;
}

// Returns the same of frames behind the transformer.
static int64_t needed_frames(const Codec *c) {
  int64_t n = needed_by(c, 0) + reach_of(&c->first);
  for (int64_t i = c->num_latents - 1; i >= 0; i--)
    n = (n + TAPS - 1 + c->latents[i].ratio - 1) / c->latents[i].ratio;
  return n;
}

// The waveform

// Makes samples from x [n, channels] of one row. x is followed by three more buffers; each of the four has `size`
// floats. `samples` is NULL if nobody hears them; then all that the call has is in x.
static void sound(const Codec *c, float *x, const State *state, int64_t slot, int64_t n, float *samples, int64_t size) {
  float *y = x + size, *room = y + size;
  for (int64_t i = 0; i < c->num_blocks; i++) {
    const Block *block = c->blocks + i;
    if (!samples) n = keep_last(x, 1, n, needed_by(c, i), block->up.in);
    convolved(y, x, &block->up, &block->before, state, &slot, 1, n, room);
    n *= block->rate;
    float *swapped = x;
    x = y, y = swapped;
    if (!samples) n = keep_last(x, 1, n, needed_by(c, i + 1) + reach_of_units(block), block->units[0].wide.in);
    for (int u = 0; u < RESIDUAL_UNITS; u++) {
      const Unit *unit = block->units + u;
      convolved(y, x, &unit->wide, &unit->before, state, &slot, 1, n, room);
      convolved(room + size, y, &unit->narrow, &unit->between, state, &slot, 1, n, room);
      add(x, room + size, n * unit->narrow.out);
    }
  }
  int64_t ch = c->blocks[c->num_blocks - 1].units[0].narrow.out;
  extend(room, x, &c->before_last, state->tails + slot * state->tail_size + c->last_tail, TAPS - 1, n, ch);
  if (!samples) return;
  for (int64_t p = 0; p < n; p++) {
    float sum = dot(room + p * ch, c->last, TAPS * ch) + c->last_bias;
    samples[p] = sum < -1.0f ? -1.0f : sum > 1.0f ? 1.0f : sum;
  }
}

// Adds a row of the table to `sum` [dim].
INLINE void add_code(float *sum, const Codec *c, int64_t row, int64_t dim) {
  if (!c->table_scales) {
    add(sum, (const float *)c->table + row * dim, dim);
    return;
  }
  const int16_t *whole = (const int16_t *)c->table + row * dim;
  for (int64_t i = 0; i < dim; i++) sum[i] += whole[i] * c->table_scales[row];
}

// Entries

int convolve_positions(float *y, const float *x, const Conv *c, int64_t n) {
  int64_t positions = n + reach_of(c);
  float *room = malloc(positions * (c->in + 1) * sizeof *room);
  if (!room) return -1;
  convolve(y, x, c, 1, n, room);
  free(room);
  return 0;
}

int decode_frames(const Codec *c, const State *of_slots, const int64_t *slots, const int64_t *codes, int64_t rows,
                  int64_t frames, float *samples) {
  for (int64_t i = 0; i < rows * frames * c->books; i++)
    if (codes[i] < 0 || codes[i] >= c->codebook_size) return -2;
  int64_t dim = c->pre.in, latent = c->output.out, rate = 1, widest = most(c->pre.out, c->input.out);
  for (int64_t l = 0; l < c->num_layers; l++)
    widest = most(widest, most(c->layers[l].qkv.out, most(c->layers[l].gate_up.out, c->layers[l].down.in)));
  for (int64_t i = 0; i < c->num_latents; i++) rate *= c->latents[i].ratio;
  widest = most(widest, rate * most(dim, most(c->first.in, c->first.out)));
  for (int64_t i = 0; i < c->num_latents; i++) widest = most(widest, rate * c->latents[i].widen.out);
  int64_t seen = c->window + frames + LANES;
  int64_t spare = (rows * TAPS + 2 * seen) * most(widest / rate, c->head_dim) + seen;
  int64_t size = rows * frames * widest + spare;  // floats in a buffer
  int64_t largest = 0;                            // floats that a layer of the waveform needs for a chunk
  for (int64_t i = 0, n = most(CHUNK_FRAMES * rate, needed_by(c, 0)); i < c->num_blocks; i++) {
    const Block *block = c->blocks + i;
    largest = most(largest, (n + 1) * block->up.in);
    n *= block->rate;
    for (int u = 0; u < RESIDUAL_UNITS; u++) {
      const Conv *wide = &block->units[u].wide;
      largest = most(largest, (n + (TAPS - 1) * wide->dilation) * wide->in);
    }
  }
  float *x = malloc((3 * size + 4 * largest + most(size, largest)) * sizeof *x);
  if (!x) return -1;
  float *a = x + size, *b = a + size, *chunk = b + size;
  State with_room = *of_slots, *state = &with_room;
  state->rounding = chunk + 4 * largest;

  for (int64_t f = 0; f < rows * frames; f++) {
    memset(a + f * dim, 0, dim * sizeof *a);
    for (int64_t book = 0; book < c->books; book++)
      add_code(a + f * dim + (book ? dim / 2 : 0), c, book * c->codebook_size + codes[f * c->books + book], dim / 2);
  }
  convolved(b, a, &c->pre, NULL, state, slots, rows, frames, x);
  convolve(x, b, &c->input, 1, rows * frames, state->rounding);
  transform(c, x, state, slots, rows, frames, a, b);
  for (int64_t p = 0, h = c->input.out; p < rows * frames; p++) normed(a + p * h, x + p * h, c->norm, h, c->eps);
  int64_t n = samples ? frames : keep_last(a, rows, frames, needed_frames(c), c->input.out);
  convolve(x, a, &c->output, 1, rows * n, state->rounding);
  for (int64_t i = 0; i < c->num_latents; i++) {
    convolve(a, x, &c->latents[i].up, 1, rows * n, state->rounding);
    n *= c->latents[i].ratio;
    memcpy(x, a, rows * n * latent * sizeof *x);
    mix(c->latents + i, x, state, slots, rows, n, a, b);
  }
  convolved(a, x, &c->first, NULL, state, slots, rows, n, b);

  int64_t channels = c->first.out, wanted = samples ? n : least(n, needed_by(c, 0));
  int64_t at_once = samples ? CHUNK_FRAMES * rate : wanted;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t p = n - wanted; p < n; p += at_once) {
      int64_t count = least(n - p, at_once);
      memcpy(chunk, a + (r * n + p) * channels, count * channels * sizeof *chunk);
      float *heard = samples ? samples + (r * frames * rate + p) * (c->frame_samples / rate) : NULL;
      sound(c, chunk, state, slots[r], count, heard, largest);
    }
  for (int64_t r = 0; r < rows; r++) state->num_frames[slots[r]] += frames;
  free(x);
  return 0;
}
