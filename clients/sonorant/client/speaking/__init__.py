"""A session of utterances, what it keeps of each to go on after a loss, and what was heard."""
