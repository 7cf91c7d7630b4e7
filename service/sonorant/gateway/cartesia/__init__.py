"""The door for clients of Cartesia: many texts at once over one WebSocket, token by token, and whole ones by HTTP."""
