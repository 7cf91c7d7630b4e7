"""Connections to servers: which server, calls, attempts and pauses, how long a silence may last."""
