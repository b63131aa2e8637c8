"""`python -m mdgan` is `mdgan`."""

from mdgan.cli import main

if __name__ == "__main__":
    main()
