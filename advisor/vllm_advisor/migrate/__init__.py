"""A `vllm serve` command carried to another vLLM version, and item by item what that changes for it."""
