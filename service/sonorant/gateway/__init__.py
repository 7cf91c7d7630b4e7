"""The gateway: a process of its own that offers the protocols of common clients and calls Sonorant's servers by
gRPC."""
