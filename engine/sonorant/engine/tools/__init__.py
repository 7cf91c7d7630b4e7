"""Commands that examine this machine, and measure what running the engine in two processes costs."""
