"""The gRPC servers behind the gateway: which there are, calls on them, voices, what is spoken on them."""
