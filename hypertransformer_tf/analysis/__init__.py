"""Pictures of episodes and of what the model does."""
