"""Figures of section 8.4.3: bytes freed and kept for buffers, copies behind computations, and copy times by link."""

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, memory, offload
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.units import MIB

ONE = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=1)
STEP_S = ONE["decode_step_ms"] / 1e3  # a recorded decode step of one request
DECODER = 200e9  # bytes a second that the explorer's decompressor puts out; assumed
LANES = ("link", "device")


def offload_explorer(every, buffers, link, ratio):
    """Counterpart of figure 8-24 (bytes freed, kept as buffers, left) over the timeline of one decode step.

    Qwen3-8B; the FFN of each `every`-th layer is copied in. `ratio`: compressed over original size; 1 is none.
    """
    model = catalog.model("qwen3-8b")
    size = offload.ffn_bytes(model)
    layers = offload.every_nth(model.num_layers, every)
    freed, net = offload.freed_bytes(size, len(layers)), offload.net_bytes(size, len(layers), buffers)
    if ratio == 1:
        copy_s = offload.copy_s(size, link.bandwidth)
    else:
        copy_s = offload.compressed_copy_s(size, ratio, link.bandwidth, DECODER)
    timeline = offload.pipeline([STEP_S / model.num_layers] * model.num_layers, layers, copy_s, buffers, steps=4)
    step_s = timeline.step_s[2]
    fig = make_subplots(rows=2, row_heights=[0.3, 0.7], vertical_spacing=0.38)
    fig.update_layout(template=TEMPLATE, height=420, barmode="overlay", margin={"l": 62})
    _add_freed(fig, freed, net)
    start = sum(timeline.step_s[:2])
    spans = _spans(timeline, start, start + step_s)
    _add_lanes(fig, spans, row=2)
    wait_s = step_s - STEP_S
    title = f"one step: {1e3 * step_s:.1f} ms" + (f", {1e3 * wait_s:.1f} of them waiting" if wait_s > 1e-6 else "")
    add_heading(fig, f"{title}<br>{_lane_key()}", axis="2", align="left")
    top = max(1e3 * step_s, 30)
    fig.update_xaxes(title_text="ms", range=[0, 1.02 * top], nticks=6, fixedrange=True, row=2, col=1)
    extra = offload.extra_requests(net, 8192 * memory.kv_bytes_per_token(model))
    floor = offload.step_lower_bound_s(len(layers) * copy_s, STEP_S)
    copying = "the link copies for" if ratio == 1 else "copying and decompressing, one after the other, take"
    copies_ms = 1e3 * len(layers) * copy_s
    numbers = [
        ["freed (MiB)", f"{freed // MIB}"],
        ["kept for buffers (MiB)", f"{(freed - net) // MIB}"],
        ["net (MiB)", f"{net // MIB}"],
        ["copies of a step (ms)" if ratio == 1 else "copying and decompressing of a step (ms)", f"{copies_ms:.2f}"],
        ["computing of a step (ms)", f"{1e3 * STEP_S:.2f}"],
        ["step (ms)", f"{1e3 * step_s:.2f}"],
    ]
    alt = (
        f"{len(layers)} FFNs free {freed // MIB} MiB, of which {(freed - net) // MIB} stay as buffers. In a step of "
        f"{1e3 * step_s:.1f} ms {copying} {copies_ms:.1f} ms and the device computes for {1e3 * STEP_S:.1f} ms."
    )
    describe(fig, alt, (["quantity", "value"], numbers))
    text = (
        f"{len(layers)} layers: net {net // MIB} MiB, {extra} more contexts of 8192 tokens. {copying.capitalize()} "
        f"{copies_ms:.1f} ms a step, so that it cannot be shorter than {1e3 * floor:.1f} ms; with "
        f"{buffers} buffer{'s' if buffers > 1 else ''} it takes {1e3 * step_s:.1f} ms instead of {1e3 * STEP_S:.1f}."
    )
    return fig, text.replace("1 more contexts", "1 more context")


def _add_freed(fig, freed, net):
    parts = [("net", net, "shared"), ("buffers", freed - net, "cost")]
    at = 0
    for name, size, color in parts:
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=["freed"],
                base=[at],
                x=[size / MIB],
                marker={"color": COLORS[color]},
                hovertemplate=f"{name}: %{{x}} MiB<extra></extra>",
            ),
            row=1,
            col=1,
        )
        at += size / MIB
    parts = ((COLORS["shared"], f"net {net // MIB}"), (COLORS["cost"], f"buffers {(freed - net) // MIB}"))
    add_heading(fig, f"MiB freed   {color_key(parts)}", align="left")
    fig.update_xaxes(range=[0, 5400], nticks=6, fixedrange=True, row=1, col=1)
    fig.update_yaxes(visible=False, fixedrange=True, row=1, col=1)


def _spans(timeline, start_s, end_s):
    """(lane, from, to, kind) in seconds after `start_s`, cut to the window; kind tells layers that were copied in."""
    spans = []
    for event in timeline.events:
        low, high = max(event.start_s, start_s) - start_s, min(event.end_s, end_s) - start_s
        if high > low:
            lane = "link" if event.kind == offload.COPY else "device"
            kind = "copy" if lane == "link" else "resident" if event.buffer is None else "copied in"
            spans.append((lane, low, high, kind))
    return spans


KINDS = {"copy": "cost", "resident": "decode", "copied in": "weights"}


def _lane_key():
    names = {"copy": "copy", "resident": "resident layer", "copied in": "copied-in layer"}
    return color_key((COLORS[KINDS[kind]], name) for kind, name in names.items())


def _add_lanes(fig, spans, row):
    """Spans as bars on two lanes, the link above the device; a gap on the device is waiting."""
    for kind, color in KINDS.items():
        own = [span for span in spans if span[3] == kind]
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=[lane for lane, *_ in own],
                base=[round(1e3 * low, 4) for _, low, _, _ in own],
                x=[round(1e3 * (high - low), 4) for _, low, high, _ in own],
                marker={"color": COLORS[color], "line": {"width": 0}},
                hovertemplate=kind + ": %{x:.2f} ms from %{base:.2f}<extra></extra>",
            ),
            row=row,
            col=1,
        )
    order = {"categoryorder": "array", "categoryarray": LANES[::-1], "range": [-0.5, 1.5]}
    fig.update_yaxes(fixedrange=True, **order, row=row, col=1)


def copy_by_link(links, num_bytes, step_s):
    """Counterpart of figure 8-25: the least time to copy `num_bytes` over each link, against the step it hides in."""
    times = [1e3 * offload.copy_s(num_bytes, link.bandwidth) for link in links]
    names = [link.name.removesuffix(" (GH200)").replace(" ", "<br>", 1) for link in links]
    fig = figure(height=110 + 58 * len(links), margin={"l": 90})
    fig.add_trace(
        go.Bar(
            orientation="h",
            y=names,
            x=times,
            text=[f"{time:.1f}" for time in times],
            textposition="outside",
            cliponaxis=False,
            marker={"color": COLORS["cost"]},
            hovertemplate="%{x:.2f} ms<extra></extra>",
        )
    )
    fig.add_vline(x=1e3 * step_s, line={"color": COLORS["decode"], "width": 3})
    fig.add_annotation(
        **{"x": 1e3 * step_s, "y": 1, "yref": "y domain", "yanchor": "bottom", "showarrow": False},
        **{"text": f"computing: {1e3 * step_s:.1f}", "font": {"color": COLORS["decode"], "size": 13}},
    )
    top = 1.15 * max(*times, 1e3 * step_s)
    fig.update_xaxes(title_text="ms a step", range=[0, top], nticks=6, fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    rows = [
        [link.name, f"{link.bandwidth / 1e9:g}", f"{time:.1f}", f"{255 * time / 1e3:.2f}"]
        for link, time in zip(links, times, strict=True)
    ]
    listed = ", ".join(f"{row[0]} {row[2]} ms" for row in rows)
    alt = f"Copying {num_bytes / 1e9:.2f} GB takes at least: {listed}. A step computes for {1e3 * step_s:.1f} ms."
    return describe(fig, alt, (["link", "GB/s one way", "copy (ms)", "255 steps (s)"], rows))


def measured(timelines):
    """Measured timelines (`kernels.overlap`) by name, one above the other on one axis of time."""
    fig = make_subplots(rows=len(timelines), shared_xaxes=True, vertical_spacing=0.3 / len(timelines))
    fig.update_layout(template=TEMPLATE, height=100 + 130 * len(timelines), barmode="overlay", margin={"l": 62})
    rows = []
    for index, (name, timeline) in enumerate(timelines.items(), start=1):
        _add_lanes(fig, _spans(timeline, 0, timeline.total_s), row=index)
        axis = "" if index == 1 else str(index)
        add_heading(fig, f"<b>{name}</b>: {1e3 * timeline.total_s:.1f} ms", axis, align="left")
        parts = (timeline.total_s, timeline.copy_s, timeline.compute_s, timeline.wait_s)
        rows.append([name, *(f"{1e3 * seconds:.1f}" for seconds in parts)])
    fig.update_xaxes(nticks=6, fixedrange=True)
    fig.update_xaxes(title_text="ms", row=len(timelines), col=1)
    alt = "Measured: " + "; ".join(f"{row[0]} {row[1]} ms, of which the device waited {row[4]}" for row in rows) + "."
    return describe(fig, alt, (["", "all (ms)", "copying (ms)", "computing (ms)", "waiting (ms)"], rows))
