"""Voices: presets, stored voices, recordings, designs and mixes."""
