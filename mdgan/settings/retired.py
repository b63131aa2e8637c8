"""Translates settings of earlier versions in files; refuses them as flags, with the new name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mdgan.errors import BadInput
from mdgan.settings.layers import both, parts_of
from mdgan.spelling import flag

_NETWORKS = ("generator", "discriminator")
_SAME_KEYS = ("lr", "beta1", "beta2", "epsilon", "weight_decay", "clip_norm", "schedule")
_KEYS = {**{key: key for key in _SAME_KEYS}, "warmup_iterations": "warmup"}
RENAMED: dict[str, tuple[str, str]] = {
    **{
        f"{network}_{old}": (f"{network}_optimizer", f"{key}={{}}")
        for network in _NETWORKS
        for old, key in _KEYS.items()
    },
    "wire_images": ("wire", "images={}"),
    "wire_feedback": ("wire", "feedback={}"),
    "wire_models": ("wire", "models={}"),
    "dp_tell": ("dp_disclose", "{}"),
}
"""Old name → the new name, and the new value with {} in place of the old value."""
_OF_BOTH = ("beta1", "beta2")  # were for both networks, unless one had its own
_WITHOUT_BETA2 = ("sgd", "lars")


class Gone(NamedTuple):
    """A setting that no longer exists: its old default, and what the user should do or know."""

    default: object
    why: str


GONE = {
    "join_token": Gone(None, "give credentials instead (`mdgan credentials new FILE` makes them)"),
    "relay": Gone("auto", "discriminators go through the server where it cannot be helped"),
    "tune": Gone(False, f"add {flag('vectorize')} if `mdgan plan` says that it pays"),
    "dp_repeatable": Gone(False, f"noise is never repeatable; {flag('dp_noise', 0)} adds none"),
    "ada_images": Gone(500_000, "it is 500000, as in the paper"),
    "slot_rounds": Gone(3, f"{flag('slots', 'auto')} tries one more after 3 rounds"),
    "time_window": Gone(None, f"{flag('placement', 'lb')} forgets nothing"),
    "data_buffer": Gone("auto", "how much is read ahead follows from the samples' size"),
    "tensorboard": Gone(False, f"give {flag('tracker', 'tensorboard')}"),
}

SAME = {"all_reduce": {"ring": "star"}}
"""By setting: values that no longer exist → values that give the same results, bit for bit."""


def modern(settings: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Translates settings of an earlier version into today's names and values."""
    translated: dict[str, Any] = {}
    moved: dict[str, str] = {}
    for name in (*_OF_BOTH, *RENAMED):
        value = settings.get(name)
        if value is None or (name.startswith("wire_") and value == "fp32"):
            continue
        optimizers = [f"{network}_optimizer" for network in _NETWORKS]
        new, form = RENAMED.get(name, ("", f"{name}={{}}"))
        for target in [new] if new else optimizers:
            chosen = parts_of(str(settings.get(target) or ""))[0].removeprefix("lookahead:")
            if name != "beta2" or chosen not in _WITHOUT_BETA2:
                text = form.format(value)
                moved[target] = both(text, moved[target]) if target in moved else text
    for name, value in settings.items():
        if name == "tensorboard" and value is True:
            before = settings.get("tracker")
            translated["tracker"] = f"tensorboard,{before}" if before else "tensorboard"
        elif name in GONE:
            if value not in (None, GONE[name].default):
                raise BadInput(source, f"{name!r} is no setting any more", GONE[name].why)
        elif name not in RENAMED and name not in _OF_BOTH:
            same = SAME.get(name, {}).get(value) if isinstance(value, str) else None
            translated.setdefault(name, value if same is None else same)
    for name, text in moved.items():
        value = translated.get(name)
        translated[name] = text if value is None else both(str(value), text)
    return translated


def answer(name: str, value: object) -> str | None:
    """Answers a flag, or a name in Python, of an earlier version; None if there never was one.

    Args:
        value: the user's value; None if nothing follows the flag.
    """
    asked = f"{flag(name)}"
    if name in GONE:
        return f"{asked}: is no setting any more; {GONE[name].why}"
    shown = "VALUE" if value is None else str(value)
    if name in _OF_BOTH:
        ways = (flag(f"{network}_optimizer", f"{name}={shown}") for network in _NETWORKS)
        return f"{asked}: is now a key of each optimizer; write {' '.join(map(format, ways))}"
    if name not in RENAMED:
        return None
    new, form = RENAMED[name]
    return f"{asked}: write {flag(new, form.format(shown))}"
