"""How fast a plan would be: `estimate.estimate`, a roofline with continuous batching in closed form."""
