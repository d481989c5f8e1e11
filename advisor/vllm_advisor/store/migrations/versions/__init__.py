"""One module a schema, named after its revision; a released one never changes."""
