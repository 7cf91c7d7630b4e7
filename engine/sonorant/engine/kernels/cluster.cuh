// What the blocks of a cluster send to each other's shared memory. The receiver counts the bytes that have come, on a
// barrier in its own memory. A barrier of the whole cluster would wait for all other memory as well.

typedef unsigned int u32;

__device__ inline u32 address_of(const void* shared) { return (u32)__cvta_generic_to_shared(shared); }

__device__ inline u32 of_block(u32 address, int rank) {
  u32 theirs;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(address), "r"(rank));
  return theirs;
}

// To be called by all threads, at the start. `wait_for_blocks` must come before anything is sent.
__device__ inline void expect(u32 barrier, int num_bytes) {
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(barrier) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(num_bytes) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Until all blocks of the cluster expect what comes.
__device__ inline void wait_for_blocks() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

__device__ inline void send(float4* to, float4 v, int rank, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
               :: "r"(of_block(address_of(to), rank)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w),
                  "r"(of_block(barrier, rank)) : "memory");
}

__device__ inline void send(float* to, float v, int rank, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
               :: "r"(of_block(address_of(to), rank)), "f"(v), "r"(of_block(barrier, rank)) : "memory");
}

__device__ inline void wait_for_bytes(u32 barrier) {
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra again;}"
               :: "r"(barrier) : "memory");
}
