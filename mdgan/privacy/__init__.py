"""Differential privacy of the data of each worker.

A step draws units by Poisson sampling, and fills the batch up to one size with samples that count
as 0, so that its work says nothing. The sum of cut gradients and its noise are whole multiples of
one small step and are added without rounding: in floating point the noise takes some values and
not others, which would let an attacker check a guess of the sum. All else that a worker sends is a
function of such sums, so what is spent belongs to samples, whichever discriminators swaps bring.
"""
