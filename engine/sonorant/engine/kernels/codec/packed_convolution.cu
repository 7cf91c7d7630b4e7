// Causal convolutions of the codec decoder with two taps or more, in float16; see packed_convolution.py.
//
// A block does 256 positions times BLOCK_OUT outputs at a time, with two teams that share the weights. A team is a
// warpgroup and does 128 of the positions. The positions that the taps see are fetched once for all taps, 64 channels
// at a time (a "window"): a matrix instruction of a warpgroup begins to read wherever a tap does, as pieces of eight
// channels of all positions lie next to each other. The weights of one tap and 64 channels are a "stage".
//
// Positions are counted through all rows, with those that the convolution remembers. The outputs of the last ones of a
// row mean nothing, as their taps see the next row; they are not stored.
//
// With UNIT, it is a whole residual unit: the activated sums go from registers into a second product, of one tap, and
// the residual is added.
//
// Macros: CHANNELS_IN, SIZE_OUT, TAPS, DILATION, BLOCK_OUT, UNIT, PLAIN (also store what is not activated).

#define FLOAT16 1
#include "cluster.cuh"
#include "halves.cuh"
#include "barriers.cuh"
#include "pieces.cuh"

constexpr int TEAMS = UNIT ? 3 : 2, HALVES = UNIT ? 1 : 2;  // halves: of 64 positions, which an instruction takes
constexpr int HALF = 64, TEAM_TILE = HALVES * HALF, TILE = TEAMS * TEAM_TILE;
constexpr int WINDOW_CHANNELS = 64, PIECES = WINDOW_CHANNELS / 8;
constexpr int NUM_WINDOWS = CHANNELS_IN / WINDOW_CHANNELS, NUM_STAGES = NUM_WINDOWS * TAPS;
constexpr int SEEN = TILE + (TAPS - 1) * DILATION;  // positions
constexpr int PLACES = (SEEN + 6) / 8 * 8 + 1;      // odd, so that the pieces of a position lie in different banks
constexpr int WINDOW_BYTES = PIECES * PLACES * 16, STAGE_BYTES = BLOCK_OUT * WINDOW_CHANNELS * 2;
constexpr int FETCHERS = 96;  // threads that fetch windows; one more fetches stages
constexpr int FETCHES = (SEEN * PIECES + FETCHERS - 1) / FETCHERS;
constexpr int MOST_BYTES = 227 * 1024;  // of shared memory
constexpr int WINDOWS = 3;              // in shared memory
constexpr int STAGES = (MOST_BYTES - WINDOWS * WINDOW_BYTES - 1024) / STAGE_BYTES;
constexpr int BARRIERS = WINDOWS * WINDOW_BYTES + STAGES * STAGE_BYTES;
constexpr int NUM_BLOCKS_OUT = SIZE_OUT / BLOCK_OUT;
constexpr int SUMS = BLOCK_OUT / 2;  // of a thread, for 64 positions
constexpr int SECOND_STAGES = UNIT ? BLOCK_OUT / WINDOW_CHANNELS : 0, ALL_STAGES = NUM_STAGES + SECOND_STAGES;
constexpr int PART_OUT = UNIT ? 96 : BLOCK_OUT, PARTS = UNIT ? BLOCK_OUT / PART_OUT : HALVES;  // of the result

static_assert(CHANNELS_IN % WINDOW_CHANNELS == 0 && SIZE_OUT % BLOCK_OUT == 0 && BLOCK_OUT % 32 == 0, "no rest");
static_assert(STAGES >= 3 && STAGES >= SECOND_STAGES, "stages are fetched while one is used");
static_assert(!UNIT || NUM_BLOCKS_OUT == 1, "the second product takes all channels");

extern "C" __global__ void __launch_bounds__(TEAMS * 128 + 128, 1) packed_convolution(
    const unsigned short* __restrict__ x, const unsigned short* __restrict__ weights,
    const float* __restrict__ parameters, const unsigned short* residual, unsigned short* plain, unsigned short* out,
    int num_positions, int num_tiles, int tiles_of_block, int num_new, int x_positions, int plain_positions,
    int out_positions) {
  extern __shared__ __align__(1024) unsigned char shared[];
  asm volatile("griddepcontrol.launch_dependents;");
  const u32 windows = address_of(shared), stages = windows + WINDOWS * WINDOW_BYTES;
  const u32 full_windows = windows + BARRIERS, free_windows = full_windows + WINDOWS * 8;
  const u32 full_stages = free_windows + WINDOWS * 8, free_stages = full_stages + STAGES * 8;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // warp: the same in all lanes
  if (threadIdx.x == 0) {
    for (int i = 0; i < WINDOWS; ++i) initialize(full_windows + i * 8, FETCHERS);
    for (int i = 0; i < STAGES; ++i) initialize(full_stages + i * 8, 1);
    for (int i = 0; i < WINDOWS; ++i) initialize(free_windows + i * 8, TEAMS * 4);
    for (int i = 0; i < STAGES; ++i) initialize(free_stages + i * 8, TEAMS * 4);
    show_barriers();
  }
  __syncthreads();
  const int first_tile = blockIdx.x * tiles_of_block;
  const int last_tile = min(first_tile + tiles_of_block, num_tiles);

  if (warp >= TEAMS * 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(UNIT ? 32 : 40));
    if (warp == TEAMS * 4 + 3) {
      int place = 0, parity = 1;
      for (int tile = first_tile; tile < last_tile; ++tile) {
        const unsigned short* from = weights + (lane * SIZE_OUT + tile % NUM_BLOCKS_OUT * BLOCK_OUT) * 8;
        for (int stage = 0; stage < ALL_STAGES; ++stage) {
          wait(free_stages + place * 8, parity);
          if (lane == 0) arrive_before(STAGE_BYTES, full_stages + place * 8);
          __syncwarp();
          if (lane < PIECES)
            copy(stages + place * STAGE_BYTES + lane * BLOCK_OUT * 16,
                 from + (long long)stage * WINDOW_CHANNELS * SIZE_OUT, BLOCK_OUT * 16, full_stages + place * 8);
          if (++place == STAGES) place = 0, parity ^= 1;
        }
      }
      return;
    }
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const int fetcher = threadIdx.x - TEAMS * 128;
    int place = 0, parity = 1, before = -1;
    for (int tile = first_tile; tile < last_tile; ++tile) {
      const int first = tile / NUM_BLOCKS_OUT * TILE;
      const int seen = min(SEEN, num_positions - first);
      for (int window = 0; window < NUM_WINDOWS; ++window) {
        const unsigned short* from = x + (long long)first * CHANNELS_IN + window * WINDOW_CHANNELS;
        wait(free_windows + place * 8, parity);
        const u32 to = windows + place * WINDOW_BYTES;
#pragma unroll 4
        for (int f = 0; f < FETCHES; ++f) {
          const int i = f * FETCHERS + fetcher;
          if (i < seen * PIECES)
            fetch(to + (i % PIECES * PLACES + i / PIECES) * 16, from + i / PIECES * CHANNELS_IN + i % PIECES * 8);
        }
        end_group();
        if (before >= 0) {
          wait_for_groups<1>();
          arrive(full_windows + before * 8);
        }
        before = place;
        if (++place == WINDOWS) place = 0, parity ^= 1;
      }
    }
    wait_for_groups<0>();
    arrive(full_windows + before * 8);
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(UNIT ? 160 : 232));
  const int team = warp / 4, in_half = warp % 4 * 16 + lane / 4;  // the other position of this thread is 8 further
  int stage_place = 0, stage_parity = 0, window_place = 0, window_parity = 0;
  for (int tile = first_tile; tile < last_tile; ++tile) {
#if UNIT
    // Have what is added in the end come nearer.
    constexpr int LINES = SIZE_OUT / 64;  // of 128 bytes
    for (int i = threadIdx.x % 128; i < TEAM_TILE * LINES; i += 128) {
      const int at = tile * TILE + team * TEAM_TILE + i / LINES, row = at / x_positions, position = at % x_positions;
      const unsigned short* line = residual + ((long long)row * num_new + position) * SIZE_OUT + i % LINES * 64;
      if (position < num_new && at < num_positions) asm volatile("prefetch.global.L2 [%0];" :: "l"(line));
    }
#endif
    float sums[HALVES][SUMS] = {};
    int used_stage = -1, used_window = -1;  // by the products that may not be over
    for (int window = 0; window < NUM_WINDOWS; ++window) {
      wait(full_windows + window_place * 8, window_parity);
      u64 positions = pieces_at(windows + window_place * WINDOW_BYTES + team * TEAM_TILE * 16, PLACES * 16);
#pragma unroll 1
      for (int tap = 0; tap < TAPS; ++tap, positions += DILATION) {
        wait(full_stages + stage_place * 8, stage_parity);
        const u64 factors = pieces_at(stages + stage_place * STAGE_BYTES, BLOCK_OUT * 16);
        begin_products();
#pragma unroll
        for (int k = 0; k < PIECES / 2; ++k)
#pragma unroll
          for (int half = 0; half < HALVES; ++half)
            multiply(sums[half], positions + k * 2 * PLACES + half * HALF, factors + k * 2 * BLOCK_OUT, 1);
        end_products<1>();
        if (lane == 0) {
          if (used_stage >= 0) arrive(free_stages + used_stage * 8);
          if (used_window >= 0) arrive(free_windows + used_window * 8);
        }
        used_stage = stage_place;
        used_window = tap == TAPS - 1 ? window_place : -1;
        if (++stage_place == STAGES) stage_place = 0, stage_parity ^= 1;
      }
      if (++window_place == WINDOWS) window_place = 0, window_parity ^= 1;
    }
    end_products<0>();
#pragma unroll
    for (int half = 0; half < HALVES; ++half) keep(sums[half]);
    if (lane == 0) {
      arrive(free_stages + used_stage * 8);
      arrive(free_windows + used_window * 8);
    }

    if (tile == first_tile) asm volatile("griddepcontrol.wait;" ::: "memory");  // for what is written
    const int block_out = tile % NUM_BLOCKS_OUT;
    const float2* own = reinterpret_cast<const float2*>(parameters + block_out * BLOCK_OUT) + lane % 4;
    auto parameter = [&](int which, int eight) {  // not kept for both halves, as registers would not suffice
      float2 v;
      asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y)
                   : "l"(own + which * (SIZE_OUT / 2) + eight * 4));
      return v;
    };
#if UNIT
    u32 values[BLOCK_OUT / 16][4];
#pragma unroll
    for (int eight = 0; eight < BLOCK_OUT / 8; ++eight) {
      const float2 bias = parameter(0, eight), frequency = parameter(1, eight), magnitude = parameter(2, eight);
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const float* pair = sums[0] + eight * 4 + second * 2;
        values[eight / 2][eight % 2 * 2 + second] = packed(activated(pair[0] + bias.x, frequency.x, magnitude.x),
                                                           activated(pair[1] + bias.y, frequency.y, magnitude.y));
      }
    }
    u32 second_stages[SECOND_STAGES];
#pragma unroll
    for (int stage = 0; stage < SECOND_STAGES; ++stage) {
      second_stages[stage] = stage_place;
      wait(full_stages + stage_place * 8, stage_parity);
      if (++stage_place == STAGES) stage_place = 0, stage_parity ^= 1;
    }
#endif
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#if UNIT
      float total[48];
      begin_products();
#pragma unroll
      for (int stage = 0; stage < SECOND_STAGES; ++stage)
#pragma unroll
        for (int k = 0; k < PIECES / 2; ++k)
          multiply(total, values[stage * (PIECES / 2) + k],
                   pieces_at(stages + second_stages[stage] * STAGE_BYTES, BLOCK_OUT * 16) + k * 2 * BLOCK_OUT +
                       part * PART_OUT,
                   stage > 0 || k > 0);
      end_products<0>();
      keep(total);
      if (part == PARTS - 1 && lane == 0)
#pragma unroll
        for (int stage = 0; stage < SECOND_STAGES; ++stage) arrive(free_stages + second_stages[stage] * 8);
#else
      float(&total)[SUMS] = sums[part];
#endif
      const int half = UNIT ? 0 : part, first_group = UNIT ? part * (PART_OUT / 32) : 0;
      const int in_row = block_out * BLOCK_OUT + first_group * 32 + lane % 4 * 8;
      const unsigned short* residual_at[2];  // of this thread's two positions
      unsigned short *plain_at[2], *out_at[2];
      bool is_new[2];
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const int at = tile / NUM_BLOCKS_OUT * TILE + team * TEAM_TILE + half * HALF + in_half + second * 8;
        const int row = at / x_positions, position = at % x_positions;
        is_new[second] = position < num_new && at < num_positions;
        auto place = [&](int positions) {
          return ((long long)(row + 1) * positions - (num_new - position)) * SIZE_OUT + in_row;
        };
        residual_at[second] = residual + place(num_new);
        plain_at[second] = plain + place(plain_positions);
        out_at[second] = out + place(out_positions);
      }
#pragma unroll
      for (int group = 0; group < PART_OUT / 32; ++group)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          u32 value[4], active[4];
          uint4 before = {};
          if (UNIT && is_new[second]) before = *reinterpret_cast<const uint4*>(residual_at[second] + group * 32);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int eight = first_group * 4 + group * 4 + i;
            const float2 bias = parameter(UNIT * 3, eight), frequency = parameter(UNIT * 3 + 1, eight),
                         magnitude = parameter(UNIT * 3 + 2, eight);
            const float* pair = total + (group * 4 + i) * 4 + second * 2;
            float one = pair[0] + bias.x, other = pair[1] + bias.y;
            if (UNIT) {
              const u32 added = reinterpret_cast<const u32*>(&before)[i];
              one += first(added), other += ::second(added);
            }
            value[i] = packed(one, other);
            active[i] =
                packed(activated(one, frequency.x, magnitude.x), activated(other, frequency.y, magnitude.y));
          }
          if (!is_new[second]) continue;
          if (PLAIN) store(plain_at[second] + group * 32, value);
          store(out_at[second] + group * 32, active);
        }
    }
  }
}
