"""Hosts that lie: whole runs in which one real host has one part replaced (see `bench`).

What a machine in the path can do, that replaces a FEEDBACK, puts in a STOP or looks for keys, is
played in `tests/chaos/test_wire.py`, and what strangers without a certificate can in `test_flood`.
"""
