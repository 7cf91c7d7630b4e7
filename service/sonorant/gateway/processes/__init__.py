"""The processes of a gateway: one or several on a port, started, served and ended."""
