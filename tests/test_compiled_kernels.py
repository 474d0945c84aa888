"""What a fit compiles: no more kernels than it calls, and no code that is never called."""

from importlib.util import find_spec, module_from_spec
from pkgutil import iter_modules

import numba
import numpy as np
import pytest
from numba import types
from numba.core.errors import TypingError

import sklearn_anneal
from sklearn_anneal import kernels
from sklearn_anneal.kernels import _compile
from sklearn_anneal.kernels._compile import helper, kernel, with_names


def rows(rng):
    return rng.standard_normal((30, 3))


def bits(rng):
    return (rows(rng) > 0.0).astype(float)


def counts(rng):
    return rng.poisson(rng.gamma(0.5, 4.0, size=(25, 6))).astype(float)


# The kernels of a default fit and of the prediction after it. Each takes up to seconds on a machine
# that has not compiled it yet, which should be worth it.
KERNELS = {
    "AnnealedBayesianGaussianMixture": (
        rows,
        "predict",
        "coefficients divergence local_step moments statistics statistics_of stick_divergence "
        "stick_logs",
    ),
    "AnnealedBayesianMixture": (
        bits,
        "predict",
        "add_shares beta_divergence beta_logs collect_levels fill_table local_step "
        "stick_divergence stick_logs",
    ),
    "AnnealedFactorialMixture": (rows, "transform", "mean_field"),
    "AnnealedGammaProcessNMF": (
        counts,
        "transform",
        "activation_powers activation_sums coordinate_passes dense_updates divergence "
        "expected_table exploring_passes gamma_shapes joint_scales log_ratios log_sums ratios",
    ),
    "AnnealedHMM": (
        rows,
        "predict",
        "_forward_backward_of_4 coefficients dirichlet_divergence dirichlet_logs displaced "
        "divergence log_joint moments statistics statistics_of viterbi",
    ),
    "AnnealedLatentDirichletAllocation": (
        counts,
        "transform",
        "_mean_field add_entries count_tokens dirichlet_sums expected_table mark "
        "move_traces sample_topics",
    ),
    "AnnealedPMF": (
        rows,
        "transform",
        "add_matrix_products add_ratings draws moments normal share_raters squared_errors "
        "statistics",
    ),
    "AnnealedSigmoidBeliefNet": (bits, "transform", "adam draw log_probabilities"),
    "AnnealedSpikeSlabFactorAnalysis": (rows, "transform", "mean_field"),
}


@pytest.fixture
def compiled(monkeypatch):
    """The names of the kernels that are compiled, or read from disk, from now on."""
    for module in iter_modules(kernels.__path__):
        if module.ispkg or module.name.startswith("_"):
            continue
        for value in vars(kernels.load(module.name)).values():
            for found in value.values() if isinstance(value, dict) else [value]:
                if isinstance(found, _compile.Kernel):
                    monkeypatch.setattr(found, "_variants", {})
    names, cached = [], _compile._cached

    def watched(function, signature):
        names.append(function.__name__)
        return cached(function, signature)

    monkeypatch.setattr(_compile, "_cached", watched)
    return names


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", KERNELS)
def test_a_default_fit_compiles_only_these_kernels(
    estimator, compiled, rng, few_passes_of_searches
):
    make, predict, expected = KERNELS[estimator]
    X = make(rng)
    fitted = getattr(sklearn_anneal, estimator)(random_state=0).fit(X)
    getattr(fitted, predict)(X)
    assert sorted(compiled) == sorted(expected.split())


def test_the_list_has_all_estimators():
    estimators = {name for name in sklearn_anneal.__all__ if name.startswith("Annealed")}
    assert estimators == set(KERNELS)


@helper
def _squared(x):
    return x * x


def test_what_is_inlined_has_no_machine_code_of_its_own():
    _squared.compile((types.float64,))
    (result,) = _squared.overloads.values()
    engine = result.library.codegen._engine
    assert not engine.is_symbol_defined(result.fndesc.llvm_func_name)


def test_inlined_functions_run_within_kernels(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))

    @kernel("values out_values")
    def square(x, out):
        for i in range(x.shape[0]):
            out[i] = _squared(x[i])

    out = np.empty(3)
    square(np.array([1.0, -2.0, 0.5]), out)
    np.testing.assert_array_equal(out, [1.0, 4.0, 0.25])


def _squares(x, out):
    for i in range(x.shape[0]):
        out[i] = _squared(x[i])


def test_later_versions_of_numba_compile_in_their_own_way(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    later_version = numba.version_info._replace(short=(9, 0))
    monkeypatch.setattr("numba.version_info", later_version)
    later = module_from_spec(find_spec("sklearn_anneal.kernels._compile"))
    later.__spec__.loader.exec_module(later)
    assert not {"pipeline_class", "no_cfunc_wrapper"} & (later._KERNEL | later._INLINED).keys()
    function = with_names(_squares, "later", _squared=later.helper(_squared.py_func))
    out = np.empty(2)
    later.kernel("values out_values")(function)(np.array([1.0, -2.0]), out)
    np.testing.assert_array_equal(out, [1.0, 4.0])


_IS_ON = True


def _choose(x, out):
    if _IS_ON:
        out[0] = x[0].no_such_attribute
    else:
        out[0] = 2.0 * x[0]


def test_code_that_names_rule_out_is_not_compiled(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    out = np.empty(1)
    kernel("values out_values")(with_names(_choose, "off", _IS_ON=False))(np.ones(1), out)
    assert out[0] == 2.0
    with pytest.raises(TypingError, match="no_such_attribute"):
        kernel("values out_values")(with_names(_choose, "on", _IS_ON=True))(np.ones(1), out)
