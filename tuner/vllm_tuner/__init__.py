"""Measure, compare and adopt vLLM configurations. Rooms are added with the tuner."""
