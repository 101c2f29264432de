"""Task accuracies, confidence intervals and result records."""
