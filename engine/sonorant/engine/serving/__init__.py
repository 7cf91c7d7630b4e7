"""The engine in the service process: streams, worker pairs, routing, recovery. No torch."""
