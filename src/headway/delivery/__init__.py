"""Delivery: how a response reaches its reader. HTTP, OpenAI's wire format, SSE; sees serving, never the engine."""
