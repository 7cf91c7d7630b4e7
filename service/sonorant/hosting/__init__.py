"""What processes that serve have in common, of server and gateway: ports, certificates, signals, children."""
