"""Time the simulation of 1,000 to 100,000 requests; write bench/engine.json, print a table.

Open loop: 2,048 tokens in, 256 out, Poisson arrivals at 6 a second, somewhat more than the modelled card serves, so
that 64 requests run nearly all the time. Each size runs in a process of its own, for its peak memory.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import time

from report import write_report

from servelab import measure
from servelab.cost import StepCost
from servelab.engine import Request, simulate

STEP_COST = StepCost(26.22e-3, 30.4e-6, 3e-9)
RATE = 6.0  # requests a second


def open_loop(num_requests):
    """The requests of the bench; the same ones each time."""
    arrivals, arrival_s, requests = random.Random(8), 0.0, []
    for number in range(num_requests):
        requests.append(Request(f"r{number}", arrival_s, 2048, 256))
        arrival_s += arrivals.expovariate(RATE)
    return requests


def bench(num_requests):
    """Simulate once; wall and processor time without making the requests, peak memory of the process with all."""
    requests = open_loop(num_requests)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    trace = simulate(requests, STEP_COST, max_running=64)
    wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    assert all(request.status == "finished" for request in trace.requests)
    return {
        "requests": num_requests,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_bytes": peak,
        "steps": len(trace.steps),
        "simulated_s": trace.total_s,
        "max_itl_s": trace.max_itl_s,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(bench(args.requests[0])))
        return
    print("requests     wall s      cpu s  cpu ms a request   peak MB      steps  simulated s")
    results = []
    for num_requests in args.requests:
        command = [sys.executable, __file__, "--child", "--requests", str(num_requests)]
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        r = results[-1]
        print(
            f"{num_requests:8} {r['wall_s']:10.2f} {r['cpu_s']:10.2f} {1e3 * r['cpu_s'] / num_requests:17.3f}"
            f" {r['peak_bytes'] / 1e6:9.0f} {r['steps']:10} {r['simulated_s']:12.0f}"
        )
    write_report("engine", {"machine": measure.machine(), "results": results})


if __name__ == "__main__":
    main()
