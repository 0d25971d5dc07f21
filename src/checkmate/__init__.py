"""Schedule ONNX training graphs to fit a memory budget, with proof."""

__version__ = "0.1.0"
