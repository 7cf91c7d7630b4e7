import importlib.util
import os
import signal

from hypothesis import HealthCheck, settings

# Before torch is imported anywhere: two test processes with a thread pool each wait for one another most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Before Triton is imported anywhere: without a GPU its kernels are interpreted, on the CPU.
if importlib.util.find_spec("triton") and not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell that starts us in the background has SIGINT ignored, and so would every process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no limit on the time of one: what this machine does beside must decide nothing.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Other examples in every run (pytest --hypothesis-profile=fuzz); pin what fails with @example.
settings.register_profile("fuzz", deadline=None, print_blob=True)
settings.load_profile("suite")
