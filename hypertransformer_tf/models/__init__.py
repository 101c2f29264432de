"""Tokens, Transformer, weight generators and generated CNNs."""
