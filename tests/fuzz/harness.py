"""`python -m tests.fuzz.harness TARGET SECONDS FOLDER`: atheris looks for bytes that break one."""

import sys

import atheris

with atheris.instrument_imports(include=["mdgan", "json"]):
    from tests.fuzz.seeds import seeds
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Runs until the time is up; ends with another status than 0 if a target raised."""
    name, seconds, folder = sys.argv[1:]
    for number, seed in enumerate(seeds(name)):
        with open(f"{folder}/{number}", "wb") as file:  # noqa: PTH123 - nothing more is needed
            file.write(seed)
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=3000", "-timeout=20"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", folder], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
