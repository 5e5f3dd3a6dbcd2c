"""The serving engine: blocks of the KV cache, prefix cache, scheduler, and executors that run its batches."""

from servelab.engine.batch import Batch, Row
from servelab.engine.blocks import BlockPool, BlockTable, OutOfBlocks
from servelab.engine.drafter import Drafter
from servelab.engine.engine import Engine, simulate
from servelab.engine.executor import CostExecutor, Executor
from servelab.engine.prefix import PrefixCache
from servelab.engine.request import Request, Status
from servelab.engine.scheduler import POLICIES, Scheduler
from servelab.engine.trace import RequestRecord, Segment, Step, StepRow, Trace

__all__ = [
    "POLICIES",
    "Batch",
    "BlockPool",
    "BlockTable",
    "CostExecutor",
    "Drafter",
    "Engine",
    "Executor",
    "OutOfBlocks",
    "PrefixCache",
    "Request",
    "RequestRecord",
    "Row",
    "Scheduler",
    "Segment",
    "Status",
    "Step",
    "StepRow",
    "Trace",
    "simulate",
]
