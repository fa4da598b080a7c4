"""`headway serve` on fakes: `python fake_server.py PORT WORKERS DRAIN_S`; prints the announcement."""

import sys

from headway.core.config import Settings
from headway.serving.supervisor import Supervisor

if __name__ == "__main__":
    port, workers, drain_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    settings = Settings(model="fake", server={"port": port, "api_workers": workers, "drain_s": drain_s})
    sys.exit(Supervisor(settings, engine_module="fake_engine", api_module="fake_api").run())
