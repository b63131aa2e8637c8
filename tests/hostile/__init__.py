"""Hosts that lie: whole runs in which one real host has one part replaced (see `bench`)."""
