"""The names that users give to algorithms."""

import pytest

from mdgan.families import registry


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("MD-GAN", "mdgan"),
        ("md-gan", "mdgan"),
        ("FL-GAN", "fl-gan"),
        ("flgan", "fl-gan"),
        ("FeGAN", "fegan"),
        ("ParaGAN", "paragan"),
        ("standalone", "standalone"),
    ],
)
def test_the_names_of_papers_are_known(written: str, name: str) -> None:
    assert registry.own_name(written) == registry.algorithm(written).name == name


def test_another_name_stays_as_it_is() -> None:
    assert registry.own_name("Own-GAN") == "Own-GAN"
