// Shares a loop among threads.

#ifndef SONORANT_THREADS_H
#define SONORANT_THREADS_H

#include <stdint.h>

// Does a part of a loop: its turns from `first` to before `end`.
typedef void Part(const void *what, int64_t first, int64_t end);

// Has the threads do `count` turns, `unit` of them together at least. `work` is about how many multiplications all turns
// have: little work stays in this thread. Which thread does which turn must not matter.
void share(Part *part, const void *what, int64_t count, int64_t unit, int64_t work);

#endif
