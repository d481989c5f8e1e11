"""`tuner kernels`: search the launches of our kernels on this machine, and keep what beats the default beyond noise.

Nothing is imported here: `cli` starts fast, and what measures is imported when it is called.
"""
