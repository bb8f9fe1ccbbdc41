"""The independent judge (`harness`) and its models (`models`); neither imports Collage."""
