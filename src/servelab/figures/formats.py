"""Figures of section 8.4.2: bytes of a block of values, when conversion pays, two measured fits, errors, and times."""

import itertools
from statistics import median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from servelab import catalog, memory, quantization
from servelab.figures.style import COLORS, TEMPLATE, add_heading, color_key, describe, figure
from servelab.measure import speedups
from servelab.units import GIB, MIB

KV_DTYPES = ["bf16", "fp8", "q8_0", "q4_0"]
BLOCK_VALUES = 32
POOL_BYTES, OUTPUT_TOKENS = 12 * GIB, 256  # the running case


def read_bandwidth():
    """Bytes a second that the recorded step of 64 requests of 2048 tokens reached on the RTX PRO 6000."""
    step = catalog.record("batch-sweep").row(condition="2k_no_prefix", batch=64)
    return step["nominal_read_bytes_per_step"] / (step["decode_step_ms"] * 1e-3)


def formats_explorer(kv_dtype, context, bandwidth, conversion_ms):
    """Counterpart of figure 8-23, the bytes of 32 values in each format, over the read and conversion times of a step.

    Qwen3-8B; `bandwidth` in bytes a second. The conversion is a time of the whole step, added to the read.
    """
    model = catalog.model("qwen3-8b")
    sizes = {name: context * memory.kv_bytes_per_token(model, name) for name in ("bf16", kv_dtype)}
    saved = 1e3 * quantization.net_saving_s(sizes["bf16"] - sizes[kv_dtype], bandwidth, conversion_ms * 1e-3)
    reads = {name: 1e3 * size / bandwidth for name, size in sizes.items()}
    fits = [memory.max_requests(POOL_BYTES, model, context, OUTPUT_TOKENS, kv_dtype=name) for name in sizes]
    fig = make_subplots(rows=2, row_heights=[0.6, 0.4], vertical_spacing=0.3)
    fig.update_layout(template=TEMPLATE, height=460, barmode="stack", margin={"l": 62})
    layout = _add_layout(fig, kv_dtype)
    _add_times(fig, reads, kv_dtype, conversion_ms)
    alt = (
        f"32 values take {_listed({row[0]: row[3] for row in layout})} bytes. Reading {context} tokens takes "
        f"{reads['bf16']:.3g} ms in BF16, {reads[kv_dtype]:.3g} in {kv_dtype} and {conversion_ms:g} of conversion."
    )
    times = [["bf16", f"{sizes['bf16'] / MIB:g}", f"{reads['bf16']:.3f}", "0", f"{reads['bf16']:.3f}", fits[0]]]
    total = reads[kv_dtype] + conversion_ms
    size = f"{sizes[kv_dtype] / MIB:g}"
    times.append([kv_dtype, size, f"{reads[kv_dtype]:.3f}", f"{conversion_ms:g}", f"{total:.3f}", fits[1]])
    columns = ["format", "MiB", "read (ms)", "conversion (ms)", "both (ms)", "requests in 12 GiB"]
    describe(
        fig, alt, (["format", "bytes of codes", "bytes of scales", "bytes of 32 values"], layout), (columns, times)
    )
    verdict = f"{saved:.3f} ms saved" if saved > 0 else f"{-saved:.3f} ms lost" if saved < 0 else "nothing gained"
    text = (
        f"{kv_dtype}, {context} tokens: {size} MiB instead of {sizes['bf16'] / MIB:g}, and {fits[1]} requests fit into "
        f"12 GiB instead of {fits[0]}. The read takes {reads['bf16'] - reads[kv_dtype]:.3f} ms less, conversion adds "
        f"{conversion_ms:g} ms: {verdict}."
    )
    return fig, text


def _add_layout(fig, selected):
    """Bars of the codes and scales of 32 values in the first row; its table."""
    rows = []
    for name in KV_DTYPES:
        block = quantization.FORMATS[name]
        count = BLOCK_VALUES // block.values
        codes, scales = count * block.code_bytes, count * block.metadata_bytes
        rows.append([name, codes, scales, codes + scales])
    for column, label, color in ((1, "codes", "kv"), (2, "scale", "cost")):
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=KV_DTYPES,
                x=[row[column] for row in rows],
                marker={"color": COLORS[color], "opacity": [1 if n in ("bf16", selected) else 0.55 for n in KV_DTYPES]},
                hovertemplate="%{y}: %{x} bytes of " + label + "<extra></extra>",
            ),
            row=1,
            col=1,
        )
    for index, (_, codes, scales, total) in enumerate(rows):
        text = f"{total} = {codes} + {scales}" if scales else str(total)
        fig.add_annotation(x=total, y=index, xref="x", yref="y", xanchor="left", text=text, showarrow=False, xshift=4)
    parts = color_key(((COLORS["kv"], "values"), (COLORS["cost"], "scale")))
    add_heading(fig, f"32 values   {parts}", align="left")
    fig.update_xaxes(title_text="bytes", range=[0, 78], tickvals=[0, 16, 32, 48, 64], fixedrange=True, row=1, col=1)
    fig.update_yaxes(autorange="reversed", fixedrange=True, row=1, col=1)
    return rows


def _add_times(fig, reads, kv_dtype, conversion_ms):
    """The read of BF16 over the read and conversion of `kv_dtype`, in the second row."""
    parts = ((list(reads.values()), "kv", "read"), ([0, conversion_ms], "cost", "conversion"))
    for values, color, label in parts:
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=["bf16", "other"],
                x=values,
                marker={"color": COLORS[color]},
                hovertemplate="%{x:.3f} ms of " + label + "<extra></extra>",
            ),
            row=2,
            col=1,
        )
    totals = [reads["bf16"], reads[kv_dtype] + conversion_ms]
    for index, total in enumerate(totals):
        place = {"x": total, "y": index, "xref": "x2", "yref": "y2", "xanchor": "left", "xshift": 4}
        fig.add_annotation(text=f"<b>{total:.3f}</b>", showarrow=False, **place)
    parts = color_key(((COLORS["kv"], "read"), (COLORS["cost"], "conversion")))
    add_heading(fig, f"one context   {parts}", axis="2", align="left")
    fig.update_xaxes(title_text="ms a decode step", range=[0, 1.22 * max(totals)], nticks=5, row=2, col=1)
    names = {"tickvals": [0, 1], "ticktext": ["bf16", kv_dtype]}
    fig.update_yaxes(autorange="reversed", fixedrange=True, **names, row=2, col=1)
    fig.update_xaxes(fixedrange=True)


def fits_explorer(context):
    """The measured lines of ITL over context for BF16 and FP8 KV, and where they meet."""
    bf16, fp8 = (quantization.itl_fit(name) for name in ("bf16", "fp8"))
    meet = quantization.crossing(bf16, fp8)
    ends = [0, 32768]
    fig = figure(height=330)
    for fit, name, color, side, anchor in ((bf16, "BF16 KV", "unused", 1, "right"), (fp8, "FP8 KV", "kv", -1, "left")):
        y = [1e3 * fit.seconds(tokens) for tokens in (*ends, context)]
        line = {"color": COLORS[color], "width": 3}
        fig.add_trace(go.Scatter(x=ends, y=y[:2], mode="lines", line=line, hoverinfo="skip"))
        fig.add_trace(
            go.Scatter(
                x=[context],
                y=y[2:],
                mode="markers",
                marker={"size": 12, "color": COLORS[color]},
                hovertemplate="%{x} tokens: %{y:.2f} ms, " + name + "<extra></extra>",
            )
        )
        at = 1e3 * fit.seconds(26000)
        fig.add_annotation(
            **{"x": 26000, "y": at, "text": name, "showarrow": False, "yshift": 18 * side, "xanchor": anchor},
            font={"color": COLORS[color], "size": 14},
        )
    fig.add_vline(x=meet, line={"color": COLORS["cost"], "width": 1, "dash": "dot"})
    fig.add_annotation(
        **{"x": meet, "y": 1, "yref": "y domain", "xanchor": "left", "yanchor": "top", "xshift": 4},
        **{"text": f"equal at {meet:.0f} tokens", "showarrow": False, "font": {"color": COLORS["cost"], "size": 13}},
    )
    ticks = [0, 8192, 16384, 24576, 32768]
    fig.update_xaxes(title_text="context (tokens)", range=[0, 34500], tickvals=ticks, tickformat="d", fixedrange=True)
    fig.update_yaxes(title_text="ms between outputs", range=[6.2, 8], nticks=5, fixedrange=True)
    times = {name: 1e3 * fit.seconds(context) for name, fit in (("BF16", bf16), ("FP8", fp8))}
    rows = [
        [tokens, f"{1e3 * bf16.seconds(tokens):.2f}", f"{1e3 * fp8.seconds(tokens):.2f}"]
        for tokens in sorted({2048, 8192, 16384, 32768, context})
    ]
    alt = (
        f"Two rising lines. BF16 starts at {rows[0][1]} ms at 2048 tokens and is steeper, FP8 at {rows[0][2]} ms; they "
        f"cross at {meet:.0f} tokens, and at 32768 BF16 takes {rows[-1][1]} ms, FP8 {rows[-1][2]} ms."
    )
    describe(fig, alt, (["context (tokens)", "BF16 KV (ms)", "FP8 KV (ms)"], rows))
    gap = times["BF16"] - times["FP8"]
    side = "equally fast" if abs(gap) < 5e-4 else f"{abs(gap):.2f} ms {'faster' if gap > 0 else 'slower'}"
    text = f"At {context} tokens BF16 takes {times['BF16']:.2f} ms and FP8 {times['FP8']:.2f} ms: FP8 is {side}."
    return fig, text


def error_histograms(errors):
    """How far values come back from where they were: `errors` by format, arrays of decoded minus original values."""
    reach = 1.001 * max(float(abs(values).max()) for values in errors.values())
    edges = [reach * (2 * i / 60 - 1) for i in range(61)]
    fig = make_subplots(rows=len(errors), shared_xaxes=True, vertical_spacing=0.1)
    fig.update_layout(template=TEMPLATE, height=110 + 105 * len(errors), bargap=0)
    rows = []
    for index, (name, values) in enumerate(errors.items(), start=1):
        counts = [int(((low <= values) & (values < high)).sum()) for low, high in itertools.pairwise(edges)]
        middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]
        top = max(counts)
        bar = go.Bar(x=middles, y=[count / top for count in counts], marker={"color": COLORS["kv"]}, hoverinfo="skip")
        fig.add_trace(bar, row=index, col=1)
        rms, worst = float((values**2).mean() ** 0.5), float(abs(values).max())
        axis = "" if index == 1 else str(index)
        add_heading(fig, f"<b>{name}</b>  rms {rms:.4f}, worst {worst:.3f}", axis, align="left")
        rows.append([name, f"{rms:.4f}", f"{worst:.3f}"])
    fig.update_yaxes(visible=False, range=[0, 1.05], fixedrange=True)
    fig.update_xaxes(nticks=5, fixedrange=True)
    fig.update_xaxes(title_text="decoded minus original value", row=len(errors), col=1)
    alt = f"Root-mean-square errors of the decoded values: {_listed({row[0]: row[1] for row in rows})}."
    return describe(fig, alt, (["format", "root mean square", "largest"], rows))


def bytes_and_times(samples, num_bytes, baseline):
    """Bytes that each contestant reads and the time it takes (`measure.interleave`), as parts of the baseline's."""
    ratios = speedups(samples, baseline)
    names = list(samples)
    parts = {
        "bytes": [num_bytes[name] / num_bytes[baseline] for name in names],
        "time": [1 / ratios[name] for name in names],
    }
    fig = figure(height=90 + 68 * len(names), barmode="group", margin={"l": 4})
    for label, color in (("bytes", "kv"), ("time", "cost")):
        fig.add_trace(
            go.Bar(
                orientation="h",
                y=names,
                x=parts[label],
                text=[f"{label} {value:.2f}" for value in parts[label]],
                textposition="outside",
                cliponaxis=False,
                marker={"color": COLORS[color]},
                hovertemplate="%{y}: " + label + " %{x:.2f}<extra></extra>",
            )
        )
    top = max(max(values) for values in parts.values())
    fig.update_xaxes(title_text=f"{baseline} = 1", range=[0, 1.3 * top], nticks=5, fixedrange=True)
    fig.update_yaxes(autorange="reversed", fixedrange=True)
    rows = [
        [name, f"{num_bytes[name] / 1e6:.1f}", f"{1e3 * median(samples[name]):.1f}", f"{size:.2f}", f"{time:.2f}"]
        for name, size, time in zip(names, parts["bytes"], parts["time"], strict=True)
    ]
    alt = f"Relative to {baseline}: " + "; ".join(f"{row[0]}, bytes {row[3]}, time {row[4]}" for row in rows) + "."
    return describe(fig, alt, (["KV in", "MB read", "median time (ms)", "bytes, relative", "time, relative"], rows))


def _listed(values):
    return ", ".join(f"{name} {value}" for name, value in values.items())
