"""PyTorch calls start() at the end of `import torch` (entry point `torch.backends`). So a variable
can act on programs that know nothing of Gyre. It is no part of the package gyre_torch, which loads
libgyre: without the variable nothing of that happens."""

import logging
import os

VARIABLE = "GYRE_TORCH_INSTEAD_OF"


def _create(options, group_options):
    import gyre_torch  # pylint: disable=import-outside-toplevel
    return gyre_torch._create(options, group_options)


def _offer():
    """Has a PyTorch before 2.13 know the name: it does not read `torch.distributed.backends`."""
    import torch.distributed as distributed  # pylint: disable=import-outside-toplevel
    if not distributed.is_available() or hasattr(distributed.Backend, "_ensure_backend_registered"):
        return
    if "GYRE" not in distributed.Backend._plugins:
        distributed.Backend.register_backend("gyre", _create, extended_api=True,
                                             devices=["cpu", "cuda"])


def start():
    _offer()
    for name in os.environ:
        if name.startswith("GYRE_TORCH_") and name != VARIABLE:
            logging.getLogger("gyre_torch").warning(
                "gyre_torch: %s is no setting; there is %s", name, VARIABLE)
    name = os.environ.get(VARIABLE)
    if not name:
        return
    # Of the module, as whoever imports gyre_torch first is inside its __init__.py.
    from gyre_torch.instead import take_over  # pylint: disable=import-outside-toplevel
    take_over(name, VARIABLE)
