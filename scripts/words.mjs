// `npm run words`: one word per thing. Looks for names that were replaced by the field's own, and for turns of phrase that plain
// technical English has a word for. `npm test` runs it first.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

// Each with what to write instead. Types and functions are matched as whole words.
const replaced = [
  [/\b(struct|enum|trait|type|mod|fn)\s+(Given|Posted|Seed|Settlement|Then|Words|Told|Listing|Kept|Recent|Shown|Way|Ask|Play|Lines|Patience|Left|Passing|Stamp|Forwarded|Wrong|goodbye|tell_at|tell_now|untold)\b/, "the name in the code map"],
  [/\bEntry::(Noted|Answered)\b|\bSource::Held\b/, "Note, CallResolved, Queued"],
  [/\bmod (body_stream|object_stub|reads|answers|listing)\b/, "sse, websocket, long_poll, sql, wire, queries, idempotency, directory_sync"],
];
const phrases = [
  [/\b(is|are|be|made|making|becomes?|makes?|tokens?) (\w+ )?void\b|\bvoid tokens?\b/i, "revoked"],
  [/\bgood for (a|one|as)\b/i, "valid for"],
  [/\bgoodbye\b/i, "the name of the message"],
  [/\b(takes?|took|taken|taking) (a message |it |them )?back\b/i, "withdraw"],
  [/\bExchang(e|ed|ing) (a |the )?keys?\b/i, "rotate"],
  [/\bto blame\b/i, "say what to do"],
  [/\bstand(s)? still\b/i, "downtime"],
  [/\b(is|are) told (on|of)\b/i, "report"],
  [/\bhas a box\b|\bhave a box\b/i, "boxed"],
  [/\b[Tt]ried, and left\b/, "tried and rejected"],
  [/\bTaking it away\b/, "uninstalling"],
  [/\blooks? (first )?whether\b/i, "check that"],
  [/\bgo(es)? by\b: /, "passed through"],
  [/\bmessages? that waits?\b|\bwaits? already\b/i, "queued"],
  [/\b[Ww]hat (a |the |an )?[a-z]+ has no such thing for\b/, "does not support"],
  [/\bsomebody else's\b/i, "another's"],
  [/\bnobody has to\b/i, "no … needed"],
  [/\b(back-pressure|fan out)\b/i, "backpressure, fan-out"],
];

const files = spawnSync("git", ["ls-files", "src", "bench", "docs", "scripts", "tools", "tests", "examples", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"], { cwd: root, encoding: "utf8" })
  .stdout.split("\n")
  .filter((name) => /\.(rs|js|mjs|ts|md|json|html|py|toml)$/.test(name) && name !== "scripts/words.mjs" && !name.endsWith("golden.json"));
let found = 0;
for (const name of files) {
  readFileSync(join(root, name), "utf8").split("\n").forEach((line, index) => {
    for (const [pattern, instead] of [...replaced, ...phrases]) {
      const match = pattern.exec(line);
      if (!match) continue;
      found += 1;
      console.error(`${name}:${index + 1}: "${match[0]}": ${instead}`);
    }
  });
}
if (files.length === 0) throw new Error("no files found: run this in a git checkout");
if (found > 0) process.exit(1);
