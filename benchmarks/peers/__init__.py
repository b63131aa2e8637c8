"""Compares mdgan's placed clients with Flower's and pfl's simulations of the same work.

    make peers                      # once: Flower and pfl in build/peers, beside the torch of .venv
    python -m benchmarks.peers      # the table; see --help

`work.py` defines the work: the same two models, shards, cohorts of the same size, passes and
optimizer steps. `with_flower.py` and `with_pfl.py` do it through the public interface of each,
`bare.py` in a plain loop. `peer.py` runs one of them in its own process, with the packages of
build/peers. `__main__.py` starts them and `mdgan train` in turn, and prints the table.
"""
