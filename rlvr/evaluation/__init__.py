"""Evaluation on held-out problems, for `rlvr eval` and for training.

prompts      data sets as prompts
evaluator    answers, graded by rule
statistics   pass@k, maj@k, intervals, tests of significance
summary      figures and metrics of graded responses
records      an evaluation on disk
policy       a model opened by name
evaluate     all of it together: `rlvr eval`
"""
