from __future__ import annotations

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_pack.errors import UserError
from aoti_pack.server.command import server_command
from aoti_pack.server.ports import Ports, check_ports, choose_ports
from aoti_pack.server.repository_check import check_repository
from aoti_pack.server.serverlog import error_lines, new_log, says_port_taken

HOST = "127.0.0.1"


def command(flags: list[str]) -> list[str]:
    return server_command(
        Path("/bin/tritonserver"),
        Path("/repo"),
        server_id="me",
        host=HOST,
        ports=Ports(1, 2, 3),
        backends=Path("/backends"),
        shm_prefix="seg",
        exit_timeout_s=2.5,
        flags=flags,
    )


def test_command_listens_on_the_host_alone_and_puts_flags_last() -> None:
    made = command(["--log-verbose=1"])
    assert made[0] == "/bin/tritonserver"
    assert made[-1] == "--log-verbose=1"
    expected = {"--id=me", "--model-repository=/repo", "--http-port=1", "--grpc-port=2", "--metrics-port=3"}
    expected |= {f"--{service}-address=127.0.0.1" for service in ("http", "grpc", "metrics")}
    expected |= {"--backend-directory=/backends", "--backend-config=python,shm-region-prefix-name=seg"}
    expected |= {"--model-control-mode=none", "--strict-readiness=true", "--exit-on-error=true"}
    assert set(made[1:-1]) == expected | {"--exit-timeout-secs=3"}


@pytest.mark.parametrize("flags", [["--http-port=9"], ["--grpc-address", "0.0.0.0"], ["--model-store=/x"]])
def test_flags_with_a_parameter_of_their_own_are_refused(flags: list[str]) -> None:
    with pytest.raises(UserError, match=f"{flags[0].split('=')[0]} cannot be passed through"):
        command(flags)


def test_chosen_ports_are_free_and_differ() -> None:
    chosen = choose_ports(HOST, Ports())
    assert len(set(chosen.flags().values())) == 3
    check_ports(HOST, chosen)
    assert choose_ports(HOST, Ports(http=chosen.http)).http == chosen.http


def test_a_taken_port_is_named_with_its_flag() -> None:
    with socket.create_server((HOST, 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(UserError, match=rf"127\.0\.0\.1:{port} \(--grpc-port\): Address already in use"):
            check_ports(HOST, Ports(grpc=port))


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (Ports(http=0), "--http-port 0 is not a port"),
        (Ports(metrics=70000), "--metrics-port 70000 is not a port"),
    ],
)
def test_a_port_out_of_range_is_told(ports: Ports, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        check_ports(HOST, ports)


def test_the_same_port_twice_is_told() -> None:
    port = choose_ports(HOST, Ports()).http
    with pytest.raises(UserError, match=f"--grpc-port and --http-port are both {port}"):
        check_ports(HOST, Ports(http=port, grpc=port))


LOG = r"""I1201 12:26:47.185134 4201 model_lifecycle.cc:777] "failed to load 'bad'"
E1201 12:26:46.000000 4201 cuda.cc:1] "CudaDriverHelper has not been initialized."
E1201 12:26:47.185091 4201 life.cc:642] "failed to load 'bad' version 1: Internal: no w.bin\n\nAt:\n  x"
E1201 12:26:47.185091 4201 life.cc:642] "failed to load 'bad' version 1: Internal: no w.bin\n\nAt:\n  x"
Error: Failed to initialize NVML
E1201 12:26:50.994780863    4218 chttp2_server.cc:1060]                UNKNOWN:No address added
error: creating server: Internal - failed to load all models
"""


def test_error_lines_are_the_servers_own_words() -> None:
    assert error_lines(LOG.splitlines()) == [
        "failed to load 'bad' version 1: Internal: no w.bin",
        "UNKNOWN:No address added",
        "creating server: Internal - failed to load all models",
    ]
    assert error_lines(LOG.splitlines(), limit=1) == ["failed to load 'bad' version 1: Internal: no w.bin"]


def test_a_log_without_errors_gives_its_end() -> None:
    assert error_lines(["a", "b", "", "x: cannot open shared object file", "c"]) == [
        "b",
        "x: cannot open shared object file",
        "c",
    ]


@given(st.lists(st.text(max_size=60), max_size=20), st.integers(1, 9))
def test_error_lines_of_anything_are_few_and_from_the_log(lines: list[str], limit: int) -> None:
    found = error_lines(lines, limit)
    assert len(found) <= max(limit, 3)
    assert all(any(part in line for line in lines) for part in found)


def test_a_taken_port_is_recognised() -> None:
    assert says_port_taken(
        ["failed to start HTTP service: Unavailable - Socket '127.0.0.1:80' already in use"]
    )
    assert not says_port_taken(["the model is in use"])


def test_logs_are_new_each_time(home: Path) -> None:
    assert new_log() != new_log()
    assert new_log().parent == home / "logs"


def test_repositories_that_cannot_be_served_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        check_repository(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is empty"):
        check_repository(tmp_path)
    check_repository(tmp_path, ["--model-control-mode=explicit"])
    model = tmp_path / "model"
    model.mkdir()
    with pytest.raises(UserError, match=r"has a version folder \(found model\)"):
        check_repository(tmp_path)
    (model / "1").mkdir()
    check_repository(tmp_path)
    with pytest.raises(UserError, match="is a model, not a model repository") as caught:
        check_repository(model)
    assert str(tmp_path) in (caught.value.mend or "")
