"""What tests measured, in the report: `record_property("name", text)` prints a line at its end."""

import os

from hypothesis import settings

# Test processes share the cores: a thread that waits must give way, not spin. OpenMP reads this when it is loaded;
# the kernels of notebooks inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Examples compile kernels and share two cores with other tests: a single slow one says nothing.
settings.register_profile("servelab", deadline=None)
settings.load_profile("servelab")


def pytest_terminal_summary(terminalreporter):
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    measured = [entry for report in reports for entry in getattr(report, "user_properties", [])]
    if measured:
        terminalreporter.section("measured")
    for name, text in measured:
        terminalreporter.line(f"{name}: {text}")
