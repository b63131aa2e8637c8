"""`python -m mdgan` is `mdgan`."""

import signal

from mdgan.system import refuse_windows

refuse_windows()
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `run`, Ctrl-C ends imports without a word

from mdgan.cli import run  # noqa: E402 - Windows cannot import it

if __name__ == "__main__":
    run()
