"""Small displays for the notebooks."""

import ast
import inspect
import textwrap


def source(*objects):
    """The Python source of functions or classes, as a highlighted code block in Jupyter and on the website.

    Docstrings are cut to their first paragraph: the page around them says the rest.
    """
    from IPython.display import Markdown

    code = "\n\n\n".join(_with_short_docstrings(textwrap.dedent(inspect.getsource(item))) for item in objects)
    return Markdown(f"```python\n{code}\n```")


def _with_short_docstrings(code: str) -> str:
    lines = code.rstrip().split("\n")
    documented = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, documented) and ast.get_docstring(node)]
    for docstring in sorted((node.body[0] for node in nodes), key=lambda node: -node.lineno):
        summary = (
            inspect.cleandoc(docstring.value.value).split("\n\n")[0].replace("\n", "\n" + " " * docstring.col_offset)
        )
        lines[docstring.lineno - 1 : docstring.end_lineno] = [f'{" " * docstring.col_offset}"""{summary}"""']
    return "\n".join(lines)
