"""The Python API: `LLM`, in-process, without sockets."""
