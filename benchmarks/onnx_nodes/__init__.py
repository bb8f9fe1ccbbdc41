"""ONNX's own node tests through Collage, through ONNX Runtime alone and through ONNX's evaluator alone."""
