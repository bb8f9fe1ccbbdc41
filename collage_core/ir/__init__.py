"""The intermediate representation: models of onnx_ir, and indices over their graphs."""
