"""`python -m mdgan` is `mdgan`."""

from mdgan.system import refuse_windows

refuse_windows()

from mdgan.cli import run  # noqa: E402 - Windows cannot import it

if __name__ == "__main__":
    run()
