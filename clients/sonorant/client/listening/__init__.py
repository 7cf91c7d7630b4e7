"""At the ear: playing audio, the clock of playback, what a listener noticed."""
