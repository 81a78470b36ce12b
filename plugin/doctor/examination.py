"""All that is looked at, in the order in which it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from sartor.doctor.drivers import examine_devices
from sartor.doctor.finding import Finding
from sartor.doctor.processor import examine_processor
from sartor.doctor.quietness import examine_quietness
from sartor.doctor.software import examine_software


def examine() -> Iterator[Finding]:
    """Look at processor, devices, software and noise; takes about two seconds."""
    yield from examine_processor()
    yield from examine_devices()
    yield from examine_software()
    yield from examine_quietness()
