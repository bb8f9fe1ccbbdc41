"""The outside judge (`harness`) and the models it judges on (`models`); neither imports Collage."""
