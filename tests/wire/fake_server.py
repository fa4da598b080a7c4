"""`headway serve` on fakes: `python fake_server.py PORT WORKERS DRAIN_S [CONFIG]`; prints the announcement."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from headway.core.config import Settings, load_settings
from headway.observability.log_queue import start_log
from headway.serving.supervisor import Supervisor

if __name__ == "__main__":
    port, workers, drain_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    config = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    given = json.loads(os.environ.get("HEADWAY_TEST_SETTINGS", "{}"))
    server = {"port": port, "api_workers": workers, "drain_s": drain_s, **given.pop("server", {})}
    overrides: dict[str, Any] = {"model": "fake", "server": server, **given}

    def load() -> Settings:
        return load_settings(config, overrides)

    start_log()
    sys.exit(Supervisor(load(), engine_module="fake_engine", api_module="fake_api", reload=load).run())
