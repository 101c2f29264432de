"""Where images come from, class splits, episodes and augmentation."""
