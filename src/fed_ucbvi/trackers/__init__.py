"""Callbacks for experiment trackers: TensorBoard, MLflow, Weights & Biases; their packages are imported when used."""
