"""`python -m mdgan` is `mdgan`."""

from mdgan.cli import run

if __name__ == "__main__":
    run()
