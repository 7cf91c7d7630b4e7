// Products of positions and weights that lie in shared memory in pieces of eight channels, by matrix instructions of a
// warpgroup, in float16; and what is computed with the sums.
//
// A thread has sums of two positions, 8 apart, and of the columns 8 * n + 2 * (lane % 4) and the one after it: for each
// n two of the first position, then two of the second one. Columns are exchanged such that eight of a thread are
// channels next to each other.

// Pieces of 16 bytes, eight of them next to each other; `apart`: bytes from the pieces of eight channels to the next.
__device__ inline u64 pieces_at(u32 address, int apart) {
  return (u64)(address >> 4) | (u64)(apart >> 4) << 16 | (u64)(128 >> 4) << 32;
}

__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Ends a group of products, and waits for all but the last groups.
template <int LAST>
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(LAST) : "memory");
}

#define FOUR(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define SIXTEEN(a, i) FOUR(a, i), FOUR(a, i + 4), FOUR(a, i + 8), FOUR(a, i + 12)
#define SUMS_8(a) FOUR(a, 0), FOUR(a, 4)
#define SUMS_48(a) SIXTEEN(a, 0), SIXTEEN(a, 16), SIXTEEN(a, 32)
#define SUMS_64(a) SUMS_48(a), SIXTEEN(a, 48)
#define SUMS_96(a) SUMS_64(a), SIXTEEN(a, 64), SIXTEEN(a, 80)
#define NAMES_8 \
  "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_48 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_64 \
  NAMES_48 ", " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_96 \
  NAMES_64 ", " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// 64 positions of 16 channels times weights; `adds`: to the sums so far, instead of beginning new ones.
#define MULTIPLY(count, columns, first, second, third)                                                         \
  __device__ inline void multiply(float (&sums)[count], u64 positions, u64 weights, int adds) {                \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, %" #third ", 0; wgmma.mma_async.sync.aligned.m64n" #columns \
                 "k16.f32.f16.f16 {" NAMES_##count "}, %" #first ", %" #second ", adds, 1, 1, 0, 0;}"          \
                 : SUMS_##count(sums) : "l"(positions), "l"(weights), "r"(adds) : "memory");                   \
  }
MULTIPLY(48, 96, 48, 49, 50)
MULTIPLY(64, 128, 64, 65, 66)
MULTIPLY(96, 192, 96, 97, 98)

// The same, with values of positions in registers, which are those of the sums before.
#define MULTIPLY_VALUES(count, columns, a, b, c, d, e, f)                                                      \
  __device__ inline void multiply(float (&sums)[count], const u32 (&values)[4], u64 weights, int adds) {       \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, %" #f ", 0; wgmma.mma_async.sync.aligned.m64n" #columns  \
                 "k16.f32.f16.f16 {" NAMES_##count "}, {%" #a ", %" #b ", %" #c ", %" #d "}, %" #e             \
                 ", adds, 1, 1, 0;}"                                                                           \
                 : SUMS_##count(sums)                                                                          \
                 : "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]), "l"(weights), "r"(adds)     \
                 : "memory");                                                                                  \
  }
MULTIPLY_VALUES(8, 16, 8, 9, 10, 11, 12, 13)
MULTIPLY_VALUES(48, 96, 48, 49, 50, 51, 52, 53)

// Keeps the compiler from using sums before the products are over.
__device__ inline void keep(float (&sums)[8]) { asm volatile("" : SUMS_8(sums) :: "memory"); }
__device__ inline void keep(float (&sums)[48]) { asm volatile("" : SUMS_48(sums) :: "memory"); }
__device__ inline void keep(float (&sums)[64]) { asm volatile("" : SUMS_64(sums) :: "memory"); }
__device__ inline void keep(float (&sums)[96]) { asm volatile("" : SUMS_96(sums) :: "memory"); }

// SnakeBeta, see codec_layers.py.
__device__ inline float activated(float x, float frequency, float magnitude) {
  float wave;
  asm("sin.approx.f32 %0, %1;" : "=f"(wave) : "f"(x * frequency));
  return x + wave * wave * magnitude;
}

// Eight channels next to each other.
__device__ inline void store(unsigned short* to, const u32 (&pairs)[4]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}
