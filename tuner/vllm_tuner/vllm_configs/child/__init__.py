"""Scripts for another environment's Python, one that has vLLM: run as files, never imported from here."""
