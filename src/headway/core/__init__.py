"""The vocabulary every layer speaks: requests, sampling, events, the runner protocol, settings, errors, clocks."""
