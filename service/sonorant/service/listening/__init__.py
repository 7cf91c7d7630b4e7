"""The ports of a server: gRPC on sockets that are accepted in order, and what wakes its event loop."""
