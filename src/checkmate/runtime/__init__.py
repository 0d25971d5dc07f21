"""onnxruntime: sessions, runs, measured memory; the only room with onnxruntime."""
