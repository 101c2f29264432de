"""What the paper compares with, on the same CNNs, episodes and evaluation."""
