"""Observability: listens to serving and scheduling, and tells operators."""
