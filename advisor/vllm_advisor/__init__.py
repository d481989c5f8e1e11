"""vllm-advisor: what should run on these GPUs, and why."""

__version__ = "0.1.0"
