"""Facts with their source: GPUs and models."""
