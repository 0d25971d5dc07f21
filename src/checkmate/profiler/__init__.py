"""What an op costs, measured with onnxruntime and remembered."""
