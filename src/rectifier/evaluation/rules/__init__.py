"""Decision rules: offsets added to the logits after training; and calibration of probabilities."""
