"""Tests of differential privacy."""
