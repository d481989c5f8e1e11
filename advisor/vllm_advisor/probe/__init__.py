"""What is in this machine: one door to each vendor library."""
