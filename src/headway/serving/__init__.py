"""Serving: processes and the path of a request between the wire and the engine."""
