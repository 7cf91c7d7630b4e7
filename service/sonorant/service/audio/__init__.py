"""From the engine's samples to the bytes of the wire. Pure."""
