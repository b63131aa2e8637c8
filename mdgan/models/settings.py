"""The settings that name the models; this module imports fast, as it needs no torch."""

from mdgan.settings.declare import Settings, one_of, setting, text, whole
from mdgan.settings.names import Names
from mdgan.settings.plugins import ARCHITECTURES as OF_PACKAGES
from mdgan.settings.plugins import installed

FILE = "file"  # the value for the dataset file's own models
ARCHITECTURES = (
    *("dcgan", "lsgan", "sngan", "biggan", "acgan", "md-gan-mlp", "md-gan-cnn"),
    *("dcgan3d", "table"),
)
"""The architectures that come with mdgan; a dataset file may register others."""
ARCHITECTURE_NAMES = Names("architecture", FILE, *ARCHITECTURES)


class ModelSettings(Settings, group="models"):
    """Which models, and how large they are."""

    architecture: str = setting(
        FILE,
        f"Models to train: the dataset file's own (file), {', '.join(ARCHITECTURES)}, or one that "
        "the dataset file or an installed package has. Brings losses, optimizers and local steps "
        "along: those of its paper, but md-gan-mlp and md-gan-cnn have dcgan's, whose generator "
        "loss is non-saturating.",
        text(known=lambda _others: (FILE, *ARCHITECTURES, *installed(OF_PACKAGES))),
        metavar="NAME",
        other_names=("--model", "--arch", "--backbone"),
        is_usual=True,
    )
    width: int | None = setting(
        None,
        "Channels of the architecture's narrowest layers; the others have multiples of it.",
        whole(1, 1 << 14),
        metavar="CHANNELS",
        default_text="its paper's",
        other_names=("--channels", "--ngf", "--ndf", "--ch"),
    )
    norm: str = setting(
        "batch",
        "What stands where a discriminator has BatchNorm: that, or GroupNorm (group), which judges "
        "each sample by itself.",
        one_of("batch", "group"),
    )
