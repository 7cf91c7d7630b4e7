"""The gRPC service: sessions, requests, audio encodings. Knows the engine by its root package only, and no torch."""

__version__ = "0.1.0"
