"""A request that crashes the native core whenever it is computed, among 16 good ones, on a server as users start it."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from math import ceil, log2
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway._native import _ext

TEXT = "/v1/completions"
POISON = 7
GOOD = 16


@pytest.mark.skipif(not _ext.TEST_HOOKS, reason="the native core was built without HEADWAY_TESTS=ON")
def test_it_is_convicted_and_the_others_end_equal(parity_fixtures: Path, tmp_path: Path) -> None:
    bodies: list[dict[str, Any]] = [
        {"prompt": [11 + i, 12, 13], "max_tokens": 60, "ignore_eos": True, "temperature": i % 2, "seed": i}
        | {"logit_bias": {str(POISON): -100}, "return_token_ids": True}
        for i in range(GOOD)
    ]
    model = str(parity_fixtures / "hf" / "qwen2")
    command = [sys.executable, "-m", "headway", "serve", model, "--port", "0"]
    environment = {**os.environ, "HEADWAY_TEST_POISON": str(POISON), "XDG_CACHE_HOME": str(tmp_path)}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, (tmp_path / "log").read_text()
        with httpx.Client(base_url=found[0], timeout=100) as http, ThreadPoolExecutor(GOOD + 1) as pool:
            undisturbed = [http.post(TEXT, json=body).json()["choices"][0]["token_ids"] for body in bodies]
            bad = pool.submit(http.post, TEXT, json={"prompt": [5, POISON, 6], "max_tokens": 4})
            answers = [pool.submit(http.post, TEXT, json=body) for body in bodies]
            refused = bad.result(100)
            assert refused.status_code == 500 and refused.json()["error"]["code"] == "poison_request"
            assert [answer.result(100).json()["choices"][0]["token_ids"] for answer in answers] == undisturbed
            restarts = re.search(r"^headway_engine_restarts_total (\S+)$", http.get("/metrics").text, re.MULTILINE)
            assert restarts and 2 <= float(restarts[1]) <= ceil(log2(GOOD + 1)) + 3
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
