"""What a checkpoint folder says about itself, read without torch."""
