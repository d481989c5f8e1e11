"""Calibration: real prompts through the model, one layer's weights in memory at a time, and what they show.

Scales for an FP8 KV cache, the experts that no prompt reaches, and what quantization would cost each layer. Nothing
here touches the model's folder: scales go into an overlay beside it.
"""
