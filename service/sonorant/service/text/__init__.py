"""Text before it reaches the engine: checks, ends of sentences, pronunciations, revisions. Pure."""
