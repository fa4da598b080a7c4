"""An API worker with the tiny byte-level text model: `python -m fake_api`."""

from unittest import mock

from server_rig import make_text

from headway.delivery.api_process import main

if __name__ == "__main__":
    with mock.patch("headway.serving.frontend.load_text", lambda path: make_text()):
        main()
