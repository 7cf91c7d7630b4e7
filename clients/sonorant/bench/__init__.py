"""Load on a server, measured where it is heard: at the client."""
