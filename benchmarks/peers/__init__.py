"""Placed clients beside Flower's and pfl's simulations of the same work.

    make peers                      # once: Flower and pfl in build/peers, beside the torch of .venv
    python -m benchmarks.peers      # the table; see --help

`work.py` is what all do: the same two models, shards, cohorts of the same size, passes and
optimizer steps. `with_flower.py`, `with_pfl.py` and `bare.py` do it through the public interface of
each; `peer.py` runs one of them in a process of its own, in build/peers. `__main__.py` starts them
and `mdgan train` in turn, and prints the table.
"""
