"""Commands about the engine: what this machine is like, what two processes cost."""
