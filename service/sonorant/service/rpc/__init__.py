"""The methods of the gRPC services: one file per service, thin over the rest."""
