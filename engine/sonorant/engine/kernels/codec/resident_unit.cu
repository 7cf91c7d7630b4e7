// The residual unit of the codec decoder with 96 channels in float16: a causal convolution, an activation, a product
// with one tap, the residual sum and the next activation. See resident_unit.py.
//
// A block keeps all weights in shared memory and does several tiles, 128 positions each. It has two teams, which take
// tiles in turn: while one multiplies, the other one finishes its tile. A team is a warpgroup, and two warps that fetch
// the positions which the taps of the next tile see. They are fetched once for all taps: a matrix instruction of a
// warpgroup begins to read wherever a tap does, as pieces of eight channels of all positions lie next to each other.
//
// The columns of the weights are exchanged such that a thread has eight channels next to each other, for each quarter
// of a warp and each 32 channels. Hidden values go from the registers of the first product to those of the second.
//
// Macros: DILATION, PLAIN (also store the sum itself), PRODUCTS (store products of the activated positions with taps).

#define FLOAT16 1
#include "cluster.cuh"
#include "halves.cuh"
#include "barriers.cuh"
#include "pieces.cuh"

constexpr int CHANNELS = 96, TAPS = 7, TILE = 128, TEAMS = 2;
constexpr int HALF = TILE / 2;  // positions that an instruction takes
constexpr int PIECES = CHANNELS / 8;  // of eight channels, 16 bytes
constexpr int GROUPS = CHANNELS / 32;
constexpr int SEEN = TILE + (TAPS - 1) * DILATION;  // positions
constexpr int PLACES = (SEEN + 6) / 8 * 8 + 1;      // odd, so that the pieces of a position lie in different banks
constexpr int PIECE_BYTES = PLACES * 16, WINDOW_BYTES = PIECES * PIECE_BYTES;
constexpr int PRODUCT_CHANNELS = 16;
constexpr int NUM_PARAMETERS = 6 * CHANNELS;  // bias, frequency and magnitude of either product, float32
constexpr int FIRST_BYTES = TAPS * CHANNELS * CHANNELS * 2, SECOND_BYTES = CHANNELS * CHANNELS * 2;
constexpr int TAPS_BYTES = PRODUCTS ? CHANNELS * PRODUCT_CHANNELS * 2 : 0;
constexpr int IMAGE_BYTES = FIRST_BYTES + SECOND_BYTES + TAPS_BYTES + NUM_PARAMETERS * 4;
constexpr int WINDOWS = IMAGE_BYTES, BARRIERS = WINDOWS + TEAMS * WINDOW_BYTES;
constexpr int FETCHERS = 64;  // threads of a team
constexpr int FETCHES = (SEEN * PIECES + FETCHERS - 1) / FETCHERS;  // of each

// A tile of 128 new positions of a row.
struct Tile {
  int row, first;
};

extern "C" __global__ void __launch_bounds__(TEAMS * (128 + FETCHERS), 1) resident_unit(
    const unsigned short* __restrict__ x, const unsigned char* __restrict__ image, const unsigned short* residual,
    unsigned short* plain, unsigned short* out, int num_tiles, int tiles_of_block, int num_new, int x_positions,
    int plain_positions, int out_positions) {
  extern __shared__ __align__(1024) unsigned char shared[];
  asm volatile("griddepcontrol.launch_dependents;");
  const u32 base = address_of(shared), weights_there = base + BARRIERS;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;  // the same in all lanes
  const bool is_fetching = warp >= TEAMS * 4;
  const int team = is_fetching ? (warp - TEAMS * 4) / 2 : warp / 4;
  const u32 window = base + WINDOWS + team * WINDOW_BYTES;
  const u32 is_full = weights_there + 8 + team * 16, is_free = is_full + 8;
  if (threadIdx.x == 0) {
    initialize(weights_there, 1);
    for (int t = 0; t < TEAMS; ++t) {
      initialize(weights_there + 8 + t * 16, FETCHERS);
      initialize(weights_there + 16 + t * 16, 4);
    }
    show_barriers();
    arrive_before(IMAGE_BYTES, weights_there);
    copy(base, image, IMAGE_BYTES, weights_there);
  }
  __syncthreads();
  asm volatile("griddepcontrol.wait;" ::: "memory");

  const int first_tile = blockIdx.x * tiles_of_block;
  const int last_tile = min(first_tile + tiles_of_block, num_tiles);
  const int tiles_of_row = num_new / TILE;
  auto tile_of = [&](int number) { return Tile{number / tiles_of_row, number % tiles_of_row * TILE}; };

  if (is_fetching) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    int turn = 0;
    for (int number = first_tile + team; number < last_tile; number += TEAMS, ++turn) {
      const Tile tile = tile_of(number);
      const unsigned short* from = x + ((long long)tile.row * x_positions + tile.first) * CHANNELS;
      if (turn > 0) wait(is_free, (turn - 1) & 1);
#pragma unroll 8
      for (int f = 0; f < FETCHES; ++f) {
        const int i = f * FETCHERS + threadIdx.x % FETCHERS;  // piece by piece in memory
        if (i < SEEN * PIECES) fetch(window + i % PIECES * PIECE_BYTES + i / PIECES * 16, from + i * 8);
      }
      end_group();
      wait_for_groups<0>();
      arrive(is_full);
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const float2* parameters = reinterpret_cast<const float2*>(shared + IMAGE_BYTES - NUM_PARAMETERS * 4) + lane % 4;
  auto parameter = [&](int which, int eight) { return parameters[which * (CHANNELS / 2) + eight * 4]; };
  const int in_half = warp % 4 * 16 + lane / 4;  // this thread's first position; the other one is 8 further
  wait(weights_there, 0);
  int turn = 0;
  for (int number = first_tile + team; number < last_tile; number += TEAMS, ++turn) {
    const Tile tile = tile_of(number);
    float sums[2][48];
    u32 window_now = window, base_now = base;  // so that what follows from them is not computed for all tiles, but kept
    asm volatile("" : "+r"(window_now), "+r"(base_now));
    const u64 positions = pieces_at(window_now, PIECE_BYTES), weights = pieces_at(base_now, CHANNELS * 16);
    wait(is_full, turn & 1);
    begin_products();
#pragma unroll
    for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
      for (int k = 0; k < PIECES / 2; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          multiply(sums[half], positions + k * 2 * PLACES + half * HALF + tap * DILATION,
                   weights + (tap * PIECES + k * 2) * CHANNELS, tap > 0 || k > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");

    // Meanwhile, fetch what is added in the end.
    const long long at = ((long long)tile.row * num_new + tile.first + in_half) * CHANNELS + lane % 4 * 8;
    uint4 before[2][2][GROUPS];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int second = 0; second < 2; ++second)
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) {
          uint4& to = before[half][second][group];
          asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                       : "l"(residual + at + (half * HALF + second * 8) * CHANNELS + group * 32) : "memory");
        }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    keep(sums[0]);
    keep(sums[1]);
    __syncwarp();
    if (lane == 0) arrive(is_free);

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 values[PIECES / 2][4];
#pragma unroll
      for (int eight = 0; eight < PIECES; ++eight) {
        const float2 bias = parameter(0, eight), frequency = parameter(1, eight), magnitude = parameter(2, eight);
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          const float* pair = sums[half] + eight * 4 + second * 2;
          values[eight / 2][eight % 2 * 2 + second] = packed(activated(pair[0] + bias.x, frequency.x, magnitude.x),
                                                             activated(pair[1] + bias.y, frequency.y, magnitude.y));
        }
      }
      float total[48];
      begin_products();
#pragma unroll
      for (int k = 0; k < PIECES / 2; ++k)
        multiply(total, values[k], pieces_at(base + FIRST_BYTES + k * 2 * CHANNELS * 16, CHANNELS * 16), k > 0);
      end_products<0>();
      keep(total);

      const int position = tile.first + half * HALF + in_half;
      const long long plain_at = ((long long)(tile.row + 1) * plain_positions - num_new + position) * CHANNELS;
      const long long out_at = ((long long)(tile.row + 1) * out_positions - num_new + position) *
                               (PRODUCTS ? PRODUCT_CHANNELS : CHANNELS);
#pragma unroll
      for (int group = 0; group < GROUPS; ++group)
#pragma unroll
        for (int second = 0; second < 2; ++second) {
          const u32* added = reinterpret_cast<const u32*>(&before[half][second][group]);
          u32 sum[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int eight = group * 4 + i;
            const float2 bias = parameter(3, eight), frequency = parameter(4, eight), magnitude = parameter(5, eight);
            const float one = total[eight * 4 + second * 2] + bias.x + first(added[i]);
            const float other = total[eight * 4 + second * 2 + 1] + bias.y + ::second(added[i]);
            sum[i] = packed(one, other);
            values[eight / 2][eight % 2 * 2 + second] = packed(activated(one, frequency.x, magnitude.x),
                                                               activated(other, frequency.y, magnitude.y));
          }
          const long long in_row = second * 8 * CHANNELS + group * 32 + lane % 4 * 8;
          if (PLAIN) store(plain + plain_at + in_row, sum);
          if (!PRODUCTS)
            store(out + out_at + in_row, {values[group * 2][second], values[group * 2][2 + second],
                                          values[group * 2 + 1][second], values[group * 2 + 1][2 + second]});
        }
#if PRODUCTS
      float products[8];
      begin_products();
#pragma unroll
      for (int k = 0; k < PIECES / 2; ++k)
        multiply(products, values[k],
                 pieces_at(base + FIRST_BYTES + SECOND_BYTES + k * 2 * PRODUCT_CHANNELS * 16, PRODUCT_CHANNELS * 16),
                 k > 0);
      end_products<0>();
      keep(products);
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        u32* to = reinterpret_cast<u32*>(out + out_at + second * 8 * PRODUCT_CHANNELS) + lane % 4;
        const u32 rounded = packed(products[second * 2], products[second * 2 + 1]);
        to[0] = rounded;
        to[4] = packed(products[4 + second * 2] - first(rounded), products[5 + second * 2] - ::second(rounded));
      }
#endif
    }
  }
}
