"""Threads that may take a processor for long and are waited for by few."""

import os
import sys
import threading


def yield_to_streams() -> None:
    """Has the calling thread go after the step loop and the event loop. Linux gives each thread its own niceness;
    elsewhere it would be the whole process's."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 5)
