"""Read a `vllm serve` command in any form that people deploy it, say what is wrong with it, and mend it."""
