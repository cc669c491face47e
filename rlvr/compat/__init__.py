"""Other libraries' calls, with this library behind them: for code and habits that exist already.

    trl                  TRL's `PPOTrainer`; its settings in trl_config, its arguments' conversion in trl_parts
    trl_functions        TRL's `generate`, `batch_generation` and `forward`
    aitraining           the parameters of `aitraining llm`
    aitraining_project   its `Project`, which trains

ColossalChat's calls need no facade: `rlvr.PPOTrainer` and the scripts take them.
"""
