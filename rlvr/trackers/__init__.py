"""TensorBoard, Weights & Biases, MLflow and trackio: sinks of `rlvr.tracking`, a file each, all told of a run by `About`."""
