"""Accuracies that the paper reports, to be set beside our own."""

# Table 1, HyperTransformer rows: (dataset, way, shot, channels) -> test accuracy in percent.
PAPER = {
    ("omniglot", 20, shot, channels): accuracy
    for shot, row in ((1, (87.2, 93.7, 95.5, 95.7, 96.2)), (5, (94.7, 98.0, 98.6, 98.8, 98.8)))
    for channels, accuracy in zip((8, 16, 32, 48, 64), row)
}
