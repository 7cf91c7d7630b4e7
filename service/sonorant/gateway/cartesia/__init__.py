"""The endpoints for Cartesia's clients: many texts at once, token by token, over a WebSocket; whole texts by HTTP."""
