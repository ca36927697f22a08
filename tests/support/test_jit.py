"""Compiled functions, whose cache on disk may save time but never fail a call or answer with old code."""

import errno
import importlib
import sys

import numba
import pytest

from covshift.support.jit import kernel


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compile_anew():
    def plus_one(x):
        return x + 1

    return kernel(plus_one)


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("length", [0, 30])
def test_a_damaged_file_is_replaced(cache, suffix, length):
    assert compile_anew()(1.0) == 2.0
    (file,) = cache.rglob(f"*.{suffix}")
    file.write_bytes(file.read_bytes()[:length])
    assert compile_anew()(1.0) == 2.0
    mended = compile_anew()
    assert mended(1.0) == 2.0
    assert sum(mended.stats.cache_hits.values()) == 1


def test_a_full_disk_does_not_fail_a_call(cache, monkeypatch):
    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile._save_data", fail)
    assert compile_anew()(1.0) == 2.0


@pytest.mark.parametrize(("old", "new"), [("x + STEP", "x - STEP"), ("STEP = 1", "STEP = 5")])
def test_a_change_in_another_file_is_noticed(cache, tmp_path, monkeypatch, old, new):
    monkeypatch.syspath_prepend(str(tmp_path))
    imports = "from covshift.support.jit import kernel\n"
    inner = f"{imports}STEP = 1\n@kernel\ndef inner(x):\n    return x + STEP\n"
    (tmp_path / "jit_outer.py").write_text(
        f"{imports}from jit_inner import inner\n@kernel\ndef outer(x):\n    return inner(x)\n"
    )
    answers = []
    for text in (inner, inner, inner.replace(old, new)):
        (tmp_path / "jit_inner.py").write_text(text)
        for name in ("jit_inner", "jit_outer"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        outer = importlib.import_module("jit_outer").outer
        answers.append((outer(10.0), sum(outer.stats.cache_hits.values())))
    changed = 9.0 if old == "x + STEP" else 15.0
    assert answers == [(11.0, 0), (11.0, 1), (changed, 0)]
