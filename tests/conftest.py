import os

# Before torch is imported anywhere: two test processes with a thread pool each wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
