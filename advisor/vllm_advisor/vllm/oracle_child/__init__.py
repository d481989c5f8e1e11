"""What runs in the environment of a vLLM: its own code, asked under a stand-in of a device; imports nothing of ours."""
