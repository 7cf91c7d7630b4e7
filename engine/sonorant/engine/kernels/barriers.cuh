// Barriers in shared memory that count arrivals and bytes, and copies to shared memory.

__device__ inline void initialize(u32 barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

// To be called by the thread that has initialized barriers, before others use them.
__device__ inline void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// Parity: that of the number of times the barrier was completed before the one to wait for.
__device__ inline void wait(u32 barrier, int parity) {
  asm volatile("{.reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again;}"
               :: "r"(barrier), "r"(parity) : "memory");
}

// Arrives, but lets the barrier wait for so many bytes, too.
__device__ inline void arrive_before(int num_bytes, u32 barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(num_bytes) : "memory");
}

// Copies bytes next to each other from global memory; the barrier counts them.
__device__ inline void copy(u32 to, const void* from, int num_bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(to), "l"(from), "r"(num_bytes), "r"(barrier) : "memory");
}

__device__ inline void fetch(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
__device__ inline void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all but the last groups, and makes them visible to matrix instructions.
template <int LAST>
__device__ inline void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" :: "n"(LAST) : "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
