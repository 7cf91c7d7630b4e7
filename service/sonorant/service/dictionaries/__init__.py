"""Pronunciation dictionaries that are kept on the server."""
