"""What the scripts that use omnigent-client share: the client, an agent as the bundle that it sends, and what it dropped."""

import io
import json
import logging
import sys
import tarfile

from omnigent_client import OmnigentClient

url, key, model = sys.argv[1:4]
SCHEMA = {"type": "object", "properties": {"widget_id": {"type": "integer"}}, "required": ["widget_id"]}
TOOL = {"name": "lookup_widget", "description": "Looks up a widget's colour.", "parameters": SCHEMA}


def connect():
    return OmnigentClient(url, headers={"authorization": f"Bearer {key}"})


def bundle(tools=None):
    """An agent that asks the model server. JSON is YAML too."""
    auth = {"type": "api_key", "api_key": "secret-key", "base_url": model}
    config = {
        "spec_version": 1,
        "name": "widgets",
        "prompt": "You look up widgets.",
        "executor": {"harness": "openai-agents", "model": "test-model", "auth": auth},
        "tools": tools or [{"type": "function", "runtime": "client", "function": TOOL}],
    }
    text = json.dumps(config).encode()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("config.yaml")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return packed.getvalue()


class Dropped(logging.Handler):
    """The events of a type that the package knows, but that are not what it takes that type to be. It drops them silently."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.events = []
        logger = logging.getLogger("omnigent_client.sessions")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)

    def emit(self, record):
        if "does not match any of the expected tags" not in record.getMessage():
            self.events.append(record.getMessage())
