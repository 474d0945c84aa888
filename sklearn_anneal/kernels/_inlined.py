"""Compilation of functions whose code is only ever a part of other functions.

numba optimises every function that compiled code calls, and turns it into machine code, although a
function that is inlined never runs by itself: its code is optimised again, and becomes machine
code again, within each function that calls it. The compiler here leaves out what nobody uses.
Its functions are therefore not for Python code: they have no entry that it could call.
"""

from __future__ import annotations

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class _InlinedLibrary(JITCodeLibrary):
    """The code of one function, ready to be linked into others, which are then optimised."""

    def _optimize_final_module(self) -> None:
        # What is called here is inlined, and the result made smaller. Loops are unrolled and turned
        # into vector instructions only in the function that runs.
        passes, builder = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class InlinedCompiler(Compiler):
    """Compiles a function that compiled code calls, without an entry for Python code."""

    def __init__(
        self,
        typingctx: Any,
        targetctx: Any,
        library: Any,
        args: Any,
        return_type: Any,
        flags: Any,
        locals: Any,
    ):
        library = _InlinedLibrary(targetctx.codegen(), "inlined")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)
        self.state.targetctx.get_executable = _unreachable


def _unreachable(library: Any, description: Any, environment: Any) -> Any:
    """An object for the function, which numba asks for; it has no address to call."""
    name = description.qualname.split(".")[-1]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))
