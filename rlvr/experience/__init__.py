"""The collecting half of a step: rollouts and rewards become experience with logprobs, values and advantages."""
