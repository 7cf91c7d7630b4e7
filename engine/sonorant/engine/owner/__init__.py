"""What a host has once: the worker pairs of all server processes, their messages, judged deaths, encoders. No torch."""
