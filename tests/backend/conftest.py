from fixtures import fresh, run_python, seen  # noqa: F401
