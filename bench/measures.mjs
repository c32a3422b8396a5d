// What is measured. Every measure gives rows: a name, a unit, the figures of both sides, and the limit that their ratio has.
import { setTimeout as sleep } from "node:timers/promises";
import { gzipSync } from "node:zlib";
import { DONE, Side, direct, kinds } from "./side.mjs";

const sorted = (values) => values.toSorted((a, b) => a - b);
export const median = (values) => sorted(values)[values.length >> 1];
const p99 = (values) => sorted(values)[Math.floor(values.length * 0.99)];
const times = (count, work) => Array.from({ length: count }, (_, n) => work(n));

/** Runs `work` on each side in turn, so that what the machine does besides meets both alike. */
async function alternate(sides, rounds, work, warm = 0) {
  const found = sides.map(() => []);
  for (let round = -warm; round < rounds; round++) {
    for (const [n, side] of sides.entries()) {
      const value = await work(side, round);
      if (round >= 0) found[n].push(value);
    }
  }
  return found;
}

/** A session of each side for `count` rounds, then another one, so that transcripts stay short. */
function fresh(count) {
  const open = new Map();
  return async (side, round) => {
    if (round % count === 0 || !open.has(side)) {
      open.get(side)?.reader.close();
      open.set(side, await side.session());
    }
    return open.get(side);
  };
}

function latencies(name, found, without, parts) {
  return parts.flatMap(({ part, limit }) => {
    const base = part in without[0] && part !== "ack" ? (of) => of(without.map((turn) => turn[part])) : () => 0;
    const [layby, other] = found.map((turns) => (of) => of(turns.map((turn) => turn[part])) - base(of));
    return [
      { name: `${name}: ${part}`, unit: "ms", layby: layby(median), other: other(median), limit },
      { name: `${name}: ${part}, p99`, unit: "ms", layby: layby(p99), other: other(p99) },
    ];
  });
}

export async function plainTurn(sides, model) {
  model.answer = { deltas: 10 };
  const session = fresh(10);
  const without = [];
  const turn = async (side, round) => {
    if (side === sides[0] && round >= 0) without.push(await direct(model));
    return (await session(side, round)).turn();
  };
  const found = await alternate(sides, 400, turn, 200);
  const parts = [{ part: "ack" }, { part: "first" }, { part: "done", limit: 1.3 }];
  return latencies("plain turn", found, without, parts);
}

export async function toolTurn(sides, model) {
  model.answer = { deltas: 10, call: true };
  const session = fresh(10);
  const without = [];
  const turn = async (side, round) => {
    if (side === sides[0] && round >= 0) without.push(await direct(model));
    return (await session(side, round)).toolTurn(model);
  };
  const found = await alternate(sides, 200, turn, 50);
  const parts = [{ part: "ack" }, { part: "asked", limit: 1.5 }, { part: "first" }, { part: "done" }];
  return latencies("tool output", found, without, parts);
}

export async function throughput(sides, model) {
  model.answer = { deltas: 10 };
  const load = async (side) => {
    const sessions = await Promise.all(times(32, () => side.session()));
    const [began, cpu] = [performance.now(), side.cpu()];
    const turns = async (session) => {
      for (let n = 0; n < 20; n++) await session.turn();
    };
    await Promise.all(sessions.map(turns));
    const count = 32 * 20;
    const took = performance.now() - began;
    sessions.forEach((session) => session.reader.close());
    return { rate: (count * 1000) / took, cpu: (side.cpu() - cpu) / count };
  };
  const [layby, other] = await alternate(sides, 6, load, 2);
  const of = (loads, part) => median(loads.map((load) => load[part]));
  return [
    { name: "32 sessions: turns", unit: "/s", layby: of(layby, "rate"), other: of(other, "rate"), atLeast: 0.8 },
    { name: "32 sessions: CPU per turn", unit: "ms", layby: of(layby, "cpu"), other: of(other, "cpu"), limit: 1.5 },
  ];
}

/** The same with the lines that layby logs by default, which workerd formats and writes out. */
export async function logged(sides, model) {
  const logging = [];
  for (const { name } of sides) logging.push(await new Side(name, model, { log: "requests" }).start());
  const rows = await throughput(logging, model);
  for (const side of logging) await side.stop();
  return rows.map(({ name, unit, layby, other }) => ({ name: `${name}, logging`, unit, layby, other }));
}

export async function deltas(sides, model) {
  const rows = [];
  for (const separate of [false, true]) {
    model.answer = { deltas: 2000, separate };
    const found = await alternate(
      sides,
      8,
      async (side) => {
        const session = await side.session();
        const { done } = await session.turn();
        session.reader.close();
        return done;
      },
      2,
    );
    const [layby, other] = found.map(median);
    const name = separate ? "2 000 deltas, each for itself" : "2 000 deltas at once";
    rows.push({ name, unit: "ms", layby, other, limit: separate ? 0.35 : undefined });
  }
  return rows;
}

export async function fanOut(sides, model) {
  model.answer = { deltas: 200 };
  const turn = async (side) => {
    const session = await side.session();
    const readers = [session.reader, ...(await Promise.all(times(99, () => session.open())))];
    const began = performance.now();
    const all = Promise.all(readers.map((reader) => reader.when(DONE)));
    await session.say();
    const done = Math.max(...(await all)) - began;
    readers.forEach((reader) => reader.close());
    return done;
  };
  const [layby, other] = (await alternate(sides, 6, turn, 1)).map(median);
  return [{ name: "200 deltas to 100 subscribers", unit: "ms", layby, other, limit: 0.5 }];
}

export async function longTranscript(sides, model) {
  model.answer = { deltas: 10 };
  const rows = [];
  for (const items of [10, 200, 1000, 2000]) {
    const sessions = new Map();
    for (const side of sides) sessions.set(side, await side.session(items));
    const found = await alternate(sides, 15, async (side) => (await sessions.get(side).turn()).done, 3);
    for (const session of sessions.values()) session.reader.close();
    const [layby, other] = found.map(median);
    rows.push({ name: `turn after ${items} items`, unit: "ms", layby, other, limit: items === 1000 ? 1 : undefined });
  }
  return rows;
}

/** Not of the thin worker: its object cannot sleep while somebody listens. */
export async function wake(sides) {
  const rows = [];
  const sleepers = sides.filter(({ name }) => kinds[name].sleeps);
  for (const items of [10, 5000]) {
    const sessions = new Map();
    for (const side of sleepers) sessions.set(side, await side.session(items, { mute: true }));
    const woken = await alternate(
      sleepers,
      10,
      async (side) => {
        const session = sessions.get(side);
        await asleep(side, session);
        const began = performance.now();
        const reader = await session.open();
        const took = performance.now() - began;
        reader.close();
        return took;
      },
      1,
    );
    const [layby, other] = woken.map(median);
    rows.push({ name: `wake and first frame, ${items} items`, unit: "ms", layby, other });
  }
  return rows;
}

/** Puts a session's object out of memory as soon as it has nothing to do. */
async function asleep(side, session) {
  for (let tries = 0; ; tries++) {
    try {
      await sleep(300);
      return await side.server.evict(session.id, "close");
    } catch (error) {
      if (tries > 20) throw error;
    }
  }
}

export async function create(sides) {
  const made = async (side) => {
    const began = performance.now();
    const session = await side.session();
    const took = performance.now() - began;
    session.reader.close();
    return took;
  };
  const [layby, other] = (await alternate(sides, 100, made, 20)).map(median);
  return [{ name: "create and first frame", unit: "ms", layby, other, limit: 1.3 }];
}

/** Of workers of their own, which count. The alarm that a turn sets is awaited. */
export async function billed(sides, model) {
  const sum = (figures) => Object.values(figures).reduce((sum, n) => sum + n, 0);
  const rows = (name, counts, [own, all]) => {
    const [layby, other] = counts;
    const row = (what, of, most) => ({ name: `${name}: ${what}`, unit: "", layby: of(layby), other: of(other), most });
    return [
      row("rows written by the session", ({ written }) => written.Session ?? 0, own),
      row("rows written in all", ({ written }) => sum(written), all),
      row("rows read in all", ({ read }) => sum(read)),
      row("calls of objects", ({ calls }) => sum(calls), own === 0 ? 0 : undefined),
    ];
  };
  // What a session costs once in its life is not a turn's.
  model.answer = { deltas: 10 };
  const sessions = await Promise.all(
    times(3, async () => {
      const pair = await Promise.all(sides.map((side) => side.session()));
      await Promise.all(pair.map((session) => session.turn()));
      return pair;
    }),
  );
  await sleep(32_000);
  /** What `work` costs, until the alarm that it set is over. */
  const cost = async (n, work) => {
    for (const side of sides) await side.count();
    for (const session of sessions[n]) await work(session);
    await sleep(32_000);
    return Promise.all(sides.map((side) => side.count()));
  };
  const plain = await cost(0, (session) => session.turn());
  model.answer = { deltas: 10, call: true };
  const tool = await cost(1, (session) => session.toolTurn(model));
  await cost(2, (session) => session.park());
  await sleep(20_000);
  const parked = await Promise.all(sides.map((side) => side.count()));
  sessions.flat().forEach((session) => session.reader.close());
  return [
    ...rows("plain turn", plain, [8, 8]),
    ...rows("turn with a tool", tool, [12]),
    ...rows("20 s parked", parked, [0, 0]),
  ];
}

/** Of workers of their own, in which nothing else has happened. Sessions come in waves, so that what sleepers gave back is used. */
export async function memory(model) {
  const WAVE = 150;
  model.answer = { call: true };
  const figures = [];
  for (const name of ["layby", "other"]) {
    const side = await new Side(name, model).start();
    const sessions = [];
    const park = async () => {
      const session = await side.session();
      await session.park();
      sessions.push(session);
    };
    const after = [];
    for (let wave = 0; wave < 3; wave++) {
      for (let n = 0; n < WAVE; n += 25) await Promise.all(times(25, park));
      await sleep(14_000); // objects fall asleep after ten
      after.push(side.memory());
    }
    figures.push((after.at(-1) - after[0]) / (2 * WAVE));
    sessions.forEach((session) => session.reader.close());
    await side.stop();
  }
  const [layby, other] = figures;
  return [{ name: "memory of a parked session with a subscriber", unit: "KB", layby, other, limit: 1 }];
}

export async function coldStart(model) {
  const started = async (name) => {
    const side = new Side(name, model);
    const began = performance.now();
    await side.start();
    await side.session(0, { mute: true });
    const took = performance.now() - began;
    await side.stop();
    return took;
  };
  const [layby, other] = (await alternate(["layby", "other"], 7, started, 1)).map(median);
  return [{ name: "cold start, up to the first session", unit: "ms", layby, other, over: 60 }];
}

export function size() {
  const gzip = (bytes) => gzipSync(bytes, { level: 9 }).length / 1024;
  const wasm = ({ modules }) => modules["index_bg.wasm"]?.contents;
  const sizes = ["layby", "other"].map((name) => {
    const worker = kinds[name].worker();
    const [bytes, script] = [wasm(worker), worker.modules[worker.main].contents];
    return bytes
      ? { raw: bytes.length / 1024, wasm: gzip(bytes), worker: gzip(bytes) + gzip(script) }
      : { worker: gzip(script) };
  });
  const row = (name, part, rest) => ({ name, unit: "KB", layby: sizes[0][part], other: sizes[1][part], ...rest });
  return [row("wasm", "raw"), row("wasm, gzip", "wasm", { most: 300 }), row("worker, gzip", "worker")];
}
