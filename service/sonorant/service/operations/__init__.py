"""What operators see: metrics, traces and latency. Also the garbage collector's timing."""
