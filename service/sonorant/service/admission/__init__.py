"""Who gets in, in which order: permits of all kinds, the limits of API keys and addresses, and the queue for places."""
