"""The engine in the server process: streams, worker pairs, routing, recovery. No torch."""
