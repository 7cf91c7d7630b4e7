"""What operators see: metrics, traces, latency; and when garbage is collected."""
