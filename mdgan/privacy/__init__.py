"""Differential privacy of the data of each worker.

A step draws units by Poisson sampling. It fills the batch up to a fixed size with samples that
count as 0, so that its duration tells nothing. The sum of cut gradients and its noise are whole
multiples of one small step and are added without rounding: floating-point noise takes some values
and not others, so an attacker could check a guess of the sum. Everything else that a worker sends
follows from such sums. So ε is charged to samples, whichever discriminators swaps bring.
"""
