"""The memory of the talker: KV pages, shared prefixes, and which streams hold them. Pure."""
