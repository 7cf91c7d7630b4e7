"""The gRPC service: sessions, requests, audio encodings. Imports only the engine's root package, and never torch."""

__version__ = "0.1.0"
