"""Models and contexts that do not fit in memory: said before they are loaded, with what would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ds4chat.engine import worker
from ds4chat.engine.llama import Context, ContextSettings, Model
from ds4chat.engine.machine import memory_bytes
from ds4chat.engine.memory_need import (
    Memory,
    default_n_ctx,
    free_memory,
    need,
    parse_vm_stat,
    refusal,
    trained_ctx,
    warning,
)
from ds4chat.engine.protocol import Event, Load, Notice
from ds4chat.engine.worker import Engine
from ds4chat.errors import ModelError
from ds4chat.gguf_file import Contents, read_contents
from tests.support.program import Program
from tests.support.tiny_models import KINDS

GB, MB = 10**9, 10**6

LARGE = Contents(
    {
        "general.architecture": "llama",
        "llama.block_count": 32,
        "llama.embedding_length": 4096,
        "llama.feed_forward_length": 14_336,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 8,
        "llama.context_length": 131_072,
    },
    weights=4_900 * MB,
    vocabulary=128_256,
)
"""The numbers of a common model of 8 billion weights: 128 KiB of KV a token."""


def resident() -> int:
    """Bytes of this process that are no file's."""
    found = re.search(r"^RssAnon:\s+(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_kv_rows_are_those_the_engine_has(tiny: dict[str, Path], kind: str, kv_type: str) -> None:
    contents = read_contents(tiny[kind])
    model = Model.load(tiny[kind], extra_buffers=False)
    try:
        context = Context(model, ContextSettings(512, kv_type))
        measured = context.warm_up().per_token
        context.close()
        assert need(contents, kv_type).per_token == (measured if kind != "recurrent" else 0)
        assert default_n_ctx(trained_ctx(contents), need(contents, kv_type).per_token) == model.default_n_ctx(
            kv_type
        )
    finally:
        model.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measured by /proc")
def test_the_estimate_is_what_the_starter_model_takes(starter: Path) -> None:
    expected = need(read_contents(starter), "f16").context(8192)
    model = Model.load(starter, extra_buffers=False)
    try:
        before = resident()
        context = Context(model, ContextSettings(8192, threads=2))
        context.decode(range(1, 33), 0, logits=True)
        took = resident() - before
        context.close()
    finally:
        model.close()
    assert 0.85 < expected / took < 1.25


def test_a_common_large_model() -> None:
    mine = need(LARGE, "f16")
    assert mine.per_token == 128 * 1024
    assert mine.context(131_072) == pytest.approx(17.4e9, rel=0.01)
    assert need(LARGE, "q8_0").per_token == 128 * 1024 * 17 // 32


@pytest.mark.parametrize(
    ("n_ctx", "kv_type", "free", "sentence"),
    [
        (8192, "f16", 2 * GB, ""),
        (
            131_072,
            "f16",
            12 * GB,
            "needs 17.4 GB of memory for a context of 131,072 tokens, and 12.0 GB are free: --ctx 90112 fits, and "
            "--kv-type q8_0 makes 131,072 tokens fit.",
        ),
        (
            131_072,
            "f16",
            6 * GB,
            "needs 17.4 GB of memory for a context of 131,072 tokens, and 6.0 GB are free: --ctx 44544 fits.",
        ),
        (
            131_072,
            "q8_0",
            6 * GB,
            "needs 9.4 GB of memory for a context of 131,072 tokens, and 6.0 GB are free: --ctx 83456 fits.",
        ),
        (
            8192,
            "f16",
            120 * MB,
            "needs 1.2 GB of memory for a context of 8,192 tokens, and 120 MB are free: close other programs, or "
            "choose a smaller model.",
        ),
    ],
)
def test_a_context_that_does_not_fit(n_ctx: int, kv_type: str, free: int, sentence: str) -> None:
    assert refusal(LARGE, n_ctx, kv_type, free) == sentence
    for offered in re.findall(r"--ctx (\d+) fits", sentence):
        assert refusal(LARGE, int(offered), kv_type, free) == ""
        assert refusal(LARGE, int(offered) + 256, kv_type, free) != ""


def test_q8_0_is_not_offered_where_it_cannot_be() -> None:
    assert "q8_0" not in refusal(LARGE, 131_072, "f16", 12 * GB, flash_attention=False)


def test_weights_that_do_not_fit_are_a_warning() -> None:
    assert warning(LARGE, 8192, "f16", 8 * GB) == ""
    assert warning(LARGE, 8192, "f16", 4 * GB) == (
        "takes 6.1 GB (4.9 GB of weights), which is 2.1 GB more than the memory that is free: its weights are read "
        "from the disk again and again, which is slow; a smaller model, or one of fewer bits, is not."
    )


@pytest.mark.parametrize(
    ("memory", "n_ctx", "refused"),
    [(Memory(24 * MB), 65_536, True), (Memory(24 * MB, 100 * MB), 65_536, False), (None, 65_536, False)],
)
def test_the_engine_looks_before_it_loads(
    tiny: dict[str, Path], monkeypatch: pytest.MonkeyPatch, memory: Memory | None, n_ctx: int, refused: bool
) -> None:
    said: list[Event] = []
    monkeypatch.setattr(worker, "free_memory", lambda: memory)
    engine, command = Engine(said.append), Load(str(tiny["dense"]), n_ctx=n_ctx)
    if not refused:
        engine._look(command)
        assert [type(event) for event in said] == ([Notice] if memory else [])
        return
    with pytest.raises(ModelError) as caught:
        engine._look(command)
    assert re.fullmatch(
        r"The model dense needs 8\d MB of memory for a context of 65,536 tokens, and 24 MB are free: --ctx \d+ fits\.",
        str(caught.value),
    )


def test_the_program_refuses_a_context_that_no_machine_holds(starter: Path, tmp_path: Path) -> None:
    done = Program(tmp_path).run("-p", "Hello?", "-m", str(starter), "--ctx", "2000000000")
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(
        r"ds4chat: The model SmolLM2-135M-Instruct\.Q4_1 needs 48,128\.0 GB of memory for a context of 2,000,000,000 "
        r"tokens, and [\d,.]+ [GM]B are free: --ctx \d+ fits\.\n",
        done.stderr,
    )


# ---- what is free -----------------------------------------------------------------------------------------------


def machine(root: Path, **files: str) -> Path:
    """Files below a root that stands for /; `__` in a name stands for a slash."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


MEMINFO = "MemTotal:       16000000 kB\nMemFree:  1000 kB\nMemAvailable:    8000000 kB\nSwapFree:        2000000 kB\n"
V2 = "sys__fs__cgroup__user_dot_slice__chat__memory_dot_"


def test_a_plain_machine(tmp_path: Path) -> None:
    assert free_memory(machine(tmp_path, proc__meminfo=MEMINFO)) == Memory(8_000_000 * 1024, 2_000_000 * 1024)
    assert free_memory(tmp_path / "nothing") is None


def test_a_limit_of_cgroups_2_and_of_a_group_above(tmp_path: Path) -> None:
    root = machine(tmp_path, proc__meminfo=MEMINFO, proc__self__cgroup="0::/user.slice/chat\n")
    assert free_memory(root) == Memory(8_000_000 * 1024, 2_000_000 * 1024)
    own = {
        V2 + "max": "4000000000\n",
        V2 + "current": "1500000000\n",
        V2 + "stat": "anon 9\ninactive_file 500000000\n",
    }
    machine(root, **own)
    assert free_memory(root) == Memory(3_000_000_000, 2_000_000 * 1024)
    machine(root, **{V2 + "swap_dot_max": "0\n"})
    assert free_memory(root) == Memory(3_000_000_000, 0)
    above = V2.replace("chat__", "")
    machine(root, **{above + "max": "2000000000\n", above + "current": "1900000000\n"})
    assert free_memory(root) == Memory(100_000_000, 0)
    machine(root, **{above + "max": "max\n"})
    assert free_memory(root) == Memory(3_000_000_000, 0)


def test_a_limit_of_cgroups_1_seen_from_inside_of_a_container(tmp_path: Path) -> None:
    base = "sys__fs__cgroup__memory__memory_dot_"
    root = machine(
        tmp_path,
        proc__meminfo=MEMINFO,
        proc__self__cgroup="4:memory:/docker/0123\n3:cpuset:/\n0::/\n",
        **{base + "limit_in_bytes": "2000000000\n", base + "usage_in_bytes": "500000000\n"},
    )
    assert free_memory(root) == Memory(1_500_000_000, 2_000_000 * 1024)


def test_what_vm_stat_prints() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                               10000.\n"
        "Pages active:                            400000.\n"
        "Pages inactive:                           20000.\n"
        "Pages speculative:                         3000.\n"
        "Pages wired down:                        100000.\n"
        "Pages purgeable:                           1000.\n"
    )
    found = parse_vm_stat(text)
    assert found is not None and found.free == 34_000 * 16384
    assert parse_vm_stat("vm_stat: not found") is None


def test_this_machine_tells() -> None:
    memory = free_memory()
    assert memory is not None and 0 < memory.free <= memory_bytes()
