"""Metrics on their way to people: summed (`meter`), handed to files and trackers (`tracker`, `sinks`, `samples`), and
searched for signs of a run going wrong (`diagnosis`)."""
