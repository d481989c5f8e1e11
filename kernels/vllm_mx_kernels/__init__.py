"""MXFP4 and FP8 kernels: correct, then fast, then chosen. Rooms are added with the kernels."""
