"""Explorers: a figure function and the values of its arguments, as controls in Jupyter and on the website.

In Jupyter each move of a control calls the function. The same display also carries a table of all states
(`servelab.states`), which the website turns into native controls that need no kernel.
"""

import inspect
import itertools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from servelab.states import compact

MIME_TYPE = "application/vnd.servelab.explorer+json"
MAX_STATES = 600  # a state takes about 25 ms: above this a display keeps its reader waiting
STEP_MS = 1200  # a step stays this long while it plays; play.js has the same


@dataclass(frozen=True)
class Axis:
    """One control. `values`: numbers in order give a slider, a mapping from label to value gives a menu."""

    values: Sequence | Mapping
    label: str = ""  # shown beside the control; the argument's name if empty
    unit: str = ""
    start: object = None  # the value (or label) shown first; the first one if None
    play: bool = False  # a slider whose values follow each other in time gets a button that steps through them
    options: dict = field(init=False, repr=False, default_factory=dict)  # label -> value

    def __post_init__(self):
        labelled = isinstance(self.values, Mapping)
        self.options.update(self.values if labelled else {str(value): value for value in self.values})
        if not self.options:
            raise ValueError("values is empty; an axis must have at least one value")
        if self.play and labelled:
            raise ValueError("play is True and values is a mapping; only a slider, of values in order, can be played")
        if self.start is not None and str(self.start) not in self.options:
            raise ValueError(f"start is {self.start!r}; it must be one of {', '.join(self.options)}")

    @property
    def control(self) -> str:
        return "menu" if isinstance(self.values, Mapping) else "slider"

    @property
    def start_index(self) -> int:
        return 0 if self.start is None else list(self.options).index(str(self.start))


def explore(figure_fn: Callable, **axes: Axis | Sequence | Mapping) -> "Explorer":
    """An explorer over `figure_fn(**state)`, which returns a Plotly figure and a sentence that says what it shows.

    Each argument of `figure_fn` gets an `Axis`, or plain values for one; one with a default needs none. Raises
    `ValueError` when names and arguments differ or the axes span more than `MAX_STATES` states.
    """
    parameters = inspect.signature(figure_fn).parameters
    expected = [name for name, each in parameters.items() if name in axes or each.default is inspect.Parameter.empty]
    if sorted(expected) != sorted(axes):
        raise ValueError(f"axes are {', '.join(axes)}; {figure_fn.__name__} takes {', '.join(expected)}")
    axes = {name: axis if isinstance(axis, Axis) else Axis(axis) for name, axis in axes.items()}
    num_states = math.prod(len(axis.options) for axis in axes.values())
    if num_states > MAX_STATES:
        raise ValueError(f"axes span {num_states} states; at most {MAX_STATES} are allowed")
    return Explorer(figure_fn, axes)


class Explorer:
    """What `explore` returns; shows itself when it is the last value of a cell."""

    def __init__(self, figure_fn: Callable, axes: dict[str, Axis]):
        self.figure_fn = figure_fn
        self.axes = axes

    def state(self, labels: Sequence[str]) -> dict:
        """The figure (Plotly JSON) and the sentence at one label an axis."""
        values = {name: axis.options[label] for (name, axis), label in zip(self.axes.items(), labels, strict=True)}
        figure, text = self.figure_fn(**values)
        return {"figure": json.loads(figure.to_json()), "text": text}

    @property
    def start(self) -> list[str]:
        return [list(axis.options)[axis.start_index] for axis in self.axes.values()]

    def table(self) -> dict:
        """All states, as the website's script reads them (under `MIME_TYPE`)."""
        axes = list(self.axes.items())
        documents = [self.state(labels) for labels in itertools.product(*(axis.options for _, axis in axes))]
        return {
            "name": self.figure_fn.__name__.removesuffix("_explorer"),
            "axes": [
                {
                    "name": name,
                    "label": axis.label or name.replace("_", " "),
                    "unit": axis.unit,
                    "control": axis.control,
                    "options": list(axis.options),
                    "start": axis.start_index,
                    **({"play": True} if axis.play else {}),
                }
                for name, axis in axes
            ],
            "leaves": compact([len(axis.options) for _, axis in axes], documents),
        }

    def widget(self):
        """The controls and the figure as ipywidgets; the kernel computes each state when it is asked for."""
        import ipywidgets

        figure, text = ipywidgets.Output(), ipywidgets.HTML()
        controls = [_control(name, axis) for name, axis in self.axes.items()]
        rows = [
            _player(control) if axis.play else control
            for control, axis in zip(controls, self.axes.values(), strict=True)
        ]
        reset = ipywidgets.Button(description="Reset", layout={"width": "auto"})

        def redraw(_=None):
            state = self.state([control.value for control in controls])
            # Set the outputs directly: display() inside an Output is slow and leaks into the cell's own output.
            data = {"application/vnd.plotly.v1+json": state["figure"]}
            figure.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)
            text.value = state["text"]

        def set_start(_):
            for control, label in zip(controls, self.start, strict=True):
                control.value = label

        for control in controls:
            control.observe(redraw, "value")
        reset.on_click(set_start)
        redraw()
        return ipywidgets.VBox([*rows, reset, text, figure])

    def _repr_mimebundle_(self, include=None, exclude=None):
        bundle = {"text/plain": self.state(self.start)["text"], **_widget_view(self)}
        # The table is for the website, which is not made from what runs in a browser; there it would take a minute.
        return bundle if sys.platform == "emscripten" else {MIME_TYPE: self.table(), **bundle}


def _control(name: str, axis: Axis):
    import ipywidgets

    kind = ipywidgets.SelectionSlider if axis.control == "slider" else ipywidgets.Dropdown
    label = (axis.label or name.replace("_", " ")) + (f" ({axis.unit})" if axis.unit else "")
    options = list(axis.options)
    return kind(
        options=options,
        value=options[axis.start_index],
        description=label,
        style={"description_width": "initial"},
        layout={"width": "min(34em, 95%)"},
    )


def _player(slider):
    """The slider and, before it, a player that moves it; each follows the other."""
    import ipywidgets

    play = ipywidgets.Play(value=slider.index, max=len(slider.options) - 1, interval=STEP_MS, show_repeat=False)
    ipywidgets.link((play, "value"), (slider, "index"))
    return ipywidgets.HBox([play, slider])


def _widget_view(explorer: Explorer) -> dict:
    """The live controls' part of the display; none outside a kernel, where nobody could answer them."""
    try:
        from IPython import get_ipython
    except ImportError:
        return {}
    if getattr(get_ipython(), "kernel", None) is None:
        return {}
    view = "application/vnd.jupyter.widget-view+json"
    return {view: explorer.widget()._repr_mimebundle_()[view]}
