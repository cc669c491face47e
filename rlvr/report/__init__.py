"""`rlvr report`: one page that shows runs: curves, time, samples, diagnosis, settings. It opens without a network."""
