"""Reads a checkpoint folder without torch: its JSON files, single embeddings, its fingerprint."""
