"""Files that options name, which no output may replace."""

from __future__ import annotations

from pathlib import Path


def given_files(metric: str | None, *samples: Path | None) -> list[Path]:
    """Return the files of a metric and of samples.

    Args:
        metric: As `--metric` names it.
        *samples: Files or folders of samples.
    """
    from collage.control.metric import metric_file
    from collage.setup.inputs.calibration import sample_files

    files = [file for each in samples if each is not None for file in sample_files(each)]
    return files if metric is None else [metric_file(metric), *files]
