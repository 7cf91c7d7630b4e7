"""Puts load on a server and measures, at the client, what listeners get."""
