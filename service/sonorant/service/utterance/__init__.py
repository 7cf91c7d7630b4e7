"""One utterance: from its text to its audio, with its segments, marks, revisions and resumption."""
