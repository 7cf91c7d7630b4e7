"""Text before it reaches the engine: checks, ends of sentences, pronunciations, revisions. Pure.

What a checkpoint is given for a character, such as "½", is decided in `sonorant.engine.prompt.characters`.
"""
