"""Values for a model's inputs: the user's, random ones, and samples for calibration and for a metric."""

from collage.setup.inputs.calibration import Calibration, calibration_samples, digest_values
from collage.setup.inputs.changing_sizes import sizes_in_turn
from collage.setup.inputs.labelled import Labelled, LabelledSamples, labelled_samples
from collage.setup.inputs.random_arrays import (
    DRAWS,
    Given,
    checked_inputs,
    checked_values,
    given_values,
    random_inputs,
    specs_as_given,
)

__all__ = [
    "DRAWS",
    "Calibration",
    "Given",
    "Labelled",
    "LabelledSamples",
    "calibration_samples",
    "checked_inputs",
    "checked_values",
    "digest_values",
    "given_values",
    "labelled_samples",
    "random_inputs",
    "sizes_in_turn",
    "specs_as_given",
]
