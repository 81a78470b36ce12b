"""A plan without layers, for tests of what only asks for its kind."""

from sartor.tuning.records.plan import Plan

PLAN = Plan(
    model_sha256="0",
    target="cpu:host",
    threads=1,
    unsplit=False,
    layers=(),
    adapts=(),
    objective="latency",
    solver="dprs",
    optimal=True,
    gap=0.0,
    predicted=1.0,
    measured=None,
    baseline=None,
    memory=None,
    first=None,
    peak=None,
    versions={},
)
