// Computes a frame of the talker on the CPU: for models so small that calling an operation costs more than its work, and
// for large ones with rounded weights.
//
// `stack_forward` passes rows through a decoder stack over paged keys and values; `draw_frames` samples the codes of a
// frame from hidden states: first codebook, code predictor, sampling. The arithmetic is that of `sonorant.engine.model`
// in float32, with matrices in the checkpoint's precision. A row's result does not depend on the other rows: every sum
// has one order, written out below. So a stream's codes depend neither on its batch nor on how its prompt was cut.
//
// Sizes must be multiples of LANES, and the outputs of products multiples of WIDTH; `sonorant.engine.cpu.model` checks
// it. Nothing here keeps state or locks, but products share the threads of threads.c. Memory belongs to the caller,
// except for what a call allocates and frees itself. Python's lock is not held during calls.

#include "products.h"

// Layers

INLINE int64_t place_of(const Pool *pool, int64_t slot, int64_t position) {
  return pool->table[slot * pool->table_width + position / pool->page_size] * pool->page_size +
         position % pool->page_size;
}

// out = the sum of values, each times its score, times `share`: `vectors`, a constant, vectors of a head.
INLINE void mix_values(float *out, const float *values, const float *scores, const int64_t *pages, const Pool *pool,
                       int64_t count, int64_t stride, float share, int vectors) {
  Floats sums[4];
  for (int v = 0; v < vectors; v++) sums[v] = (Floats){0};
  for (int64_t page = 0, t = 0; t < count; page++) {
    const float *value = values + pages[page] * pool->page_size * stride;
    for (int64_t end = least(count, t + pool->page_size); t < end; t++, value += stride)
      for (int v = 0; v < vectors; v++) sums[v] = fused(all(scores[t]), load(value + v * LANES), sums[v]);
  }
  for (int v = 0; v < vectors; v++) store(out + v * LANES, sums[v] * share);
}

// Attention of one query head of one row to all positions up to its own; `scores` has room for these.
static void attend(float *out, const float *q, const float *keys, const float *values, const Pool *pool, int64_t slot,
                   int64_t position, int64_t stride, int64_t n, float *scores) {
  int64_t count = position + 1, padded = (count + LANES - 1) / LANES * LANES;
  float scale = 1.0f / sqrtf((float)n), highest = -INFINITY;
  const int64_t *pages = pool->table + slot * pool->table_width;
  for (int64_t page = 0, t = 0; t < count; page++) {
    const float *key = keys + pages[page] * pool->page_size * stride;
    for (int64_t end = least(count, t + pool->page_size); t < end; t++, key += stride) {
      scores[t] = dot(q, key, n) * scale;
      highest = scores[t] > highest ? scores[t] : highest;
    }
  }
  for (int64_t t = count; t < padded; t++) scores[t] = -INFINITY;
  Floats sum = {0};
  for (int64_t t = 0; t < padded; t += LANES) {
    Floats e = exponential(load(scores + t) - highest);
    store(scores + t, e);
    sum += e;
  }
  float share = 1.0f / total(sum);
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) mix_values(out + i, values + i, scores, pages, pool, count, stride, share, 4);
  for (; i < n; i += LANES) mix_values(out + i, values + i, scores, pages, pool, count, stride, share, 1);
}

static void attention(const Stack *s, int64_t layer, float *out, float *qkv, const Pool *pool, int64_t rows,
                      const int64_t *slots, const int64_t *positions, const Watch *watch, float *scores) {
  int64_t d = s->head_dim, rotating = s->heads + s->kv_heads, width = (rotating + s->kv_heads) * d;
  int64_t stride = s->kv_heads * d;
  float *keys = pool->storage + layer * 2 * pool->num_positions * stride;
  float *values = keys + pool->num_positions * stride;
  for (int64_t r = 0; r < rows; r++) {  // write all rows before any is read: rows of one stream see each other
    float *row = qkv + r * width;
    for (int64_t h = 0; h < rotating; h++) {
      normed(row + h * d, row + h * d, s->qk_norm[layer] + h * d, d, s->eps);
      rotated(row + h * d, s->cos + positions[r] * d, s->sin + positions[r] * d, d, scores);
    }
    int64_t at = place_of(pool, slots[r], positions[r]) * stride;
    memcpy(keys + at, row + s->heads * d, stride * sizeof *keys);
    memcpy(values + at, row + rotating * d, stride * sizeof *values);
  }
  for (int64_t r = 0; r < rows; r++)
    for (int64_t h = 0; h < s->heads; h++) {
      int64_t kv = h * s->kv_heads / s->heads * d;
      const float *q = qkv + r * width + h * d;
      attend(out + (r * s->heads + h) * d, q, keys + kv, values + kv, pool, slots[r], positions[r], stride, d, scores);
      if (watch && watch->layer == layer && watch->head == h && watch->first[r] >= 0)
        for (int64_t i = 0; i < watch->count; i++) {
          int64_t last = pool->table_width * pool->page_size - 1;
          int64_t place = place_of(pool, slots[r], least(watch->first[r] + i, last));
          watch->logits[r * watch->count + i] = dot(q, keys + kv + place * stride, d) / sqrtf((float)d);
        }
    }
}

static int forward(const Stack *s, float *x, int64_t rows, const int64_t *slots, const int64_t *positions,
                   const Pool *pool, const Watch *watch) {
  int64_t h = s->hidden, attended = s->heads * s->head_dim, m = s->intermediate, format = s->format;
  int64_t qkv = (s->heads + 2 * s->kv_heads) * s->head_dim, inputs = most(m, most(h, attended)), longest = s->head_dim;
  for (int64_t r = 0; r < rows; r++) longest = most(longest, positions[r] + LANES);
  float *spare = malloc((rows * (h + attended + most(qkv, 2 * m) + inputs) + longest + LANES) * sizeof *spare);
  if (!spare) return -1;
  float *a = spare, *b = a + rows * h, *c = b + rows * attended, *room = c + rows * most(qkv, 2 * m);
  for (int64_t layer = 0; layer < s->layers; layer++) {
    for (int64_t r = 0; r < rows; r++) normed(a + r * h, x + r * h, s->input_norm[layer], h, s->eps);
    product(c, a, s->qkv[layer], rows, h, qkv, format, 0, room);
    attention(s, layer, b, c, pool, rows, slots, positions, watch, room + rows * inputs);
    product(x, b, s->out[layer], rows, attended, h, format, 1, room);
    for (int64_t r = 0; r < rows; r++) normed(a + r * h, x + r * h, s->mlp_norm[layer], h, s->eps);
    product(c, a, s->gate[layer], rows, h, m, format, 0, room);
    product(c + rows * m, a, s->up[layer], rows, h, m, format, 0, room);
    gated(c, c + rows * m, rows * m);
    product(x, c, s->down[layer], rows, m, h, format, 1, room);
  }
  for (int64_t r = 0; r < rows; r++) normed(x + r * h, x + r * h, s->norm, h, s->eps);
  free(spare);
  return 0;
}

// Sampling, with the same steps in the same order as `sonorant.engine.model.sampling`

static float kth_largest(float *x, int64_t n, int64_t k) {  // reorders x; none is NaN
  int64_t low = 0, high = n - 1, wanted = n - k;
  while (low < high) {
    float pivot = x[(low + high) / 2];
    int64_t i = low, j = high;
    while (i <= j) {
      while (x[i] < pivot) i++;
      while (x[j] > pivot) j--;
      if (i <= j) {
        float swapped = x[i];
        x[i++] = x[j];
        x[j--] = swapped;
      }
    }
    if (wanted <= j) high = j;
    else if (wanted >= i) low = i;
    else break;
  }
  return x[wanted];
}

typedef struct {
  float score;
  int64_t id;
} Candidate;

static int by_score(const void *a, const void *b) {
  const Candidate *x = a, *y = b;
  if (x->score != y->score) return x->score < y->score ? -1 : 1;
  return x->id < y->id ? -1 : 1;
}

// Removes the least likely ids, whose probabilities sum to at most 1 - top_p: their scores become -infinity.
static void keep_top_p(float *scores, int64_t n, float top_p, float highest, Candidate *room) {
  int64_t count = 0;
  double sum = 0, below = 0;
  for (int64_t i = 0; i < n; i++)
    if (scores[i] > -INFINITY) {
      room[count++] = (Candidate){scores[i], i};
      sum += expf(scores[i] - highest);
    }
  qsort(room, count, sizeof *room, by_score);
  for (int64_t i = 0; i + 1 < count; i++) {
    below += expf(room[i].score - highest) / sum;
    if (below > 1 - (double)top_p) break;
    scores[room[i].id] = -INFINITY;
  }
}

// Samples an id from scores [n], which it changes. `room` is for n candidates and n floats. Returns -1 if a score is
// NaN or +infinity, or if all are -infinity.
static int64_t drawn(float *scores, int64_t n, const Sampling *how, int64_t slot, float uniform, char *room) {
  int64_t best = 0;
  float highest = -INFINITY;
  int is_sound = 1;
  for (int64_t i = 0; i < n; i++) {
    if (scores[i] > highest) {
      highest = scores[i];
      best = i;
    }
    is_sound &= scores[i] == scores[i];
  }
  if (!is_sound || highest == INFINITY || highest == -INFINITY) return -1;
  if (!how->do_sample[slot]) return best;
  float temperature = how->temperature[slot];
  float *copy = (float *)(room + n * sizeof(Candidate));
  for (int64_t i = 0; i < n; i++) copy[i] = scores[i] = scores[i] / temperature;
  highest = scores[best];
  if (!(highest < INFINITY && highest > -INFINITY)) return best;
  int64_t k = how->top_k[slot];
  if (k > 0 && k < n) {
    float least = kth_largest(copy, n, k);
    for (int64_t i = 0; i < n; i++)
      if (scores[i] < least) scores[i] = -INFINITY;
  }
  if (how->top_p[slot] < 1) keep_top_p(scores, n, how->top_p[slot], highest, (Candidate *)room);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) copy[i] = (float)(sum += scores[i] > -INFINITY ? expf(scores[i] - highest) : 0);
  float end = copy[n - 1], target = uniform * end, last = nextafterf(end, 0);
  target = target < last ? target : last;
  for (int64_t i = 0; i < n; i++)
    if (copy[i] > target) return i;
  return best;
}

// Returns a number in [0, 1) made from seed (32 bits), frame (24 bits) and codebook, by the finalizer of splitmix64.
INLINE float uniform_of(int64_t seed, int64_t frame, int64_t book) {
  uint64_t x = (uint64_t)seed << 32 | (uint64_t)frame << 8 | (uint64_t)book;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return (float)((x ^ x >> 31) >> 40) * 0x1p-24f;
}

static int64_t first_code(const Frames *f, float *scores, int64_t slot, int64_t frame, int may_end, char *room) {
  const uint8_t *seen = f->seen + slot * f->vocab;
  float penalty = f->penalty[slot];
  for (int64_t i = 0; i < f->vocab; i++) {
    if (seen[i]) scores[i] = scores[i] < 0 ? scores[i] * penalty : scores[i] / penalty;
    if (f->banned[i] || (i == f->eos && !may_end)) scores[i] = -INFINITY;
  }
  return drawn(scores, f->vocab, &f->first, slot, uniform_of(f->seed[slot], frame, 0), room);
}

// Makes the predictor's rows x of rows in the talker's size.
static void shrink(const Frames *f, float *x, const float *wide, int64_t rows, float *room) {
  int64_t inner = f->predictor->hidden;
  if (!f->shrink) {
    memcpy(x, wide, rows * inner * sizeof *x);
    return;
  }
  for (int64_t r = 0; r < rows; r++) memcpy(x + r * inner, f->shrink_bias, inner * sizeof *x);
  product(x, wide, f->shrink, rows, f->hidden, inner, f->predictor->format, 1, room);
}

// Entries

int multiply_rows(float *y, const float *x, const void *w, int64_t rows, int64_t n_in, int64_t n_out, int64_t format) {
  float *room = malloc(rows * (n_in + 1) * sizeof *room);
  if (!room) return -1;
  product(y, x, w, rows, n_in, n_out, (int)format, 0, room);
  free(room);
  return 0;
}

int stack_forward(const Stack *stack, float *x, int64_t rows, const int64_t *slots, const int64_t *positions,
                  const Pool *pool, const Watch *watch) {
  return forward(stack, x, rows, slots, positions, pool, watch);
}

// Copies the row of a code from its codebook's table.
INLINE void look_up(float *row, const Frames *f, int64_t book, int64_t code) {
  if (f->tables_format == INT8) {
    const int8_t *numbers = (const int8_t *)f->tables[book] + code * (f->hidden + sizeof(float));
    float scale;
    memcpy(&scale, numbers + f->hidden, sizeof scale);
    for (int64_t i = 0; i < f->hidden; i++) row[i] = numbers[i] * scale;
    return;
  }
  int64_t size = f->tables_format == FLOAT32 ? 4 : 2;
  const char *at = f->tables[book] + code * f->hidden * size;
  for (int64_t i = 0; i < f->hidden; i += LANES) store(row + i, widened(at + i * size, (int)f->tables_format));
}

int draw_frames(const Frames *f, const float *hidden, int64_t rows, const int64_t *slots, const int64_t *frames,
                const int64_t *may_end, int16_t *codes) {
  const Stack *p = f->predictor;
  int64_t h = f->hidden, inner = p->hidden, books = f->num_codebooks, vocab = most(f->vocab, f->predictor_vocab);
  int64_t cache = p->layers * 2 * rows * books * p->kv_heads * p->head_dim;
  float *scores = malloc((rows * (vocab + 4 * h + 4 * inner) + cache) * sizeof *scores);
  int64_t *places = malloc(5 * rows * sizeof *places);
  char *spare = malloc(vocab * (sizeof(Candidate) + sizeof(float)));
  if (!scores || !places || !spare) {
    free(scores), free(places), free(spare);
    return -1;
  }
  float *wide = scores + rows * vocab, *x = wide + 2 * rows * h, *room = x + 2 * rows * inner;
  int64_t *pages = places, *row_of = pages + rows, *position = row_of + 2 * rows;
  Pool pool = {room + 2 * rows * (h + inner), rows * books, pages, 1, books};

  product(scores, hidden, f->head, rows, h, f->vocab, p->format, 0, room);
  for (int64_t r = 0; r < rows; r++) {
    int64_t slot = slots[r], code = first_code(f, scores + r * f->vocab, slot, frames[r], (int)may_end[r], spare);
    codes[r * books] = (int16_t)code;
    code = most(code, 0);
    f->seen[slot * f->vocab + code] = 1;
    float *embedding = wide + (2 * r + 1) * h;
    look_up(embedding, f, 0, code);
    memcpy(f->last_frame + slot * h, embedding, h * sizeof *wide);
    memcpy(wide + 2 * r * h, hidden + r * h, h * sizeof *wide);
    pages[r] = r;
    row_of[2 * r] = row_of[2 * r + 1] = r;
    position[2 * r] = 0, position[2 * r + 1] = 1;
  }
  shrink(f, x, wide, 2 * rows, room);
  int failed = forward(p, x, 2 * rows, row_of, position, &pool, NULL);
  for (int64_t r = 0; r < rows; r++) memmove(x + r * inner, x + (2 * r + 1) * inner, inner * sizeof *x);
  for (int64_t book = 1; book < books && !failed; book++) {
    product(scores, x, f->predictor_heads[book - 1], rows, inner, f->predictor_vocab, p->format, 0, room);
    for (int64_t r = 0; r < rows; r++) {
      float uniform = uniform_of(f->seed[slots[r]], frames[r], book);
      int64_t code = drawn(scores + r * f->predictor_vocab, f->predictor_vocab, &f->later, slots[r], uniform, spare);
      code = most(code, 0);
      codes[r * books + book] = (int16_t)code;
      float *embedding = wide + r * h, *kept = f->last_frame + slots[r] * h;
      look_up(embedding, f, book, code);
      for (int64_t i = 0; i < h; i += LANES) store(kept + i, load(kept + i) + load(embedding + i));
      row_of[r] = r;
      position[r] = book + 1;
    }
    if (book + 1 == books) break;
    shrink(f, x, wide, rows, room);
    failed = forward(p, x, rows, row_of, position, &pool, NULL);
  }
  free(scores), free(places), free(spare);
  return failed;
}
