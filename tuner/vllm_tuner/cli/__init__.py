"""The command line of the tuner."""
