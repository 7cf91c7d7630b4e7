"""Turns the engine's samples into the bytes of the wire. Pure."""
