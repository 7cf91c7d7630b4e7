"""The methods of the gRPC services: one thin file per service."""
