"""How much memory a plan takes and leaves: `budget.budget`, and what would make it fit: `remedies.remedies`."""
