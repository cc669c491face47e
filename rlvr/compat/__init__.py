"""The calls of other toolkits (TRL's PPO trainer and functions, aitraining's parameters), thin over this library's trainer."""
