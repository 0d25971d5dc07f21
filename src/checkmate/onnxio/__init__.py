"""ONNX models in and out; the only room with onnx beside the profiler's one-op models."""
