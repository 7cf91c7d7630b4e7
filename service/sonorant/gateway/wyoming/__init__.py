"""The door for Home Assistant: Wyoming's protocol on a port of its own."""
