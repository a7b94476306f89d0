"""Decision rules: what is added to the logits after training, and how probabilities are calibrated."""
