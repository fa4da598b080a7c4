"""Starts a child process: `python -m headway.serving.child_start MODULE` runs the module as `python -m` would, with the
garbage collector off. What is imported and loaded before `Child.ready`, which puts it on, stays for good: walking over
it takes a tenth of a second."""

import gc
import runpy
import sys

if __name__ == "__main__":
    gc.disable()
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
