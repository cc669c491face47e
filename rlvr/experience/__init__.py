"""Rollouts and rewards become experience: logprobs, values, advantages; kept ragged in a buffer."""
