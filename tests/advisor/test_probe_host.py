"""The host and the processor as a device, read from folders that stand for machines."""

import os

import pytest

from vllm_advisor.errors import ProbeError
from vllm_advisor.hardware import Unknown, Vendor
from vllm_advisor.probe import host
from vllm_advisor.testing import machine_files, write_tree
from vllm_advisor.units import GIB


NODE = 64 * GIB  # of machine_files


@pytest.fixture
def machine(tmp_path):
    def build(changes=None, **shape):
        return write_tree(tmp_path, machine_files(**shape) | (changes or {}))

    return build


def test_the_model_is_one_line(machine):
    """Spaces inside of the name, as Intel pads it, are one."""
    assert "Example CPU @ 2.0GHz" == host.read(machine()).cpu


def test_cores_are_physical(machine):
    """Two NUMA nodes of two cores with two threads each: vLLM binds one thread a core."""
    assert 4 == host.read(machine()).cores


@pytest.mark.parametrize(("cpus", "cores"), [("0-1,4-5", 2), ("0", 1), ("0,4", 1), ("0-3", 4), ("0-63", 4)])
def test_affinity_limits_the_cores(machine, cpus, cores):
    """Only CPUs that this process may use and that are online count, siblings once."""
    assert cores == host.read(machine({"proc/self/status": f"Cpus_allowed_list:\t{cpus}\n"})).cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"sys/fs/cgroup/cpu.max": "max 100000"}, 4),
        ({"sys/fs/cgroup/cpu.max": "250000 100000"}, 2),
        ({"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        ({"sys/fs/cgroup/cpu.max": "nonsense"}, 4),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
)
def test_a_quota_limits_the_cores(machine, files, cores):
    """Both versions of the hierarchy; what is left of a core is no core, but one is always there."""
    assert cores == host.read(machine(files)).cores


def test_a_quota_of_a_parent_binds(machine):
    """The tightest limit on the way up counts, not only the process's own."""
    files = {
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/cpu.max": "200000 100000",
        "sys/fs/cgroup/outer/inner/cpu.max": "400000 100000",
    }
    assert 2 == host.read(machine(files)).cores


def test_the_host_has_all_nodes(machine):
    """RAM is the whole machine's, NUMA nodes are those with memory."""
    found = host.read(machine())

    assert (2 * NODE, 2) == (found.memory_bytes, found.numa_nodes)


@pytest.mark.parametrize(
    "files",
    [
        {"sys/fs/cgroup/memory.max": f"{8 * GIB}\n"},
        {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8 * GIB}\n"},
        {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": f"{8 * GIB}\n"},
        {"proc/self/cgroup": "4:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{8 * GIB}\n"},
        {"proc/self/cgroup": "0::/../../of/the/host\n", "sys/fs/cgroup/memory.max": f"{8 * GIB}\n"},
    ],
)
def test_a_memory_limit_binds_the_host(machine, files):
    """Both versions, own group or parent, and a container whose path is the host's."""
    assert 8 * GIB == host.read(machine(files)).memory_bytes


@pytest.mark.parametrize("limit", ["max", str((1 << 63) - 4096), ""])
def test_no_limit_is_no_limit(machine, limit):
    """Version 2 says max, version 1 a number near 2**63."""
    files = {"sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory/memory.limit_in_bytes": limit}
    assert 2 * NODE == host.read(machine(files)).memory_bytes


def test_system_memory_ignores_limits(machine):
    """A device that shares the memory counts all of it (for GB10 and the like)."""
    assert 2 * NODE == host.system_memory_bytes(machine({"sys/fs/cgroup/memory.max": str(GIB)}))


def test_shared_memory_is_the_size_of_its_file_system(machine):
    """What statvfs says of <root>/dev/shm."""
    root = machine({"dev/shm/.keep": ""})
    size = os.statvfs(root / "dev/shm")

    assert size.f_blocks * size.f_frsize == host.read(root).shm_bytes


def test_only_flags_that_decide_are_kept(machine):
    """In our order, so that two machines of one kind read the same."""
    assert ("avx2", "avx512f", "amx_bf16") == host.read(machine(flags="fpu amx_bf16 avx512f vme avx2")).cpu_flags


def test_an_empty_machine_is_unknown_not_zero(tmp_path):
    """Nothing readable: every number is Unknown with a reason, and nothing is raised."""
    found = host.read(tmp_path)

    assert ("", ()) == (found.cpu, found.cpu_flags)
    for reading in (found.cores, found.memory_bytes, found.shm_bytes, found.numa_nodes):
        assert isinstance(reading, Unknown)
        assert reading.why


@pytest.mark.parametrize(
    ("flags", "arch"),
    [("fpu avx2", "cpu-x86_64"), ("avx2 avx512f", "cpu-avx512"), ("avx2 avx512f amx_tile amx_bf16", "cpu-amx")],
)
def test_the_instruction_set_is_the_architecture(machine, flags, arch):
    """AMX counts with bf16, AVX-512 with its foundation."""
    found = host.cpu_gpu(machine(flags=flags))

    assert (Vendor.CPU, arch) == (found.vendor, found.arch)


def test_arm_is_told_by_features_and_part(machine):
    """Arm has no model name and no flags: the part number tells which core it is."""
    text = "processor : 0\nFeatures : fp asimd bf16 sve i8mm\nCPU implementer : 0x41\nCPU part : 0xd4f\n"
    root = machine({"proc/cpuinfo": text})

    assert "cpu-aarch64" == host.cpu_gpu(root).arch
    assert ("Arm Neoverse V2", ("asimd", "bf16", "i8mm", "sve")) == (host.read(root).cpu, host.read(root).cpu_flags)


def test_the_processor_has_one_nodes_memory(machine):
    """vLLM's worker counts the node's MemTotal; free, file cache and reclaimable slabs are available: a half."""
    found = host.cpu_gpu(machine())

    assert (NODE, NODE // 2) == (found.memory_bytes, found.free_bytes)
    assert ("bandwidth", "tflops_bf16") == found.unverified


def test_the_node_is_that_of_the_first_allowed_cpu(machine):
    """A process bound to the second socket has the second socket's memory."""
    files = {
        "proc/self/status": "Cpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1\n",
        "sys/devices/system/node/node1/meminfo": f"Node 1 MemTotal: {1 << 20} kB\nNode 1 MemFree: 1024 kB\n",
    }
    found = host.cpu_gpu(machine(files))

    assert (GIB, 1 << 20) == (found.memory_bytes, found.free_bytes)


def test_a_node_that_may_not_be_used_is_not_taken(machine):
    """Where the CPU's own node is closed to the process, vLLM falls back to the first open one."""
    files = {
        "proc/self/status": "Cpus_allowed_list:\t0-1\nMems_allowed_list:\t1\n",
        "sys/devices/system/node/node1/meminfo": f"Node 1 MemTotal: {1 << 20} kB\n",
    }
    assert GIB == host.cpu_gpu(machine(files)).memory_bytes


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_clamps_as_vllm_clamps(machine, version):
    """The total is the limit, the free bytes what the group has not used of it."""
    names = {
        1: ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
        2: ("memory.max", "memory.current"),
    }[version]
    files = dict(zip((f"sys/fs/cgroup/{name}" for name in names), (str(16 * GIB), str(5 * GIB)), strict=True))
    found = host.cpu_gpu(machine(files))

    assert (16 * GIB, 11 * GIB) == (found.memory_bytes, found.free_bytes)


def test_a_limit_below_the_root_is_warned_about(machine):
    """vLLM reads only the root of the mount: the total is the node's, the free bytes are what the kernel grants."""
    files = {"proc/self/cgroup": "0::/slice\n", "sys/fs/cgroup/slice/memory.max": str(4 * GIB)}
    root = machine(files)

    assert (NODE, 4 * GIB) == (host.cpu_gpu(root).memory_bytes, host.cpu_gpu(root).free_bytes)
    assert any("only 4.0 GiB may be used here, vLLM counts 64.0 GiB" in line for line in host.cpu_warnings(root))


def test_without_numa_the_systems_memory_counts(machine):
    """vLLM then asks for the whole machine's figures, and so do we."""
    root = machine({"sys/devices/system/node/node0/meminfo": "", "sys/devices/system/node/node1/meminfo": ""})

    assert (2 * NODE, NODE) == (host.cpu_gpu(root).memory_bytes, host.cpu_gpu(root).free_bytes)


def test_warnings_say_what_is_assumed(machine):
    """The rates stand for a machine of the catalog, which has another number of cores; the other node is named."""
    speed, node = host.cpu_warnings(machine())

    assert "assumed for 32 cores with AVX-512 at 2.5 GHz, 8 channels of DDR4-3200; this one may use 4 cores" in speed
    assert node.endswith("node 0, one of 2")


def test_a_processor_without_readable_memory_is_an_error(tmp_path):
    """Nothing can be planned without its memory; the hint says how to name a machine instead."""
    write_tree(tmp_path, {"proc/cpuinfo": "flags : avx2\n"})
    with pytest.raises(ProbeError, match="memory of this machine") as caught:
        host.cpu_gpu(tmp_path)

    assert "--gpu" in caught.value.hint


def test_a_processor_of_another_kind_is_an_error(machine, monkeypatch):
    """POWER, RISC-V and z have no entry in the catalog; the message names the kind."""
    monkeypatch.setattr(host.platform, "machine", lambda: "ppc64le")
    with pytest.raises(ProbeError, match="ppc64le"):
        host.cpu_gpu(machine({"proc/cpuinfo": "processor : 0\ncpu : POWER10\n"}))


def test_broken_files_are_unknown(machine):
    """Words where numbers belong raise nothing."""
    files = {
        "proc/meminfo": "MemTotal: lots kB\n",
        "sys/devices/system/cpu/online": "many",
        "proc/self/status": "Cpus_allowed_list:\n",
        "sys/devices/system/node/has_memory": "none",
    }
    found = host.read(machine(files))

    assert isinstance(found.memory_bytes, Unknown)
    assert isinstance(found.cores, Unknown)
    assert isinstance(found.numa_nodes, Unknown)


@pytest.mark.parametrize(
    ("text", "ids"), [("0-2,4", (0, 1, 2, 4)), ("7", (7,)), ("", ()), ("a-b", ()), ("3-", (3,)), ("0-99999999", ())]
)
def test_id_lists(text, ids):
    """As the kernel writes them; nonsense and absurd ranges are empty."""
    assert ids == host.id_list(text)
