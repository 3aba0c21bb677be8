"""A worker that only writes ``host.json`` and waits; ``extra`` in its user data may make it misbehave."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path


def main() -> None:
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    told = json.loads(Path(arguments["--user-data"]).read_text())["extra"]
    if told.get("fail"):
        print("no Java here", flush=True)
        sys.exit(3)
    if told.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if told.get("child"):
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    if not told.get("silent"):
        facts = {"address": "127.0.0.1", "port": 4711, "pid": os.getpid(), "arguments": arguments}
        temporary = Path(arguments["--workdir"], "host.new")
        temporary.write_text(json.dumps(facts))
        temporary.rename(temporary.with_name("host.json"))
    signal.pause()


main()
