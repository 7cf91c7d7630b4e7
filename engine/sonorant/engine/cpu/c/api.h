// What Python calls, and the structures that it passes: `sonorant.engine.cpu.library` reads this file, too, so it has
// declarations and numbers only. Memory of all addresses belongs to Python.

#ifndef SONORANT_API_H
#define SONORANT_API_H

#include <stdint.h>

#define RESIDUAL_UNITS 3

typedef struct {
  int64_t in, out, taps, dilation;
  int64_t used;         // inputs before those that only fill up
  int64_t tail;         // offset of its last inputs, [(taps - 1) * dilation, in], in a slot's tails
  const void *weight;   // [out / PACKED, taps, used, PACKED], or whole: [out / PACKED, taps, in / 2, PACKED, 2]
  const float *scales;  // [out] of whole weights; NULL for floats
  const float *bias;    // [out]
} Conv;

// codec.c

typedef struct {
  const float *frequency, *magnitude;  // [channels]
} Snake;

typedef struct {
  Snake before;
  Conv wide;
  Snake between;
  Conv narrow;
} Unit;

// `up` makes several positions of one; its outputs are those of all these positions, side by side.
typedef struct {
  int64_t rate;
  Snake before;
  Conv up;
  Unit units[RESIDUAL_UNITS];
} Block;

typedef struct {
  int64_t ratio, channels, normed, tail;  // normed: the channels without those that are always zero
  Conv up;
  const float *depthwise, *depthwise_bias;  // [TAPS, channels], [channels]
  const float *norm, *norm_bias;
  Conv widen, narrow;
} Latent;

typedef struct {
  const float *input_norm, *mlp_norm;
  Conv qkv, out, gate_up, down;
} Layer;

typedef struct {
  int64_t books, codebook_size, frame_samples;
  const void *table;          // [books * codes, half of pre's inputs]: floats, or whole
  const float *table_scales;  // [books * codes] of whole ones; NULL for floats
  Conv pre, input;            // half of pre's inputs are of the first book, half are the sum of the others
  int64_t num_layers, heads, kv_heads, head_dim, window;
  double eps;
  const float *periods;  // [head_dim / 2]: theta^(2i / head_dim)
  const Layer *layers;
  const float *norm;
  Conv output;
  int64_t num_latents;
  const Latent *latents;
  Conv first;
  int64_t num_blocks;
  const Block *blocks;
  Snake before_last;
  const float *last;  // [TAPS, channels]
  float last_bias;
  int64_t last_tail;
} Codec;

// By slot; keys and values [layers, kv_heads, window - 1, head_dim], the oldest first.
typedef struct {
  int64_t *num_frames;
  float *tails, *keys, *values;
  int64_t tail_size, kept_size;
  float *rounding;  // room for the rounded inputs of a convolution: decode_frames has it
} State;

// Computes one convolution, y [n, out] of x [past inputs + n, in], for measurements and tests. Returns -1 if there is no
// memory.
int convolve_positions(float *y, const float *x, const Conv *c, int64_t n);

// Decodes the next frames of some slots: codes [rows, frames, books] to samples [rows, frames * frame_samples] in +-1.
// If `samples` is NULL, only the state moves on. Returns -1 if there is no memory, -2 if a code is in no codebook; then
// nothing has changed.
int decode_frames(const Codec *c, const State *of_slots, const int64_t *slots, const int64_t *codes, int64_t rows,
                  int64_t frames, float *samples);

// encoder.c

// A residual unit, then a convolution with a stride: of `stride` positions side by side, and of as many before them.
typedef struct {
  int64_t stride, channels;
  Conv wide, narrow, down;
} Stage;

typedef struct {
  const float *norm, *norm_bias, *mlp_norm, *mlp_norm_bias;
  Conv qkv, out, widen, narrow;
} EncoderLayer;

typedef struct {
  Conv first;
  int64_t num_stages;
  const Stage *stages;
  Conv last;
  int64_t num_layers, heads, kv_heads, head_dim;
  double eps;
  const EncoderLayer *layers;
  Conv downsample;  // of two vectors side by side
  int64_t num_semantic, num_books;
  Conv semantic, acoustic;  // from a frame's vector to what the codebooks of each kind share
  const Conv *books;        // products with all entries; the bias is minus half of an entry's squares
} CodecEncoder;

// Encodes samples [n] to codes [ceil(n / samples of a frame), num_books]. cos and sin are [vectors, head_dim], with the first
// half of sin negated. Returns -1 if there is no memory.
int encode_recording(const CodecEncoder *c, const float *samples, int64_t n, const float *cos, const float *sin,
                     int16_t *codes);

// speaker.c

// A block splits its channels into parts of the same size: the first one passes, each later one is convolved, from the third
// on after adding what the one before gave.
typedef struct {
  int64_t num_parts;
  Conv in;
  const Conv *parts;  // all but the first
  Conv out, squeeze, excite;
} SpeakerBlock;

typedef struct {
  Conv first;
  int64_t num_blocks;
  const SpeakerBlock *blocks;
  Conv joined;                   // of what all blocks gave, side by side
  Conv attended, whole, scored;  // attended: to a frame; whole: to mean and deviation of all frames
  Conv last;
} SpeakerEncoder;

// Encodes mel [n, mels] to x_vector [outputs of the last layer]. n is more than what a convolution reaches beyond an end.
// Returns -1 if there is no memory.
int encode_speaker(const SpeakerEncoder *s, const float *mel, int64_t n, float *x_vector);

// frame.c

typedef struct {
  int64_t hidden, intermediate, heads, kv_heads, head_dim, layers;
  int64_t format;   // of matrices; of rounded ones, inputs are multiples of GROUP
  double eps;
  const void *const *qkv, *const *out, *const *gate, *const *up, *const *down;  // of each layer: [outputs, inputs]
  const float *const *input_norm, *const *qk_norm, *const *mlp_norm;   // qk_norm: [heads + kv_heads, head_dim]
  const float *norm;
  const float *cos, *sin;  // [positions, head_dim]; the first half of sin is negated
} Stack;

// Keys and values, [layers, 2, positions of the pool, kv_heads, head_dim]; `table` has the pages of each slot.
typedef struct {
  float *storage;
  int64_t num_positions;
  const int64_t *table;
  int64_t table_width, page_size;
} Pool;

// Records the attention logits of one head: row i's logits for `count` positions from first[i] on. A row with
// first[i] < 0 is not recorded.
typedef struct {
  int64_t layer, head, count;
  const int64_t *first;
  float *logits;  // [rows, count]
} Watch;

typedef struct {
  const uint8_t *do_sample;
  const float *temperature;
  const int64_t *top_k;
  const float *top_p;
} Sampling;  // by slot

typedef struct {
  const Stack *predictor;
  int64_t hidden, num_codebooks, vocab, predictor_vocab, eos;  // the predictor's hidden size may be smaller
  int64_t tables_format;               // BFLOAT16 or FLOAT32; INT8: a row's numbers, then its scale, a float
  const void *head;                    // [vocab, hidden]
  const void *const *predictor_heads;  // for each codebook from the second on: [predictor_vocab, predictor's hidden]
  const void *shrink;                  // [predictor's hidden, hidden]; NULL if they are the same
  const float *shrink_bias;
  const char *const *tables;           // for each codebook: [ids, hidden]
  const uint8_t *banned;               // [vocab]
  // by slot:
  uint8_t *seen;      // [slots, vocab]
  float *last_frame;  // [slots, hidden]
  const int64_t *seed;
  const float *penalty;
  Sampling first, later;
} Frames;

// Computes one product, y [rows, n_out] = x [rows, n_in] w^T, for measurements and tests. Returns -1 if there is no memory.
int multiply_rows(float *y, const float *x, const void *w, int64_t rows, int64_t n_in, int64_t n_out, int64_t format);

// Replaces x [rows, hidden] at `positions` of `slots` by its hidden states, and writes keys and values. Returns -1 if
// there is no memory.
int stack_forward(const Stack *stack, float *x, int64_t rows, const int64_t *slots, const int64_t *positions,
                  const Pool *pool, const Watch *watch);

// Samples codes [rows, codebooks], a frame for each row, from hidden states [rows, hidden], and updates what is kept by
// slot. If the scores are not finite, a row's first code is -1 and its other codes mean nothing. Returns -1 if there is
// no memory.
int draw_frames(const Frames *f, const float *hidden, int64_t rows, const int64_t *slots, const int64_t *frames,
                const int64_t *may_end, int16_t *codes);

// threads.c

// The files that this was compiled from, as sources.py counts them.
const char *sources_version(void);

// Starts threads, so that so many share each loop, this one included. Only the first call has an effect. They end with
// the process. Returns how many there are.
int64_t use_threads(int64_t wanted);

#endif
