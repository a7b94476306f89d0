"""Networks: images ``(N, C, H, W)`` in, ``Output(logits, features)`` out."""
