"""Text before it reaches the engine: what is taken, where sentences end, how phrases are pronounced. Pure."""
