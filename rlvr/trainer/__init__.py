"""`OnlineTrainer`, the loop with its hooks, and `PPOTrainer` on top of it."""
