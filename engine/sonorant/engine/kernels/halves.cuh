// Pairs of bfloat16 or, with FLOAT16, of float16 values, as kernels in CUDA C++ compute with them.

#if FLOAT16
#define TYPE "f16"
#else
#define TYPE "bf16"
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ inline u32 times(u32 a, u32 b) {
  u32 c;
  asm("mul.rn." TYPE "x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
  return c;
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

__device__ inline float rounded(float a) { return first(packed(a, 0.f)); }
__device__ inline uint2 packed(float4 a) { return make_uint2(packed(a.x, a.y), packed(a.z, a.w)); }
__device__ inline u32 sum(u32 a, u32 b) { return packed(first(a) + first(b), second(a) + second(b)); }
__device__ inline void add(float4& a, float4 b) { a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w; }
__device__ inline void scale(float4& a, float b) { a.x *= b; a.y *= b; a.z *= b; a.w *= b; }

// silu(gate) * up, rounded as in the plain twin.
__device__ inline float activated(float gate, float up) {
  gate = rounded(gate);
  return rounded(gate / (1.f + __expf(-gate))) * rounded(up);
}

__device__ inline float4 activated(float4 gate, float4 up) {
  return make_float4(
      activated(gate.x, up.x), activated(gate.y, up.y), activated(gate.z, up.z), activated(gate.w, up.w));
}
