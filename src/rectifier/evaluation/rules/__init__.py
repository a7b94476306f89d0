"""Decision rules: numbers added to the logits, fitted on validation."""
