"""The endpoint for Home Assistant: the Wyoming protocol on a port of its own."""
