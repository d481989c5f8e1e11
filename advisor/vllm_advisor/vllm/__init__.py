"""All that we know of vLLM, by version."""
