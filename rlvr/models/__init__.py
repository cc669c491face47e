"""Actor (token logprobs), critic (values), how they are loaded, and the built-in tiny model."""
