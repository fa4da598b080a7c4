"""One file per family of routes; each makes its router from the frontend and the settings."""
