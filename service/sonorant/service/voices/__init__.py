"""Who speaks: presets, stored voices, recordings, designs and mixes."""
