"""The training loop, in parts."""
