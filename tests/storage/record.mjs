// Records the storage of a session's object, as the built worker leaves it on a real workerd, into `tests/storage/<version>.sqlite`.
// The native tests read and continue each of these files. Run it once for each new version of the form, before it is released:
//   node tests/storage/record.mjs
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Server } from "../../scripts/server.mjs";
import { LOOK, Session, eventually, model } from "../e2e/kit.mjs";

const cleanUp = [];
const storage = mkdtempSync(join(tmpdir(), "layby-"));
const server = new Server({ storage, vars: { LAYBY_OPEN: "true" } });
try {
  await server.start();
  const llm = await model({ after: (work) => cleanUp.push(work) }, [
    { text: "Hello. ", thought: "A greeting." },
    { status: 503, raw: `{"error":{"message":"try again"}}` },
    { calls: [{ id: "first_call", name: "look", arguments: '{"at":"the sky"}' }] },
    { text: "It is blue." },
    { text: "without end ".repeat(1000), pause: 20 },
    { status: 400, raw: `{"error":{"message":"no"}}` },
    { text: "Let me look. ", calls: [{ id: "open_call", name: "look" }] },
  ]);
  const session = await Session.on(server, llm, {}, { title: "recorded", labels: { kind: "recording" } });
  await session.say("hello");
  await session.status("idle");
  await session.say("what is up?", [LOOK]);
  await session.status("waiting");
  await session.give("first_call", "blue");
  await session.status("idle");
  await session.say("talk");
  await eventually(async () => llm.requests.length === 5 && (await session.snapshot()).items.length > 7, "some text");
  await session.post({ type: "interrupt" });
  await session.status("idle");
  await session.say("fail");
  await session.status("failed");
  await session.say("look again", [LOOK]);
  await session.status("waiting");
} finally {
  for (const work of cleanUp) await work();
  await server.stop();
}
const folder = join(storage, "do", "layby-Session");
const [file] = readdirSync(folder).filter((name) => name.endsWith(".sqlite") && name !== "metadata.sqlite");
// One file, with what was still in the write-ahead log.
const fold = `
import json, os, sqlite3, sys
source = sqlite3.connect(sys.argv[1])
schema = json.loads(source.execute("SELECT entry FROM log WHERE seq = -2").fetchone()[0])["schema"]
target = os.path.join(sys.argv[2], f"{schema}.sqlite")
if os.path.exists(target): os.remove(target)
source.execute("VACUUM INTO ?", [target])
print(target)
`;
const here = dirname(fileURLToPath(import.meta.url));
process.stdout.write(execFileSync("python3", ["-c", fold, join(folder, file), here]));
rmSync(storage, { recursive: true, force: true });
