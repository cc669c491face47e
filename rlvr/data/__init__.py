"""Data: where problems and supervised rows are read from, how they become tokens, and in which order they are sampled.

rows          rows of files, folders and hub sets
problems      `Problem`: question and right answer, found in the columns of a row
readers       `read_problems`: problems from any mixture of sources
generated     the data sets that are made from a seed, by name: `builtin`, `arithmetic@1`, `word_problems@3:test`
drawing       how they are drawn: reproducible, different, with a held-out split; `worked_example` for fine-tuning
builtin       running sums for the built-in model
patterns      worded problems from sentence patterns, at levels
arithmetic    sums, differences, products, quotients in words
word_problems stories of one and two steps
prompts       problems as token ids for PPO
sft           rows of prompts and responses as token ids, for fine-tuning and the ptx loss
preferences   rows of a better and a worse response as token ids, for reward models
supervised    the data sets of `rlvr sft` and `rlvr reward-model`, with what is held out
batches       batches of other toolkits' loaders as our rows
sampling      the order, resumable, the same for any number of processes
"""
