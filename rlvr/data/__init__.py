"""Problems: where they are read from, how they become prompts, and in which order they are sampled."""
