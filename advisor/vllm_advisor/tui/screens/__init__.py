"""One screen a file; `steps.py` names them in their order."""
