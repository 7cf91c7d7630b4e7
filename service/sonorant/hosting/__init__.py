"""What every process that serves has in common, of the server and of the gateway: addresses, certificates, files."""
