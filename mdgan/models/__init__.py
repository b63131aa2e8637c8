"""Architectures: models for samples of many shapes, each with its paper's settings."""
