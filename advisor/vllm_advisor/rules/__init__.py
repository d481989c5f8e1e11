"""The decision matrix: a table of rules, their predicates, and the engine that judges."""
