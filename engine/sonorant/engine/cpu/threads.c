// Threads that share the loops of frame.c and codec.c. They wait for work in a loop for a moment, because a frame has
// hundreds of products, and then sleep.

#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define MOST_THREADS 64
#define SPINS 4000             // some 30 us
#define WORTH_SHARING 400000   // multiplications; fewer take no longer than to share them

static pthread_mutex_t caller = PTHREAD_MUTEX_INITIALIZER;  // one loop is shared at a time
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_new = PTHREAD_COND_INITIALIZER;
static atomic_long round_number;
static atomic_int busy;
static int64_t num_threads = 1;

static struct {
  Part *part;
  const void *what;
  int64_t count, unit;
} job;

static void do_part(int64_t number) {
  int64_t units = (job.count + job.unit - 1) / job.unit;
  int64_t first = units * number / num_threads * job.unit, end = units * (number + 1) / num_threads * job.unit;
  job.part(job.what, first, end < job.count ? end : job.count);
}

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void *help(void *number) {
  for (long seen = 0;; seen++) {
    for (int spin = 0; spin < SPINS && atomic_load(&round_number) == seen; spin++) pause_briefly();
    if (atomic_load(&round_number) == seen) {
      pthread_mutex_lock(&mutex);
      while (atomic_load(&round_number) == seen) pthread_cond_wait(&is_new, &mutex);
      pthread_mutex_unlock(&mutex);
    }
    do_part((int64_t)number);
    atomic_fetch_sub(&busy, 1);
  }
  return NULL;
}

void share(Part *part, const void *what, int64_t count, int64_t unit, int64_t work) {
  if (num_threads == 1 || work < WORTH_SHARING || pthread_mutex_trylock(&caller)) {
    part(what, 0, count);
    return;
  }
  job.part = part, job.what = what, job.count = count, job.unit = unit;
  atomic_store(&busy, (int)num_threads - 1);
  pthread_mutex_lock(&mutex);
  atomic_fetch_add(&round_number, 1);
  pthread_cond_broadcast(&is_new);
  pthread_mutex_unlock(&mutex);
  do_part(0);
  for (int spin = 0; atomic_load(&busy); spin++) {
    if (spin < SPINS) pause_briefly();
    else sched_yield();  // more threads than cores
  }
  pthread_mutex_unlock(&caller);
}

// Starts threads, so that so many share each loop, this one included. Only the first call has an effect. They end with
// the process. Returns how many there are.
int64_t use_threads(int64_t wanted) {
  pthread_mutex_lock(&caller);
  if (atomic_load(&round_number) == 0 && num_threads == 1) {
    pthread_t thread;
    int64_t started = 1;
    while (started < wanted && started < MOST_THREADS && !pthread_create(&thread, NULL, help, (void *)started)) {
      pthread_detach(thread);
      started++;
    }
    num_threads = started;
  }
  int64_t all = num_threads;
  pthread_mutex_unlock(&caller);
  return all;
}
