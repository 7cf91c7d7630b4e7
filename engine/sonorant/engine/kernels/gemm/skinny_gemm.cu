// Products of up to 16 rows: out [rows, OUT] = x [rows, IN] times weight.T, weight [OUT, IN], in bfloat16 or float16.
//
// Their time is spent on reading the weights and on waiting for the kernel before. So all that does not depend on that
// kernel, the first tiles of the weights, is fetched before the wait; the norm before the product and the activation or
// the residual sum after it are done on the way.
//
// A block computes all rows of TILES * 8 outputs. Its warps share the inputs among themselves, as do the SPLIT blocks
// of a cluster, and sums of all of them are added in a fixed order: which ones, does not depend on the number of rows,
// so that a row comes out the same beside any others.
//
// Macros: IN, OUT (after SwiGLU), TILES, WARPS, SPLIT, AHEAD, NORM, SWIGLU, RESIDUAL, FLOAT16.
// See skinny_gemm.py for what they mean and how they are chosen.

#include "cluster.cuh"
#include "halves.cuh"

__device__ constexpr int least(int a, int b) { return a < b ? a : b; }

constexpr int ROWS = 16;
constexpr int BLOCK_IN = 32;                                 // inputs of a tile: two matrix instructions
constexpr int NUM_BLOCKS = IN / (SPLIT * WARPS * BLOCK_IN);  // of a warp
constexpr int W_AHEAD = least(AHEAD, NUM_BLOCKS);
constexpr int X_AHEAD = least(4, NUM_BLOCKS);
constexpr int PARTS = SWIGLU ? 2 : 1;  // gate and up
constexpr int PART_TILES = TILES / PARTS;
constexpr int PART_OUT = PART_TILES * 8;    // outputs of a block
constexpr int QUADS = PART_TILES / 2;       // float4 per thread, row and part
constexpr int NUM_ITEMS = 2 * QUADS * 32;   // float4 of a block and part
constexpr int THREADS = WARPS * 32;
constexpr int RING = W_AHEAD * TILES * 32;  // uint4 of the tiles under way
constexpr int REGION = RING > PARTS * NUM_ITEMS ? RING : PARTS * NUM_ITEMS;  // the tiles, later the sums
// Where SPLIT is more than one: what the blocks of the cluster send to this one, behind the regions, and its barrier.
constexpr int RECEIVED_BYTES = PARTS * NUM_ITEMS * 16;

static_assert(IN % (SPLIT * WARPS * BLOCK_IN) == 0, "inputs are shared equally");
static_assert(OUT % PART_OUT == 0, "outputs are shared equally");
static_assert(PART_TILES % 2 == 0, "a thread stores four outputs at once");
static_assert(SPLIT == 1 || !NORM, "a norm needs the squares of whole rows");

// Each thread fetches what it will use itself, so that no other thread must be waited for. Registers in place of shared
// memory would not do: the assembler moves such loads to where their values are used, behind the wait.
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

__device__ inline uint4 times(uint4 a, uint4 b) {
  return make_uint4(times(a.x, b.x), times(a.y, b.y), times(a.z, b.z), times(a.w, b.w));
}

// The compiler may take all registers for loads far ahead of their use. Measured: that helps, except with SwiGLU.
#if SWIGLU
#define BOUNDS __launch_bounds__(THREADS)
#else
#define BOUNDS __launch_bounds__(THREADS, 1)
#endif

extern "C" __global__ void BOUNDS skinny_gemm(
    const unsigned short* __restrict__ x, const unsigned short* __restrict__ norm_weight,
    const unsigned short* __restrict__ weight, const unsigned short* residual, unsigned short* out, int rows,
    float eps) {
  extern __shared__ float4 shared[];
  asm volatile("griddepcontrol.launch_dependents;");
  const int lane = threadIdx.x % 32, group = lane / 4, member = lane % 4;
  const int warp = threadIdx.x / 32;
  const int rank = SPLIT == 1 ? 0 : blockIdx.x % SPLIT;
  const int out_at = blockIdx.x / SPLIT * PART_OUT;
  const int in_at = (rank * WARPS + warp) * NUM_BLOCKS * BLOCK_IN + member * 8;
#if SPLIT > 1
  const u32 all_received = address_of(shared + WARPS * REGION) + RECEIVED_BYTES;
  expect(all_received, RECEIVED_BYTES);
#endif

  // A thread's columns of the tiles are chosen such that its results are next to each other: two tiles are two rows of
  // weights apart.
  const int first_row = out_at + 2 * PART_TILES * (group / 2) + group % 2;
  const unsigned short* lines = weight + (u64)first_row * IN + in_at;
  auto tile = [&](int i, int block) {
    const int part = i / PART_TILES, at = i % PART_TILES;
    return lines + ((u64)part * OUT + at * 2) * IN + block * BLOCK_IN;
  };
  uint4* ring = reinterpret_cast<uint4*>(shared + warp * REGION) + lane;
  auto fetch_block = [&](int block) {
    if (block < NUM_BLOCKS) {
#pragma unroll
      for (int i = 0; i < TILES; ++i) fetch(ring + (block % W_AHEAD * TILES + i) * 32, tile(i, block));
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
    const int quad = item / 32 % QUADS, half = item / 32 / QUADS;
    const int row = half * 8 + item % 32 / 4;
    return own < OWN_ITEMS && row < rows ? (long long)row * OUT + out_at + item % 4 * 2 * PART_TILES + quad * 4 : -1;
  };
  uint4 a[X_AHEAD][2];
  const unsigned short* line[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = h * 8 + group;
    line[h] = x + (u64)(row < rows ? row : rows - 1) * IN + in_at;
  }
#pragma unroll
  for (int b = 0; b < X_AHEAD; ++b)
#pragma unroll
    for (int h = 0; h < 2; ++h) a[b][h] = load_rows(line[h] + b * BLOCK_IN);

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
  __syncwarp();  // or the assembler would move the loads to where they are used

  float4 sums[TILES] = {};
#if NORM
  float4 squares[2] = {};
#endif
#pragma unroll
  for (int b = 0; b < NUM_BLOCKS; ++b) {
    const int xb = b % X_AHEAD;
    asm volatile("cp.async.wait_group %0;" :: "n"(W_AHEAD - 1) : "memory");
    uint4 w[TILES];
#pragma unroll
    for (int i = 0; i < TILES; ++i) w[i] = ring[(b % W_AHEAD * TILES + i) * 32];
    fetch_block(b + W_AHEAD);
    uint4 p = a[xb][0], q = a[xb][1];
    if (b + X_AHEAD < NUM_BLOCKS) {
#pragma unroll
      for (int h = 0; h < 2; ++h) a[xb][h] = load_rows(line[h] + (b + X_AHEAD) * BLOCK_IN);
    }
#if NORM  // the diagonal of x times x.T has the sums of squares
    multiply(squares[0], p.x, q.x, p.y, q.y, p.x, p.y);
    multiply(squares[1], p.x, q.x, p.y, q.y, q.x, q.y);
    multiply(squares[0], p.z, q.z, p.w, q.w, p.z, p.w);
    multiply(squares[1], p.z, q.z, p.w, q.w, q.z, q.w);
    p = times(p, factors[xb]);
    q = times(q, factors[xb]);
    if (b + X_AHEAD < NUM_BLOCKS) factors[xb] = load_rows(norm_weight + in_at + (b + X_AHEAD) * BLOCK_IN);
#endif
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      multiply(sums[i], p.x, q.x, p.y, q.y, w[i].x, w[i].y);
      multiply(sums[i], p.z, q.z, p.w, q.w, w[i].z, w[i].w);
    }
  }

  // The warps' sums: float4 number `item` of part `part` of warp `w` is at w * REGION + part * NUM_ITEMS + item.
  __syncwarp();
#pragma unroll
  for (int i = 0; i < TILES; i += 2) {
    const int part = i / PART_TILES, quad = i % PART_TILES / 2;
    float4* to = shared + warp * REGION + part * NUM_ITEMS + quad * 32 + lane;
    const float4 s = sums[i], t = sums[i + 1];
    to[0] = make_float4(s.x, s.y, t.x, t.y);
    to[QUADS * 32] = make_float4(s.z, s.w, t.z, t.w);
  }
#if NORM
  float* warps_squares = reinterpret_cast<float*>(shared + WARPS * REGION);  // [WARPS][ROWS]
  if (member == group / 2) {
    float* to = warps_squares + warp * ROWS + group;
    to[0] = group % 2 ? squares[0].y : squares[0].x;
    to[8] = group % 2 ? squares[1].w : squares[1].z;
  }
#endif
  __syncthreads();

#if SPLIT > 1
  float4* received = shared + WARPS * REGION;  // [SPLIT][PARTS][OWN_ITEMS]
  wait_for_blocks();
  for (int item = threadIdx.x; item < NUM_ITEMS; item += THREADS)
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      float4 total = shared[part * NUM_ITEMS + item];
#pragma unroll
      for (int v = 1; v < WARPS; ++v) add(total, shared[v * REGION + part * NUM_ITEMS + item]);
      send(received + (rank * PARTS + part) * OWN_ITEMS + item % OWN_ITEMS, total, item / OWN_ITEMS, all_received);
    }
  wait_for_bytes(all_received);
  constexpr int SOURCES = SPLIT, STRIDE = PARTS * OWN_ITEMS;
  const float4* from = received;
#else
  constexpr int SOURCES = WARPS, STRIDE = REGION;
  const float4* from = shared;
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
#if NORM
    float all = 0.f;
#pragma unroll
    for (int v = 0; v < WARPS; ++v) all += warps_squares[v * ROWS + (int)(at / OUT)];
    const float factor = rsqrtf(all / IN + eps);
#pragma unroll
    for (int part = 0; part < PARTS; ++part) scale(total[part], factor);
#endif
#if SWIGLU
    uint2 result = packed(activated(total[0], total[1]));
#else
    uint2 result = packed(total[0]);
#endif
#if RESIDUAL
    result = make_uint2(sum(result.x, before[n].x), sum(result.y, before[n].y));
#endif
    *reinterpret_cast<uint2*>(out + at) = result;
  }
}
