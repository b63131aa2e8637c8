"""Your own volumes, NIfTI files or folders of DICOM series; each is read when it is drawn.

Volumes lie in `--data-dir` or below it, and all volumes of a patient go to one worker. For another
size, window or spacing copy this file into your `--datasets-dir` and change the constants: D = H =
W is one of 8, 16, 32, 64, … Every worker has its own data: `--data-dir 'scans/{rank}'`.
"""

from mdgan.data import VolumesPartitioner

SHAPE = (1, 32, 32, 32)
WINDOW: tuple[float, float] | None = None
"""The values that become −1 and 1; None: the quantiles at 0.5 % and 99.5 % of each volume."""
SPACING: float | None = None
"""mm between voxels; None fits each whole volume into SHAPE."""
DEFAULTS = {"architecture": "dcgan3d", "partition": "none"}


class Partitioner(VolumesPartitioner):
    """All volumes of a folder."""

    shape = SHAPE
    window = WINDOW
    spacing = SPACING
