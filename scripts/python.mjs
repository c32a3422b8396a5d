// Pythons of the project's own: with the clients that the end-to-end tests use unmodified, and with other tools.
import { spawnSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const PACKAGES = ["httpx==0.28.1", "httpx-sse==0.4.3"];

/**
 * A virtual environment with these packages: `{bin}`, the folder of its programs, or why there is none: `{why}`, and
 * `unreachable` if that is because PyPI could not be reached.
 */
export function environment(name, packages) {
  const home = join(process.env.LAYBY_CACHE ?? join(root, ".cache"), name);
  const bin = join(home, "bin");
  const ready = join(home, `ready-${packages.join("-")}`);
  if (existsSync(ready)) return { bin };
  rmSync(home, { recursive: true, force: true });
  const steps = [
    ["python3", ["-m", "venv", home]],
    [join(bin, "python"), ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", ...packages]],
  ];
  for (const [command, args] of steps) {
    const result = spawnSync(command, args, { encoding: "utf8", timeout: 300_000 });
    if (result.status === 0) continue;
    const said = (result.stderr ?? "").trim();
    const unreachable =
      args.includes("pip") && (result.error?.code === "ETIMEDOUT" || /after connection broken/.test(said));
    return {
      why: `${command} ${args.slice(0, 3).join(" ")}: ${result.error?.message ?? said.split("\n").at(-1)}`,
      unreachable,
    };
  }
  writeFileSync(ready, "");
  return { bin };
}

/** The interpreter that has the clients, or why there is none: `{python}` or `{why}`. */
export function python() {
  const { bin, why } = environment("python", PACKAGES);
  return bin ? { python: join(bin, "python") } : { why };
}
