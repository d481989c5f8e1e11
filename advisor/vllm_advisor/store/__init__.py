"""Profiles, trials and what the tuner did, in SQLite or PostgreSQL. `profile_store` writes, `lookup` only reads.

Nothing is imported here: `advisor recommend` reads through `lookup` alone, which knows only the standard library.
"""
