"""The run folder: everything that a training run leaves behind."""
