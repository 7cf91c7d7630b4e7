"""The gateway: a process of its own that speaks the protocols people's clients know, and gRPC to Sonorant's servers."""
