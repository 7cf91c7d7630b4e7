"""The `sonorant` command."""
