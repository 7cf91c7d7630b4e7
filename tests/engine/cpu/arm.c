// Runs functions of engine/cpu on another machine: reads calls from a file and writes their results, for test_arm.py.

#include <stdio.h>
#include <stdlib.h>

#include "convolutions.h"

int multiply_rows(float *y, const float *x, const void *w, int64_t rows, int64_t n_in, int64_t n_out, int64_t format);
int convolve_positions(float *y, const float *x, const Conv *c, int64_t n);

static void *next(FILE *file, int64_t *size) {  // an array: its number of bytes, and these
  if (fread(size, sizeof *size, 1, file) != 1) return NULL;
  char *at = malloc(*size + 1);
  if (!at || fread(at, 1, *size, file) != (size_t)*size) exit(1);
  return at;
}

int main(int count, char **names) {
  FILE *calls = count == 3 ? fopen(names[1], "rb") : NULL, *results = calls ? fopen(names[2], "wb") : NULL;
  if (!results) return 1;
  int64_t size, *sizes;
  while ((sizes = next(calls, &size))) {
    float *x = next(calls, &size);
    void *w = next(calls, &size);
    int64_t outputs = sizes[1] * sizes[3];
    float *y = malloc(outputs * sizeof *y);
    if (sizes[0] >= 0) {  // format, rows, inputs, outputs
      if (multiply_rows(y, x, w, sizes[1], sizes[2], sizes[3], sizes[0])) return 1;
    } else {  // -1, positions, inputs, outputs, taps, dilation, and whether its weights are whole
      float *bias = next(calls, &size), *scales = next(calls, &size);
      Conv conv = {sizes[2], sizes[3], sizes[4], sizes[5], sizes[2], 0, w, sizes[6] ? scales : NULL, bias};
      if (convolve_positions(y, x, &conv, sizes[1])) return 1;
    }
    if (fwrite(y, sizeof *y, outputs, results) != (size_t)outputs) return 1;
  }
  return fclose(results);
}
