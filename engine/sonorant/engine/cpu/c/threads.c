// Threads that share the loops of the other files. They wait for work in a loop for a moment, because a frame has
// hundreds of products, and then sleep. They take pieces of a loop until none is left, so that a thread without a core,
// which the other worker may have, holds up one piece and not a whole share.

#include "api.h"
#include "threads.h"

#include <pthread.h>
#include <stdatomic.h>

#define MOST_THREADS 64
#define SPINS 4000             // some 30 us
#define WORTH_SHARING 400000   // multiplications; fewer take no longer than to share them
#define PIECES 4               // of a loop, for each thread: a thread that comes late leaves its pieces to the others

static pthread_mutex_t caller = PTHREAD_MUTEX_INITIALIZER;  // one loop is shared at a time
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t is_new = PTHREAD_COND_INITIALIZER, is_over = PTHREAD_COND_INITIALIZER;
static int64_t num_threads = 1;

// The loop that is shared: its number in the upper half, and how many of its pieces nobody has taken yet in the lower one.
// Whoever takes a piece of a loop makes it last until the piece is done, so only then may they read `job`.
static atomic_uint_fast64_t open_pieces;
static atomic_int undone;  // pieces

static struct {
  Part *part;
  const void *what;
  int64_t count, unit, pieces;
} job;

static uint32_t number_of_loop(void) { return (uint32_t)(atomic_load(&open_pieces) >> 32); }

// Does pieces of the loop of this number until none is left.
static void do_pieces(uint32_t number) {
  for (uint_fast64_t open = atomic_load(&open_pieces); open >> 32 == number && (uint32_t)open;) {
    if (!atomic_compare_exchange_weak(&open_pieces, &open, open - 1)) continue;
    int64_t units = (job.count + job.unit - 1) / job.unit, piece = job.pieces - (int64_t)(uint32_t)open;
    int64_t first = units * piece / job.pieces * job.unit, end = units * (piece + 1) / job.pieces * job.unit;
    job.part(job.what, first, end < job.count ? end : job.count);
    if (atomic_fetch_sub(&undone, 1) == 1) {
      pthread_mutex_lock(&mutex);
      pthread_cond_signal(&is_over);
      pthread_mutex_unlock(&mutex);
    }
    open = atomic_load(&open_pieces);
  }
}

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void *help(void *unused) {
  (void)unused;
  for (uint32_t seen = 0;; seen = number_of_loop()) {
    do_pieces(seen);
    for (int spin = 0; spin < SPINS && number_of_loop() == seen; spin++) pause_briefly();
    if (number_of_loop() != seen) continue;
    pthread_mutex_lock(&mutex);
    while (number_of_loop() == seen) pthread_cond_wait(&is_new, &mutex);
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

void share(Part *part, const void *what, int64_t count, int64_t unit, int64_t work) {
  if (num_threads == 1 || work < WORTH_SHARING || pthread_mutex_trylock(&caller)) {
    part(what, 0, count);
    return;
  }
  int64_t units = (count + unit - 1) / unit, pieces = num_threads * PIECES;
  if (pieces > units) pieces = units;
  job.part = part, job.what = what, job.count = count, job.unit = unit, job.pieces = pieces;
  atomic_store(&undone, (int)pieces);
  uint32_t number = number_of_loop() + 1;
  pthread_mutex_lock(&mutex);
  atomic_store(&open_pieces, (uint64_t)number << 32 | (uint64_t)pieces);
  pthread_cond_broadcast(&is_new);
  pthread_mutex_unlock(&mutex);
  do_pieces(number);
  for (int spin = 0; spin < SPINS && atomic_load(&undone); spin++) pause_briefly();
  if (atomic_load(&undone)) {  // give the core to a thread that has a piece and no core
    pthread_mutex_lock(&mutex);
    while (atomic_load(&undone)) pthread_cond_wait(&is_over, &mutex);
    pthread_mutex_unlock(&mutex);
  }
  pthread_mutex_unlock(&caller);
}

const char *sources_version(void) { return SOURCES_VERSION; }

int64_t use_threads(int64_t wanted) {
  pthread_mutex_lock(&caller);
  if (number_of_loop() == 0 && num_threads == 1) {
    pthread_t thread;
    int64_t started = 1;
    while (started < wanted && started < MOST_THREADS && !pthread_create(&thread, NULL, help, NULL)) {
      pthread_detach(thread);
      started++;
    }
    num_threads = started;
  }
  int64_t all = num_threads;
  pthread_mutex_unlock(&caller);
  return all;
}
