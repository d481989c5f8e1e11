"""Commands and files become Invocations: what starts vLLM, its variables, version, devices and lines; nothing else."""

import pytest

from vllm_advisor.check import read
from vllm_advisor.errors import BadInput


def line(text):
    return read.command_line(text.split())


def one(tmp_path, name, text):
    """The only Invocation of a file."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    (found,) = read.file(path)
    return found


@pytest.mark.parametrize(
    ("typed", "argv", "env"),
    [
        ("vllm serve m -tp 8", ("vllm", "serve", "m", "-tp", "8"), ()),
        ("A=1 B=x=y vllm serve m", ("vllm", "serve", "m"), (("A", "1"), ("B", "x=y"))),
        ("env A=1 vllm serve m", ("vllm", "serve", "m"), (("A", "1"),)),
        ("sudo -E numactl -N 0 /opt/v/bin/vllm serve m", ("/opt/v/bin/vllm", "serve", "m"), ()),
        (
            "A=1 python3 -m vllm.entrypoints.openai.api_server --model m",
            ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            (("A", "1"),),
        ),
        ("docker run vllm/vllm-openai:v0.24.0 --model m", ("vllm", "serve", "--model", "m"), ()),
        ("docker run -it --rm -p 80:80 --ipc=host -e A=1 vllm/vllm-openai m", ("vllm", "serve", "m"), (("A", "1"),)),
        ("podman run --env=A=1 -v a=b:c rocm/vllm vllm serve m", ("vllm", "serve", "m"), (("A", "1"),)),
    ],
)
def test_a_command_begins_where_vllm_does(typed, argv, env):
    """Wrappers and container options are passed over, assignments are the environment."""
    found = line(typed)

    assert (argv, env) == (found.argv, found.env)


@pytest.mark.parametrize(
    ("typed", "version", "devices"),
    [
        ("docker run --gpus 4 vllm/vllm-openai:v0.24.0 m", "0.24.0", 4),
        ("docker run --gpus all vllm/vllm-openai:v0.30.0-cu129 m", "0.30.0", None),
        ("docker run --gpus device=0,3 vllm/vllm-openai:latest m", None, 2),
        ("CUDA_VISIBLE_DEVICES=0,1,2 vllm serve m", None, 3),
        ("docker run rocm/vllm:rocm7.0_vllm_0.9.1 vllm serve m", None, None),
        ("docker run example.org:5000/vllm-openai@sha256:ab m", None, None),
    ],
)
def test_image_tag_and_devices_are_read(typed, version, devices):
    """The version of vLLM's own images, and the devices that are asked for or left visible."""
    found = line(typed)

    assert (version, devices) == (found.version, found.devices)


@pytest.mark.parametrize(
    "typed", ["", "ls -la", "vllm bench serve x", "echo vllm serve m", "Qwen/Qwen3-8B -tp 8", "docker run postgres"]
)
def test_a_line_without_a_server_is_one_error_with_a_hint(typed):
    """Nothing is guessed where no vLLM server starts."""
    with pytest.raises(BadInput) as caught:
        line(typed)

    assert "vllm serve" in caught.value.hint


def test_the_command_of_a_shell_in_a_container_is_read():
    """`--entrypoint bash … -c "…"` is a script of its own."""
    found = read.command_line(
        ["docker", "run", "--entrypoint", "bash", "rocm/vllm", "-c", "export A=1; vllm serve m --x"]
    )

    assert (("vllm", "serve", "m", "--x"), (("A", "1"),)) == (found.argv, found.env)


SCRIPT = """\
#!/bin/bash
# it's a comment: vllm serve no
export VLLM_X=1 Y="a b"
NOT_EXPORTED=2
MODEL=${MODEL:-org/m}
ARGS=(--tensor-parallel-size 8
  --seed 1)
ARGS+=(--json '{"a": "b c"}')
EXTRA="--port 80"
cat > other <<EOF
vllm serve heredoc's
EOF
if true; then
  Z=3 exec vllm serve "$MODEL" "${ARGS[@]}" $EXTRA \\
    --api-key "$KEY" "$@" > log 2>&1 &
fi
"""


def test_a_script_is_expanded_with_its_own_variables(tmp_path):
    """Assignments, arrays and defaults are taken, a caller's arguments and unknown variables are not invented."""
    found = one(tmp_path, "serve.sh", SCRIPT)
    words = ("vllm", "serve", "org/m", "--tensor-parallel-size", "8", "--seed", "1", "--json")

    assert (*words, '{"a": "b c"}', "--port", "80", "--api-key", "$KEY") == found.argv
    assert (("VLLM_X", "1"), ("Y", "a b"), ("Z", "3")) == found.env


def test_words_of_a_script_keep_their_line(tmp_path):
    """A continued line counts on."""
    found = one(tmp_path, "serve.sh", SCRIPT)

    assert (14, 15) == (found.lines[0], found.lines[found.argv.index("--api-key")])
    assert found.place.endswith("serve.sh:14")


def test_every_server_of_a_script_is_read(tmp_path):
    """Two commands, each with the variables exported by then."""
    path = tmp_path / "two.sh"
    path.write_text("export A=1\nvllm serve a &\nexport A=2\nunset B; vllm serve b; echo vllm serve c\n")

    assert [("a", "1"), ("b", "2")] == [(i.argv[2], dict(i.env)["A"]) for i in read.file(path)]


COMPOSE = """\
x-common: &common
  environment:
    - VLLM_A=1
    - HF_TOKEN
services:
  llm:
    <<: *common
    image: vllm/vllm-openai:${TAG:-v0.25.1}
    command: >
      --model org/m
      --max-model-len 32768
    deploy: {resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}}
  list:
    image: vllm/vllm-openai:v0.33.0
    entrypoint: ["vllm", "serve"]
    command: ["org/n", "--price", "$$5"]
    environment: {VLLM_B: "0", PASSED: }
  db: {image: postgres}
"""


def test_compose_services_with_a_server_are_read(tmp_path):
    """String and list commands, both forms of environment, merged anchors, the tag's default, reserved GPUs."""
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    first, second = read.file(path)

    assert (("vllm", "serve", "--model", "org/m", "--max-model-len", "32768"), "0.25.1") == (first.argv, first.version)
    assert ((("VLLM_A", "1"),), 2, 10) == (first.env, first.devices, first.lines[2])
    assert (("vllm", "serve", "org/n", "--price", "$5"), (("VLLM_B", "0"),)) == (second.argv, second.env)
    assert second.place.endswith("compose.yaml: services.list")


MANIFEST = """\
apiVersion: v1
kind: Service
---
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: big}
spec:
  leaderWorkerTemplate:
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.33.0
          command: ["/bin/sh", "-c"]
          args:
          - |
            export A=1
            vllm serve $(MODEL) --tensor-parallel-size 8
          env:
          - {name: MODEL, value: org/m}
          - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
          resources: {limits: {amd.com/gpu: "8"}}
"""


def test_a_manifest_is_read_wherever_its_containers_stand(tmp_path):
    """Kubernetes' own variables, a script inside `sh -c` with its lines, and the GPUs of its limits."""
    found = one(tmp_path, "lws.yaml", MANIFEST)

    assert ("vllm", "serve", "org/m", "--tensor-parallel-size", "8") == found.argv
    assert ((("MODEL", "org/m"), ("A", "1")), 8, 18) == (found.env, found.devices, found.lines[0])
    assert found.place.endswith("LeaderWorkerSet/big leader")


CONFIG = """\
model: org/m
tensor-parallel-size: 2
enable-prefix-caching: false
trust_remote_code: true
served-model-name: [a, b]
compilation-config: {mode: 3}
"""


def test_a_vllm_config_becomes_options(tmp_path):
    """As vLLM turns it into arguments: true alone, a list as values, a mapping as JSON; false is kept as `--no-x`."""
    found = one(tmp_path, "config.yaml", CONFIG)

    assert (
        "vllm", "serve", "--model", "org/m", "--tensor-parallel-size", "2", "--no-enable-prefix-caching",
        "--trust_remote_code", "--served-model-name", "a", "b", "--compilation-config", '{"mode": 3}',
    ) == found.argv  # fmt: skip
    assert ((6,), 3) == (found.falses, found.lines[6])


def test_a_commands_own_config_stands_before_its_options(tmp_path, monkeypatch):
    """Behind the model and before the rest, so that the command line wins, as in vLLM."""
    (tmp_path / "c.yml").write_text("seed: 1\n")
    monkeypatch.chdir(tmp_path)
    found = line("vllm serve m --port 1 --config c.yml")

    assert (("vllm", "serve", "m", "--seed", "1", "--port", "1"), (3, 4)) == (found.argv, found.joined)
    assert "c.yml" == found.config


def test_a_config_that_is_elsewhere_stays_a_flag():
    """Nothing is said about a file that is not here."""
    assert "--config" in line("vllm serve m --config /nowhere/c.yaml").argv


def test_a_systemd_unit_is_read(tmp_path):
    """Continued lines, Environment= and EnvironmentFile=, the prefix of ExecStart=, %% for a per cent sign."""
    (tmp_path / "env").write_text("# no\nVLLM_C='3'\n")
    unit = """\
[Service]
Environment="VLLM_A=1 2" VLLM_B=2
EnvironmentFile=-env
ExecStart=-/opt/v/bin/vllm serve org/m \\
  --x "100%% ${VLLM_B}"
"""
    found = one(tmp_path, "vllm.service", unit)

    assert ("/opt/v/bin/vllm", "serve", "org/m", "--x", "100% 2") == found.argv
    assert (("VLLM_A", "1 2"), ("VLLM_B", "2"), ("VLLM_C", "3")) == found.env
    assert 5 == found.lines[3]


def test_our_own_json_is_read_back(tmp_path):
    """What `advisor recommend --format json` writes."""
    found = one(tmp_path, "plan.json", '{"argv": ["vllm", "serve", "m", "--x"], "env": {"A": "1"}}')

    assert (("vllm", "serve", "m", "--x"), (("A", "1"),)) == (found.argv, found.env)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.sh", b"vllm serve 'm\n", "never closed"),
        ("a.sh", b"echo hello\n", "no vLLM server"),
        ("a.sh", b"\x00\x01vllm serve m", "no text file"),
        ("a.sh", b"\xff\xfe\xff", "no text file"),
        ("a.yaml", b"services: [\n", "no YAML"),
        ("a.yaml", b"services:\n{{- if .x }}\n  a: {}\n{{- end }}\n", "rendered first"),
        ("a.yaml", b"just: a mapping\n", "no vLLM server"),
        ("a.yaml", b"a: &a [*a]\nservices: {}\n", ""),
        ("a.yaml", b"[" * 5000, ""),
        ("a.service", b"[Service]\nExecStart=/bin/true\n", "no vLLM server"),
    ],
)
def test_a_broken_file_is_one_error(tmp_path, name, content, says):
    """Garbage, templates and files of other things: one line, whatever they hold."""
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read.file(path)

    assert says in caught.value.message


def test_a_file_that_is_not_there_is_one_error(tmp_path):
    """With the reason of the system."""
    with pytest.raises(BadInput, match="No such file"):
        read.file(tmp_path / "no.sh")
