"""One call of Speak or Decode: its messages, whose turn it is, its responses."""
