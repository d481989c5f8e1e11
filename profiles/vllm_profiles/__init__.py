"""Shipped profiles: data only, each figure with where it comes from."""
