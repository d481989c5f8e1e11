"""The public recipes of the vLLM project, read from the user's own clone and held against our plan."""
