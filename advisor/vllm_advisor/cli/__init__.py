"""The `advisor` command."""
