"""How numba compiles kernels, and functions whose code is only ever a part of kernels.

numba optimises every function that compiled code calls, and turns it into machine code, although a
function that is inlined never runs by itself: its code is optimised again, and becomes machine
code again, within each function that calls it. For such functions, the compiler here leaves out
what nobody uses. They are therefore not for Python code: they have no entry that it could call.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags

from .._compat import has_pass_builders


class _FixedFlags(Flags):
    """The options of a compilation, which do not change while it goes on.

    numba looks them up whenever it finds the type of an expression, and computes their hash each
    time. Here it is computed once.
    """

    def __init__(self, copy_from: Any = None) -> None:
        super().__init__(copy_from)
        self._found: Any = None

    def values(self) -> dict[str, Any]:
        return self._fixed()[0]

    def __hash__(self) -> int:
        return self._fixed()[1]

    def _fixed(self) -> tuple[dict[str, Any], int]:
        if self._found is None:
            values = super().values()
            self._found = values, hash(tuple(sorted(values)))
        return self._found


class _Library(JITCodeLibrary):
    """Machine code of a function."""

    def _optimize_functions(self, ll_module: Any) -> None:
        if not has_pass_builders(numba):
            super()._optimize_functions(ll_module)
            return
        # numba would make passes for functions without code too, of which there are many more.
        ll_module.data_layout = self._codegen._data_layout
        for function in ll_module.functions:
            if not function.is_declaration:
                passes, builder = self._codegen._function_pass_manager()
                passes.run(function, builder)


class _InlinedLibrary(_Library):
    """Code that is linked into that of other functions, which is then optimised."""

    def _optimize_final_module(self) -> None:
        # Functions that are called here are inlined, and the result made smaller. Loops are
        # unrolled and turned into vector instructions only in the function that runs.
        found = self._codegen._module_pass_manager(
            loop_vectorize=False, slp_vectorize=False, opt=0, cost="cheap"
        )
        passes, *builder = found if has_pass_builders(numba) else (found,)
        passes.run(self._final_module, *builder)

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class KernelCompiler(Compiler):
    """Compiles a kernel."""

    _kind: type[_Library] = _Library

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
        library = self._kind(targetctx.codegen(), "kernel")
        library.enable_object_caching()
        super().__init__(typingctx, targetctx, library, args, return_type, flags, locals)

    def _compile_core(self) -> Any:
        self.state.flags = _FixedFlags(self.state.flags)
        return super()._compile_core()


class InlinedCompiler(KernelCompiler):
    """Compiles a function that compiled code calls, without an entry for Python code."""

    _kind = _InlinedLibrary

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.targetctx.get_executable = _unreachable


def _unreachable(library: Any, description: Any, environment: Any) -> Any:
    """An object for the function, which numba asks for; it has no address to call."""
    name = description.qualname.split(".")[-1]
    return _dynfunc.make_function(description.lookup_module(), name, "", 0, environment, (library,))
