import os

import pytest

from tidetape.memory_limit import cgroup_limit_bytes, device_memory_bytes, parse_host_memory_limit, parse_memory_limit


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        (123, 123),
        ("123", 123),
        ("3.5GiB", 3758096384),
        ("3500MB", 3500000000),
        ("3500 mb", 3500000000),
        ("1KiB", 1024),
        (".5kB", 500),
        ("2TiB", 2 * 1024**4),
        ("min", 0),
        ("MAX", -1),
    ],
)
def test_amounts(value, limit):
    assert parse_memory_limit(value) == limit


NONSENSE = [0, -1, True, 1.5, None, "", "GiB", "3.5GiBs", "-1GB", "0%", "101%", "0B", "1e9", "3..5GB", "90 percent"]


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_refused_with_what_to_write(value):
    with pytest.raises(ValueError, match="memory_limit"):
        parse_memory_limit(value)


def test_percentages_are_of_this_ranks_share(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    whole = device_memory_bytes("cpu")
    assert whole <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert parse_memory_limit("90%") == int(whole * 0.9)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert parse_memory_limit("100%") == whole // 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "many")
    with pytest.raises(ValueError, match="LOCAL_WORLD_SIZE='many'"):
        parse_memory_limit("90%")


def test_a_percentage_of_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="device meta"):
        parse_memory_limit("90%", "meta")


@pytest.mark.parametrize(("value", "limit"), [(None, 0), (17, 17), ("2KiB", 2048), ("1.5KB", 1500)])
def test_host_memory_may_be_given_or_not(value, limit):
    assert parse_host_memory_limit(value) == limit


def test_a_share_of_the_hosts_memory(monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert parse_host_memory_limit("50%") == parse_memory_limit("50%")


@pytest.mark.parametrize("value", ["min", "MAX", 0, -1, "-3GiB", True, 1.5, "3 furlongs"])
def test_host_memory_is_an_amount(value):
    with pytest.raises(ValueError, match=r"^host_memory_limit="):
        parse_host_memory_limit(value)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_version_2_takes_the_least_limit_on_the_way_up(tmp_path):
    write(tmp_path / "self", "0::/job/step\n")
    write(tmp_path / "fs/job/step/memory.max", "max\n")
    write(tmp_path / "fs/job/memory.max", "4096\n")
    write(tmp_path / "fs/memory.max", "8192\n")
    assert cgroup_limit_bytes(str(tmp_path / "self"), str(tmp_path / "fs")) == 4096


def test_cgroup_version_1_and_paths_that_a_container_does_not_see(tmp_path):
    write(tmp_path / "self", "4:cpu,memory:/docker/abc\n1:name=systemd:/\n0::/\n")
    write(tmp_path / "fs/memory/memory.limit_in_bytes", "5000\n")
    assert cgroup_limit_bytes(str(tmp_path / "self"), str(tmp_path / "fs")) == 5000


def test_without_cgroups_there_is_no_limit(tmp_path):
    assert cgroup_limit_bytes(str(tmp_path / "absent"), str(tmp_path)) is None
    write(tmp_path / "self", "0::/\n")
    assert cgroup_limit_bytes(str(tmp_path / "self"), str(tmp_path)) is None
