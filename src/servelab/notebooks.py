"""Notebooks run by this Python, whatever kernels the user has installed elsewhere."""

from pathlib import Path

import ipykernel.kernelspec
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient


class ThisPython(KernelSpecManager):
    """Has one kernel, that of the Python which runs this."""

    def get_kernel_spec(self, kernel_name):
        return self.kernel_spec_class(
            resource_dir=ipykernel.kernelspec.RESOURCES, **ipykernel.kernelspec.get_kernel_dict()
        )


def client_for(notebook: nbformat.NotebookNode, folder: Path, **options) -> NotebookClient:
    """A client with a fresh kernel, working in `folder`; `options` are nbclient's."""
    client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(folder)}}, **options)
    client.extra_arguments = ["--log-level=ERROR"]  # else each kernel warns on the terminal that TCP is not encrypted
    client.km = client.create_kernel_manager()
    client.km.kernel_spec_manager = ThisPython()
    return client
