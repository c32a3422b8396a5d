import { spawnSync } from "node:child_process";
import { setup } from "./setup.mjs";
const r = spawnSync("worker-build", process.argv.slice(2).length ? process.argv.slice(2) : ["--release", "--panic-unwind"], { stdio: "inherit", env: { ...process.env, ...setup() } });
process.exit(r.status ?? 1);
