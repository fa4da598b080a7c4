"""Who shares a step: sequences, paged blocks, plan and commit."""
