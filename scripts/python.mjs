// Pythons of the project's own: one with the clients that the end-to-end tests use unmodified,
// one with LiteLLM's proxy, one with Schemathesis.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const cache = process.env.LAYBY_CACHE ?? join(root, ".cache");
const HTTPX = ["httpx==0.28.1", "httpx-sse==0.4.3"];
/** omnigent-client, and of what it and its server need only what the client imports: the whole is four times as much. */
const OMNIGENT = ["omnigent==0.19.1", "omnigent-client==0.19.1"];
const IMPORTED = [
  "click==8.5.1",
  "cryptography==50.0.2",
  "psutil==7.2.2",
  "pydantic==2.14.4",
  "PyYAML==6.0.4",
  "rich==15.0.0",
  "zstandard==0.25.0",
];
/** The first Python 3 minor version that omnigent-client takes. */
const OLDEST = 12;

/** `{python}` with every package; without omnigent-client also `{old}`, which says why; or no Python, and `{why}`. */
export function python() {
  const found = interpreter();
  if (!found) return { why: "there is no python3" };
  const old =
    found.minor < OLDEST ? `omnigent-client needs Python 3.${OLDEST}, ${found.path} is 3.${found.minor}` : null;
  const made = environment(found, old ? HTTPX : [...HTTPX, ...IMPORTED], old ? [] : OMNIGENT);
  return old ? { ...made, old } : made;
}

/** `{python}` of an environment with the schema-driven tester of APIs, or `{why}` as of `environment`. */
export function schemathesis() {
  const found = interpreter();
  return found ? environment(found, ["schemathesis==4.32.5"]) : { why: "there is no python3" };
}

/** `{python}` of an environment with LiteLLM's proxy, or `{why}` as of `environment`. */
export function litellm() {
  const found = interpreter();
  return found ? environment(found, ["litellm[proxy]==1.105.0"]) : { why: "there is no python3" };
}

/**
 * An environment with these packages, and with `bare` ones without what they depend on, made once: `{python}`, or `{why}`
 * there is none, and `unreachable` if that is because PyPI could not be reached.
 */
function environment({ path, minor }, packages, bare = []) {
  const name = createHash("sha256").update(`${minor} ${packages} ${bare}`).digest("hex").slice(0, 12);
  const home = join(cache, `python-${name}`);
  if (existsSync(home)) return { python: join(home, "bin", "python") };

  // Made beside its place and then moved there whole, as another test may be at it too. Moved, it works through bin/python.
  const made = join(cache, `python.${process.pid}`);
  const own = join(made, "bin", "python");
  const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
  const steps = [
    [path, ["-m", "venv", made]],
    [own, [...pip, ...packages]],
    ...(bare.length > 0 ? [[own, [...pip, "--no-deps", ...bare]]] : []),
  ];
  mkdirSync(cache, { recursive: true });
  try {
    for (const [command, args] of steps) {
      const { status, stderr, error } = spawnSync(command, args, { encoding: "utf8", timeout: 300_000 });
      if (status === 0) continue;
      const said = (stderr ?? "").trim();
      const why = `${command} ${args.slice(0, 3).join(" ")}: ${error?.message ?? said.split("\n").at(-1)}`;
      return { why, unreachable: args.includes("pip") && (error?.code === "ETIMEDOUT" || /after connection broken/.test(said)) };
    }
    try {
      renameSync(made, home);
    } catch (error) {
      if (!existsSync(home)) throw error;
    }
    return { python: join(home, "bin", "python") };
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}

/** `python3`, or, where that is too old for a client, another one that is not, also of those that pyenv keeps. */
function interpreter() {
  const pyenv = join(process.env.PYENV_ROOT ?? join(homedir(), ".pyenv"), "versions");
  const kept = existsSync(pyenv) ? readdirSync(pyenv).map((version) => join(pyenv, version, "bin", "python3")) : [];
  let first;
  for (const path of ["python3", "python3.13", "python3.12", "python3.14", ...kept]) {
    const { status, stdout } = spawnSync(path, ["-c", "import sys; print(*sys.version_info[:2])"], {
      encoding: "utf8",
    });
    const [major, minor] = status === 0 ? stdout.trim().split(" ").map(Number) : [];
    if (major !== 3) continue;
    first ??= { path, minor };
    if (minor >= OLDEST) return { path, minor };
  }
  return first;
}
