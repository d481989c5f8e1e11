"""A child that speaks the oracle's protocol and knows no vLLM: what it does is in the model's name."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def say(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


hello = json.loads(sys.stdin.readline())
sys.stderr.write("an import that talks\n")
if hello["device"]["name"] == "no vllm":
    say({"id": hello["id"], "failed": {"error": "ModuleNotFoundError", "text": "no vllm in this environment"}})
    sys.exit(0)
if hello["device"]["name"] == "broken":
    say({"id": hello["id"], "failed": {"error": "RuntimeError", "text": "libcudart.so: cannot open"}})
    sys.exit(0)
say({"id": hello["id"], "vllm": "0.33.0+cu130", "platform": "StandIn"})

for line in sys.stdin:
    asked = json.loads(line)
    model = "refused" if "--nope" in asked["argv"] else asked["argv"][1]
    if model == "silent":
        time.sleep(60)
    elif model == "garbage":
        sys.stdout.write("INFO vLLM prints this\n")
        sys.stdout.flush()
    elif model == "late":
        say({"id": 0, "parser": None})
    elif model == "dies":
        sys.stderr.write("RuntimeError: out of luck\n")
        sys.exit(3)
    elif model == "forks":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=subprocess.DEVNULL)
        say({"id": asked["id"], "parser": None, "effective": {"pid": child.pid}})
    elif model == "environment":
        say({"id": asked["id"], "parser": None, "effective": dict(os.environ) | {"cwd": str(Path.cwd())}})
    elif model == "odd":
        say({"id": asked["id"], "parser": 7})
    elif model == "refused":
        refusal = {"error": "SystemExit", "text": "unrecognized arguments: --nope"}
        say({"id": asked["id"], "parser": refusal})
    else:
        row = {"kind": "full", "backend": "FLASH_ATTN", "detail": "head 128", "tower": False, "layers": 36}
        linear = {"method": "Fp8LinearMethod", "backend": "CutlassFP8", "detail": "", "tower": False, "layers": 144}
        layers = {"attention": [row], "linear": [linear], "experts": []} if asked["layers"] else None
        say({"id": asked["id"], "parser": None, "configuration": None, "layers": layers})
