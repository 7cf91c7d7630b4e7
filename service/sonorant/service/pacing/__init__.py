"""When audio is made and sent: credit, the buffer of the listener, the one response that waits."""
