// Products of up to 64 rows: out [rows, OUT] = x [rows, IN] times weight.T, weight [OUT, IN], in bfloat16 or float16.
//
// A matrix instruction of a warpgroup takes 64 rows at once, and both rows and weights from shared memory; so each is
// read there once. Weights are fetched before the wait for the kernel before. The SPLIT blocks of a cluster share the
// inputs of the same outputs, and sums of all of them are added in a fixed order, so that a row comes out the same
// beside any others.
//
// A norm before the product is split in two. Its weight is multiplied into the rows by the kernel that makes them
// (NEXT), which also leaves parts of each row's sum of squares. The rest is one factor for each row of the result
// (SQUARES), so that rows need not be touched on their way into shared memory.
//
// Macros: IN, OUT (after SwiGLU), BLOCK_OUT (rows of weights of a block), SPLIT, PLACES (for stages of 64 inputs),
// SQUARES (parts of a row's sum of squares; 0: there is no norm), SWIGLU, RESIDUAL, NEXT, FLOAT16.
// See wgmma_gemm.py for what they mean and how they are chosen.

#include "cluster.cuh"
#include "halves.cuh"
#include "barriers.cuh"

constexpr int ROWS = 64;
constexpr int THREADS = 128;  // a warpgroup
constexpr int INSTRUCTION_OUT = 32;
constexpr int PARTS = SWIGLU ? 2 : 1;  // gate and up
constexpr int PART_OUT = BLOCK_OUT / PARTS;  // outputs of a block
constexpr int THREAD_OUT = PART_OUT / 4;     // of a thread and row, next to each other
constexpr int QUADS = THREAD_OUT / 4;        // float4 of them
constexpr int SLICE = IN / SPLIT;            // inputs of a block
constexpr int STAGE_IN = 64;                 // 128 bytes of a row
constexpr int STAGES = SLICE / STAGE_IN;
constexpr int FIRST_STAGES = PLACES < STAGES ? PLACES : STAGES;
constexpr int X_BYTES = ROWS * 128, W_BYTES = BLOCK_OUT * 128, STAGE_BYTES = X_BYTES + W_BYTES;
constexpr int LINES_AT_ONCE = THREADS / 8;  // that the block fetches: eight threads fetch a line of 128 bytes
constexpr int X_FETCHES = ROWS / LINES_AT_ONCE, W_FETCHES = BLOCK_OUT / LINES_AT_ONCE;
constexpr int RECEIVED = FIRST_STAGES * STAGE_BYTES, RECEIVED_BYTES = ROWS * BLOCK_OUT * 4;
constexpr int NUM_UNITS = ROWS * 4;           // a unit: what a thread has of a row
constexpr int OWN_UNITS = NUM_UNITS / SPLIT;  // which this block of the cluster finishes
constexpr int OWN = (OWN_UNITS + THREADS - 1) / THREADS;  // which a thread does

static_assert(IN % (SPLIT * STAGE_IN) == 0, "inputs are shared equally");
static_assert(OUT % PART_OUT == 0, "outputs are shared equally");
static_assert(BLOCK_OUT % INSTRUCTION_OUT == 0, "a block does whole instructions");
static_assert(SPLIT > 1 && SPLIT <= 8, "blocks of a cluster send each other their sums");
static_assert(PLACES >= 2, "a stage is fetched while another is used");
static_assert(SQUARES % 16 == 0, "four threads read the parts of a row's sum of squares");

__device__ inline void fetch_or_clear(u32 to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(is_there ? 16 : 0) : "memory");
}

// Lines of 128 bytes, eight of them next to each other, with their pieces of 16 bytes exchanged as `exchanged` says.
__device__ inline u64 lines_at(u32 address) {
  return (u64)(address >> 4 & 0x3FFF) | (u64)1 << 16 | (u64)64 << 32 | (u64)1 << 62;
}
__device__ inline int exchanged(int line, int piece) { return (line * 8 + (piece ^ line % 8)) * 16; }

#define FOUR(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])

// 64 rows of 16 inputs times 32 rows of weights.
__device__ inline void multiply(float (&sums)[16], u64 rows, u64 weights) {
  asm volatile("{.reg .pred adds; setp.eq.b32 adds, 0, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32." TYPE "." TYPE
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, %16, %17, adds, 1, 1, 0, 0;}"
               : FOUR(sums, 0), FOUR(sums, 4), FOUR(sums, 8), FOUR(sums, 12) : "l"(rows), "l"(weights) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS) wgmma_gemm(
    const unsigned short* __restrict__ x, const float* __restrict__ squares, float eps,
    const unsigned short* __restrict__ weight, const unsigned short* residual, unsigned short* out,
    const unsigned short* __restrict__ next_norm, unsigned short* scaled, float* next_squares, int rows) {
  extern __shared__ __align__(1024) unsigned char shared[];
  asm volatile("griddepcontrol.launch_dependents;");
  const u32 stages = address_of(shared), all_received = stages + RECEIVED + RECEIVED_BYTES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int rank = blockIdx.x % SPLIT, block = blockIdx.x / SPLIT;
  const int line = threadIdx.x / 8, piece = threadIdx.x % 8;  // that this thread fetches
  const int in_at = rank * SLICE + piece * 8;
  expect(all_received, RECEIVED_BYTES);

  // A thread's columns of the result are 8 * n + 2 * (lane % 4) and the one after it. Rows of weights are placed such
  // that these are outputs next to each other.
  int from[W_FETCHES];
#pragma unroll
  for (int f = 0; f < W_FETCHES; ++f) {
    const int column = f * LINES_AT_ONCE + line, part = column / PART_OUT, in_part = column % PART_OUT;
    const int output = block * PART_OUT + in_part % 8 / 2 * THREAD_OUT + in_part / 8 * 2 + in_part % 2;
    from[f] = (part * OUT + output) * IN + in_at;
  }
  auto fetch_weights = [&](int stage, int place) {
#pragma unroll
    for (int f = 0; f < W_FETCHES; ++f)
      fetch(stages + place * STAGE_BYTES + X_BYTES + f * LINES_AT_ONCE * 128 + exchanged(line, piece),
            weight + from[f] + stage * STAGE_IN);
  };
  auto fetch_rows = [&](int stage, int place) {
#pragma unroll
    for (int f = 0; f < X_FETCHES; ++f) {
      const int row = f * LINES_AT_ONCE + line;
      fetch_or_clear(stages + place * STAGE_BYTES + f * LINES_AT_ONCE * 128 + exchanged(line, piece),
                     x + row * IN + in_at + stage * STAGE_IN, row < rows);
    }
  };
  auto row_of = [&](int own) {  // of a unit of this thread; negative: there is none
    const int unit = rank * OWN_UNITS + own * THREADS + threadIdx.x, row = unit / 4;
    return own * THREADS + threadIdx.x < OWN_UNITS && row < rows ? row : -1;
  };
  const int out_at = block * PART_OUT + lane % 4 * THREAD_OUT;
#pragma unroll
  for (int s = 0; s < FIRST_STAGES; ++s) {
    fetch_weights(s, s);
    end_group();
  }
#if NEXT
  uint2 factors[QUADS];
#pragma unroll
  for (int q = 0; q < QUADS; ++q) factors[q] = *reinterpret_cast<const uint2*>(next_norm + out_at + q * 4);
#endif
  asm volatile("griddepcontrol.wait;" ::: "memory");

#pragma unroll
  for (int s = 0; s < FIRST_STAGES; ++s) {
    fetch_rows(s, s);
    end_group();
  }
  // The rest that the end needs is fetched here, as the end would have to wait for it.
#if SQUARES
  float4 parts[OWN][SQUARES / 16];  // this thread's quarter of them
#pragma unroll
  for (int own = 0; own < OWN; ++own)
    if (const int row = row_of(own); row >= 0)
#pragma unroll
      for (int i = 0; i < SQUARES / 16; ++i) {
        float4& to = parts[own][i];
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(to.x), "=f"(to.y), "=f"(to.z), "=f"(to.w)
                     : "l"(squares + row * SQUARES + (i * 4 + lane % 4) * 4) : "memory");
      }
#endif
#if RESIDUAL
  uint2 before[OWN][QUADS];
#pragma unroll
  for (int own = 0; own < OWN; ++own)
    if (const int row = row_of(own); row >= 0)
#pragma unroll
      for (int q = 0; q < QUADS; ++q)
        asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(before[own][q].x), "=r"(before[own][q].y)
                     : "l"(residual + row * OUT + out_at + q * 4) : "memory");
#endif

  float sums[BLOCK_OUT / INSTRUCTION_OUT][16] = {};
  int place = 0;
  auto use = [&](int stage) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");  // the stage before: its place is free then
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");    // for what this thread fetched
    __syncthreads();
    if (stage > 0 && stage - 1 + PLACES < STAGES) {
      const int free = place == 0 ? PLACES - 1 : place - 1;
      fetch_weights(stage - 1 + PLACES, free);
      fetch_rows(stage - 1 + PLACES, free);
    }
    end_group();
    const u32 at = stages + place * STAGE_BYTES;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < BLOCK_OUT / INSTRUCTION_OUT; ++i)
#pragma unroll
      for (int k = 0; k < STAGE_IN / 16; ++k)
        multiply(sums[i], lines_at(at) + k * 2, lines_at(at + X_BYTES + i * INSTRUCTION_OUT * 128) + k * 2);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    place = place + 1 == PLACES ? 0 : place + 1;
  };
  // Groups of fetches: weights of the first stages, rows of the first stages, then one group after each stage.
#pragma unroll
  for (int s = 0; s < FIRST_STAGES; ++s) {
    asm volatile("cp.async.wait_group %0;" :: "n"(FIRST_STAGES - 1) : "memory");
    use(s);
  }
#pragma unroll 2
  for (int s = FIRST_STAGES; s < STAGES; ++s) {
    asm volatile("cp.async.wait_group %0;" :: "n"(PLACES - 2) : "memory");
    use(s);
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int i = 0; i < BLOCK_OUT / INSTRUCTION_OUT; ++i)
    asm volatile("" : FOUR(sums[i], 0), FOUR(sums[i], 4), FOUR(sums[i], 8), FOUR(sums[i], 12) :: "memory");

  float4* received = reinterpret_cast<float4*>(shared + RECEIVED);  // [SPLIT][PARTS * QUADS][OWN_UNITS]
  wait_for_blocks();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int unit = warp * 64 + half * 32 + lane;
#pragma unroll
    for (int q = 0; q < PARTS * QUADS; ++q) {
      const float* four = sums[q / 2] + q % 2 * 8 + half * 2;
      send(received + (rank * PARTS * QUADS + q) * OWN_UNITS + unit % OWN_UNITS,
           make_float4(four[0], four[1], four[4], four[5]), unit / OWN_UNITS, all_received);
    }
  }
  wait_for_bytes(all_received);

#pragma unroll
  for (int own = 0; own < OWN; ++own) {
    const int row = row_of(own);
#if SQUARES
    float square = 0.f;
#pragma unroll
    for (int i = 0; i < SQUARES / 16; ++i)
      square += parts[own][i].x + parts[own][i].y + parts[own][i].z + parts[own][i].w;
    square += __shfl_xor_sync(~0u, square, 1);
    square += __shfl_xor_sync(~0u, square, 2);
    const float factor = rsqrtf(square / IN + eps);
#endif
    float next_square = 0.f;
    if (row >= 0) {
#pragma unroll
      for (int q = 0; q < QUADS; ++q) {
        float4 total[PARTS] = {};
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
          for (int v = 0; v < SPLIT; ++v)
            add(total[part], received[((v * PARTS + part) * QUADS + q) * OWN_UNITS + own * THREADS + threadIdx.x]);
#if SQUARES
          scale(total[part], factor);
#endif
        }
#if SWIGLU
        uint2 result = packed(activated(total[0], total[1]));
#else
        uint2 result = packed(total[0]);
#endif
#if RESIDUAL
        result = make_uint2(sum(result.x, before[own][q].x), sum(result.y, before[own][q].y));
#endif
        const int at = row * OUT + out_at + q * 4;
        *reinterpret_cast<uint2*>(out + at) = result;
#if NEXT
        next_square += first(result.x) * first(result.x) + second(result.x) * second(result.x) +
                       first(result.y) * first(result.y) + second(result.y) * second(result.y);
        *reinterpret_cast<uint2*>(scaled + at) =
            make_uint2(times(result.x, factors[q].x), times(result.y, factors[q].y));
#endif
      }
    }
#if NEXT
    next_square += __shfl_xor_sync(~0u, next_square, 1);
    next_square += __shfl_xor_sync(~0u, next_square, 2);
    if (row >= 0 && lane % 4 == 0) next_squares[row * (OUT / PART_OUT) + block] = next_square;
#endif
  }
}
