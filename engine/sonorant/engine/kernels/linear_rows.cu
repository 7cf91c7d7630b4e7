// Products of up to 64 rows: out [rows, OUT] = x [rows, IN] times weight.T, weight [OUT, IN], in bfloat16 or float16.
//
// Their time is spent on reading the weights and on waiting for the kernel before. So all that does not depend on that
// kernel, the first tiles of the weights, is fetched before the wait; the norm before the product and the activation or
// the residual sum after it are done on the way.
//
// A block computes all rows of TILES * 8 outputs. Its warps share the inputs among themselves, as do the SPLIT blocks
// of a cluster, and sums of all of them are added in a fixed order: which ones, does not depend on the number of rows,
// so that a row comes out the same beside any others. Many rows would take too many registers of one warp, so
// ROW_GROUPS warps share them, and fetch the weights for each other.
//
// With FP8 the weights are float8 e4m3, and each output has a power of two that its sum is multiplied by. Both leave
// the bits of the result as they are with weights of two bytes that have the same values: the order of the sums is the
// same, and these conversions are exact.
//
// Macros: IN, OUT (after SwiGLU), TILES, WARPS (of a row group), SPLIT, AHEAD, ROW_TILES (of 16 rows), ROW_GROUPS, NORM,
// SWIGLU, RESIDUAL, FLOAT16, FP8.
// See linear_rows.py for what they mean and how they are chosen.

#if FLOAT16
#define TYPE "f16"
#else
#define TYPE "bf16"
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ constexpr int least(int a, int b) { return a < b ? a : b; }

constexpr int BLOCK_IN = 32;                                 // inputs of a tile: two matrix instructions
constexpr int NUM_BLOCKS = IN / (SPLIT * WARPS * BLOCK_IN);  // of a warp
constexpr int W_AHEAD = least(AHEAD, NUM_BLOCKS);
constexpr int OWN_ROW_TILES = ROW_TILES / ROW_GROUPS;  // of a warp
constexpr int X_AHEAD = least(OWN_ROW_TILES == 1 ? 4 : ROW_GROUPS == 1 ? 3 : 2, NUM_BLOCKS);
constexpr int PARTS = SWIGLU ? 2 : 1;  // gate and up
constexpr int PART_TILES = TILES / PARTS;
constexpr int PART_OUT = PART_TILES * 8;               // outputs of a block
constexpr int QUADS = PART_TILES / 2;                  // float4 per thread, row and part
constexpr int NUM_ITEMS = ROW_TILES * 2 * QUADS * 32;  // float4 of a block and part
constexpr int THREADS = WARPS * ROW_GROUPS * 32;
constexpr int OWN_TILES = TILES / ROW_GROUPS;                          // that a warp fetches
constexpr int NUM_PLACES = ROW_GROUPS == 1 ? W_AHEAD : W_AHEAD + 1;  // one more, which other warps may still read
constexpr int TOGETHER = FP8 ? 2 : 1;                                  // tiles in a uint4 of each thread
constexpr int RING = NUM_PLACES * TILES / TOGETHER * 32;               // uint4 of the tiles under way
constexpr int REGION = RING > PARTS * NUM_ITEMS ? RING : PARTS * NUM_ITEMS;  // the tiles, later the sums

static_assert(IN % (SPLIT * WARPS * BLOCK_IN) == 0, "inputs are shared equally");
static_assert(OUT % PART_OUT == 0, "outputs are shared equally");
static_assert(PART_TILES % 2 == 0, "a thread stores four outputs at once");
static_assert(ROW_TILES % ROW_GROUPS == 0 && TILES % ROW_GROUPS == 0, "rows and tiles are shared equally");
static_assert(OWN_TILES % TOGETHER == 0, "tiles that come together are fetched together");

// Where there is one row group, each thread fetches what it will use itself, so that no other thread must be waited for.
// Registers in place of shared memory would not do: the assembler moves such loads to where their values are used,
// behind the wait.
__device__ inline void fetch(uint4* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :: "r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

__device__ inline uint4 load_rows(const void* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
  return v;
}

__device__ inline void multiply(float4& sum, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum.x), "+f"(sum.y), "+f"(sum.z), "+f"(sum.w) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ inline u32 times(u32 a, u32 b) {
  u32 c;
  asm("mul.rn." TYPE "x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
}

__device__ inline uint4 times(uint4 a, uint4 b) {
  return make_uint4(times(a.x, b.x), times(a.y, b.y), times(a.z, b.z), times(a.w, b.w));
}

__device__ inline u32 packed(float first, float second) {
  u32 c;
  asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(c) : "f"(second), "f"(first));
  return c;
}

#if FLOAT16
__device__ inline float first(u32 pair) {
  float a;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(a) : "r"(pair));
  return a;
}
__device__ inline float second(u32 pair) { return first(pair >> 16); }
#else
__device__ inline float first(u32 pair) { return __uint_as_float(pair << 16); }
__device__ inline float second(u32 pair) { return __uint_as_float(pair & 0xFFFF0000u); }
#endif

// Two e4m3 values, the lower (0) or the upper (1) ones of four, as a pair of the type that is computed with.
#if FLOAT16
template <int HALF>
__device__ inline u32 widened(u32 four) {
  u32 pair;
  asm("{.reg .b16 two; cvt.u16.u32 two, %1; cvt.rn.f16x2.e4m3x2 %0, two;}" : "=r"(pair) : "r"(four >> (16 * HALF)));
  return pair;
}
#else
template <int HALF>
__device__ inline u32 widened(u32 four) {
  // s eeee mmm becomes s 0000 eeee mmm 0000, which as a bfloat16 is the value times 2^-120, also where it is subnormal.
  // Each byte is extended to 16 bits by its sign, so that one shift puts exponents and mantissas into place.
  u32 extended;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(extended) : "r"(four), "n"(HALF ? 0xB3A2 : 0x9180));
  return times(extended << 4 & 0x87F087F0u, 0x7B807B80u);  // 2^120
}
#endif

__device__ inline uint4 widened(u32 first_four, u32 last_four) {
  return make_uint4(widened<0>(first_four), widened<1>(first_four), widened<0>(last_four), widened<1>(last_four));
}

__device__ inline float rounded(float a) { return first(packed(a, 0.f)); }
__device__ inline void add(float4& a, float4 b) { a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w; }
__device__ inline void scale(float4& a, float b) { a.x *= b; a.y *= b; a.z *= b; a.w *= b; }
__device__ inline void scale(float4& a, float4 b) { a.x *= b.x; a.y *= b.y; a.z *= b.z; a.w *= b.w; }

// silu(gate) * up, rounded as in the plain twin.
__device__ inline float activated(float gate, float up) {
  gate = rounded(gate);
  return rounded(gate / (1.f + __expf(-gate))) * rounded(up);
}

// Waits for the other row groups that use the same weights.
__device__ inline void meet(int warp) {
#if ROW_GROUPS == 1
  __syncwarp();
#else
  asm volatile("bar.sync %0, %1;" :: "r"(1 + warp), "n"(ROW_GROUPS * 32) : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, ROW_GROUPS == 1 ? 1 : 2) linear_rows(
    const unsigned short* __restrict__ x, const unsigned short* __restrict__ norm_weight,
    const void* __restrict__ weight, const float* __restrict__ scales, const unsigned short* residual,
    unsigned short* out, int rows, float eps) {
  extern __shared__ float4 shared[];
  asm volatile("griddepcontrol.launch_dependents;");
  const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int warp = threadIdx.x / 32 / ROW_GROUPS, row_group = threadIdx.x / 32 % ROW_GROUPS;
  const int rank = SPLIT == 1 ? 0 : blockIdx.x % SPLIT;
  const int out_at = blockIdx.x / SPLIT * PART_OUT;
  const int in_at = (rank * WARPS + warp) * NUM_BLOCKS * BLOCK_IN + member * 8;
#if SPLIT > 1
  asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif

  // A thread's columns of the tiles are chosen such that its results are next to each other: two tiles are two rows of
  // weights apart. With FP8 a line has two such rows, eight bytes of each in turn, and takes as much memory as a row of
  // weights of two bytes. So a thread fetches two tiles at once, from where it would find the first of them.
  const int first_row = out_at + 2 * PART_TILES * (group / 2) + group % 2;
  const int first_line = FP8 ? first_row / 4 * 2 + first_row % 2 : first_row;
  const unsigned short* lines = (const unsigned short*)weight + (u64)first_line * IN + in_at;
  auto tile = [&](int i, int block) {
    const int part = i / PART_TILES, at = i % PART_TILES;
    return lines + ((u64)part * OUT + at * 2) / TOGETHER * IN + block * BLOCK_IN;
  };
  uint4* ring = reinterpret_cast<uint4*>(shared + warp * REGION) + lane;
  auto fetch_block = [&](int block) {
    if (block < NUM_BLOCKS) {
#pragma unroll
      for (int own = 0; own < OWN_TILES; own += TOGETHER) {
        const int i = row_group * OWN_TILES + own;
        fetch(ring + (block % NUM_PLACES * TILES + i) / TOGETHER * 32, tile(i, block));
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
#pragma unroll
  for (int b = 0; b < W_AHEAD; ++b) fetch_block(b);
  asm volatile("griddepcontrol.wait;" ::: "memory");

  constexpr int OWN_ITEMS = NUM_ITEMS / SPLIT;  // this block's share of the results
  constexpr int OWN = (OWN_ITEMS + THREADS - 1) / THREADS;  // of a thread
  auto place = [&](int own) -> long long {  // of a result; negative: there is none
    const int item = rank * OWN_ITEMS + own;
    const int quad = item / 32 % QUADS, half = item / 32 / QUADS % 2, r = item / 32 / QUADS / 2;
    const int row = r * 16 + half * 8 + item % 32 / 4;
    return own < OWN_ITEMS && row < rows ? (long long)row * OUT + out_at + item % 4 * 2 * PART_TILES + quad * 4 : -1;
  };
  uint4 a[X_AHEAD][OWN_ROW_TILES][2];
  const unsigned short* line[OWN_ROW_TILES][2];
#pragma unroll
  for (int r = 0; r < OWN_ROW_TILES; ++r)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = (row_group * OWN_ROW_TILES + r) * 16 + h * 8 + group;
      line[r][h] = x + (u64)(row < rows ? row : rows - 1) * IN + in_at;
    }
#pragma unroll
  for (int b = 0; b < X_AHEAD; ++b)
#pragma unroll
    for (int r = 0; r < OWN_ROW_TILES; ++r)
#pragma unroll
      for (int h = 0; h < 2; ++h) a[b][r][h] = load_rows(line[r][h] + b * BLOCK_IN);

#if NORM
  uint4 factors[X_AHEAD];
#pragma unroll
  for (int b = 0; b < X_AHEAD; ++b) factors[b] = load_rows(norm_weight + in_at + b * BLOCK_IN);
#endif
#if RESIDUAL
  uint2 before[OWN];
#pragma unroll
  for (int n = 0; n < OWN; ++n)
    if (const long long at = place(threadIdx.x + n * THREADS); at >= 0)
      asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];"
                   : "=r"(before[n].x), "=r"(before[n].y) : "l"(residual + at) : "memory");
#endif
#if FP8  // fetched here, as the end would have to wait for them
  float4 factor_of[OWN][PARTS];
#pragma unroll
  for (int n = 0; n < OWN; ++n)
    if (const long long at = place(threadIdx.x + n * THREADS); at >= 0)
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        float4& to = factor_of[n][part];
        asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w) : "l"(scales + part * OUT + at % OUT));
      }
#endif
  __syncwarp();  // or the assembler would move the loads to where they are used

  float4 sum[OWN_ROW_TILES][TILES] = {};
#if NORM
  float4 square[OWN_ROW_TILES][2] = {};
#endif
#pragma unroll
  for (int b = 0; b < NUM_BLOCKS; ++b) {
    const int xb = b % X_AHEAD;
    asm volatile("cp.async.wait_group %0;" :: "n"(W_AHEAD - 1) : "memory");
    if (ROW_GROUPS > 1) meet(warp);
    uint4 w[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i += TOGETHER) {
      const uint4 fetched = ring[(b % NUM_PLACES * TILES + i) / TOGETHER * 32];
#if FP8
      w[i] = widened(fetched.x, fetched.y);
      w[i + 1] = widened(fetched.z, fetched.w);
#else
      w[i] = fetched;
#endif
    }
    fetch_block(b + W_AHEAD);
#pragma unroll
    for (int r = 0; r < OWN_ROW_TILES; ++r) {
      uint4 p = a[xb][r][0], q = a[xb][r][1];
      if (b + X_AHEAD < NUM_BLOCKS) {
#pragma unroll
        for (int h = 0; h < 2; ++h) a[xb][r][h] = load_rows(line[r][h] + (b + X_AHEAD) * BLOCK_IN);
      }
#if NORM  // the diagonal of x times x.T has the sums of squares
      multiply(square[r][0], p.x, q.x, p.y, q.y, p.x, p.y);
      multiply(square[r][1], p.x, q.x, p.y, q.y, q.x, q.y);
      multiply(square[r][0], p.z, q.z, p.w, q.w, p.z, p.w);
      multiply(square[r][1], p.z, q.z, p.w, q.w, q.z, q.w);
      p = times(p, factors[xb]);
      q = times(q, factors[xb]);
#endif
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
        multiply(sum[r][i], p.x, q.x, p.y, q.y, w[i].x, w[i].y);
        multiply(sum[r][i], p.z, q.z, p.w, q.w, w[i].z, w[i].w);
      }
    }
#if NORM
    if (b + X_AHEAD < NUM_BLOCKS) factors[xb] = load_rows(norm_weight + in_at + (b + X_AHEAD) * BLOCK_IN);
#endif
  }

  // The warps' sums: float4 number `item` of part `part` of warp `w` is at w * REGION + part * NUM_ITEMS + item.
  meet(warp);
#pragma unroll
  for (int r = 0; r < OWN_ROW_TILES; ++r)
#pragma unroll
    for (int i = 0; i < TILES; i += 2) {
      const int part = i / PART_TILES, quad = i % PART_TILES / 2;
      const int row_tile = row_group * OWN_ROW_TILES + r;
      float4* to = shared + warp * REGION + part * NUM_ITEMS + (row_tile * 2 * QUADS + quad) * 32 + lane;
      const float4 s = sum[r][i], t = sum[r][i + 1];
      to[0] = make_float4(s.x, s.y, t.x, t.y);
      to[QUADS * 32] = make_float4(s.z, s.w, t.z, t.w);
    }
#if NORM
  constexpr int ROWS = ROW_TILES * 16;
  float* squares = reinterpret_cast<float*>(shared + WARPS * REGION);  // [WARPS][ROWS]
  if (member == group / 2) {
#pragma unroll
    for (int r = 0; r < OWN_ROW_TILES; ++r) {
      float* to = squares + warp * ROWS + (row_group * OWN_ROW_TILES + r) * 16 + group;
      to[0] = group % 2 ? square[r][0].y : square[r][0].x;
      to[8] = group % 2 ? square[r][1].w : square[r][1].z;
    }
  }
#endif
  __syncthreads();

#if SPLIT > 1
  float4* received = shared + WARPS * REGION + (NORM ? WARPS * ROW_TILES * 4 : 0);  // [SPLIT][PARTS][OWN_ITEMS]
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#if NORM
  float* received_squares = reinterpret_cast<float*>(received + PARTS * NUM_ITEMS);  // [SPLIT][ROWS]
  for (int row = threadIdx.x; row < ROWS; row += THREADS) {
    float total = 0.f;
#pragma unroll
    for (int v = 0; v < WARPS; ++v) total += squares[v * ROWS + row];
#pragma unroll
    for (int to_rank = 0; to_rank < SPLIT; ++to_rank) {
      u32 to = (u32)__cvta_generic_to_shared(received_squares + rank * ROWS + row);
      asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(to_rank));
      asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(to), "f"(total) : "memory");
    }
  }
#endif
  for (int item = threadIdx.x; item < NUM_ITEMS; item += THREADS)
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      float4 total = shared[part * NUM_ITEMS + item];
#pragma unroll
      for (int v = 1; v < WARPS; ++v) add(total, shared[v * REGION + part * NUM_ITEMS + item]);
      u32 to = (u32)__cvta_generic_to_shared(received + (rank * PARTS + part) * OWN_ITEMS + item % OWN_ITEMS);
      asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(to) : "r"(item / OWN_ITEMS));
      asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                   :: "r"(to), "f"(total.x), "f"(total.y), "f"(total.z), "f"(total.w) : "memory");
    }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  constexpr int SOURCES = SPLIT, STRIDE = PARTS * OWN_ITEMS;
  const float4* from = received;
#if NORM
  const float* from_squares = received_squares;
#endif
#else
  constexpr int SOURCES = WARPS, STRIDE = REGION;
  const float4* from = shared;
#if NORM
  const float* from_squares = squares;
#endif
#endif
#pragma unroll
  for (int n = 0; n < OWN; ++n) {
    const int own = threadIdx.x + n * THREADS;
    const long long at = place(own);
    if (at < 0) continue;
    float4 total[PARTS] = {};
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
#pragma unroll
      for (int v = 0; v < SOURCES; ++v) add(total[part], from[v * STRIDE + part * OWN_ITEMS + own]);
#if FP8
#pragma unroll
    for (int part = 0; part < PARTS; ++part) scale(total[part], factor_of[n][part]);
#endif
#if NORM
    float all = 0.f;
#pragma unroll
    for (int v = 0; v < SOURCES; ++v) all += from_squares[v * ROWS + (int)(at / OUT)];
    const float factor = rsqrtf(all / IN + eps);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) scale(total[part], factor);
#endif
    float4 result = total[0];
#if SWIGLU
    const float4 up = total[1];
    result = make_float4(
        activated(result.x, up.x), activated(result.y, up.y), activated(result.z, up.z), activated(result.w, up.w));
#endif
    uint2 stored = make_uint2(packed(result.x, result.y), packed(result.z, result.w));
#if RESIDUAL
    stored.x = packed(first(stored.x) + first(before[n].x), second(stored.x) + second(before[n].x));
    stored.y = packed(first(stored.y) + first(before[n].y), second(stored.y) + second(before[n].y));
#endif
    *reinterpret_cast<uint2*>(out + at) = stored;
  }
}
