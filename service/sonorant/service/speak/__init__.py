"""The speaking path: from the text of a call to the audio of its utterances."""
