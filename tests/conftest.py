import importlib.util
import os

# Before torch is imported anywhere: two test processes with a thread pool each wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before Triton is imported anywhere: without a GPU its kernels are interpreted, on the CPU.
if importlib.util.find_spec("triton") and not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")
