"""Measurements of the engine."""
