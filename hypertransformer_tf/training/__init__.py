"""Episode step, losses, schedules, strategies, checkpoints and the training loop."""
