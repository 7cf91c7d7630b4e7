// Attention of the code predictor, as in frame_attention.py, for heads of 128 values of which two share a key-value head,
// in bfloat16 or float16.
//
// A warp does one stream and one key-value head with its two query heads. Keys and values of all positions are read at
// once, and a lane has the same four values of each of them. The 2 * 16 products are then summed up over the lanes such
// that each lane ends with one of them.
//
// Macros: KV_HEADS, POSITIONS (at most 16, that keys and values have room for), IS_FIRST, FLOAT16.

#include "halves.cuh"

constexpr int DIM = 128, GROUP = 2, MOST = 16;  // of positions
constexpr int HEADS = GROUP * KV_HEADS, WIDTH = (HEADS + 2 * KV_HEADS) * DIM;
constexpr int WARPS = 4;
constexpr u32 ALL = 0xFFFFFFFF;

static_assert(POSITIONS <= MOST, "a lane has one product");
static_assert(KV_HEADS % WARPS == 0, "a block has no idle warps");

// A lane's values of a head: 2 * lane, the one after it, and both of them 64 further, with which rotation pairs them.
struct Values {
  u32 low, high;
};
struct Wide {
  float low[2], high[2];
};

__device__ inline Values load(const unsigned short* head, int lane) {
  Values v;
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v.low) : "l"(head + lane * 2) : "memory");
  asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v.high) : "l"(head + DIM / 2 + lane * 2) : "memory");
  return v;
}

__device__ inline void store(unsigned short* head, int lane, Values v) {
  reinterpret_cast<u32*>(head)[lane] = v.low;
  reinterpret_cast<u32*>(head + DIM / 2)[lane] = v.high;
}

__device__ inline Wide widened(Values v) { return {{first(v.low), second(v.low)}, {first(v.high), second(v.high)}}; }
__device__ inline Values narrowed(Wide v) { return {packed(v.low[0], v.low[1]), packed(v.high[0], v.high[1])}; }

__device__ inline float dot(Wide a, Wide b) {
  return a.low[0] * b.low[0] + a.low[1] * b.low[1] + a.high[0] * b.high[0] + a.high[1] * b.high[1];
}

__device__ inline void add(Wide& a, float factor, Wide b) {
#pragma unroll
  for (int i = 0; i < 2; ++i) a.low[i] += factor * b.low[i], a.high[i] += factor * b.high[i];
}

__device__ inline float over_lanes(float a) {
#pragma unroll
  for (int step = 16; step; step /= 2) a += __shfl_xor_sync(ALL, a, step);
  return a;
}

// Sums up over the lanes, such that lane n ends with sum n in sums[0]: each step halves the sums that a lane has a part of.
template <int STEP>
__device__ inline void spread(float (&sums)[32], int lane) {
#pragma unroll
  for (int i = 0; i < STEP; ++i) {
    const bool is_upper = lane & STEP;
    const float kept = is_upper ? sums[i + STEP] : sums[i], given = is_upper ? sums[i] : sums[i + STEP];
    sums[i] = kept + __shfl_xor_sync(ALL, given, STEP);
  }
  if constexpr (STEP > 1) spread<STEP / 2>(sums, lane);
}

struct Rotation {
  float2 cos_low, cos_high, sin_low, sin_high;
};

__device__ inline Rotation rotation_at(const float* cos, const float* sin, int position, int lane) {
  auto two = [&](const float* from, int at) { return *reinterpret_cast<const float2*>(from + position * DIM + at); };
  return {two(cos, lane * 2), two(cos, DIM / 2 + lane * 2), two(sin, lane * 2), two(sin, DIM / 2 + lane * 2)};
}

// Rounds after each product, as the plain norm does; the rotation is float32 throughout.
__device__ inline Values normed_and_rotated(Values head, Values weight, Rotation r, float eps) {
  Wide x = widened(head);
  const float factor = rsqrtf(over_lanes(dot(x, x)) / DIM + eps);
  const u32 low = times(packed(x.low[0] * factor, x.low[1] * factor), weight.low);
  const u32 high = times(packed(x.high[0] * factor, x.high[1] * factor), weight.high);
  x = widened({low, high});
  return {packed(x.low[0] * r.cos_low.x + x.high[0] * r.sin_low.x, x.low[1] * r.cos_low.y + x.high[1] * r.sin_low.y),
          packed(x.high[0] * r.cos_high.x + x.low[0] * r.sin_high.x,
                 x.high[1] * r.cos_high.y + x.low[1] * r.sin_high.y)};
}

extern "C" __global__ void __launch_bounds__(WARPS * 32) frame_attention(
    const unsigned short* __restrict__ qkv, const unsigned short* __restrict__ weight, const float* __restrict__ cos,
    const float* __restrict__ sin, unsigned short* keys, unsigned short* values, unsigned short* out, int position,
    float eps, float scale) {
  asm volatile("griddepcontrol.launch_dependents;");
  const int lane = threadIdx.x % 32;
  const int item = blockIdx.x * WARPS + threadIdx.x / 32, stream = item / KV_HEADS, kv_head = item % KV_HEADS;
  const Values query_weights[GROUP] = {load(weight + kv_head * GROUP * DIM, lane),
                                       load(weight + (kv_head * GROUP + 1) * DIM, lane)};
  const Values key_weight = load(weight + (HEADS + kv_head) * DIM, lane);
  const Rotation rotation = rotation_at(cos, sin, position, lane);
#if IS_FIRST
  const Rotation rotation_before = rotation_at(cos, sin, 0, lane);
#endif
  asm volatile("griddepcontrol.wait;" ::: "memory");

  const long long row = IS_FIRST ? stream * 2 + 1 : stream;
  const unsigned short* own = qkv + row * WIDTH;
  const unsigned short* own_keys = own + (HEADS + kv_head) * DIM;
  const unsigned short* own_values = own_keys + KV_HEADS * DIM;
  const long long kept = ((long long)stream * POSITIONS * KV_HEADS + kv_head) * DIM;  // position 0; others follow
  unsigned short* out_at = out + (row * HEADS + kv_head * GROUP) * DIM;
  const Values own_key = load(own_keys, lane), own_value = load(own_values, lane);
  const Values own_queries[GROUP] = {load(own + kv_head * GROUP * DIM, lane),
                                     load(own + (kv_head * GROUP + 1) * DIM, lane)};
  Values key[MOST], value[MOST];
#if IS_FIRST
  key[0] = load(own_keys - WIDTH, lane);
  value[0] = load(own_values - WIDTH, lane);
  key[0] = normed_and_rotated(key[0], key_weight, rotation_before, eps);
  store(keys + kept, lane, key[0]);
  store(values + kept, lane, value[0]);
  for (int h = 0; h < GROUP; ++h) store(out_at - (HEADS - h) * DIM, lane, value[0]);  // position 0 sees itself alone
#else
#pragma unroll
  for (int p = 0; p < MOST; ++p)
    if (p < position) {
      key[p] = load(keys + kept + p * KV_HEADS * DIM, lane);
      value[p] = load(values + kept + p * KV_HEADS * DIM, lane);
    }
#endif
  const Values new_key = normed_and_rotated(own_key, key_weight, rotation, eps);
  store(keys + kept + position * KV_HEADS * DIM, lane, new_key);
  store(values + kept + position * KV_HEADS * DIM, lane, own_value);
  Wide query[GROUP];
#pragma unroll
  for (int h = 0; h < GROUP; ++h) query[h] = widened(normed_and_rotated(own_queries[h], query_weights[h], rotation, eps));

  float products[GROUP * MOST] = {};  // of this lane's values; position p of head h is at h * MOST + p
#pragma unroll
  for (int p = 0; p < MOST; ++p) {
    if (p > position) continue;
    if (p == position) key[p] = new_key, value[p] = own_value;
#pragma unroll
    for (int h = 0; h < GROUP; ++h) products[h * MOST + p] = dot(query[h], widened(key[p]));
  }
  spread<16>(products, lane);
  const bool is_seen = lane % MOST <= position;
  const float score = is_seen ? products[0] * scale : -1e30f;
  float top = score;
#pragma unroll
  for (int step = 8; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(ALL, top, step));
  const float likely = is_seen ? __expf(score - top) : 0.f;
  float total = likely;
#pragma unroll
  for (int step = 8; step; step /= 2) total += __shfl_xor_sync(ALL, total, step);
  const float share = likely / total;

  Wide result[GROUP] = {};
#pragma unroll
  for (int p = 0; p < MOST; ++p) {
    if (p > position) continue;
#pragma unroll
    for (int h = 0; h < GROUP; ++h) add(result[h], __shfl_sync(ALL, share, h * MOST + p), widened(value[p]));
  }
#pragma unroll
  for (int h = 0; h < GROUP; ++h) store(out_at + h * DIM, lane, narrowed(result[h]));
}
