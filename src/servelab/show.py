"""Small displays for the notebooks."""

import inspect
import textwrap


def source(*objects):
    """The Python source of functions or classes, as a highlighted code block in Jupyter and on the website."""
    from IPython.display import Markdown

    code = "\n\n".join(textwrap.dedent(inspect.getsource(item)).rstrip() for item in objects)
    return Markdown(f"```python\n{code}\n```")
