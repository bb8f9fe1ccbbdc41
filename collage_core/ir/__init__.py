"""The intermediate representation: onnx_ir models, and indices over their graphs."""
