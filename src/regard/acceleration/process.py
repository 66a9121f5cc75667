"""What `regard.load` and `regard.train` set up in a process, once."""

from regard.kernels.bindings import kernel_status
from regard.threads import use_one_thread_in_forked_children


def prepare_process() -> None:
    """Choose the kernels, before anything is read, and let forked children compute with one thread.

    It raises an `InputError` where REGARD_KERNELS asks for kernels that there are not.
    """
    kernel_status()
    use_one_thread_in_forked_children()
