"""What is known of a GPU, and who asks for it. Nobody else asks: everything follows from a `Card`."""
